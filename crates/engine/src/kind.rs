//! What a kind is: its types and its stages. Everything that kinds have in common is elsewhere, once.

use std::{fmt::Debug, time::Duration};

use api::{AppState, Mode};
use client::organizations::Organization;
use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    coder::Coder,
    pipeline::{
        attribution::Audited,
        conditions::Fact,
        decide::Contact,
        export::{ExportPlace, KindExport, Listed},
        field_gate::FieldGate,
        gate::Gate,
        ledger::{Entry, Ledger},
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Plan, Step},
        reference::Ref,
        remote_name::RemoteName,
    },
    ports::object::Live,
    secrets::{KeyStore, SecretPlace, SecretValues},
};

/// What a kind tells of itself beside what every kind tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Aside {
    /// Fields of the status that only this kind has and that are to be others; null for one that goes.
    pub status: Map<String, Value>,
    /// Fields of the status that are written together with others, and are no reason to write it.
    pub along: Map<String, Value>,
    /// The conditions that only this kind has.
    pub facts: Vec<Fact>,
    /// The message of `Ready` where the object is as declared. `None` for the message of every kind.
    pub ready: Option<String>,
    /// How soon there will be something to do that no watch shows.
    pub within: Option<Duration>,
    /// When there will be something to do, should nobody tell before.
    pub again_at: Option<Timestamp>,
    /// Fields that differ because something that the manifest refers to has changed, as the content of a ConfigMap: no drift.
    pub own_changes: &'static [&'static str],
}

/// What became of the steps of a round.
#[derive(Debug, Default)]
pub struct Carried {
    /// The id of what was made, or belongs to the object.
    pub id: Option<Uuid>,
    /// How many steps were done.
    pub done: usize,
    /// Fields of the status that only this kind has, by the steps that were done.
    pub recorded: Map<String, Value>,
    /// Why the first step that was not done failed.
    pub failed: Option<Outcome>,
    /// Steps that were refused for good, and held up no other step.
    pub refused: Vec<Blocked>,
    /// The condition that the step which failed stands for, where the kind has one.
    pub condition: Option<&'static str>,
    /// Why steps of upkeep have to be tried again, although all others are done.
    pub retry: Option<Trouble>,
}

/// How far a plan can be carried out now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// The number of steps that can be done now, from the first on. `None` for all of them.
    pub steps: Option<usize>,
    /// What the other steps wait for, or what the object waits for although no step is left. `None` where another look
    /// after this round's steps is enough.
    pub waits: Option<Blocked>,
}

/// Who carries out the plan of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// `apply`, and the controllers.
    Any,
    /// Only the controllers: `plan` and `verify` show the plan, and `apply` skips the manifest.
    Controller,
}

/// What earlier reconciles of a manifest made and have not taken back yet.
#[derive(Debug)]
pub struct Leftovers<E> {
    /// The steps that take it back: upkeep alone, which needs no approval.
    pub plan: Plan<E>,
    pub aside: Aside,
    /// The entries of the ledger that are taken back.
    pub taken_back: Vec<Entry>,
}

/// The ledger of the one remote object that a manifest declares.
pub(crate) fn object_ledger<K: Kind + ?Sized>(manifest: &K::Manifest) -> Ledger {
    let (target, status) = (K::target(manifest), manifest.status());
    let mut ledger = Ledger::default();
    if manifest.policy().mode() == Mode::Enforce {
        ledger.add(Entry::Declared(target.clone()));
    }
    match status.map(|it| (&it.id, &it.creating)) {
        Some((Some(id), _)) => {
            let id = if K::SHOWS_ID { id.clone() } else { String::new() };
            ledger.add(Entry::Remote { target, id });
        }
        Some((None, Some(_))) => ledger.add(Entry::Creating(target)),
        Some((None, None)) | None => {}
    }
    ledger
}

/// Does steps one after the other, up to the first that fails.
async fn one_by_one<K: Kind + ?Sized>(steps: &[&Step<K::Effect>], coder: &Coder) -> Carried {
    let mut carried = Carried::default();
    for step in steps {
        carried.recorded.extend(K::intends(&step.effect));
        match K::apply(&step.effect, coder).await {
            Ok(made) => carried.id = made.or(carried.id),
            Err(trouble) => {
                carried.failed = Some(trouble.into());
                return carried;
            }
        }
        carried.recorded.extend(K::recorded(&step.effect));
        carried.done += 1;
    }
    carried
}

/// The Secrets of people that a manifest refers to, for [`Kind::refs`].
pub(crate) fn people_secrets<K: Kind + ?Sized>(manifest: &K::Manifest) -> impl Iterator<Item = Ref> + use<K> {
    K::secret_refs(manifest).into_iter().map(|it| Ref::Secret(it.name))
}

/// An app-state kind. The stages are called in the order in which they stand here.
pub trait Kind: Debug + Send + Sync + 'static {
    type Manifest: AppState;
    /// What the manifest means, checked.
    type Desired: Debug + Send + Sync;
    /// What coderd has, as far as this object is concerned.
    type Observed: Debug + Send + Sync;
    /// A write that the kind knows.
    type Effect: Debug + Send + Sync;

    /// The licensed feature that the whole kind needs. `None` for a kind that works without a licence.
    const GATE: Option<Gate> = None;
    /// The fields that only some deployments support, a line each, as `FieldGate::since("icon", 2, 36)`. A declared field that
    /// the deployment does not support is absent from the manifest that the stages get; the driver reports it.
    const FIELD_GATES: &'static [FieldGate] = &[];
    /// Lower ones come first: what others refer to has to be there before them. Licences have the rank 0.
    const RANK: u8;
    /// The field by whose value others refer to the object.
    const NAME_FIELD: &'static str = "name";
    /// Whether Coder shows the id of the remote object to people.
    const SHOWS_ID: bool = true;
    /// Whether it keeps something in Secrets, and says more in its status than every kind does.
    const HAS_SECRETS: bool = false;
    /// Whether the kind owns objects of the cluster. Its plans are shown without the values of variables and arguments of pods.
    const OWNS_OBJECTS: bool = false;
    /// Whether it is assessed after it has passed [`Self::GATE`]. Otherwise [`Self::observe`] checks the deployment, where it needs one.
    const IS_GATED: bool = !Self::OWNS_OBJECTS;
    /// Whether what it creates is found again by records of its own, and not by `status.creating`.
    const HAS_RECORDS: bool = Self::OWNS_OBJECTS;
    /// Whether the controllers assess it again after its steps: what came of them is known at once.
    const LOOKS_AGAIN: bool = Self::OWNS_OBJECTS;
    /// Whether it is compared with a deployment. Without that need it is assessed also while its control plane cannot be reached.
    const NEEDS_DEPLOYMENT: bool = true;
    /// Who carries out its plans.
    const RUNNER: Runner = Runner::Any;

    /// The remote object in words, as `group alpha/developers`. Two manifests with the same one want the same object.
    fn target(manifest: &Self::Manifest) -> String;

    /// Pure: what only one manifest of the kind may declare in a deployment, as it stands in the manifest. Of several the
    /// oldest keeps it, and the others are refused.
    fn exclusive(_manifest: &Self::Manifest) -> Option<&'static str> {
        None
    }

    /// Pure: what the manifest means. Every mistake of a person is found here.
    fn desire(manifest: &Self::Manifest) -> Result<Self::Desired, Invalid>;

    /// Pure: the entries of people's Secrets whose values the kind needs. The driver reads them after `desire`, from the
    /// cluster, or from `--secret` and the files of the command line, and hands them to [`Self::with_secrets`]. A Secret or
    /// an entry that is missing is an outcome with the reason `SecretNotFound`. Nothing is read for a deletion.
    fn secret_refs(_manifest: &Self::Manifest) -> Vec<SecretPlace> {
        Vec::new()
    }

    /// Pure: what the manifest means, with the values of [`Self::secret_refs`]. Called only where there are any.
    fn with_secrets(desired: Self::Desired, _values: &SecretValues) -> Result<Self::Desired, Invalid> {
        Ok(desired)
    }

    /// Pure: the manifest without the fields that refer to [`Self::secret_refs`], so that the others can be compared where a
    /// Secret is missing. `None` for a kind that cannot be compared without its Secrets.
    fn without_secrets(_manifest: &Self::Manifest) -> Option<Self::Manifest> {
        None
    }

    /// Pure: what a deletion has to take back, as far as the status names it.
    fn ledger(manifest: &Self::Manifest) -> Ledger {
        object_ledger::<Self>(manifest)
    }

    /// Pure: whether nothing of the object is on record yet, so that nothing of it can have changed since.
    fn is_unrecorded(manifest: &Self::Manifest) -> bool {
        manifest.status().is_none_or(|it| it.id.is_none())
    }

    /// The ledger with what only a record beside the status names.
    fn whole_ledger(manifest: &Self::Manifest, _store: KeyStore<'_>) -> impl Future<Output = Ledger> + Send {
        std::future::ready(Self::ledger(manifest))
    }

    /// Pure: the entry that the ledger has from the moment at which this step begins. `None` where [`Self::ledger`] has it
    /// before.
    fn begins(_effect: &Self::Effect) -> Option<Entry> {
        None
    }

    /// The entries that attempts of this step have taken back, also where the step failed.
    fn taken_back(_effect: &Self::Effect) -> Vec<Entry> {
        Vec::new()
    }

    /// Pure: fields of the status that only this kind has, to be written before this step begins: the record by which what the
    /// step makes is found again, should the answer be lost.
    fn intends(_effect: &Self::Effect) -> Map<String, Value> {
        Map::new()
    }

    /// Finds the organization that an object of ours is in by now, for a deletion: names may have changed since. Nothing
    /// for kinds that are in none, and when it is gone.
    fn home(
        _held: Uuid,
        _coder: &Coder,
    ) -> impl Future<Output = Result<Option<Organization>, Trouble>> + Send {
        std::future::ready(Ok(None))
    }

    /// Pure: the same without the things that it refers to, and in the organization that it is in. For a deletion, which
    /// must not wait for what may be gone already.
    fn for_deletion(desired: Self::Desired, _home: Option<Organization>) -> Self::Desired {
        desired
    }

    /// Reads what plan needs to know. `held` is the id that we recorded, if we hold an object.
    fn observe(
        desired: &Self::Desired,
        held: Option<Uuid>,
        coder: &Coder,
    ) -> impl Future<Output = Result<Self::Observed, Trouble>> + Send;

    /// Reads what earlier reconciles left behind, where the manifest itself cannot be compared: it is invalid, or something that it
    /// refers to is missing. `None` where the ledger names nothing of that.
    fn leftovers(
        _manifest: &Self::Manifest,
        _held: Option<Uuid>,
        _coder: &Coder,
    ) -> impl Future<Output = Result<Option<Leftovers<Self::Effect>>, Trouble>> + Send {
        std::future::ready(Ok(None))
    }

    /// Pure: why nothing can be planned although everything was read. What the kind tells of itself is written all the same.
    fn waits(_observed: &Self::Observed) -> Option<Outcome> {
        None
    }

    /// Pure: why fields that differ are left as they are, although all others are applied.
    fn unmanaged(_observed: &Self::Observed) -> Option<Blocked> {
        None
    }

    /// Pure: whether it is as the server makes it by itself, and so counts as absent: a document that always exists.
    fn is_default(observed: &Self::Observed) -> bool;

    /// Pure: how the object stands to us.
    fn contact(observed: &Self::Observed, held: Option<Uuid>) -> Contact {
        match Self::id(observed) {
            Some(id) if Some(id) == held => Contact::Held,
            Some(_) if !Self::is_default(observed) => Contact::Foreign,
            Some(_) | None => Contact::Absent,
        }
    }

    /// Pure: the id to record once the deployment is as declared; a document has the id of what it belongs to.
    fn id(observed: &Self::Observed) -> Option<Uuid>;

    /// Pure: how Coder's audit log names the object that exists. `None` where Coder does not log changes of it.
    fn audited(_observed: &Self::Observed) -> Option<Audited> {
        None
    }

    /// Pure: what the kind tells beside what every kind tells.
    fn aside(_observed: &Self::Observed) -> Aside {
        Aside::default()
    }

    /// Pure: the steps from what is to what is declared.
    fn plan(desired: &Self::Desired, observed: &Self::Observed) -> Plan<Self::Effect>;

    /// Pure: how far the plan can be carried out now. A kind whose work takes rounds plans all rounds to come, so that the
    /// plan and its hash cover them, and does the steps of one round after the other.
    fn round(_desired: &Self::Desired, _observed: &Self::Observed) -> Round {
        Round::default()
    }

    /// Pure: the steps that take the object away, or a document back to the server's default. Steps of upkeep take back what else
    /// the ledger names, and are done also where the object itself stays.
    fn plan_deletion(observed: &Self::Observed) -> Plan<Self::Effect>;

    /// Pure: why the remote object is not deleted although the policy says so. `is_allowed` is whether a person allows the steps of
    /// the deletion by `allowDestructive` or by the approval of the plan with this hash.
    fn keeps(_observed: &Self::Observed, _is_allowed: bool, _hash: &str) -> Option<Blocked> {
        None
    }

    /// Does one step and nothing else. Gives the id of what it made, which is ours from that moment on, whatever
    /// becomes of the steps after it.
    fn apply(
        effect: &Self::Effect,
        coder: &Coder,
    ) -> impl Future<Output = Result<Option<Uuid>, Trouble>> + Send;

    /// Pure: whether a step of upkeep is done although the rest of the plan waits for an approval, or is only observed. Then nothing
    /// that the step does may depend on the rest.
    fn is_kept_up(_effect: &Self::Effect) -> bool {
        Self::OWNS_OBJECTS
    }

    /// Does the steps of a round: one after the other, up to the first that fails.
    fn carry_out(steps: &[&Step<Self::Effect>], coder: &Coder) -> impl Future<Output = Carried> + Send {
        one_by_one::<Self>(steps, coder)
    }

    /// Pure: the kind-specific status at the end of a reconcile. `aside` is `None` where the object was not compared; `condition` is
    /// the type of the condition that reports the failed step.
    fn conclude(
        _manifest: &Self::Manifest,
        aside: Option<Aside>,
        _condition: Option<&'static str>,
        _outcome: &Outcome,
    ) -> Aside {
        aside.unwrap_or_default()
    }

    /// Pure: what the manifest of a file takes over from the object `stored` in a cluster, beside its uid and its status.
    fn take_over(_manifest: &mut Self::Manifest, _stored: &Live) {}

    /// Pure: fields of the status that only this kind has, to be written once the step is done, as the fingerprint of a
    /// secret value that was sent.
    fn recorded(_effect: &Self::Effect) -> Map<String, Value> {
        Map::new()
    }

    /// Pure: the object that other manifests may refer to once this one is applied.
    fn provides(_manifest: &Self::Manifest) -> Option<RemoteName> {
        None
    }

    /// Pure: everything that the manifest refers to, but its control plane. A change of any of it wakes the manifest.
    fn refs(manifest: &Self::Manifest) -> Vec<Ref> {
        people_secrets::<Self>(manifest).collect()
    }

    /// Where the objects of the kind are listed, for [`Self::export`]. `export` names every kind that it cannot export.
    const LISTED: Listed = Listed::Nowhere("this version cannot export the kind");

    /// Reads the objects at a place as manifests, for `export`: with every field that a person may have set, so that the plan
    /// of each manifest is empty. References are names, values of Secrets are references, and what Coder makes by itself is left out.
    fn export(
        _place: &ExportPlace<'_>,
        _coder: &Coder,
    ) -> impl Future<Output = Result<KindExport<Self::Manifest>, Trouble>> + Send {
        std::future::ready(Ok(KindExport::default()))
    }
}
