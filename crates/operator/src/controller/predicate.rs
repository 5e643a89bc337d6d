//! Which changes of a manifest are worth a reconcile: those of people, not our own of its status.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{ResourceExt, runtime::Predicate};

/// Lets those changes through.
pub(super) fn of<K: ResourceExt>() -> impl Predicate<K> + 'static {
    |object: &K| Some(version(object))
}

/// Whether the condition `Ready` is true.
pub(super) fn is_ready(conditions: &[Condition]) -> bool {
    conditions.iter().any(|it| it.type_ == api::condition::READY && it.status == "True")
}

/// Tells two versions of an object apart if somebody may want something else of it.
pub(super) fn version(object: &impl ResourceExt) -> u64 {
    let mut hasher = DefaultHasher::new();
    let meta = object.meta();
    // Another object of the same name is another object.
    (meta.uid.as_ref(), meta.generation, meta.deletion_timestamp.is_some()).hash(&mut hasher);
    meta.annotations.as_ref().unwrap_or(&BTreeMap::new()).hash(&mut hasher);
    meta.finalizers.as_deref().unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use api::CoderGroup;
    use serde_json::json;

    use super::*;

    fn version_of(metadata: &serde_json::Value, status: &serde_json::Value) -> u64 {
        let group: CoderGroup = serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1",
            "kind": "CoderGroup", "metadata": metadata, "status": status,
            "spec": {"controlPlaneRef": {"name": "main"}}}))
        .unwrap();
        version(&group)
    }

    #[test]
    fn our_own_words_in_a_status_are_no_reason_to_look_again_and_everything_of_a_person_is() {
        let one = json!({"name": "a", "uid": "u", "generation": 1, "resourceVersion": "1"});
        let before = version_of(&one, &json!({}));
        let mut ours = one.clone();
        ours["resourceVersion"] = "2".into();
        assert_eq!(version_of(&ours, &json!({"id": "x"})), before);
        for (field, value) in [
            ("generation", json!(2)),
            ("uid", json!("v")),
            ("annotations", json!({"coder.com/approved-plan": "h"})),
            ("finalizers", json!(["coder.com/finalizer"])),
            ("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ] {
            let mut theirs = one.clone();
            theirs[field] = value;
            assert_ne!(version_of(&theirs, &json!({})), before, "{field}");
        }
    }
}
