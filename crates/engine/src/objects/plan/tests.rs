use serde_json::json;

use super::*;

#[test]
fn what_interrupts_people_is_said_to() {
    let key = |kind: &str| Key::new("v1", kind, "platform", "main");
    for (kind, field, before, after, expected) in [
        ("Deployment", "spec.template.spec.nodeSelector", json!("a"), json!("b"), Impact::Disruptive),
        ("Deployment", "spec.template.spec.nodeSelector", json!("a"), json!("a"), Impact::Safe),
        ("Deployment", "spec.replicas", json!(1), json!(2), Impact::Safe),
        ("Deployment", "spec.replicas", json!(1), json!(0), Impact::Disruptive),
        ("Deployment", "metadata.labels.a", json!("a"), json!("b"), Impact::Safe),
        ("Service", "spec.ports", json!("a"), json!("b"), Impact::Disruptive),
        ("Service", "metadata.annotations.a", json!("a"), json!("b"), Impact::Safe),
        ("Role", "rules", json!("a"), json!("b"), Impact::Safe),
    ] {
        let changes = [Change::new(field, before, after)];
        assert_eq!(impact(&key(kind), &changes), expected, "{kind} {field}");
    }
}
