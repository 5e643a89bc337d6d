//! `CoderProvisionerKey`: a key for daemons that somebody else runs, made once and written into a Secret.
//!
//! Somebody else holds copies of the value, so nothing is made again by itself: only when a person asks, or the schedule
//! says so. The record beside the value says what is ours; the life of keys is that of every other one
//! ([`provisioner_keys`](crate::secrets)).

mod export;
mod work;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use api::{AppState as _, CoderProvisionerKey, DeletionPolicy, Mode, ProvisionerKeyState, annotation, label};
use client::organizations::Organization;
use jiff::SignedDuration;
use kube::ResourceExt as _;
use serde_json::Value;
use uuid::Uuid;

use self::work::Job;
use crate::{
    coder::{Beside, Coder},
    kind::{Aside, Kind},
    kinds::provisioner::names::secret,
    pipeline::{
        decide::Contact,
        export::{ExportPlace, KindExport, Listed},
        gate::Gate,
        ledger::{Entry, KeyState, Ledger},
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Change, Impact, Plan},
        reference::Ref,
    },
    secrets::{
        Act, Holder, KeyPreview, KeyStore, Names, Place, Policy, Record, Retiring, SecretPlace, Wanted,
        describe,
        holders::KeyHolder,
        key_entries,
        mirror::{changed, of_status, to_status},
        situation::not_minted,
    },
};

#[derive(Debug)]
pub struct ProvisionerKey;

#[derive(Debug)]
pub struct Desired {
    holder: Holder,
    names: Names,
    organization: String,
    tags: BTreeMap<String, String>,
    control_plane: String,
    secret: SecretPlace,
    rotate_every: Option<SignedDuration>,
    rotate_request: Option<String>,
    overlap: SignedDuration,
    /// What the status says of the keys.
    status: ProvisionerKeyState,
    is_leaving: bool,
    /// Whether a deletion leaves the current key and the Secret.
    retains: bool,
}

#[derive(Debug)]
pub struct Observed {
    job: Arc<Job>,
    status: ProvisionerKeyState,
    found: Found,
}

/// What was looked for.
#[derive(Debug)]
enum Found {
    Keys(Box<Previews>),
    /// For a deletion: what is ours.
    Ours {
        keys: Vec<Retiring>,
        secrets: Vec<SecretPlace>,
    },
}

/// What would be done.
#[derive(Debug)]
pub(super) struct Previews {
    whole: KeyPreview,
    /// Where keys are revoked, and none is minted or moved.
    revocations: KeyPreview,
}

#[derive(Debug)]
pub struct Effect {
    job: Arc<Job>,
    what: What,
    /// Whether it revokes a key that goes also while no other one is minted.
    is_independent: bool,
    /// Nothing comes after it: it says whether the key is good.
    is_last: bool,
    /// The name of the key that it makes.
    mints: Option<String>,
}

#[derive(Debug, Clone)]
enum What {
    /// Everything but the revocation of keys that somebody may have.
    Settle,
    /// The record, and no key.
    Note,
    Revoke(String),
    End {
        keys: Vec<Retiring>,
        secrets: Vec<SecretPlace>,
    },
}

impl KeyHolder for CoderProvisionerKey {
    fn keys(&self) -> Option<&ProvisionerKeyState> {
        self.status.as_ref().map(|it| &it.key)
    }

    fn is_in(&self, secret: &str) -> bool {
        secrets(self).any(|it| it == secret)
    }
}

impl Kind for ProvisionerKey {
    type Manifest = CoderProvisionerKey;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const GATE: Option<Gate> =
        Some(Gate { feature: "external_provisioner_daemons", license: "Premium or Enterprise" });
    const RANK: u8 = 3;
    const HAS_SECRETS: bool = true;

    fn target(manifest: &CoderProvisionerKey) -> String {
        format!("provisioner key {}/{}", manifest.organization(), manifest.key_name())
    }

    fn desire(manifest: &CoderProvisionerKey) -> Result<Desired, Invalid> {
        Names::check(manifest.key_name()).map_err(|message| Invalid::new("spec.name", message))?;
        let (spec, uid) = (&manifest.spec, manifest.uid().unwrap_or_default());
        let labels = BTreeMap::from([(label::MANAGED_BY.to_owned(), "coder-operator".to_owned())]);
        let signed = |it| SignedDuration::try_from(it).unwrap_or(SignedDuration::MAX);
        Ok(Desired {
            names: Names::new(manifest.key_name(), &uid),
            holder: Holder::new(manifest, labels, None),
            organization: manifest.organization().to_owned(),
            tags: spec.tags.clone().unwrap_or_default(),
            control_plane: spec.control_plane_ref.name.clone(),
            secret: place(manifest),
            rotate_every: spec.rotates_every().map(signed),
            rotate_request: manifest.annotations().get(annotation::ROTATE_REQUESTED_AT).cloned(),
            overlap: signed(spec.overlap()),
            status: manifest.status.as_ref().map(|it| it.key.clone()).unwrap_or_default(),
            is_leaving: false,
            retains: spec.policy.deletion_policy() == DeletionPolicy::Retain,
        })
    }

    fn ledger(manifest: &CoderProvisionerKey) -> Ledger {
        let names = Names::new(manifest.key_name(), &manifest.uid().unwrap_or_default());
        let recorded = manifest.status.as_ref().map(|it| of_status(&it.key, &names.uid));
        let keys = key_entries(&names, &Vec::from_iter(recorded));
        // The status may have an id without a name, or that of a key of somebody else.
        let has_unnamed = keys.is_empty() && manifest.status().is_some_and(|it| it.id.is_some());
        let mut ledger = Ledger::new(keys);
        if has_unnamed {
            ledger.add(Entry::UnnamedKeys);
        }
        if manifest.policy().mode() == Mode::Enforce {
            ledger.add(Entry::Declared(Self::target(manifest)));
        }
        ledger
    }

    async fn whole_ledger(manifest: &CoderProvisionerKey, store: KeyStore<'_>) -> Ledger {
        match Self::desire(manifest) {
            Ok(desired) => {
                job(&desired, Uuid::nil(), Place::default()).recorded(desired.retains, store).await
            }
            Err(_) => Self::ledger(manifest),
        }
    }

    fn begins(effect: &Effect) -> Option<Entry> {
        let name = effect.mints.clone()?;
        Some(Entry::Key { state: KeyState::Lost, name, organization_id: None })
    }

    fn taken_back(effect: &Effect) -> Vec<Entry> {
        effect.job.taken_back()
    }

    fn for_deletion(desired: Desired, _home: Option<Organization>) -> Desired {
        Desired { is_leaving: true, ..desired }
    }

    async fn observe(desired: &Desired, _held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        store(coder)?;
        let status = desired.status.clone();
        let place = Place {
            control_plane: desired.control_plane.clone(),
            url: coder.client().url().as_str().trim_end_matches('/').to_owned(),
            deployment_id: Some(coder.deployment_id().await?),
        };
        if desired.is_leaving {
            let job = job(desired, Uuid::nil(), place);
            let (keys, secrets) = job.ours(desired.retains, coder).await?;
            return Ok(Observed { job, status, found: Found::Ours { keys, secrets } });
        }
        // One that is promised has no keys yet, and no id.
        let home = coder.home(&desired.organization).await?;
        let job = job(desired, home.map_or(Uuid::nil(), |it| it.id), place);
        let previews = job.look(coder).await?;
        Ok(Observed { job, status, found: Found::Keys(Box::new(previews)) })
    }

    fn waits(observed: &Observed) -> Option<Outcome> {
        match &observed.found {
            Found::Keys(previews) if previews.whole.acts.is_empty() => {
                previews.whole.rest.key.as_ref().err().cloned().map(Outcome::Blocked)
            }
            Found::Keys(_) | Found::Ours { .. } => None,
        }
    }

    fn is_default(_: &Observed) -> bool {
        false
    }

    fn contact(observed: &Observed, _held: Option<Uuid>) -> Contact {
        match &observed.found {
            Found::Ours { keys, secrets } if keys.is_empty() && secrets.is_empty() => Contact::Absent,
            Found::Ours { .. } => Contact::Held,
            Found::Keys(previews) if previews.whole.is_users && previews.whole.rest.key.is_ok() => {
                Contact::Foreign
            }
            Found::Keys(previews) => {
                let Record { current, intent, .. } = &previews.whole.known;
                if current.is_some() || intent.is_some() { Contact::Held } else { Contact::Absent }
            }
        }
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        let Found::Keys(previews) = &observed.found else { return None };
        let preview = &previews.whole;
        // What is preview has no id yet.
        let record = if preview.acts.is_empty() { &preview.rest.record } else { &preview.known };
        record.current.as_ref()?.id
    }

    fn aside(observed: &Observed) -> Aside {
        let Observed { job, status, found } = observed;
        let Found::Keys(previews) = found else { return Aside::default() };
        let Previews { whole, revocations } = &**previews;
        // What waits will be otherwise, or is not to be.
        let preview = if whole.acts.is_empty() { whole } else { revocations };
        let again_at = preview.rest.again_at;
        if !preview.acts.is_empty() || !whole.acts.is_empty() && !preview.is_settled {
            return Aside { again_at, ..Aside::default() };
        }
        let mut record = Record { holder: job.holder.uid.clone(), ..preview.rest.record.clone() };
        // Nobody names anything here, so nothing is forgotten.
        record.retiring.extend(preview.leaves.iter().cloned());
        let before = of_status(status, &job.holder.uid);
        if before == (Record { epoch: before.epoch, ..record.clone() }) {
            // Where nothing else changes, nothing is written.
            record.epoch = before.epoch;
        }
        Aside { status: changed(status, &to_status(&record)), again_at, ..Aside::default() }
    }

    fn plan(_: &Desired, observed: &Observed) -> Plan<Effect> {
        let Observed { job, found, .. } = observed;
        let Found::Keys(previews) = found else { return Plan::empty() };
        let Previews { whole, revocations } = &**previews;
        let last = whole.acts.len().saturating_sub(1);
        let steps = whole.acts.iter().enumerate().map(|(index, act)| {
            let is_independent = matches!(act, Act::Revoke(_)) && revocations.acts.contains(act);
            let (what, mints) = match act {
                Act::Revoke(held) => (What::Revoke(held.name.clone()), None),
                Act::Mint { name, .. } => (What::Settle, Some(name.clone())),
                Act::Move { .. } => (What::Settle, None),
                Act::Note => (What::Note, None),
            };
            let effect = Effect { job: Arc::clone(job), what, is_independent, is_last: index == last, mints };
            describe::step(act, &job.wanted, effect)
        });
        Plan { steps: steps.collect() }
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        let Found::Ours { keys, secrets } = &observed.found else { return Plan::empty() };
        if keys.is_empty() && secrets.is_empty() {
            return Plan::empty();
        }
        let what = What::End { keys: keys.clone(), secrets: secrets.clone() };
        let effect =
            Effect { job: Arc::clone(&observed.job), what, is_independent: true, is_last: true, mints: None };
        let mut plan = Plan::deletion(Impact::Disruptive, effect);
        let keys = keys.iter().map(|it| describe::revoked(&it.held.name));
        let secrets = secrets.iter().map(|it| Change::new("secretName", it.name.as_str(), Value::Null));
        plan.steps.iter_mut().for_each(|it| it.changes = keys.clone().chain(secrets.clone()).collect());
        plan
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        let Effect { job, what, is_last, .. } = effect;
        let driven = match what {
            What::End { keys, secrets } => return job.end(keys, secrets, coder).await.map(|()| None),
            What::Settle => job.settle(coder).await?,
            What::Note => job.note(coder).await?,
            What::Revoke(name) => job.revoke_replaced(name, coder).await?,
        };
        if let Some(trouble) = driven.trouble {
            return Err(trouble);
        }
        match driven.rest.key {
            Ok(held) => Ok(held.id),
            // What was to be done is done, and the key is not good all the same.
            Err(waiting) if *is_last && waiting != not_minted() => Err(waiting.into()),
            Err(_) => Ok(None),
        }
    }

    fn is_kept_up(effect: &Effect) -> bool {
        effect.is_independent
    }

    fn refs(manifest: &CoderProvisionerKey) -> Vec<Ref> {
        let organization = Ref::organization(manifest.organization());
        [organization].into_iter().chain(secrets(manifest).map(Ref::Secret)).collect()
    }

    const LISTED: Listed = Listed::InOrganizations;

    async fn export(
        place: &ExportPlace<'_>,
        coder: &Coder,
    ) -> Result<KindExport<CoderProvisionerKey>, Trouble> {
        let Some(home) = place.organization else { return Ok(KindExport::default()) };
        let keys = coder.client().list_provisioner_keys(home.id).await?;
        Ok(export::drafts(keys.into_iter().map(|it| it.key), home, place.is_asked_for))
    }
}

/// Where the value is, or should be.
fn place(manifest: &CoderProvisionerKey) -> SecretPlace {
    let declared = manifest.spec.secret_name.clone();
    SecretPlace {
        name: declared.unwrap_or_else(|| secret(&manifest.name_any())),
        key: manifest.spec.secret_key().to_owned(),
    }
}

/// The Secrets that have, or had, a key of a manifest.
fn secrets(manifest: &CoderProvisionerKey) -> impl Iterator<Item = String> + use<> {
    let recorded = manifest.status.as_ref().and_then(|it| it.key.secret_ref.as_ref());
    [place(manifest).name].into_iter().chain(recorded.map(|it| it.name.clone()))
}

/// The cluster that the Secret is in.
fn store(coder: &Coder) -> Result<KeyStore<'_>, Blocked> {
    coder.needed_cluster().map(Beside::key_store)
}

fn job(desired: &Desired, organization_id: Uuid, place: Place) -> Arc<Job> {
    let Desired { holder, names, organization, tags, secret, .. } = desired;
    let wanted = Wanted {
        policy: Policy::OnRequest,
        names: names.clone(),
        organization_id,
        organization_name: organization.clone(),
        tags: tags.clone(),
        place,
        secret: secret.clone(),
        rotate_every: desired.rotate_every,
        rotate_request: desired.rotate_request.clone(),
        grace: desired.overlap,
        held_back: None,
        leaves_begun: false,
    };
    let mirror = of_status(&desired.status, &holder.uid);
    Arc::new(Job { holder: holder.clone(), wanted, mirror, taken: Mutex::default() })
}
