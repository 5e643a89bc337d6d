//! Provisioners with real daemons: from nothing to daemons that coderd sees, through rotations, to nothing again.

mod authority;
mod command_line;
mod conditions;
mod crashes;
mod daemons;
mod deletion;
mod gate;
mod import;
mod keys;
mod not_ours;
mod own_credentials;
mod planes;
mod policy;
mod refused;
mod restored;
mod rights;
mod rotation;
mod scale;
mod scene;
mod schedule;
mod secrets;
mod takeover;

use api::CoderProvisioner;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use serde_json::{Value, json};
use testbed::Coderd;

use super::{
    get, licensed,
    stage::{Stage, image, is_ready, says},
};

const KEYS: &str = "/api/v2/organizations/default/provisionerkeys";

/// A provisioner with more in its spec.
pub(super) fn provisioner(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"controlPlaneRef": {"name": "main"}, "image": image("bed/coder"), "interval": "10s",
        "replicas": 1, "terminationGracePeriodSeconds": 5});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "metadata": {"name": name}, "spec": whole})
}

/// The names of the keys that coderd has.
pub(super) async fn keys(coderd: &Coderd) -> Vec<String> {
    let keys = get(coderd, KEYS).await;
    keys.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

/// The notes of the Events about revoked keys of the object of that name.
pub(super) async fn revocations<C>(stage: &Stage<C>, name: &str) -> Vec<String> {
    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let of_object = |it: &Event| {
        it.reason.as_deref() == Some("KeyRevoked")
            && it.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name))
    };
    events.into_iter().filter(of_object).filter_map(|it| it.note).collect()
}

#[tokio::test]
async fn daemons_come_change_their_key_and_go_and_leave_no_key_behind() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&provisioner("alpha", &json!({"tags": {"site": "bed"}}))).await;
    let made = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    assert!(says(&made, "DaemonsConnected", "True", "DaemonsConnected"), "{made:#}");
    assert_eq!(made["status"]["daemons"], 1);
    assert_eq!(made["status"]["provisionerKeyName"], "alpha");
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);

    stage.apply(&provisioner("alpha", &json!({"tags": {"site": "other"}}))).await;
    let turned = stage
        .wait::<CoderProvisioner>("alpha", "rotated", |it| {
            is_ready(it)
                && it["status"]["retiringKeys"].is_null()
                && it["status"]["tagsHash"] != made["status"]["tagsHash"]
        })
        .await;
    let name = turned["status"]["provisionerKeyName"].as_str().unwrap().to_owned();
    assert!(name.starts_with("alpha-"), "{name}");
    assert_eq!(keys(&stage.coderd).await, [name]);

    stage.delete("CoderProvisioner", "alpha").await;
    stage.gone(&turned).await;
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
}
