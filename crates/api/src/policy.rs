//! What every app-state kind lets a person say about how it is kept, whatever it declares.
//!
//! Every field is an option and the methods hold the defaults.

use std::time::Duration;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{interval::Interval, rules};

/// How often an object is looked at when nobody says.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_mins(5);

/// How an object is kept. Part of the spec of every app-state kind, at its top level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Stops everything but deletion while true. Nothing is read or changed, and the status says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// How often the remote object is compared with this manifest, as `5m`, `90s` or `1h30m`; at least `10s`, by
    /// default `5m`. A few per cent are added or taken off, so that objects do not come all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::interval())]
    pub interval: Option<Interval>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption_policy: Option<AdoptionPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Allows steps that destroy people's data. Without it such a step waits for an approved plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_destructive: Option<bool>,
}

// The API server's schema has no place for the meaning of single values, so the type's text says all of them.

/// `Enforce` (the default) makes the remote object equal to this manifest. `Observe` publishes in the status what
/// would be changed, and changes and deletes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    #[default]
    Enforce,
    Observe,
}

/// What becomes of the remote object when this manifest is deleted. `Retain` (the default) leaves it as it is;
/// `Delete` deletes it, and deleting the manifest is the approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Retain,
    Delete,
}

/// What happens when the remote object exists already and is not held by this manifest yet. `IfEqual` (the default)
/// takes it over if every declared field is equal, and otherwise refuses with the differences in the status. `Adopt`
/// takes it over and makes it equal. `Never` refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdoptionPolicy {
    #[default]
    IfEqual,
    Adopt,
    Never,
}

/// `Automatic` (the default) applies a plan at once. `Manual` applies only the plan whose hash, which is in the
/// status, stands in the annotation `coder.com/approved-plan`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Approval {
    #[default]
    Automatic,
    Manual,
}

impl Policy {
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or_default()
    }

    pub fn interval(&self) -> Duration {
        self.interval.map_or(DEFAULT_INTERVAL, Interval::duration)
    }

    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_default()
    }

    pub fn deletion_policy(&self) -> DeletionPolicy {
        self.deletion_policy.unwrap_or_default()
    }

    pub fn adoption_policy(&self) -> AdoptionPolicy {
        self.adoption_policy.unwrap_or_default()
    }

    pub fn approval(&self) -> Approval {
        self.approval.unwrap_or_default()
    }

    pub fn allows_destructive(&self) -> bool {
        self.allow_destructive.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_says_nothing_is_careful() {
        let policy = Policy::default();
        assert!(!policy.is_suspended());
        assert_eq!(policy.interval(), Duration::from_mins(5));
        assert_eq!(policy.mode(), Mode::Enforce);
        assert_eq!(policy.deletion_policy(), DeletionPolicy::Retain);
        assert_eq!(policy.adoption_policy(), AdoptionPolicy::IfEqual);
        assert_eq!(policy.approval(), Approval::Automatic);
        assert!(!policy.allows_destructive());
    }

    #[test]
    fn what_was_not_said_is_not_written() {
        assert_eq!(serde_json::to_string(&Policy::default()).unwrap(), "{}");
    }
}
