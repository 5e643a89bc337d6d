//! The ledger of a manifest: what it made, or may have made, and its deletion has to take back. Pure.
//!
//! A kind lists its entries, from the status and from every other record. Whether a manifest needs its finalizer, what a deletion
//! takes back and what it names as left behind all come from that list.

use std::fmt::Write as _;

use api::{DeletionPolicy, Policy};
use uuid::Uuid;

/// Something that a manifest made, or may have made. The order is that of a deletion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// What a reconcile may make at any moment: the finalizer has to be there before. Nothing of it exists yet.
    Declared(String),
    /// Other manifests, which need this one for their own deletion.
    Dependents,
    /// Roles in other namespaces, which no owner reference takes away: those namespaces, as far as they are known.
    Roles(Vec<String>),
    /// An account that a Job made, or may have made.
    JobAccount,
    /// A key of daemons.
    Key { state: KeyState, name: String, organization_id: Option<Uuid> },
    /// Keys that the status does not name, and another record may.
    UnnamedKeys,
    /// A Secret with the value of a key.
    KeySecret(String),
    /// A throwaway workspace in which a version is tested, or is about to be.
    TestWorkspace { owner: String, name: String },
    /// The remote object that is held by its id.
    Remote { target: String, id: String },
    /// A remote object whose creation was requested, and the answer was lost.
    Creating(String),
    /// The licences that the operator uploaded, by the ids that Coder has given them.
    Licenses(Vec<String>),
    /// The operator's tokens and account, by the Secret that holds the token.
    Token { secret: String },
    /// The finalizer of the token Secret.
    SecretFinalizer { secret: String },
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyState {
    /// Its answer was lost, or it was never minted.
    Lost,
    /// Another key has replaced it.
    Retiring,
    /// It is in use.
    Held,
}

/// What a deletion leaves in place because the manifest says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leaves {
    /// The remote object, or the key in use with its Secret.
    pub object: bool,
    pub licenses: bool,
}

impl Leaves {
    /// What the policy of an app-state kind leaves.
    pub fn of(policy: &Policy) -> Self {
        Self { object: policy.deletion_policy() == DeletionPolicy::Retain, licenses: false }
    }

    /// Whether an entry stays on purpose.
    pub fn leaves(self, entry: &Entry) -> bool {
        match entry {
            Entry::Declared(_)
            | Entry::Remote { .. }
            | Entry::Creating(_)
            | Entry::KeySecret(_)
            | Entry::UnnamedKeys
            | Entry::Key { state: KeyState::Held, .. } => self.object,
            Entry::Licenses(_) => self.licenses,
            Entry::Key { state: KeyState::Retiring | KeyState::Lost, .. }
            | Entry::Dependents
            | Entry::Roles(_)
            | Entry::JobAccount
            | Entry::TestWorkspace { .. }
            | Entry::Token { .. }
            | Entry::SecretFinalizer { .. } => false,
        }
    }
}

impl Entry {
    /// Whether there may be something to take back by now.
    fn is_made(&self) -> bool {
        !matches!(self, Self::Declared(_))
    }

    /// Whether both are about the same thing. A key is known by its name, which coderd compares in any case.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Key { name, organization_id, .. },
                Self::Key { name: other, organization_id: elsewhere, .. },
            ) => name.eq_ignore_ascii_case(other) && organization_id == elsewhere,
            _ => self == other,
        }
    }

    /// The name of the entry as messages have it: what it is called in Coder or in the cluster.
    pub fn name(&self) -> String {
        match self {
            Self::Declared(target) | Self::Creating(target) => target.clone(),
            Self::Dependents => "its dependents".to_owned(),
            Self::Roles(namespaces) if namespaces.is_empty() => {
                "a Role for workspaces in another namespace".to_owned()
            }
            Self::Roles(namespaces) => {
                format!("a Role for workspaces in namespace {}", namespaces.join(", "))
            }
            Self::JobAccount => "the account that a Job may have made".to_owned(),
            Self::Key { name, .. } => format!("provisioner key {name}"),
            Self::UnnamedKeys => "its provisioner keys".to_owned(),
            Self::KeySecret(name) => format!("Secret {name}"),
            Self::TestWorkspace { owner, name } => format!("test workspace {owner}/{name}"),
            Self::Remote { target, id } if id.is_empty() => target.clone(),
            Self::Remote { target, id } => format!("{target} (id {id})"),
            Self::Licenses(ids) => format!("licence {}", ids.join(", ")),
            Self::Token { .. } => "the operator's token".to_owned(),
            Self::SecretFinalizer { .. } => "the token Secret".to_owned(),
        }
    }
}

/// What a manifest made, or may have made. Every entry is there once, in the order in which a deletion takes them back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut ledger = Self::default();
        entries.into_iter().for_each(|it| ledger.add(it));
        ledger
    }

    /// Adds an entry. A key is there once: in use, if any record says so.
    pub fn add(&mut self, entry: Entry) {
        let known = self.entries.iter_mut().find(|it| it.is_same(&entry));
        match (known, &entry) {
            (Some(Entry::Key { state: known, .. }), Entry::Key { state, .. }) => {
                *known = (*known).max(*state);
            }
            (Some(_), _) => {}
            (None, _) => self.entries.push(entry),
        }
        self.entries.sort();
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether a deletion has to find the manifest: something may be there, or may come, that the policy does not leave.
    pub fn needs_finalizer(&self, leaves: Leaves) -> bool {
        self.entries.iter().any(|it| !leaves.leaves(it))
    }

    /// What a deletion has to take back.
    #[must_use]
    pub fn owed(&self, leaves: Leaves) -> Self {
        let owed = self.entries.iter().filter(|it| it.is_made() && !leaves.leaves(it));
        Self { entries: owed.cloned().collect() }
    }

    /// What is left of it after some entries were taken back.
    #[must_use]
    pub fn without(&self, taken: &[Entry]) -> Self {
        let is_taken = |entry: &Entry| taken.iter().any(|it| it.is_same(entry));
        Self { entries: self.entries.iter().filter(|it| !is_taken(it)).cloned().collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Names all entries in one phrase. A Secret is not named while a key is: its record is needed until the key is revoked.
    /// `None` for an empty ledger.
    pub fn in_words(&self) -> Option<String> {
        let keys: Vec<&str> = self.entries.iter().filter_map(key_name).collect();
        let mut words = match keys.as_slice() {
            [] => String::new(),
            [name] => format!("provisioner key {name}"),
            names => format!("provisioner keys {}", names.join(", ")),
        };
        let has_keys = !keys.is_empty();
        let others = self.entries.iter().filter(|it| key_name(it).is_none());
        for other in others.filter(|it| !(has_keys && is_unnamed_beside_keys(it))) {
            let separator = if words.is_empty() { "" } else { ", " };
            write!(words, "{separator}{}", other.name()).ok();
        }
        (!words.is_empty()).then_some(words)
    }
}

fn key_name(entry: &Entry) -> Option<&str> {
    if let Entry::Key { name, .. } = entry { Some(name) } else { None }
}

fn is_unnamed_beside_keys(entry: &Entry) -> bool {
    matches!(entry, Entry::KeySecret(_) | Entry::UnnamedKeys)
}
