//! What a kind is: its types and its stages. Everything that kinds have in common is elsewhere, once.

use std::fmt::Debug;

use api::{AppState, DEFAULT_ORGANIZATION};
use client::organizations::Organization;
use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    decide::Contact,
    gate::Gate,
    outcome::{Blocked, Trouble},
    plan::Plan,
    provisioner_keys::KeyStore,
    world::World,
};

/// A field that cannot be meant, found before anything is asked or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The field's path, as `spec.mapping`.
    pub field: String,
    /// What was expected.
    pub message: String,
}

impl Invalid {
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.to_owned(), message: message.into() }
    }
}

/// An object of a deployment that manifests refer to by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteName {
    Organization(String),
    Group { organization: String, name: String },
}

impl RemoteName {
    /// Whether both may be the same object. `default` is the default organization, whatever it is called.
    pub fn may_be(&self, other: &Self) -> bool {
        let is_same = |one: &str, two: &str| {
            one.eq_ignore_ascii_case(two) || one == DEFAULT_ORGANIZATION || two == DEFAULT_ORGANIZATION
        };
        match (self, other) {
            (Self::Organization(one), Self::Organization(two)) => is_same(one, two),
            (Self::Group { organization, name }, Self::Group { organization: other, name: other_name }) => {
                is_same(organization, other) && name == other_name
            }
            (Self::Organization(_) | Self::Group { .. }, _) => false,
        }
    }
}

/// What a kind tells of itself beside what every kind tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Aside {
    /// Fields of the status that only this kind has and that are to be others; null for one that goes.
    pub status: Map<String, Value>,
    /// When there will be something to do, should nobody tell before.
    pub again_at: Option<Timestamp>,
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

    const GATE: Gate;
    /// Lower ones come first: what others refer to has to be there before them. Licences have the rank 0.
    const RANK: u8;
    /// Whether it keeps something in Secrets, and says more in its status than every kind does.
    const HAS_SECRETS: bool = false;

    /// The remote object in words, as `group alpha/developers`. Two manifests with the same one want the same object.
    fn target(manifest: &Self::Manifest) -> String;

    /// Names the remote objects that a deletion has to take away, as they are called in Coder and not in the manifest, which
    /// may have changed since.
    fn remains(manifest: &Self::Manifest, _store: KeyStore<'_>) -> impl Future<Output = String> + Send {
        let target = Self::target(manifest);
        let id = manifest.status().and_then(|it| it.id.as_ref());
        std::future::ready(id.map_or_else(|| target.clone(), |id| format!("{target} (id {id})")))
    }

    /// Names what an attempt of this step has not taken away. `None` where that is not known.
    fn left_by(_effect: &Self::Effect) -> Option<String> {
        None
    }

    /// Pure: what the manifest means. Every mistake of a person is found here.
    fn desire(manifest: &Self::Manifest) -> Result<Self::Desired, Invalid>;

    /// Pure: whether a manifest has anything to do with a Secret, so that a change there is worth a pass.
    fn refers_to_secret(_manifest: &Self::Manifest, _secret: &str) -> bool {
        false
    }

    /// Pure: whether its status says, by more than an id, that something of ours is there or may be.
    fn has_traces(_manifest: &Self::Manifest) -> bool {
        false
    }

    /// Pure: whether its status names something of ours that no deletion policy leaves, as a key that another one has replaced.
    fn owes(_manifest: &Self::Manifest) -> bool {
        false
    }

    /// Pure: whether the kind owes something from the moment at which this step begins, see [`Self::owes`].
    fn is_owing(_effect: &Self::Effect) -> bool {
        false
    }

    /// Finds the organization that an object of ours is in by now, for a deletion: names may have changed since. Nothing
    /// for kinds that are in none, and when it is gone.
    fn home(
        _held: Uuid,
        _world: &World,
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
        world: &World,
    ) -> impl Future<Output = Result<Self::Observed, Trouble>> + Send;

    /// Pure: why nothing can be planned although everything was read. What the kind tells of itself is written all the same.
    fn waits(_observed: &Self::Observed) -> Option<Blocked> {
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

    /// Pure: the id to record once the world is as declared; a document has the id of what it belongs to.
    fn id(observed: &Self::Observed) -> Option<Uuid>;

    /// Pure: what the kind tells beside what every kind tells.
    fn aside(_observed: &Self::Observed) -> Aside {
        Aside::default()
    }

    /// Pure: the steps from what is to what is declared.
    fn plan(desired: &Self::Desired, observed: &Self::Observed) -> Plan<Self::Effect>;

    /// Pure: the steps that take the object away, or a document back to the server's default.
    fn plan_deletion(observed: &Self::Observed) -> Plan<Self::Effect>;

    /// Does one step and nothing else. Gives the id of what it made, which is ours from that moment on, whatever
    /// becomes of the steps after it.
    fn apply(
        effect: &Self::Effect,
        world: &World,
    ) -> impl Future<Output = Result<Option<Uuid>, Trouble>> + Send;

    /// Pure: the object that other manifests may refer to once this one is applied.
    fn provides(_manifest: &Self::Manifest) -> Option<RemoteName> {
        None
    }

    /// Pure: the objects of the deployment that the manifest refers to. A change of one of them wakes the manifest.
    fn refs(_manifest: &Self::Manifest) -> Vec<RemoteName> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_by_object_and_the_default_organization_by_any_name() {
        let organization = |name: &str| RemoteName::Organization(name.to_owned());
        let group = |organization: &str, name: &str| RemoteName::Group {
            organization: organization.to_owned(),
            name: name.to_owned(),
        };
        assert!(organization("alpha").may_be(&organization("Alpha")));
        assert!(organization("default").may_be(&organization("coder")));
        assert!(!organization("alpha").may_be(&organization("bravo")));
        assert!(group("alpha", "a").may_be(&group("alpha", "a")));
        assert!(group("default", "a").may_be(&group("coder", "a")));
        assert!(!group("alpha", "a").may_be(&group("bravo", "a")));
        assert!(!group("alpha", "a").may_be(&group("alpha", "A")), "names of groups have a case");
        assert!(!organization("a").may_be(&group("a", "a")));
    }
}
