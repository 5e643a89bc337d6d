//! The fields that every app-state kind has: suspension, interval, mode, deletion, adoption and approval policies.
//!
//! Every field is an option and the methods hold the defaults.

use std::time::Duration;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{interval::Interval, rules};

/// The interval between reconciles of an object that declares none.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_mins(5);

/// How an object is reconciled. Part of the spec of every app-state kind, at its top level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Suspends reconciliation while true: the object is neither read nor changed. Deletion still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The interval between two reconciles, as `5m`, `90s` or `1h30m`; at least `10s`. Defaults to `5m`, with a jitter of
    /// 10 %.
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
    /// Allows steps that delete users' data. Without it such a step needs an approved plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_destructive: Option<bool>,
}

/// How changes are made. Part of the spec of the kinds that run pods, at its top level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangePolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Allows steps that delete users' data. Without it such a step needs an approved plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_destructive: Option<bool>,
}

impl ChangePolicy {
    /// Whether every plan is applied at once.
    pub fn is_automatic(&self) -> bool {
        let policy = self.policy();
        policy.mode() == Mode::Enforce && policy.approval() == Approval::Automatic
    }

    /// The same as the policy of an app-state kind.
    pub fn policy(&self) -> Policy {
        let Self { mode, approval, allow_destructive } = self.clone();
        Policy { mode, approval, allow_destructive, ..Policy::default() }
    }
}

// The API server's schema has no place for the meaning of single values, so the type's text says all of them.

/// `Enforce` (the default) makes the remote object equal to this manifest. `Observe` writes the plan to the status, and
/// neither changes nor deletes anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    #[default]
    Enforce,
    Observe,
}

/// What happens to the remote object when this manifest is deleted. `Retain` (the default) leaves it unchanged;
/// `Delete` deletes it, and deleting the manifest counts as the approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Retain,
    Delete,
}

/// What happens when the remote object already exists and this manifest does not hold it yet. `IfEqual` (the default)
/// adopts it if every declared field is equal, and otherwise refuses with the differences in the status. `Adopt`
/// adopts it and makes it equal. `Never` refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdoptionPolicy {
    #[default]
    IfEqual,
    Adopt,
    Never,
}

/// `Automatic` (the default) applies a plan at once. `Manual` applies only the plan whose hash (`status.plan.hash`) is the
/// value of the annotation `coder.com/approved-plan`.
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
