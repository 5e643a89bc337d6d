//! What the definitions promise, whatever the kind.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// Calls with every schema of a definition.
fn visit(schema: &Value, path: &str, look: &mut impl FnMut(&str, &Value)) {
    look(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        visit(property, &format!("{path}.{name}"), look);
    }
    for inner in ["additionalProperties", "items"] {
        if schema[inner].is_object() {
            visit(&schema[inner], &format!("{path}[]"), look);
        }
    }
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    serde_json::to_value(&crd.spec.versions[0].schema).unwrap()["openAPIV3Schema"].clone()
}

#[test]
fn all_kinds_are_of_one_group_and_version_and_namespaced() {
    for crd in api::crds() {
        assert_eq!(crd.spec.group, api::GROUP);
        assert_eq!(crd.spec.scope, "Namespaced");
        let versions: Vec<&str> = crd.spec.versions.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(versions, [api::VERSION]);
        assert_eq!(crd.spec.names.categories, Some(vec!["coder".to_owned()]));
        assert!(crd.spec.names.short_names.is_some_and(|it| !it.is_empty()));
    }
}

#[test]
fn every_list_of_objects_shows_the_same_first_things() {
    for crd in api::crds() {
        let columns = crd.spec.versions[0].additional_printer_columns.iter().flatten();
        let names: Vec<&str> = columns.map(|it| it.name.as_str()).collect();
        for expected in ["Ready", "Reason", "Drift", "Age"] {
            assert!(names.contains(&expected), "{expected} of {}", crd.spec.names.kind);
        }
        assert_eq!(names.last(), Some(&"Age"));
    }
}

#[test]
fn the_column_replicas_counts_ready_pods() {
    let crds = api::crds();
    let provisioner = crds.iter().find(|it| it.spec.names.kind == "CoderProvisioner").unwrap();
    let mut columns = provisioner.spec.versions[0].additional_printer_columns.iter().flatten();
    let replicas = columns.find(|it| it.name == "Replicas").unwrap();
    assert_eq!((replicas.json_path.as_str(), replicas.type_.as_str()), (".status.readyReplicas", "integer"));
}

#[test]
fn nothing_but_replicas_has_a_default_nothing_is_null_and_every_field_says_what_it_is() {
    for crd in api::crds() {
        let kind = &crd.spec.names.kind;
        visit(&schema(&crd), kind, &mut |path, schema| {
            // Without it nothing could be scaled that does not say how many there are.
            let default = (path == "CoderProvisioner.spec.replicas").then(|| json!(1));
            assert_eq!(schema.get("default"), default.as_ref(), "{path}");
            assert_eq!(schema.get("nullable"), None, "{path}");
            // Of somebody else's form, stored as it is found: coder-k8s' own, and Coder's settings of a model.
            let foreign = ["CoderControlPlane.spec.templateTests", "CoderAIModel.spec.config"];
            let is_foreign = foreign.contains(&path);
            let keeps_unknown = is_foreign.then_some(json!(true));
            assert_eq!(schema.get("x-kubernetes-preserve-unknown-fields"), keeps_unknown.as_ref(), "{path}");
            let is_either = schema["x-kubernetes-int-or-string"] == true;
            assert!(schema["type"].is_string() || is_either, "{path} has no type");
            let is_field = !path.ends_with("[]") && path.contains(".spec.");
            assert!(!is_field || schema["description"].is_string(), "{path} says nothing of itself");
        });
    }
}

#[test]
fn app_state_kinds_have_the_policys_fields_at_the_top_of_the_spec() {
    let fields =
        ["suspend", "interval", "mode", "deletionPolicy", "adoptionPolicy", "approval", "allowDestructive"];
    let workloads = ["CoderControlPlane", "CoderProvisioner"];
    for crd in api::crds().iter().filter(|it| !workloads.contains(&it.spec.names.kind.as_str())) {
        let spec = &schema(crd)["properties"]["spec"];
        for field in fields {
            assert!(spec["properties"][field].is_object(), "{field} of {}", crd.spec.names.kind);
        }
        assert_eq!(spec["properties"]["mode"]["enum"], json!(["Enforce", "Observe"]));
        // Nothing else is needed but what says which remote object it is.
        let required = match crd.spec.names.kind.as_str() {
            "CoderAIModel" => json!(["controlPlaneRef", "model", "provider"]),
            "CoderAIProvider" => json!(["controlPlaneRef", "type"]),
            _ => json!(["controlPlaneRef"]),
        };
        assert_eq!(spec["required"], required);
    }
}

#[test]
fn conditions_are_merged_by_type() {
    for crd in api::crds() {
        let conditions = &schema(&crd)["properties"]["status"]["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-type"], "map");
        assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
    }
}
