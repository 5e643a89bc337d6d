//! AI models as manifests. Pure.

use api::{CoderAIModel, CoderAIModelSpec};
use client::{ai_providers::AiProvider, model_configs::ModelConfig as Remote};

use super::config;
use crate::pipeline::export::{Draft, KindExport, said};

pub(super) fn drafts(models: &[Remote], providers: &[AiProvider]) -> KindExport<CoderAIModel> {
    let mut export = KindExport::default();
    for found in models {
        let what = || format!("AI model {} ({})", found.model, found.display_name);
        let Some(provider) = providers.iter().find(|it| it.id == found.ai_provider_id) else {
            export
                .leave_out(what(), format!("its provider {} does not exist any more", found.ai_provider_id));
            continue;
        };
        if models.iter().any(|it| it.id != found.id && is_twin(it, found)) {
            let why = format!(
                "there are several models {} of AI provider {} that a manifest cannot tell apart: delete all but one in Coder, or \
                 give each a display name of its own",
                found.model, provider.name
            );
            export.leave_out(what(), why);
            continue;
        }
        export.drafts.push(draft(found, provider));
    }
    export
}

/// Whether a manifest of one could mean the other as well. One without a display name could mean each.
fn is_twin(one: &Remote, other: &Remote) -> bool {
    let is_named = |it: &Remote| !it.display_name.is_empty();
    one.ai_provider_id == other.ai_provider_id
        && one.model == other.model
        && (one.display_name == other.display_name || !is_named(other))
}

fn draft(found: &Remote, provider: &AiProvider) -> Draft<CoderAIModel> {
    let unknown = config::unknown(&found.model_config);
    let spec = CoderAIModelSpec {
        provider: provider.name.clone(),
        model: found.model.clone(),
        display_name: said(&found.display_name),
        enabled: Some(found.enabled),
        context_limit: Some(found.context_limit).filter(|it| *it > 0),
        compression_threshold: Some(found.compression_threshold),
        config: (!found.model_config.is_empty() && unknown.is_none()).then(|| found.model_config.clone()),
        is_default: found.is_default.then_some(true),
        ..CoderAIModelSpec::default()
    };
    let title =
        format!("{}-{}", provider.name, said(&found.display_name).unwrap_or_else(|| found.model.clone()));
    let mut draft = Draft::new(&title, CoderAIModel::new(&title, spec));
    if let Some(unknown) = unknown {
        draft.notes.push(format!("config is left out: a manifest cannot declare its setting {unknown}"));
    }
    if !provider.enabled {
        draft.notes.push(format!(
            "AI provider {} is disabled: the model stays as it is here, and cannot be created in another deployment",
            provider.name
        ));
    }
    draft
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn model(id: u128, display_name: &str) -> Remote {
        serde_json::from_value(
            json!({"id": Uuid::from_u128(id), "ai_provider_id": Uuid::from_u128(1), "model": "m",
            "display_name": display_name, "context_limit": 1000, "enabled": true}),
        )
        .unwrap()
    }

    fn providers() -> Vec<AiProvider> {
        let provider = json!({"id": Uuid::from_u128(1), "type": "openai", "name": "openai", "enabled": true});
        vec![serde_json::from_value(provider).unwrap()]
    }

    #[test]
    fn models_that_a_manifest_cannot_tell_apart_are_left_out() {
        let names = |models: &[Remote]| {
            let export = drafts(models, &providers());
            (export.drafts.iter().map(|it| it.title.clone()).collect::<Vec<_>>(), export.left_out.len())
        };
        let all = |titles: &[&str]| titles.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&[model(1, "A"), model(2, "B")]), (all(&["openai-A", "openai-B"]), 0));
        assert_eq!(names(&[model(1, "A"), model(2, "A")]), (Vec::new(), 2));
        assert_eq!(names(&[model(1, "A"), model(2, "")]), (all(&["openai-A"]), 1));
        let orphan = Remote { ai_provider_id: Uuid::from_u128(5), ..model(1, "A") };
        assert_eq!(names(&[orphan]), (Vec::new(), 1));
    }

    #[test]
    fn only_the_default_model_says_so_and_unknown_settings_are_noted() {
        let found = Remote { is_default: true, ..model(1, "A") };
        let spec = &drafts(&[found, model(2, "B")], &providers()).drafts[0].manifest.spec;
        assert_eq!((spec.is_default, spec.context_limit), (Some(true), Some(1000)));
        let unknown = json!({"temprature": 1}).as_object().unwrap().clone();
        let export = drafts(&[Remote { model_config: unknown, ..model(1, "A") }], &providers());
        assert_eq!(
            (&export.drafts[0].manifest.spec.config, &export.drafts[0].manifest.spec.is_default),
            (&None, &None)
        );
        assert!(export.drafts[0].notes[0].contains("temprature"));
    }
}
