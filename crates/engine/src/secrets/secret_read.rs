//! What was read of a Secret with a key.

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    names::checksum,
    record::Record,
    situation::{Owner, SecretSeen},
};
use crate::pipeline::outcome::Blocked;

/// A Secret with its value.
#[derive(Debug, Clone)]
pub struct SecretRead {
    pub owner: Owner,
    /// `None` also for a Secret that has not changed since its last read: the value is not kept.
    pub value: Option<SecretString>,
    /// Of the value, if the Secret has one.
    pub checksum: Option<String>,
    pub record: Option<Record>,
    /// Why this object must not use the Secret; value and record are then `None`.
    pub withheld: Option<Blocked>,
    /// What a write gives back: uid and version.
    pub version: String,
    /// Whether its values are as they are for ever.
    pub is_immutable: bool,
}

impl SecretRead {
    /// The checksum of a value; `None` for an empty one.
    pub fn checksum_of(value: Option<&SecretString>) -> Option<String> {
        value.filter(|it| !it.expose_secret().is_empty()).map(checksum)
    }

    pub(crate) fn seen(&self) -> SecretSeen {
        SecretSeen {
            owner: Some(self.owner),
            checksum: self.checksum.clone(),
            record: self.record.clone(),
            keeper: None,
            withheld: self.withheld.clone(),
            is_immutable: self.is_immutable,
        }
    }
}
