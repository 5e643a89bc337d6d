//! The control planes that can be talked to: a client and a snapshot each, shared by everything that belongs to one.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use api::{CoderControlPlane, CredentialStatus, Reason};
use client::{Client, Downloads, Guard, RateLimiter, routes::Route};
use engine::{
    Coder, Freshness,
    coder::{Beside, Promises, TokenMemory, endpoint::DeclaredOrigin},
    kinds::control_plane::{access::Lifetime, identity::ReachedDeployment},
    secrets::FingerprintKeys,
};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use uuid::Uuid;

pub(crate) use engine::coder::endpoint::Origin;

use crate::index::{Index, Name, Target};

/// Which control plane: its namespace and its name.
pub(crate) type PlaneName = Name;

/// The name of a control plane.
pub(crate) fn name_of(plane: &CoderControlPlane) -> PlaneName {
    (plane.namespace().unwrap_or_default(), plane.name_any())
}

/// Stops a client for good, also in the hands of a reconcile that is under way.
#[derive(Debug, Default)]
struct Revocation(AtomicBool);

impl Guard for Revocation {
    fn refusal(&self, _: &Route) -> Option<&'static str> {
        let why = "the address, the certificates or the credentials of the control plane have changed";
        self.0.load(Ordering::Acquire).then_some(why)
    }
}

/// A control plane that answered with credentials that work.
pub(crate) struct Plane {
    made_from: Sources,
    /// What was last compared with what it was made from, and was the same.
    compared_with: Mutex<Option<Versions>>,
    revocation: Arc<Revocation>,
    deployment: Uuid,
    coder: Coder,
}

/// What the client of a control plane was made from.
pub(crate) struct Sources {
    /// What was declared then.
    pub(crate) declared: DeclaredOrigin,
    /// Where it is, and whom to trust there.
    pub(crate) place: Origin,
    /// The same with the credentials.
    pub(crate) origin: Origin,
}

/// The versions of everything that declares an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Versions {
    /// The uid and the generation of the manifest.
    pub(crate) manifest: (String, i64),
    /// The uid and the version of each Secret.
    pub(crate) secrets: Vec<(String, String)>,
}

impl Plane {
    pub(crate) fn new(
        made_from: Sources,
        client: &Client,
        deployment: Uuid,
        (beside, downloads): (Beside, Option<Downloads>),
    ) -> Self {
        let revocation = Arc::<Revocation>::default();
        let client = client.guarded_by(Arc::clone(&revocation) as _);
        // In a cluster nothing is promised: what is not there yet will be noticed when it comes.
        let coder = Coder::new(client, Promises::default()).expecting(deployment).beside(beside);
        let coder = match downloads {
            Some(downloads) => coder.downloading(downloads),
            None => coder,
        };
        Self { made_from, compared_with: Mutex::default(), revocation, deployment, coder }
    }

    pub(crate) fn client(&self) -> &Client {
        self.coder.client()
    }

    pub(crate) fn deployment(&self) -> Uuid {
        self.deployment
    }

    /// The deployment with the client.
    pub(crate) fn reached(&self) -> ReachedDeployment<'_> {
        ReachedDeployment { client: self.client(), deployment: self.deployment }
    }

    /// Lets nothing more be sent with the client, whoever holds it.
    pub(crate) fn revoke(&self) {
        self.revocation.0.store(true, Ordering::Release);
    }

    /// Whether the client was made from what is declared now, as far as that can be read.
    pub(crate) fn is_declared_as(&self, now: &DeclaredOrigin) -> bool {
        !self.made_from.declared.differs_from(now)
    }

    /// The versions that declare the origin of this client, as far as they were compared. `None` until they have been.
    pub(crate) fn compared_with(&self) -> Option<Versions> {
        self.compared_with.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_compared_with(&self, versions: Versions) {
        *self.compared_with.lock().unwrap_or_else(PoisonError::into_inner) = Some(versions);
    }

    /// Whether it was made from this.
    pub(crate) fn is_of(&self, origin: &Origin) -> bool {
        self.made_from.origin == *origin
    }

    /// What the deployment has, read as recently as this.
    pub(crate) fn coder(&self, need: Freshness) -> Coder {
        self.coder.with(need)
    }
}

/// What was last heard of a token.
#[derive(Clone)]
pub(crate) struct Heard {
    /// Of which one, and from whom.
    pub(crate) origin: Origin,
    pub(crate) at: Timestamp,
    pub(crate) lifetime: Lifetime,
    /// What was announced. The status may not have it yet: its write is refused when the object changes meanwhile.
    pub(crate) announced: Option<CredentialStatus>,
}

/// What is known of a control plane.
#[derive(Default)]
struct Entry {
    plane: Option<Arc<Plane>>,
    /// The deployment that was last known to be behind it, also while there is no client.
    deployment: Option<Uuid>,
    /// Why nothing but deletions may use it.
    blocked: Option<Reason>,
    /// Whether its object cannot be decoded, so that nobody knows what it declares.
    is_undecodable: bool,
    /// What was last heard of a token that we were given.
    heard: Option<Heard>,
}

/// How a control plane stands to what belongs to it.
pub(crate) enum Standing {
    Usable(Arc<Plane>),
    /// It is declared, and cannot be used for this reason.
    Blocked(Reason),
}

/// The control planes, by name.
pub(crate) struct Planes {
    entries: RwLock<HashMap<PlaneName, Entry>>,
    /// Who belongs to them.
    index: Arc<Index>,
    /// The rate limiters by deployment and account, which outlive clients: coderd goes on counting, too.
    rate_limiters: Mutex<HashMap<(Uuid, Uuid), Arc<RateLimiter>>>,
    /// The keys of fingerprints of secret values.
    pub(crate) fingerprints: Arc<FingerprintKeys>,
    /// The operator's own tokens.
    pub(crate) tokens: Arc<TokenMemory>,
}

impl Planes {
    pub(crate) fn new(index: Arc<Index>) -> Self {
        Self {
            entries: RwLock::default(),
            index,
            rate_limiters: Mutex::default(),
            fingerprints: Arc::default(),
            tokens: Arc::default(),
        }
    }

    /// `None` until the control plane has been reconciled once.
    pub(crate) fn standing(&self, name: &PlaneName) -> Option<Standing> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(name)?;
        match (&entry.plane, entry.blocked) {
            (_, Some(reason)) => Some(Standing::Blocked(reason)),
            (Some(plane), None) => Some(Standing::Usable(Arc::clone(plane))),
            (None, None) => None,
        }
    }

    /// A control plane that was once usable and may be still, for deletions.
    pub(crate) fn last_known(&self, name: &PlaneName) -> Option<Arc<Plane>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(name)?.plane.clone()
    }

    /// The deployment that was last known to be behind a control plane. `None` until one has been.
    pub(crate) fn deployment(&self, name: &PlaneName) -> Option<Uuid> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(name)?.deployment
    }

    /// Records the deployment that the status of a control plane names, unless another one has answered since.
    pub(crate) fn recall_deployment(&self, name: &PlaneName, recorded: Option<Uuid>) {
        self.change(name, |entry| {
            entry.deployment = entry.deployment.or(recorded);
            false
        });
    }

    /// The client of a control plane, if it is for the same place: with its connections, its budget and its circuit, and
    /// without a token.
    pub(crate) fn client(&self, name: &PlaneName, place: &Origin) -> Option<Client> {
        self.last_known(name)
            .filter(|it| it.made_from.place == *place)
            .map(|it| it.coder.client().anonymous())
    }

    /// The rate limiter of an account of a deployment, for every client that uses the account.
    pub(crate) fn rate_limiter(&self, deployment: Uuid, account: Uuid) -> Arc<RateLimiter> {
        let mut known = self.rate_limiters.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, it| Arc::strong_count(it) > 1 || !it.is_as_new());
        Arc::clone(known.entry((deployment, account)).or_default())
    }

    /// What was last heard of the token that we were given for a control plane.
    pub(crate) fn heard(&self, name: &PlaneName) -> Option<Heard> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(name)?.heard.clone()
    }

    pub(crate) fn set_heard(&self, name: &PlaneName, heard: Heard) {
        self.change(name, |entry| {
            entry.heard = Some(heard);
            false
        });
    }

    /// Compares what is declared now with the client that is known. A client of another origin is revoked and dropped, and
    /// nothing uses the control plane until the new origin is proved.
    pub(crate) fn declare(&self, name: &PlaneName, now: &DeclaredOrigin) {
        self.revoke_if(name, Reason::OriginChanged, |it| !it.is_declared_as(now));
    }

    /// The same with the deployment that answers.
    pub(crate) fn answers_as(&self, name: &PlaneName, deployment: Uuid) {
        self.revoke_if(name, Reason::DeploymentChanged, |it| it.deployment != deployment);
    }

    fn revoke_if(&self, name: &PlaneName, reason: Reason, is_other: impl FnOnce(&Plane) -> bool) {
        self.change(name, |entry| {
            let Some(known) = entry.plane.take_if(|it| is_other(it)) else { return false };
            known.revoke();
            let was_usable = entry.blocked.is_none();
            entry.blocked.get_or_insert(reason);
            was_usable
        });
    }

    /// Revokes the client of a control plane whose object cannot be decoded: nobody knows whether its origin is still
    /// declared. A reconcile of an earlier version does not bring it back.
    pub(crate) fn set_undecodable(&self, name: &PlaneName, is_undecodable: bool) {
        self.change(name, |entry| {
            entry.is_undecodable = is_undecodable;
            if !is_undecodable {
                return false;
            }
            entry.plane.take().into_iter().for_each(|it| it.revoke());
            entry.blocked.replace(Reason::Undecodable) != Some(Reason::Undecodable)
        });
    }

    /// Whether the object of a control plane cannot be decoded.
    pub(crate) fn is_undecodable(&self, name: &PlaneName) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(name).is_some_and(|it| it.is_undecodable)
    }

    /// Makes a control plane usable; an earlier one of that name with other credentials goes.
    pub(crate) fn admit(&self, name: &PlaneName, plane: Plane) {
        self.change(name, |entry| {
            if entry.is_undecodable {
                return false;
            }
            let is_same = |it: &Arc<Plane>| {
                it.made_from.origin == plane.made_from.origin && it.deployment == plane.deployment
            };
            let is_known = entry.plane.as_ref().is_some_and(is_same);
            entry.deployment = Some(plane.deployment);
            if !is_known {
                entry.plane = Some(Arc::new(plane));
            }
            entry.blocked.take().is_some() || !is_known
        });
    }

    /// Reports another reason why a control plane that is blocked cannot be used. One that is usable stays so.
    pub(crate) fn restate(&self, name: &PlaneName, reason: Reason) {
        self.change(name, |entry| {
            entry.blocked.as_mut().is_some_and(|it| std::mem::replace(it, reason) != reason)
        });
    }

    /// Lets nothing but deletions use a control plane. Those go on with the client that is known, if it is `kept`.
    pub(crate) fn block(&self, name: &PlaneName, reason: Reason, kept: bool) {
        self.change(name, |entry| {
            if !kept && let Some(known) = entry.plane.take() {
                known.revoke();
            }
            entry.blocked.replace(reason) != Some(reason)
        });
    }

    /// A control plane is not declared any more.
    pub(crate) fn forget(&self, name: &PlaneName) {
        self.fingerprints.forget(name);
        self.tokens.forget(name);
        self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.wake_dependents(name);
    }

    /// Wakes everything that belongs to a control plane. The reconciles rest on reads that begin from now on.
    pub(crate) fn wake_dependents(&self, name: &PlaneName) {
        self.index.changed(&Target::ControlPlane(name.clone()));
    }

    /// Keeps a control plane at hand for deletions, without letting anything else use it.
    pub(crate) fn remember(&self, name: &PlaneName, plane: Plane) -> Arc<Plane> {
        let plane = Arc::new(plane);
        let mut is_blocked = false;
        self.change(name, |entry| {
            // One that was proved meanwhile may be of a newer manifest.
            if entry.is_undecodable {
                plane.revoke();
            } else if entry.plane.is_none() {
                entry.plane = Some(Arc::clone(&plane));
                is_blocked = entry.blocked.is_none();
                entry.blocked.get_or_insert(Reason::ControlPlaneNotReady);
            }
            false
        });
        if is_blocked {
            self.wake(name);
        }
        plane
    }

    /// Drops a client whose credentials are not taken any more. The control plane itself finds out what is wrong with them.
    pub(crate) fn drop_client(&self, name: &PlaneName) {
        let mut is_dropped = false;
        self.change(name, |entry| {
            is_dropped = entry.plane.take().is_some();
            false
        });
        if is_dropped {
            self.wake(name);
        }
    }

    /// Wakes a control plane.
    fn wake(&self, (namespace, name): &PlaneName) {
        self.index.owned_changed(&CoderControlPlane::kind(&()), namespace, name);
    }

    fn change(&self, name: &PlaneName, change: impl FnOnce(&mut Entry) -> bool) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = change(entries.entry(name.clone()).or_default());
        drop(entries);
        if is_other {
            self.wake_dependents(name);
        }
    }
}

#[cfg(test)]
mod tests;
