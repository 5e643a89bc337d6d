//! The scripts in Lua 5.1, which Argo CD runs, and the expressions in CEL, on objects in every state.

use kube_cel::cel::{Context, Program, Value as CelValue, to_value};
use mlua::{Lua, LuaOptions, LuaSerdeExt as _, StdLib};

use super::*;

/// An object of generation 2 with these conditions: type, status, reason.
fn object(observed: Option<i64>, conditions: &[(&str, &str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason)| json!({"type": kind, "status": status, "reason": reason, "message": "words"}))
        .collect();
    json!({
        "apiVersion": "coder.com/v1alpha1",
        "kind": "CoderGroup",
        "metadata": {"name": "a", "namespace": "b", "generation": 2},
        "spec": {"controlPlaneRef": {"name": "main"}},
        "status": {"observedGeneration": observed, "conditions": conditions},
    })
}

/// Every state that an object can be in: its name, the object, Argo CD's health, and what Flux makes of it.
fn states() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let without = |field: &str| {
        let mut it = object(Some(2), &[("Ready", "True", "UpToDate")]);
        it.as_object_mut().unwrap().remove(field);
        it
    };
    let mut empty = object(None, &[]);
    empty["status"] = json!({});
    let mut deleted = object(Some(2), &[("Ready", "True", "UpToDate")]);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let ready = ("Ready", "True", "UpToDate");
    vec![
        ("no status", without("status"), "Progressing", "wait"),
        ("empty status", empty, "Progressing", "wait"),
        ("no conditions", object(Some(2), &[]), "Progressing", "wait"),
        ("older generation", object(Some(1), &[ready]), "Progressing", "wait"),
        ("no observed generation", object(None, &[ready]), "Progressing", "wait"),
        ("ready", object(Some(2), &[("Drifted", "False", "NoDrift"), ready]), "Healthy", "current"),
        (
            "first status",
            object(Some(2), &[("Ready", "Unknown", "Progressing"), ("Reconciling", "True", "Progressing")]),
            "Progressing",
            "wait",
        ),
        (
            "waits",
            object(
                Some(2),
                &[("Ready", "False", "ReferenceNotFound"), ("Reconciling", "True", "ReferenceNotFound")],
            ),
            "Progressing",
            "wait",
        ),
        (
            "stalled",
            object(Some(2), &[("Ready", "False", "Invalid"), ("Stalled", "True", "Invalid")]),
            "Degraded",
            "failed",
        ),
        (
            "suspended",
            object(Some(2), &[("Ready", "False", "Suspended"), ("Stalled", "True", "Suspended")]),
            "Suspended",
            "failed",
        ),
        (
            "observed drift",
            object(Some(2), &[("Ready", "False", "Observed"), ("Drifted", "True", "DriftFound")]),
            "Degraded",
            "wait",
        ),
        ("being deleted", deleted, "Progressing", "current"),
    ]
}

/// Runs a script as Argo CD does: the object is the global `obj`, with the base, table, package and os libraries.
fn run(script: &str, object: &Value) -> Value {
    let lua = Lua::new_with(StdLib::TABLE | StdLib::PACKAGE | StdLib::OS, LuaOptions::default()).unwrap();
    assert_eq!(lua.globals().get::<String>("_VERSION").unwrap(), "Lua 5.1");
    // Fields that are null are absent in an object of the cluster.
    lua.globals().set("obj", lua.to_value(&without_nulls(object)).unwrap()).unwrap();
    let answer: mlua::Value = lua.load(script).eval().unwrap();
    lua.from_value(answer).unwrap()
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, it)| !it.is_null());
            kept.map(|(key, it)| (key.clone(), without_nulls(it))).collect::<Map<String, Value>>().into()
        }
        other => other.clone(),
    }
}

#[test]
fn argo_cd_sees_the_health_of_every_state() {
    for (name, object, health, _) in states() {
        let found = run(HEALTH, &object);
        assert_eq!(found["status"], health, "{name}: {found}");
        assert!(found["message"].as_str().is_some_and(|it| !it.is_empty()), "{name}: {found}");
    }
}

#[test]
fn flux_takes_no_object_for_current_before_it_is_ready() {
    let (current, failed) = (Program::compile(&current()).unwrap(), Program::compile(&failed()).unwrap());
    for (name, object, _, expected) in states() {
        let object = without_nulls(&object);
        let mut context = Context::default();
        for (field, value) in object.as_object().unwrap() {
            context.add_variable_from_value(field, to_value(value).unwrap());
        }
        // An expression that fails keeps Flux waiting.
        let is = |program: &Program| program.execute(&context).is_ok_and(|it| it == CelValue::Bool(true));
        let found = match (is(&failed), is(&current)) {
            (true, _) => "failed",
            (false, true) => "current",
            (false, false) => "wait",
        };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn actions_are_offered_where_they_make_sense() {
    let enabled = |kind: &str, object: &Value| {
        let found = run(&discovery(kind), object);
        let offered = found.as_object().unwrap().iter().filter(|(_, it)| it["disabled"] == false);
        offered.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let mut object = object(Some(2), &[("Ready", "False", "ApprovalRequired")]);
    assert_eq!(enabled("CoderGroup", &object), ["reconcile", "suspend"]);
    assert_eq!(enabled("CoderProvisionerKey", &object), ["reconcile", "rotate", "suspend"]);
    object["status"]["plan"] = json!({"hash": "abc"});
    assert_eq!(enabled("CoderGroup", &object), ["approve-plan", "reconcile", "suspend"]);
    object["metadata"]["annotations"] = json!({"coder.com/approved-plan": "abc"});
    assert_eq!(enabled("CoderGroup", &object), ["reconcile", "suspend"]);
    object["spec"]["suspend"] = json!(true);
    assert_eq!(enabled("CoderGroup", &object), ["resume"]);
}

#[test]
fn actions_change_what_they_name_and_nothing_else() {
    let mut before = object(Some(2), &[("Ready", "False", "ApprovalRequired")]);
    before["status"]["plan"] = json!({"hash": "abc"});
    for (name, script) in scripts("CoderProvisionerKey") {
        let after = run(&script, &before);
        let mut expected = before.clone();
        match name {
            "approve-plan" => expected["metadata"]["annotations"] = json!({"coder.com/approved-plan": "abc"}),
            "suspend" => expected["spec"]["suspend"] = json!(true),
            "resume" => expected["spec"]["suspend"] = json!(false),
            stamped => {
                let annotation = format!("coder.com/{stamped}-requested-at");
                let stamp = after["metadata"]["annotations"][&annotation].as_str().unwrap();
                assert_eq!((stamp.len(), &stamp[10..11]), (20, "T"), "{stamp}");
                expected["metadata"]["annotations"] = json!({annotation: stamp});
            }
        }
        assert_eq!(after, expected, "{name}");
    }
}

#[test]
fn every_kind_has_its_check_and_keys_that_a_config_map_takes() {
    let File { text, .. } = argocd().unwrap();
    let config: Value = serde_saphyr::from_str(&text).unwrap();
    let keys: Vec<&String> = config["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 2 * api::kinds::ALL.len());
    let is_key = |it: &&&String| it.chars().all(|it| it.is_ascii_alphanumeric() || "-._".contains(it));
    assert_eq!(keys.iter().filter(is_key).count(), keys.len(), "{keys:?}");
    let File { text, .. } = flux().unwrap();
    let kustomization: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(kustomization["spec"]["healthCheckExprs"].as_array().unwrap().len(), api::kinds::ALL.len());
}
