//! From coder-k8s' updates to our applies.
//!
//! coder-k8s wrote whole objects, so the API server holds it for the manager of every field in them. A field that is no
//! longer declared goes only when its last manager lets go; as long as coder-k8s is noted, nothing ever would. So its
//! fields are noted as ours, and what we then do not apply goes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta};
use serde_json::{Map, Value, json};

use super::{FIELD_MANAGER, fields};

/// The name under which coder-k8s writes: the one of its program.
const PREDECESSOR: &str = "coder-k8s";

/// What is written into an object's metadata, and nothing else of it: it is refused when the object has changed since.
pub fn patch(live: &ObjectMeta, entries: &[ManagedFieldsEntry]) -> Value {
    json!({"metadata": {"resourceVersion": live.resource_version, "managedFields": entries}})
}

/// The managers after the migration; nothing when there is nothing to migrate.
///
/// `left` are fields that we do not declare and must not take away either, such as the number of pods once an autoscaler
/// decides: they stay as they are, and nobody is noted for them.
pub fn migrate(entries: &[ManagedFieldsEntry], left: &[&[&str]]) -> Option<Vec<ManagedFieldsEntry>> {
    let mut tree = fields::ours(entries).cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let predecessors: Vec<&ManagedFieldsEntry> = entries.iter().filter(|it| is_predecessors(it)).collect();
    for fields in predecessors.iter().filter_map(|it| it.fields_v1.as_ref()) {
        fields::unite(&mut tree, &fields.0);
    }
    let taken = left.iter().filter(|path| fields::take(&mut tree, path)).count();
    if predecessors.is_empty() && taken == 0 {
        return None;
    }
    let former = entries.iter().find(|it| fields::is_ours(it)).or_else(|| predecessors.first().copied())?;
    let ours = ManagedFieldsEntry {
        manager: Some(FIELD_MANAGER.to_owned()),
        operation: Some("Apply".to_owned()),
        fields_v1: Some(FieldsV1(tree)),
        subresource: None,
        ..former.clone()
    };
    let others = entries.iter().filter(|it| !fields::is_ours(it) && !is_predecessors(it)).cloned();
    Some(others.chain([ours]).collect())
}

/// Whether coder-k8s wrote this, as whole objects. What it wrote of a status is no field of ours.
pub(super) fn is_predecessors(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(PREDECESSOR)
        && entry.operation.as_deref() == Some("Update")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, subresource: &str, tree: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            subresource: (!subresource.is_empty()).then(|| subresource.to_owned()),
            api_version: Some("apps/v1".to_owned()),
            fields_type: Some("FieldsV1".to_owned()),
            fields_v1: Some(FieldsV1(tree)),
            time: None,
        }
    }

    #[test]
    fn the_predecessors_fields_become_ours_and_everybody_elses_stay() {
        let scale =
            entry("kube-controller-manager", "Update", "scale", json!({"f:spec": {"f:replicas": {}}}));
        let status = entry(PREDECESSOR, "Update", "status", json!({"f:status": {}}));
        let entries = [
            entry(
                PREDECESSOR,
                "Update",
                "",
                json!({"f:spec": {"f:paused": {}, "f:template": {"f:spec": {}}}}),
            ),
            scale.clone(),
            status.clone(),
            entry(FIELD_MANAGER, "Apply", "", json!({"f:spec": {"f:replicas": {}}})),
        ];
        let migrated = migrate(&entries, &[]).unwrap();
        let all = json!({"f:spec": {"f:paused": {}, "f:replicas": {}, "f:template": {"f:spec": {}}}});
        assert_eq!(migrated, [scale, status, entry(FIELD_MANAGER, "Apply", "", all)]);
        assert_eq!(migrate(&migrated, &[]), None, "once is enough");
    }

    #[test]
    fn what_is_left_alone_is_nobodys_and_stays() {
        let ours = entry(FIELD_MANAGER, "Apply", "", json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}));
        let migrated = migrate(&[ours], &[&["spec", "replicas"]]).unwrap();
        assert_eq!(migrated[0].fields_v1.as_ref().unwrap().0, json!({"f:spec": {"f:paused": {}}}));
        assert_eq!(migrate(&migrated, &[&["spec", "replicas"]]), None);
    }

    #[test]
    fn an_object_that_only_others_wrote_is_not_migrated() {
        assert_eq!(migrate(&[entry("kubectl", "Update", "", json!({"f:spec": {}}))], &[]), None);
        assert_eq!(migrate(&[entry(PREDECESSOR, "Apply", "", json!({"f:spec": {}}))], &[]), None);
    }

    #[test]
    fn a_migration_is_refused_when_the_object_has_changed_since() {
        let live = ObjectMeta { resource_version: Some("7".to_owned()), ..ObjectMeta::default() };
        assert_eq!(patch(&live, &[])["metadata"]["resourceVersion"], "7");
    }
}
