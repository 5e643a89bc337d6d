//! What every condition and every reason means, and what to do about it, as data.
//!
//! The reference pages are generated from these tables. A test refuses a reason that has no row here.

mod common;
mod control_plane;
mod provisioner;
mod template;

use crate::Reason;

/// A condition type, and the kinds that report it.
#[derive(Clone, Copy, Debug)]
pub struct ConditionDoc {
    pub condition: &'static str,
    pub kinds: &'static [&'static str],
    /// What `True` means.
    pub meaning: &'static str,
}

/// Reasons that occur together.
#[derive(Clone, Copy, Debug)]
pub struct ReasonGroup {
    pub title: &'static str,
    /// The condition types that carry these reasons.
    pub conditions: &'static [&'static str],
    /// The kinds that report them.
    pub kinds: &'static [&'static str],
    pub reasons: &'static [ReasonDoc],
}

/// One reason.
#[derive(Clone, Copy, Debug)]
pub struct ReasonDoc {
    pub reason: Reason,
    /// What the operator has found.
    pub meaning: &'static str,
    /// What a person does about it.
    pub action: &'static str,
}

/// Every condition type, in the order in which a reader looks at them.
pub const CONDITIONS: &[&[ConditionDoc]] =
    &[common::CONDITIONS, control_plane::CONDITIONS, provisioner::CONDITIONS];

/// Every reason of a condition, a metric or an Event that reports a problem.
pub const REASONS: &[ReasonGroup] = &[
    common::EVERY_KIND,
    common::REMOTE_STATE,
    template::TEMPLATES,
    provisioner::KEYS,
    provisioner::STAGES,
    control_plane::WORKLOAD,
    control_plane::ACCESS,
    control_plane::LICENSES,
    control_plane::ENTITLEMENTS,
    common::RECONCILES,
];

const CONTROL_PLANE: &[&str] = &["CoderControlPlane"];
const PROVISIONER: &[&str] = &["CoderProvisioner"];
const KEYS: &[&str] = &["CoderProvisioner", "CoderProvisionerKey"];

const fn row(reason: Reason, meaning: &'static str, action: &'static str) -> ReasonDoc {
    ReasonDoc { reason, meaning, action }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_of_the_tables_are_the_kinds_that_exist() {
        let kinds: BTreeSet<String> = crate::crds().into_iter().map(|it| it.spec.names.kind).collect();
        let groups = REASONS.iter().flat_map(|it| it.kinds);
        let conditions = CONDITIONS.iter().copied().flatten().flat_map(|it| it.kinds);
        for kind in groups.chain(conditions) {
            assert!(kinds.contains(*kind), "{kind} is not a kind");
        }
    }

    #[test]
    fn every_reason_has_a_row() {
        let documented: BTreeSet<Reason> =
            REASONS.iter().flat_map(|it| it.reasons).map(|it| it.reason).collect();
        let missing: Vec<&Reason> = Reason::ALL.iter().filter(|it| !documented.contains(it)).collect();
        assert!(missing.is_empty(), "no row for {missing:?}: say what it means and what to do");
    }

    #[test]
    fn every_group_has_each_reason_once_with_a_meaning_and_an_action() {
        for group in REASONS {
            let names: BTreeSet<Reason> = group.reasons.iter().map(|it| it.reason).collect();
            assert_eq!(names.len(), group.reasons.len(), "{} has a reason twice", group.title);
            for ReasonDoc { reason, meaning, action } in group.reasons {
                assert!(meaning.ends_with('.') && action.ends_with('.'), "{reason} needs whole sentences");
            }
        }
    }
}
