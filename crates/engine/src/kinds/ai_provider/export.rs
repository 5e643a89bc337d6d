//! AI providers as manifests, without their keys. Pure.

use api::{
    AIProviderBedrock, AIProviderType, BedrockProtocol, CoderAIProvider, CoderAIProviderSpec, SecretKeyRef,
};
use client::ai_providers::{AiProvider as Remote, BedrockSettings};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::seeds::Seed;
use crate::pipeline::export::{Draft, KindExport, NeededSecret, said, slug};

pub(super) fn drafts(providers: &[Remote], seeds: &[Seed]) -> KindExport<CoderAIProvider> {
    let mut export = KindExport::default();
    for found in providers {
        let what = format!("AI provider {}", found.name);
        if let Some(seed) = seeds.iter().find(|it| it.provider == found.name) {
            let why = format!(
                "coderd itself makes it from its environment ({}), and nothing else may change it: remove the variables, let \
                 coderd restart, and export again",
                seed.variables
            );
            export.leave_out(what, why);
            continue;
        }
        match word::<AIProviderType>(&found.provider_type) {
            Some(provider_type) => export.drafts.push(draft(found, provider_type)),
            None => export.leave_out(what, format!("its type {} is not known", found.provider_type)),
        }
    }
    export
}

fn draft(found: &Remote, provider_type: AIProviderType) -> Draft<CoderAIProvider> {
    let name = &found.name;
    let secret = format!("ai-provider-{}", slug(name));
    let count = found.api_keys.len();
    let keys = (1..=count).map(|number| if number == 1 { "key".to_owned() } else { format!("key-{number}") });
    let keys: Vec<String> = keys.collect();
    let reference = |key: &String| SecretKeyRef { name: secret.clone(), key: Some(key.clone()) };
    let bedrock = found.settings.as_ref().filter(|_| provider_type == AIProviderType::Bedrock);
    let spec = CoderAIProviderSpec {
        name: Some(name.clone()),
        provider_type,
        display_name: said(&found.display_name).filter(|it| it != name),
        icon: said(&found.icon),
        enabled: Some(found.enabled),
        base_url: said(&found.base_url),
        api_key_secret_refs: (!keys.is_empty()).then(|| keys.iter().map(reference).collect()),
        bedrock: bedrock.map(settings),
        ..CoderAIProviderSpec::default()
    };
    let mut draft = Draft::new(name, CoderAIProvider::new(name, spec));
    for (index, key) in keys.into_iter().enumerate() {
        let which =
            if count == 1 { "API key".to_owned() } else { format!("API key {} of {count}", index + 1) };
        let what = format!("{which} of AI provider {name}");
        draft.secrets.push(NeededSecret { name: secret.clone(), key, what });
    }
    if bedrock.is_some() {
        draft.notes.push(
            "Coder does not show whether the provider has static AWS credentials: if it has, set bedrock.accessKeySecretRef and \
             bedrock.secretKeySecretRef; absent, they are not changed"
                .to_owned(),
        );
    }
    draft
}

fn settings(found: &BedrockSettings) -> AIProviderBedrock {
    AIProviderBedrock {
        region: said(&found.region),
        protocol: word::<BedrockProtocol>(&found.protocol),
        model: said(&found.model),
        small_fast_model: said(&found.small_fast_model),
        role_arn: said(&found.role_arn),
        ..AIProviderBedrock::default()
    }
}

/// A word of Coder. `None` for one that manifests do not have.
fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(json!(text)).ok()
}

#[cfg(test)]
mod tests {
    use client::ai_providers::AiProviderKey;
    use uuid::Uuid;

    use super::*;

    fn provider(name: &str, keys: usize) -> Remote {
        let key = |number: usize| AiProviderKey {
            id: Uuid::from_u128(number as u128),
            masked: "sk-a...cdef".to_owned(),
        };
        Remote {
            id: Uuid::from_u128(1),
            provider_type: "anthropic".to_owned(),
            name: name.to_owned(),
            display_name: name.to_owned(),
            icon: String::new(),
            enabled: true,
            base_url: "https://api.anthropic.com".to_owned(),
            api_keys: (0..keys).map(key).collect(),
            settings: None,
        }
    }

    #[test]
    fn keys_are_references_to_one_secret_in_the_order_of_coder() {
        let export = drafts(&[provider("anthropic", 2)], &[]);
        let draft = &export.drafts[0];
        let refs = draft.manifest.spec.api_key_secret_refs.clone().unwrap();
        let refs: Vec<String> = refs.iter().map(|it| format!("{}/{}", it.name, it.key_or("-"))).collect();
        assert_eq!(refs, ["ai-provider-anthropic/key", "ai-provider-anthropic/key-2"]);
        let needed: Vec<&str> = draft.secrets.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(
            needed,
            ["API key 1 of 2 of AI provider anthropic", "API key 2 of 2 of AI provider anthropic"]
        );
        assert!(!format!("{draft:?}").contains("cdef"), "the mask of a key is in no manifest");
        assert_eq!(drafts(&[provider("none", 0)], &[]).drafts[0].manifest.spec.api_key_secret_refs, None);
    }

    #[test]
    fn provider_of_the_environment_and_unknown_type_are_left_out_by_name() {
        let seed =
            Seed { provider: "anthropic".to_owned(), variables: "CODER_AI_GATEWAY_ANTHROPIC_KEY".to_owned() };
        let unknown = Remote { provider_type: "abacus".to_owned(), ..provider("other", 1) };
        let export = drafts(&[provider("anthropic", 1), unknown], &[seed]);
        assert!(export.drafts.is_empty());
        assert!(export.left_out[0].why.contains("CODER_AI_GATEWAY_ANTHROPIC_KEY"));
        assert_eq!(export.left_out[1].why, "its type abacus is not known");
    }

    #[test]
    fn settings_of_bedrock_are_exported_with_a_note_about_credentials() {
        let settings = BedrockSettings {
            region: "us-gov-west-1".to_owned(),
            protocol: "mantle".to_owned(),
            external_id: "e".to_owned(),
            ..BedrockSettings::default()
        };
        let found = Remote {
            provider_type: "bedrock".to_owned(),
            settings: Some(settings),
            ..provider("bedrock", 0)
        };
        let draft = &drafts(&[found], &[]).drafts[0];
        let bedrock = draft.manifest.spec.bedrock.clone().unwrap();
        assert_eq!(
            (bedrock.region.as_deref(), bedrock.protocol),
            (Some("us-gov-west-1"), Some(BedrockProtocol::Mantle))
        );
        assert!(draft.notes[0].contains("accessKeySecretRef"));
    }
}
