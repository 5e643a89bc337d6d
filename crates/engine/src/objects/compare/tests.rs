use serde_json::json;

use super::*;

/// An object as we apply it.
fn desired() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "main", "labels": {"a": "b"}},
        "spec": {"template": {"spec": {
            "nodeSelector": {"os": "linux"},
            "containers": [{"name": "coder", "args": ["--x"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
                "resources": {"limits": {"cpu": "1000m"}}}],
        }}},
    })
}

/// The same as the API server has it: with defaults, a shorter quantity, without what is zero, and with others' fields.
fn live() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "main", "uid": "1", "labels": {"a": "b", "theirs": "c"}, "annotations": {"theirs": "d"}},
        "spec": {"replicas": 3, "template": {"spec": {
            "nodeSelector": {"os": "linux"}, "restartPolicy": "Always",
            "containers": [{"name": "coder", "args": ["--x"], "imagePullPolicy": "IfNotPresent",
                "env": [{"name": "A", "value": "1"}, {"name": "B"}], "resources": {"limits": {"cpu": "1"}}},
                {"name": "sidecar"}],
        }}},
        "status": {"replicas": 3},
    })
}

/// What the API server notes of our apply.
fn owned() -> Value {
    let variable = json!({".": {}, "f:name": {}, "f:value": {}});
    let container = json!({".": {}, "f:name": {}, "f:args": {},
        "f:env": {"k:{\"name\":\"A\"}": variable, "k:{\"name\":\"B\"}": variable},
        "f:resources": {"f:limits": {"f:cpu": {}}}});
    json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:template": {"f:spec": {
        "f:nodeSelector": {}, "f:containers": {"k:{\"name\":\"coder\"}": container}}}}})
}

fn fields(desired: &Value, live: &Value, owned: &Value) -> Vec<String> {
    differences(desired, live, Some(owned)).into_iter().map(|it| it.field).collect()
}

const CONTAINER: &str = "/spec/template/spec/containers/0";

#[test]
fn what_the_api_server_and_others_add_is_no_difference() {
    assert_eq!(differences(&desired(), &live(), Some(&owned())), []);
}

#[test]
fn a_declared_value_that_differs_is_found_where_it_is() {
    for (at, value, field) in [
        ("/env/0/value", json!("2"), "env[A].value"),
        ("/args", json!(["--y"]), "args"),
        ("/args", json!(["--x", "--y"]), "args"),
        ("/resources/limits/cpu", json!("1001m"), "resources.limits.cpu"),
    ] {
        let mut other = desired();
        *other.pointer_mut(&format!("{CONTAINER}{at}")).unwrap() = value;
        assert_eq!(
            fields(&other, &live(), &owned()),
            [format!("spec.template.spec.containers[coder].{field}")]
        );
    }
}

#[test]
fn a_text_that_looks_like_a_quantity_is_still_a_text() {
    let mut other = desired();
    other.pointer_mut(CONTAINER).unwrap()["env"][0]["value"] = json!("1000m");
    assert_eq!(fields(&other, &live(), &owned()), ["spec.template.spec.containers[coder].env[A].value"]);
}

#[test]
fn a_field_that_is_ours_and_no_longer_declared_is_found() {
    let mut other = desired();
    other.pointer_mut("/spec/template/spec").unwrap().as_object_mut().unwrap().remove("nodeSelector");
    other.pointer_mut(CONTAINER).unwrap()["env"].as_array_mut().unwrap().remove(0);
    let found = differences(&other, &live(), Some(&owned()));
    let fields: Vec<&str> = found.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["spec.template.spec.containers[coder].env[A]", "spec.template.spec.nodeSelector"]);
    assert!(found.iter().all(|it| it.after.is_null()));
}

#[test]
fn a_declared_field_that_somebody_else_took_or_that_is_new_is_found() {
    let mut theirs = owned();
    theirs["f:spec"]["f:template"]["f:spec"].as_object_mut().unwrap().remove("f:nodeSelector");
    assert_eq!(fields(&desired(), &live(), &theirs), ["spec.template.spec.nodeSelector"]);
    let mut new = desired();
    new.pointer_mut(CONTAINER).unwrap()["env"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "C", "value": "3"}));
    assert_eq!(fields(&new, &live(), &owned()), ["spec.template.spec.containers[coder].env[2]"]);
    assert_eq!(fields(&desired(), &live(), &json!({})), ["metadata", "spec"], "nothing is ours yet");
}

#[test]
fn the_order_of_variables_counts() {
    let mut other = desired();
    other.pointer_mut(CONTAINER).unwrap()["env"].as_array_mut().unwrap().reverse();
    assert_eq!(fields(&other, &live(), &owned()), ["spec.template.spec.containers[coder].env[A]"]);
}

#[test]
fn a_list_that_is_one_value_may_have_defaults_inside() {
    let backend = json!({"name": "main", "port": 80});
    let desired = json!({"spec": {"rules": [{"backendRefs": [backend]}]}});
    let live = json!({"spec": {"rules": [{"backendRefs": [{"name": "main", "port": 80, "group": "", "weight": 1}]}]}});
    let owned = json!({"f:spec": {"f:rules": {}}});
    assert_eq!(differences(&desired, &live, Some(&owned)), []);
    let live = json!({"spec": {"rules": []}});
    assert_eq!(fields(&desired, &live, &owned), ["spec.rules"]);
}

#[test]
fn what_may_be_a_secret_is_not_shown() {
    let mut other = desired();
    let container = other.pointer_mut(CONTAINER).unwrap();
    container["env"][0]["value"] = json!("postgres://me:word@db");
    container["env"].as_array_mut().unwrap().push(json!({"name": "C", "value": "word"}));
    container["args"] = json!(["--postgres-url=word"]);
    for owned in [owned(), json!({})] {
        let found = differences(&other, &live(), Some(&owned));
        let shown = serde_json::to_string(&found).unwrap();
        assert!(!found.is_empty() && !shown.contains("word"), "{shown}");
    }
}
