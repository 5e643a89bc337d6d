//! What manifests mean once they are read.

use std::time::Duration;

use api::{
    AppState, CoderGroup, CoderProvisioner, CoderProvisionerKey, CoderRoleSync, DeletionPolicy, Status,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::examples::examples;

fn read<K: DeserializeOwned>(document: &Value) -> K {
    serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{error} in {document}"))
}

fn group(spec: &Value) -> CoderGroup {
    read(
        &json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": "x"}, "spec": spec}),
    )
}

fn written_back<K: DeserializeOwned + Serialize>(document: &Value) -> Value {
    serde_json::to_value(read::<K>(document)).unwrap()
}

macro_rules! written_back_as {
    ($($module:ident: $kind:ident => $driver:ident),+ $(,)?; $($with_pods:ident: $other:ident),+ $(,)?) => {
        fn written_back_as(kind: &str, document: &Value) -> Value {
            match kind {
                $(stringify!($kind) => written_back::<api::$kind>(document),)+
                $(stringify!($other) => written_back::<api::$other>(document),)+
                _ => panic!("no kind of ours: {kind}"),
            }
        }
    };
}

api::for_each_kind!(written_back_as);

#[test]
fn every_kind_has_an_example_and_nothing_of_it_is_lost() {
    let mut kinds: Vec<String> = api::crds().into_iter().map(|crd| crd.spec.names.kind).collect();
    for document in examples() {
        let kind = document["kind"].as_str().unwrap();
        let written = written_back_as(kind, &document);
        assert_eq!(written, document);
        kinds.retain(|it| it != kind);
    }
    assert_eq!(kinds, [""; 0], "these have no example");
}

#[test]
fn absent_and_empty_are_different() {
    let absent = group(&json!({"controlPlaneRef": {"name": "main"}}));
    assert_eq!(absent.spec.members, None);
    let empty = group(&json!({"controlPlaneRef": {"name": "main"}, "members": [], "displayName": ""}));
    assert_eq!(empty.spec.members, Some(Vec::new()));
    assert_eq!(empty.spec.display_name.as_deref(), Some(""));
    let written = serde_json::to_value(&empty.spec).unwrap();
    assert_eq!(written, json!({"controlPlaneRef": {"name": "main"}, "members": [], "displayName": ""}));
    let spec = json!({"controlPlaneRef": {"name": "main"}, "mapping": {}});
    let sync: CoderRoleSync = read(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderRoleSync",
        "metadata": {"name": "x"}, "spec": spec}));
    assert_eq!(sync.spec.mapping.as_ref().map(std::collections::BTreeMap::len), Some(0));
    assert_eq!(serde_json::to_value(&sync.spec).unwrap(), spec);
}

#[test]
fn names_fall_back_to_the_objects_own() {
    let plain = group(&json!({"controlPlaneRef": {"name": "main"}}));
    assert_eq!((plain.organization(), plain.remote_name()), ("default", "x"));
    let named = group(&json!({"controlPlaneRef": {"name": "main"}, "organization": "alpha", "name": "dev"}));
    assert_eq!((named.organization(), named.remote_name()), ("alpha", "dev"));
}

#[test]
fn policy_fields_are_read_from_the_top_of_the_spec() {
    let mut kept = group(&json!({"controlPlaneRef": {"name": "main"}, "suspend": true, "interval": "1h30m",
        "deletionPolicy": "Delete", "name": "dev"}));
    assert_eq!(kept.control_plane(), "main");
    assert!(kept.policy().is_suspended());
    assert_eq!(kept.policy().interval(), Duration::from_mins(90));
    assert_eq!(kept.policy().deletion_policy(), DeletionPolicy::Delete);
    assert_eq!(kept.spec.name.as_deref(), Some("dev"));
    assert_eq!(AppState::status(&kept), None);
    kept.set_status(Status { id: Some("1".to_owned()), ..Status::default() });
    assert_eq!(AppState::status(&kept).and_then(|it| it.id.as_deref()), Some("1"));
}

#[test]
fn an_interval_that_cannot_be_read_is_refused_with_an_example() {
    let spec = json!({"controlPlaneRef": {"name": "main"}, "interval": "5 minutes"});
    let error = serde_json::from_value::<api::CoderGroupSpec>(spec).unwrap_err();
    assert!(error.to_string().contains("write it as 5m, 90s or 1h30m"), "{error}");
}

#[test]
fn the_keys_of_a_control_planes_secrets_have_defaults() {
    let spec = json!({"external": {"url": "https://coder.example.com", "credentialsSecretRef": {"name": "token"},
        "caSecretRef": {"name": "ca"}}, "licenseSecretRef": {"name": "one"}, "licenseSecretRefs": [{"name": "two", "key": "jwt"}, {"name": "three", "key": ""}]});
    let spec: api::CoderControlPlaneSpec = read(&spec);
    assert_eq!(
        spec.licenses().collect::<Vec<_>>(),
        [("one", "license"), ("two", "jwt"), ("three", "license")]
    );
    assert_eq!(spec.interval(), Duration::from_mins(5));
    let external = spec.external.unwrap();
    assert_eq!((external.token_key(), external.ca()), ("token", Some(("ca", "ca.crt"))));
}

#[test]
fn what_a_provisioner_does_not_say_is_what_coder_k8s_takes() {
    let object = |spec: Value| -> CoderProvisioner {
        read(
            &json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "metadata": {"name": "x"}, "spec": spec}),
        )
    };
    let empty = json!({"name": "", "secretName": "", "secretKey": ""});
    for spec in [
        json!({"controlPlaneRef": {"name": "main"}}),
        json!({"controlPlaneRef": {"name": "main"}, "organizationName": "", "image": " ", "key": empty}),
    ] {
        let plain = object(spec.clone());
        assert_eq!((plain.key_name(), plain.spec.organization()), ("x", "default"));
        assert_eq!((plain.spec.secret_name(), plain.spec.secret_key()), (None, "key"));
        assert_eq!((plain.spec.replicas(), plain.spec.termination_grace_period()), (1, 600));
        assert_eq!((plain.spec.image(), plain.spec.rotates_every()), (None, None));
        assert_eq!(plain.spec.entitlement_loss_policy(), api::EntitlementLossPolicy::Retain);
        assert_eq!(serde_json::to_value(&plain.spec).unwrap(), spec, "and nothing is written into it");
    }
    let rbac = api::ProvisionerRbacSpec::default();
    assert_eq!((rbac.has_workspace_perms(), rbac.enables_deployments()), (true, false));
    let bootstrap = json!({"credentialsSecretRef": {"name": "admin"}});
    let said = object(json!({"controlPlaneRef": {"name": "main"}, "replicas": 0, "bootstrap": bootstrap,
        "rotation": {"every": "2160h"}}));
    assert_eq!(said.spec.bootstrap.as_ref().map(api::Bootstrap::token), Some(("admin", "token")));
    assert_eq!((said.spec.replicas(), said.spec.rotates_every()), (0, Some(Duration::from_hours(2160))));
}

#[test]
fn a_provisioner_keys_own_report_stays_when_the_common_part_is_written() {
    let mut key: CoderProvisionerKey =
        read(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisionerKey",
        "metadata": {"name": "x"}, "spec": {"controlPlaneRef": {"name": "main"}}}));
    assert_eq!((key.key_name(), key.organization(), key.spec.secret_key()), ("x", "default", "key"));
    assert_eq!((key.spec.overlap(), key.spec.rotates_every()), (Duration::from_hours(24), None));
    assert_eq!(AppState::status(&key), None);
    key.set_status(Status { id: Some("1".to_owned()), ..Status::default() });
    key.status.as_mut().unwrap().key.provisioner_key_name = Some("x-1".to_owned());
    key.set_status(Status { id: Some("2".to_owned()), ..Status::default() });
    assert_eq!(AppState::status(&key).and_then(|it| it.id.as_deref()), Some("2"));
    let written = serde_json::to_value(&key.status).unwrap();
    assert_eq!(written, json!({"id": "2", "provisionerKeyName": "x-1"}), "all at the top");
}
