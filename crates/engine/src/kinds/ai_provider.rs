//! `CoderAIProvider`: a provider of AI models, with keys from Secrets.
//!
//! Coder never shows a key again: it shows a mask, and nothing at all of AWS credentials. The status has the ids of the keys that we
//! sent and fingerprints of their values, so that a changed Secret and a key that somebody else put there are both noticed.

mod export;
mod keys;
mod seeds;
mod settings;
mod work;

use std::sync::OnceLock;

use api::{AIProviderSent, AIProviderType, CoderAIProvider, CoderControlPlane, Reason};
use client::ai_providers::{AiProvider as Remote, CreateAiProvider, UpdateAiProvider};
use kube::ResourceExt as _;
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use self::{keys::Keys, seeds::Seed, settings::Bedrock};
use crate::{
    coder::Coder,
    kind::{Aside, Kind, people_secrets},
    kinds::fingerprint,
    pipeline::{
        attribution::{Audited, AuditedObject},
        diff::Diff,
        export::{ExportPlace, KindExport, Listed},
        field_gate::FieldGate,
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Action, Impact, Plan, Step},
        reference::Ref,
        remote_name::RemoteName,
    },
    ports::Reading,
    secrets::{SecretPlace, SecretValues},
};

/// Fields of the manifest, with the names that the audit log has for them.
const AUDITED: &[(&str, &str)] =
    &[("displayName", "display_name"), ("icon", "icon"), ("enabled", "enabled"), ("baseURL", "base_url")];

#[derive(Debug)]
pub struct AiProvider;

#[derive(Debug)]
pub struct Desired {
    namespace: String,
    control_plane: String,
    name: String,
    provider_type: AIProviderType,
    display_name: Option<String>,
    icon: Option<String>,
    enabled: Option<bool>,
    base_url: Option<String>,
    keys: Option<Keys>,
    bedrock: Option<Bedrock>,
    /// What the status says of values that were sent.
    sent: AIProviderSent,
    /// The external id in the status.
    external_id: Option<String>,
    /// Whether the manifest is being deleted: its Secrets are not read.
    is_leaving: bool,
}

#[derive(Debug)]
pub struct Observed {
    found: Option<Remote>,
    is_held: bool,
    sent: AIProviderSent,
    external_id: Option<String>,
    /// The fingerprints of the declared values. `None` where there are none, and on the command line.
    keys: Option<String>,
    credentials: Option<String>,
    /// Whether the keys in Coder are the declared ones, and whether the credentials are.
    has_keys: bool,
    has_credentials: bool,
    blocked: Option<Blocked>,
}

/// A write, and what the status says once it is done.
#[derive(Debug)]
pub struct Effect {
    what: What,
    /// The keys that are recorded, where all of them are there after this step.
    keys: Option<Recorded>,
    credentials: Option<String>,
    /// The ids of the keys after this step.
    ids: OnceLock<Vec<Uuid>>,
}

/// The keys of a provider, for the status.
#[derive(Debug)]
struct Recorded {
    /// `None` on the command line, which writes no status.
    fingerprint: Option<String>,
}

impl Recorded {
    fn of(observed: &Observed) -> Self {
        Self { fingerprint: observed.keys.clone() }
    }
}

#[derive(Debug)]
enum What {
    Create(Box<CreateAiProvider>),
    Update {
        found: Box<Remote>,
        change: Box<UpdateAiProvider>,
    },
    /// A further key. Keys of one request have no order, so each has a request of its own.
    AddKey {
        provider: String,
        key: SecretString,
    },
    Delete(Uuid),
}

impl Kind for AiProvider {
    type Manifest = CoderAIProvider;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const FIELD_GATES: &'static [FieldGate] = &[
        FieldGate::since("icon", 2, 36),
        FieldGate::since("bedrock.protocol", 2, 36),
        FieldGate::since("bedrock.roleARN", 2, 35),
    ];
    const RANK: u8 = 1;

    fn target(manifest: &CoderAIProvider) -> String {
        format!("AI provider {}", manifest.remote_name())
    }

    fn desire(manifest: &CoderAIProvider) -> Result<Desired, Invalid> {
        let (spec, status) = (&manifest.spec, manifest.status.as_ref());
        let name = manifest.remote_name().to_owned();
        // Coder shows the name where there is no display name.
        let display_name = spec.display_name.clone().map(|it| if it.is_empty() { name.clone() } else { it });
        Ok(Desired {
            namespace: manifest.namespace().unwrap_or_default(),
            control_plane: spec.control_plane_ref.name.clone(),
            provider_type: spec.provider_type,
            display_name,
            icon: spec.icon.clone(),
            enabled: spec.enabled,
            base_url: spec.base_url.clone(),
            keys: spec.api_keys().map(|it| Keys::of(&it)),
            bedrock: spec.bedrock.as_ref().map(Bedrock::of),
            sent: status.map(|it| it.sent.clone()).unwrap_or_default(),
            external_id: status.and_then(|it| it.external_id.clone()),
            is_leaving: false,
            name,
        })
    }

    /// A managed control plane may have variables of which coderd makes the provider.
    fn refs(manifest: &CoderAIProvider) -> Vec<Ref> {
        let plane = Ref::ControlPlaneStatus(manifest.spec.control_plane_ref.name.clone());
        people_secrets::<Self>(manifest).chain([plane]).collect()
    }

    fn secret_refs(manifest: &CoderAIProvider) -> Vec<SecretPlace> {
        let place = |(name, key): (&str, &str)| SecretPlace { name: name.to_owned(), key: key.to_owned() };
        let keys = manifest.spec.api_keys().unwrap_or_default();
        let credentials = manifest.spec.bedrock.as_ref().and_then(|it| it.credentials());
        keys.into_iter().chain(credentials.into_iter().flatten()).map(place).collect()
    }

    fn without_secrets(manifest: &CoderAIProvider) -> Option<CoderAIProvider> {
        let mut manifest = manifest.clone();
        manifest.spec.api_key_secret_refs = None;
        if let Some(bedrock) = &mut manifest.spec.bedrock {
            bedrock.access_key_secret_ref = None;
            bedrock.secret_key_secret_ref = None;
        }
        Some(manifest)
    }

    fn with_secrets(desired: Desired, values: &SecretValues) -> Result<Desired, Invalid> {
        let keys = desired.keys.map(|it| it.with_values(values));
        let bedrock = desired.bedrock.map(|it| it.with_values(values));
        Ok(Desired { keys, bedrock, ..desired })
    }

    fn for_deletion(desired: Desired, _home: Option<client::organizations::Organization>) -> Desired {
        Desired { keys: None, bedrock: None, is_leaving: true, ..desired }
    }

    async fn observe(desired: &Desired, held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let providers = coder.ai_providers().await?;
        let ours = providers.iter().find(|it| Some(it.id) == held);
        let found = ours.or_else(|| providers.iter().find(|it| it.name == desired.name)).cloned();
        let is_held = found.as_ref().is_some_and(|it| Some(it.id) == held);
        let mut observed = Observed {
            is_held,
            sent: desired.sent.clone(),
            external_id: desired.external_id.clone(),
            keys: None,
            credentials: None,
            has_keys: true,
            has_credentials: true,
            blocked: None,
            found,
        };
        if desired.is_leaving {
            return Ok(observed);
        }
        observed.blocked = match seed(desired, coder).await? {
            Some(seed) => Some(seeded(desired, &seed)),
            None => impossible(desired, observed.found.as_ref()),
        };
        let of_values = async |values: Vec<&SecretString>| {
            fingerprint::of_values(&desired.namespace, &desired.control_plane, values, coder).await
        };
        if let Some(keys) = desired.keys.as_ref() {
            observed.keys = of_values(keys.values()).await?;
            observed.has_keys = keys.are_in(observed.found.as_ref(), &desired.sent, observed.keys.as_deref());
        }
        if let Some(values) = desired.bedrock.as_ref().and_then(Bedrock::credentials) {
            observed.credentials = of_values(values.into()).await?;
            let (known, now) = (&desired.sent.credentials_fingerprint, &observed.credentials);
            // Nothing tells what Coder has. Until we hold the provider, and on the command line, it is taken as it is.
            observed.has_credentials = !is_held || now.is_none() || known == now;
        }
        Ok(observed)
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

    fn aside(observed: &Observed) -> Aside {
        let mut status = Map::new();
        let Some(found) = observed.found.as_ref().filter(|_| observed.is_held) else {
            return Aside::default();
        };
        let external = found.settings.as_ref().map(|it| it.external_id.clone()).filter(|it| !it.is_empty());
        if external != observed.external_id {
            status.insert("externalID".to_owned(), json!(external));
        }
        // The keys of an adopted provider are known by their masks: from now on by ids and fingerprint.
        let is_recorded = observed.sent.api_key_fingerprint.is_some();
        if let Some(keys) = observed.keys.as_ref().filter(|_| observed.has_keys && !is_recorded) {
            let ids: Vec<Uuid> = found.api_keys.iter().map(|it| it.id).collect();
            status.extend(recorded_keys(Some(keys), &ids));
        }
        Aside { status, ..Aside::default() }
    }

    fn audited(observed: &Observed) -> Option<Audited> {
        Some(Audited {
            resource_type: "ai_provider",
            object: AuditedObject::Id(observed.found.as_ref()?.id),
            fields: AUDITED,
        })
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        let Some(found) = &observed.found else { return creation(desired, observed) };
        let mut diff = Diff::default();
        let mut change = UpdateAiProvider {
            display_name: diff.pick("displayName", desired.display_name.as_ref(), &found.display_name),
            icon: diff.pick("icon", desired.icon.as_ref(), &found.icon),
            enabled: diff.pick("enabled", desired.enabled.as_ref(), &found.enabled),
            base_url: diff.pick("baseURL", desired.base_url.as_ref(), &found.base_url),
            ..UpdateAiProvider::default()
        };
        let settings = found.settings.clone().unwrap_or_default();
        change.bedrock = desired.bedrock.as_ref().and_then(|it| it.change(&settings, &mut diff, observed));
        let keys = desired.keys.as_ref().filter(|_| !observed.has_keys);
        if let Some(keys) = keys {
            diff.changes.push(keys.change(found, observed));
            change.api_keys = Some(keys.first().into_iter().collect());
        }
        if diff.is_empty() {
            return Plan::empty();
        }
        let interrupts = change.enabled == Some(false) || change.base_url.is_some();
        let has_credentials = change.bedrock.as_ref().is_some_and(|(_, it)| it.is_some());
        let further = keys.map(|it| further(desired, it, observed)).unwrap_or_default();
        let effect = Effect {
            what: What::Update { found: Box::new(found.clone()), change: Box::new(change) },
            keys: keys.filter(|_| further.is_empty()).map(|_| Recorded::of(observed)),
            credentials: observed.credentials.clone().filter(|_| has_credentials),
            ids: OnceLock::new(),
        };
        let first = Step {
            action: Action::Update,
            impact: if interrupts { Impact::Disruptive } else { Impact::Safe },
            reason: "the AI provider differs".to_owned(),
            changes: diff.changes,
            effect,
        };
        Plan { steps: [first].into_iter().chain(further).collect() }
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        let Some(found) = &observed.found else { return Plan::empty() };
        Plan::deletion(Impact::Disruptive, Effect::of(What::Delete(found.id)))
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        work::apply(effect, coder).await
    }

    fn recorded(effect: &Effect) -> Map<String, Value> {
        let mut status = Map::new();
        if let (Some(keys), Some(ids)) = (&effect.keys, effect.ids.get()) {
            status.extend(recorded_keys(keys.fingerprint.as_ref(), ids));
        }
        if let Some(credentials) = &effect.credentials {
            status.insert("credentialsFingerprint".to_owned(), json!(credentials));
        }
        status
    }

    fn provides(manifest: &CoderAIProvider) -> Option<RemoteName> {
        Some(RemoteName::AiProvider(manifest.remote_name().to_owned()))
    }

    const LISTED: Listed = Listed::InDeployment;

    async fn export(_: &ExportPlace<'_>, coder: &Coder) -> Result<KindExport<CoderAIProvider>, Trouble> {
        let providers = coder.ai_providers().await?;
        let seeds = match coder.server_config().await {
            Ok(config) => seeds::of_server(&config),
            Err(error) if error.route_missing() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(export::drafts(&providers, &seeds))
    }
}

impl Effect {
    fn of(what: What) -> Self {
        Self { what, keys: None, credentials: None, ids: OnceLock::new() }
    }
}

/// What the status says of keys that are there.
fn recorded_keys(fingerprint: Option<&String>, ids: &[Uuid]) -> Map<String, Value> {
    let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
    let fields = [("apiKeyFingerprint", json!(fingerprint)), ("apiKeyIDs", json!(ids))];
    fields.map(|(field, value)| (field.to_owned(), value)).into_iter().collect()
}

/// The plan for a provider that does not exist.
fn creation(desired: &Desired, observed: &Observed) -> Plan<Effect> {
    let mut diff = Diff::default();
    diff.declare("name", Some(&desired.name));
    diff.declare("type", Some(&desired.provider_type));
    diff.declare("displayName", desired.display_name.as_ref());
    diff.declare("icon", desired.icon.as_ref());
    diff.declare("enabled", desired.enabled.as_ref());
    diff.declare("baseURL", desired.base_url.as_ref());
    if let Some(keys) = &desired.keys {
        diff.changes.push(keys.declared(observed));
    }
    let bedrock = desired.bedrock.as_ref().map(|it| it.declared(&mut diff, observed));
    let further = desired.keys.as_ref().map(|it| further(desired, it, observed)).unwrap_or_default();
    let wanted = CreateAiProvider {
        provider_type: desired.provider_type.as_str().to_owned(),
        name: desired.name.clone(),
        display_name: desired.display_name.clone(),
        icon: desired.icon.clone(),
        enabled: desired.enabled.unwrap_or_default(),
        base_url: desired.base_url.clone().unwrap_or_default(),
        api_key: desired.keys.as_ref().and_then(|it| it.values().first().map(|it| (*it).clone())),
        bedrock,
    };
    let create = Step {
        action: Action::Create,
        impact: Impact::Safe,
        reason: "the AI provider does not exist".to_owned(),
        changes: diff.changes,
        effect: Effect {
            what: What::Create(Box::new(wanted)),
            keys: desired.keys.as_ref().filter(|_| further.is_empty()).map(|_| Recorded::of(observed)),
            credentials: observed.credentials.clone(),
            ids: OnceLock::new(),
        },
    };
    Plan { steps: [create].into_iter().chain(further).collect() }
}

/// A step for each key after the first.
fn further(desired: &Desired, keys: &Keys, observed: &Observed) -> Vec<Step<Effect>> {
    let values = keys.values();
    let last = values.len().saturating_sub(1);
    let step = |(index, key): (usize, &&SecretString)| Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: "keys are added one by one, so that they have an order".to_owned(),
        changes: vec![keys.added(index)],
        effect: Effect {
            keys: (index == last).then(|| Recorded::of(observed)),
            ..Effect::of(What::AddKey { provider: desired.name.clone(), key: (*key).clone() })
        },
    };
    values.iter().enumerate().skip(1).map(step).collect()
}

/// Why the declared provider cannot be, whatever else is done.
fn impossible(desired: &Desired, found: Option<&Remote>) -> Option<Blocked> {
    let invalid = |message: String| Some(Blocked { reason: Reason::Invalid, message });
    let wanted = desired.provider_type.as_str();
    match found {
        Some(found) if found.provider_type != wanted => invalid(format!(
            "spec.type: AI provider {} has the type {}, and Coder cannot change it to {wanted}: delete it in Coder, or declare \
             the type {}",
            found.name, found.provider_type, found.provider_type
        )),
        None if desired.base_url.is_none() => {
            invalid("spec.baseURL: Coder creates no AI provider without it: set it".to_owned())
        }
        None if desired.provider_type == AIProviderType::Bedrock && desired.bedrock.is_none() => {
            invalid("spec.bedrock: Coder creates no provider of the type bedrock without it: set region, roleARN or credentials".to_owned())
        }
        Some(_) | None => None,
    }
}

/// Whether coderd makes the provider from its environment: the one that runs, and a managed one at its next start.
async fn seed(desired: &Desired, coder: &Coder) -> Result<Option<Seed>, Trouble> {
    let is_it = |it: &Seed| it.provider == desired.name;
    if let Ok(references) = coder.references()
        && let Ok(Some(plane)) = references
            .read::<CoderControlPlane>(&desired.namespace, &desired.control_plane, Reading::Known)
            .await
        && plane.spec.external.is_none()
    {
        let variables = plane.spec.extra_env.iter().flatten();
        let variables = variables.map(|it| (it.name.as_str(), it.value.as_deref()));
        let found = seeds::of_environment(variables).into_iter().find(is_it);
        if let Some(Seed { provider, variables }) = found {
            let variables = format!("{variables} in spec.extraEnv of CoderControlPlane {}", plane.name_any());
            return Ok(Some(Seed { provider, variables }));
        }
    }
    match coder.server_config().await {
        Ok(config) => Ok(seeds::of_server(&config).into_iter().find(is_it)),
        Err(error) if error.route_missing() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn seeded(desired: &Desired, seed: &Seed) -> Blocked {
    let message = format!(
        "coderd itself makes AI provider {} from its environment, and does not start any more once the provider differs from \
         that: remove {} and let coderd restart; the provider stays, and is managed here from then on",
        desired.name, seed.variables
    );
    Blocked { reason: Reason::SeededFromEnvironment, message }
}
