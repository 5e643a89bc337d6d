//! Which differences of a template are drift, and which follow from the manifest. Pure.

use api::{
    AppState as _, CoderTemplate, Reason,
    condition::{DRIFTED, READY},
};

use super::{Observed, version::Version};

/// The fields that follow from a changed source, a changed Secret, or the next round of the work on a version. The first two are never
/// drift: the operator alone makes test workspaces, and archives versions that failed.
const OF_A_VERSION: &[&str] = &["version.test.workspace", "version.archived", "source", "version", ACTIVE];
pub(super) const ACTIVE: &str = "activeVersion";

/// The fields of a plan that differ for another reason than a change in Coder.
pub(super) fn own_changes(observed: &Observed) -> &'static [&'static str] {
    let count = match &observed.version {
        None => 2,
        Some(version) if observed.was_equal && version.was_settled(observed.recorded_test.as_ref()) => 2,
        Some(version) if is_promoted_by_hand(observed, version) => OF_A_VERSION.len() - 1,
        Some(_) => OF_A_VERSION.len(),
    };
    &OF_A_VERSION[..count]
}

/// Whether another version is active than the declared one, and than the one that the status tells of.
pub(super) fn is_promoted_by_hand(observed: &Observed, version: &Version) -> bool {
    let Some(active) = observed.template.as_ref().map(|it| it.active_version_id) else { return false };
    let is_other = |it: &String| *it != active.to_string();
    version.activates
        && version.id() != Some(active)
        && observed.recorded_active.as_ref().is_some_and(is_other)
}

/// The active version that the status should tell of. `None` where it does, and where that version is drift: it stays drift until
/// another one is promoted.
pub(super) fn active_to_record(observed: &Observed, version: &Version) -> Option<String> {
    let active = observed.template.as_ref()?.active_version_id;
    let is_declared = !version.activates || version.id() == Some(active);
    let is_known = is_declared || own_changes(observed).contains(&ACTIVE);
    Some(active.to_string()).filter(|it| is_known && observed.recorded_active.as_ref() != Some(it))
}

/// Whether the status says that the template is as declared, as far as the deployment supports that, or that it drifted.
pub(super) fn was_equal(manifest: &CoderTemplate) -> bool {
    let Some(status) = manifest.status() else { return false };
    let is_unsupported = |reason: &str| {
        let lacks = [Reason::NotEntitled, Reason::VersionNotSupported];
        status.plan.is_none() && status.id.is_some() && lacks.iter().any(|it| it.as_str() == reason)
    };
    status.conditions.iter().any(|it| match it.type_.as_str() {
        READY => it.status == "True" || is_unsupported(&it.reason),
        DRIFTED => it.status == "True",
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn template_with_an_unlicensed_field_is_equal_all_the_same() {
        let was_equal = |ready: &str, reason: &str, plan: &Value| {
            let conditions = json!([{"type": "Ready", "status": ready, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": "a"},
                "spec": {"controlPlaneRef": {"name": "main"}}, "status": {"id": "1", "plan": plan, "conditions": conditions}});
            was_equal(&serde_json::from_value(manifest).unwrap())
        };
        assert!(was_equal("True", "Ready", &Value::Null) && was_equal("False", "NotEntitled", &Value::Null));
        let plan = json!({"hash": "1", "summary": "1 change"});
        assert!(
            !was_equal("False", "NotEntitled", &plan) && !was_equal("False", "VersionFailed", &Value::Null)
        );
    }
}
