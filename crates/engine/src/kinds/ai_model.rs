//! `CoderAIModel`: a model that people choose in Coder Agents.
//!
//! Coder 2.34 to 2.36 have the routes of [`client::model_configs`]; a Coder that has them elsewhere is reported. Nothing about a model
//! but its id is unique, so one that we do not hold is adopted only where exactly one matches.

mod config;
mod export;

use api::{CoderAIModel, Reason};
use client::{
    Class, Error,
    ai_providers::AiProvider,
    model_configs::{CreateModelConfig, ModelConfig as Remote, UpdateModelConfig},
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    coder::{Coder, Found, missing},
    kind::Kind,
    pipeline::{
        diff::Diff,
        export::{ExportPlace, KindExport, Listed},
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Action, Change, Impact, Plan, Step},
        reference::Ref,
        remote_name::RemoteName,
    },
};

/// The versions of Coder that have the routes.
const SUPPORTED: &str = "2.34 to 2.36";

#[derive(Debug)]
pub struct AiModel;

#[derive(Debug)]
pub struct Desired {
    provider: String,
    model: String,
    display_name: Option<String>,
    enabled: Option<bool>,
    context_limit: Option<i64>,
    compression_threshold: Option<i32>,
    config: Option<Map<String, Value>>,
    /// Only ever `true`.
    is_default: Option<bool>,
    /// Whether the manifest is being deleted: its provider may be gone.
    is_leaving: bool,
}

#[derive(Debug)]
pub struct Observed {
    found: Option<Remote>,
    /// The provider's name of the found model; its id where the provider is gone.
    found_provider: String,
    blocked: Option<Blocked>,
}

/// What is written. The provider is found by name when it is.
#[derive(Debug)]
pub enum Effect {
    Create { provider: String, wanted: Box<CreateModelConfig> },
    Update { found: Box<Remote>, provider: Option<String>, change: Box<UpdateModelConfig> },
    Delete(Uuid),
}

impl Kind for AiModel {
    type Manifest = CoderAIModel;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const RANK: u8 = 2;

    fn target(manifest: &CoderAIModel) -> String {
        let spec = &manifest.spec;
        let name = spec.display_name.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
        format!("AI model {}/{}{name}", spec.provider, spec.model)
    }

    fn exclusive(manifest: &CoderAIModel) -> Option<&'static str> {
        manifest.spec.is_default.unwrap_or_default().then_some("default: true")
    }

    fn desire(manifest: &CoderAIModel) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        if let Some(unknown) = spec.config.as_ref().and_then(config::unknown) {
            let known = config::known().join(", ");
            let message =
                format!("Coder does not know this setting and would drop it: remove it; known are {known}");
            return Err(Invalid::new(&format!("spec.config.{unknown}"), message));
        }
        Ok(Desired {
            provider: spec.provider.clone(),
            model: spec.model.clone(),
            display_name: spec.display_name.clone(),
            enabled: spec.enabled,
            context_limit: spec.context_limit,
            compression_threshold: spec.compression_threshold,
            config: spec.config.clone(),
            is_default: spec.is_default,
            is_leaving: false,
        })
    }

    fn for_deletion(desired: Desired, _home: Option<client::organizations::Organization>) -> Desired {
        Desired { is_leaving: true, ..desired }
    }

    async fn observe(desired: &Desired, held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let models = coder.model_configs().await.map_err(|error| moved(error, coder))?;
        let ours = models.iter().find(|it| Some(it.id) == held);
        let found_provider = String::new();
        if desired.is_leaving {
            return Ok(Observed { found: ours.cloned(), found_provider, blocked: None });
        }
        let provider = match coder.ai_provider(&desired.provider).await? {
            Found::There(provider) => Some(provider),
            Found::Promised => None,
            Found::Missing => {
                return Err(missing(format!("AI provider {} does not exist yet", desired.provider)).into());
            }
        };
        let providers = coder.ai_providers().await?;
        let name_of = |id: Uuid| {
            let known = providers.iter().find(|it| it.id == id);
            known.map_or_else(|| id.to_string(), |it| it.name.clone())
        };
        let (found, blocked) = match ours {
            Some(ours) => (Some(ours.clone()), None),
            None => match provider.as_ref().map(|it| matching(desired, it, &models)).as_deref() {
                None | Some([]) => (None, None),
                Some([one]) => (Some((*one).clone()), None),
                Some(several) => (None, Some(ambiguous(desired, several.len()))),
            },
        };
        let found_provider = found.as_ref().map(|it| name_of(it.ai_provider_id)).unwrap_or_default();
        let blocked =
            blocked.or_else(|| impossible(desired, found.as_ref(), provider.as_ref(), &found_provider));
        Ok(Observed { found, found_provider, blocked })
    }

    fn waits(observed: &Observed) -> Option<Outcome> {
        observed.blocked.clone().map(Outcome::Blocked)
    }

    fn is_default(_: &Observed) -> bool {
        false
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        observed.found.as_ref().map(|it| it.id)
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        let Some(found) = &observed.found else { return creation(desired) };
        let mut diff = Diff::default();
        let provider = diff.pick("provider", Some(&desired.provider), &observed.found_provider);
        let mut change = UpdateModelConfig {
            ai_provider_id: None,
            model: diff.pick("model", Some(&desired.model), &found.model),
            display_name: diff.pick("displayName", desired.display_name.as_ref(), &found.display_name),
            enabled: diff.pick("enabled", desired.enabled.as_ref(), &found.enabled),
            is_default: diff.pick("default", desired.is_default.as_ref(), &found.is_default),
            context_limit: diff.pick("contextLimit", desired.context_limit.as_ref(), &found.context_limit),
            compression_threshold: diff.pick(
                "compressionThreshold",
                desired.compression_threshold.as_ref(),
                &found.compression_threshold,
            ),
            model_config: None,
        };
        if let Some(declared) = desired.config.as_ref().filter(|it| !config::is_same(it, &found.model_config))
        {
            diff.changes.push(Change::new("config", found.model_config.clone(), declared.clone()));
            change.model_config = Some(declared.clone());
        }
        if diff.is_empty() {
            return Plan::empty();
        }
        let interrupts = change.enabled == Some(false) || provider.is_some() || change.model.is_some();
        Plan::of(Step {
            action: Action::Update,
            impact: if interrupts { Impact::Disruptive } else { Impact::Safe },
            reason: "the AI model differs".to_owned(),
            changes: diff.changes,
            effect: Effect::Update { found: Box::new(found.clone()), provider, change: Box::new(change) },
        })
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        let Some(found) = &observed.found else { return Plan::empty() };
        Plan::deletion(Impact::Disruptive, Effect::Delete(found.id))
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        let client = coder.client();
        let written = match effect {
            Effect::Create { provider, wanted } => {
                let ai_provider_id = provider_id(provider, coder).await?;
                let wanted = CreateModelConfig { ai_provider_id, ..(**wanted).clone() };
                let created = client.create_model_config(&wanted).await;
                check_kept(created, wanted.model_config.as_ref(), provider, coder).await
            }
            Effect::Update { found, provider, change } => {
                check_unchanged(found, coder).await?;
                let ai_provider_id = match provider {
                    Some(provider) => Some(provider_id(provider, coder).await?),
                    None => None,
                };
                let change = UpdateModelConfig { ai_provider_id, ..(**change).clone() };
                let updated = client.update_model_config(found.id, &change).await;
                let provider = provider.as_deref().unwrap_or_default();
                check_kept(updated, change.model_config.as_ref(), provider, coder).await
            }
            Effect::Delete(id) => {
                let deleted = client.delete_model_config(*id).await;
                coder.forget_model_configs().await;
                return match deleted {
                    Err(error) if error.class() != Class::Missing => Err(error.into()),
                    Ok(()) | Err(_) => Ok(None),
                };
            }
        };
        written.map(|it| Some(it.id))
    }

    fn refs(manifest: &CoderAIModel) -> Vec<Ref> {
        vec![Ref::Remote(RemoteName::AiProvider(manifest.spec.provider.clone()))]
    }

    const LISTED: Listed = Listed::InDeployment;

    async fn export(_: &ExportPlace<'_>, coder: &Coder) -> Result<KindExport<CoderAIModel>, Trouble> {
        let models = coder.model_configs().await.map_err(|error| moved(error, coder))?;
        let providers = coder.ai_providers().await?;
        Ok(export::drafts(&models, &providers))
    }
}

/// The models that the manifest may mean, where it holds none. A declared display name has to be the same.
fn matching<'a>(desired: &Desired, provider: &AiProvider, models: &'a [Remote]) -> Vec<&'a Remote> {
    let is_named = |it: &Remote| desired.display_name.as_ref().is_none_or(|name| *name == it.display_name);
    let matches =
        |it: &&Remote| it.ai_provider_id == provider.id && it.model == desired.model && is_named(it);
    models.iter().filter(matches).collect()
}

fn ambiguous(desired: &Desired, count: usize) -> Blocked {
    let Desired { provider, model, .. } = desired;
    Blocked {
        reason: Reason::AdoptionRefused,
        message: format!(
            "{count} models {model} of AI provider {provider} match, and Coder has no name that tells them apart: delete all \
             but one in Coder, or declare a displayName that only one of them has"
        ),
    }
}

/// Why the declared model cannot be just now, whatever else is done.
fn impossible(
    desired: &Desired,
    found: Option<&Remote>,
    provider: Option<&AiProvider>,
    found_provider: &str,
) -> Option<Blocked> {
    if found.is_none() && desired.context_limit.is_none() {
        let message = "spec.contextLimit: Coder creates no model without it: set it".to_owned();
        return Some(Blocked { reason: Reason::Invalid, message });
    }
    let needs_provider =
        found.is_none_or(|it| it.model != desired.model || found_provider != desired.provider);
    let is_disabled = provider.is_some_and(|it| !it.enabled);
    (needs_provider && is_disabled).then(|| disabled(&desired.provider))
}

fn disabled(provider: &str) -> Blocked {
    Blocked {
        reason: Reason::ProviderDisabled,
        message: format!(
            "AI provider {provider} is disabled, and Coder takes no models for it: enable it; this object is applied then"
        ),
    }
}

/// The plan for a model that does not exist.
fn creation(desired: &Desired) -> Plan<Effect> {
    let mut diff = Diff::default();
    diff.declare("provider", Some(&desired.provider));
    diff.declare("model", Some(&desired.model));
    diff.declare("displayName", desired.display_name.as_ref());
    diff.declare("enabled", desired.enabled.as_ref());
    diff.declare("contextLimit", desired.context_limit.as_ref());
    diff.declare("compressionThreshold", desired.compression_threshold.as_ref());
    diff.declare("config", desired.config.as_ref());
    diff.declare("default", desired.is_default.as_ref());
    let wanted = CreateModelConfig {
        ai_provider_id: Uuid::nil(),
        model: desired.model.clone(),
        display_name: desired.display_name.clone(),
        enabled: desired.enabled,
        is_default: desired.is_default,
        context_limit: desired.context_limit.unwrap_or_default(),
        compression_threshold: desired.compression_threshold,
        model_config: desired.config.clone(),
    };
    Plan::of(Step {
        action: Action::Create,
        impact: Impact::Safe,
        reason: "the AI model does not exist".to_owned(),
        changes: diff.changes,
        effect: Effect::Create { provider: desired.provider.clone(), wanted: Box::new(wanted) },
    })
}

async fn provider_id(name: &str, coder: &Coder) -> Result<Uuid, Trouble> {
    match coder.ai_provider(name).await? {
        Found::There(provider) => Ok(provider.id),
        Found::Promised | Found::Missing => Err(missing(format!("AI provider {name} does not exist")).into()),
    }
}

/// What became of a write. Coder refuses models of a disabled provider, and drops settings that it does not know.
async fn check_kept(
    answer: Result<Remote, Error>,
    declared: Option<&Map<String, Value>>,
    provider: &str,
    coder: &Coder,
) -> Result<Remote, Trouble> {
    // The default of another model may have moved.
    coder.forget_model_configs().await;
    let written = match answer {
        Err(error) if error.status().is_some_and(|it| it.as_u16() == 412) => {
            coder.forget_ai_providers().await;
            return Err(disabled(provider).into());
        }
        answer => answer?,
    };
    match declared {
        Some(declared) if !config::is_same(declared, &written.model_config) => Err(Blocked {
            reason: Reason::Invalid,
            message: format!(
                "spec.config: Coder kept only {}: remove the settings that this version of Coder does not know",
                Value::Object(written.model_config)
            ),
        }
        .into()),
        _ => Ok(written),
    }
}

/// Reads the models again before one is updated: there is no way to read one. Nothing is written over a change that the plan does
/// not know of.
async fn check_unchanged(planned: &Remote, coder: &Coder) -> Result<(), Trouble> {
    let models = coder.anew().model_configs().await?;
    if models.iter().any(|it| it == planned) { Ok(()) } else { Err(Trouble::Stale) }
}

/// What an error of the routes means: a Coder without them has them elsewhere.
fn moved(error: Error, coder: &Coder) -> Trouble {
    if !error.route_missing() {
        return error.into();
    }
    let url = coder.client().url();
    let message = format!(
        "the Coder at {url} has models of Coder Agents under another address than this operator knows: supported are the \
         versions {SUPPORTED}; use one of these, or manage models there by hand"
    );
    Blocked { reason: Reason::VersionNotSupported, message }.into()
}
