//! Who made drift: by Coder's audit log, in the status, in Events and on the command line.

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Session;

use super::{
    cluster_door::expect,
    get, licensed,
    people::command,
    run,
    stage::{Stage, is_ready},
};
use crate::{examples::request, support::Folder};

fn object(kind: &str, name: &str, mode: &str, more: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name},
        "spec": {"controlPlaneRef": {"name": "main"}, "interval": "1h", "mode": mode}});
    manifest["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    manifest
}

/// An account that is not the operator's, and may do everything.
pub(super) async fn alice(owner: &Session) -> Session {
    let alice = json!({"username": "alice", "email": "alice@bed.test", "password": "Bed-Person-31-Cases!",
        "organization_ids": [uuid::Uuid::nil()], "roles": ["owner"]});
    let id = request(owner, Method::POST, "/api/v2/users", Some(&alice)).await["id"].clone();
    let path = format!("/api/v2/users/{}/keys/tokens", id.as_str().unwrap());
    let key = request(owner, Method::POST, &path, Some(&json!({}))).await["key"].clone();
    let mut session = owner.clone();
    key.as_str().unwrap().clone_into(&mut session.token);
    session
}

pub(super) async fn drift_notes(stage: &Stage, name: &str) -> Vec<String> {
    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let is_it = |it: &Event| {
        it.reason.as_deref() == Some("DriftFound")
            && it.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name))
    };
    events.into_iter().filter(is_it).filter_map(|it| it.note).collect()
}

#[tokio::test]
async fn drift_names_who_made_it_and_when() {
    let stage = Stage::new(licensed().await).await;
    let alice = alice(&stage.coderd.owner).await;
    let quota = json!({"quotaAllowance": 20});
    let role = json!({"permissions": [{"resource": "template", "actions": ["read"]}]});
    let name = json!({"applicationName": "Mission Cloud"});
    let manifests = |mode: &str| {
        [
            object("CoderGroup", "observed", mode, &quota),
            object("CoderRole", "watcher", mode, &role),
            object("CoderAppearance", "appearance", mode, &name),
        ]
    };
    let healed = object("CoderGroup", "healed", "Enforce", &quota);
    for manifest in manifests("Enforce").iter().chain([&healed]) {
        stage.apply(manifest).await;
    }
    let mut ids = Vec::new();
    for (kind, name) in [
        ("CoderGroup", "observed"),
        ("CoderGroup", "healed"),
        ("CoderRole", "watcher"),
        ("CoderAppearance", "appearance"),
    ] {
        let made = stage.wait_for(kind, name, "ready", is_ready).await;
        ids.push(made["status"]["id"].as_str().unwrap().to_owned());
    }
    for manifest in manifests("Observe") {
        stage.apply(&manifest).await;
        let (kind, name) =
            (manifest["kind"].as_str().unwrap(), manifest["metadata"]["name"].as_str().unwrap());
        stage.look_again(kind, name).await;
    }

    for id in &ids[..2] {
        let by_hand = json!({"name": "", "quota_allowance": 3});
        request(&alice, Method::PATCH, &format!("/api/v2/groups/{id}"), Some(&by_hand)).await;
    }
    let update = json!({"action": "update", "resource_type": "template", "negate": false});
    let by_hand = json!({"name": "watcher", "organization_permissions": [update]});
    request(&alice, Method::PUT, "/api/v2/organizations/default/members/roles", Some(&by_hand)).await;
    let mut appearance = get(&stage.coderd, "/api/v2/appearance").await;
    appearance["application_name"] = json!("by hand");
    request(&alice, Method::PUT, "/api/v2/appearance", Some(&appearance)).await;

    for (kind, name, by) in [
        ("CoderGroup", "observed", "alice"),
        ("CoderRole", "watcher", "alice"),
        ("CoderAppearance", "appearance", "unknown"),
    ] {
        let drifted = stage.look_again(kind, name).await;
        let drift = &drifted["status"]["drift"];
        assert_eq!(drift[0]["changedBy"], by, "{kind}: {drift:#}");
        assert_eq!(drift[0]["changedAt"].is_string(), by == "alice", "{kind}: {drift:#}");
    }
    let is_quota = |it: &str| it.starts_with("quotaAllowance 20 -> 3 by alice at 20");
    assert!(is_ready(&stage.look_again("CoderGroup", "healed").await));
    for name in ["observed", "healed"] {
        let told = super::stage::eventually("told", || drift_notes(&stage, name), |it| !it.is_empty()).await;
        assert!(told.len() == 1 && is_quota(&told[0]), "{name}: {told:?}");
    }

    // The command line names the same people.
    let table = expect(command(&["status", "--namespace", &stage.namespace]), 0).await;
    let row = table.lines().find(|it| it.contains("codergroup/observed")).unwrap();
    assert!(row.contains("quotaAllowance by alice"), "{table}");
    let folder = Folder::new("attribution");
    let documents: Vec<String> = manifests("Enforce").iter().map(Value::to_string).collect();
    let file = folder.write("set.yaml", &documents.join("\n---\n"));
    let told = run(&stage.coderd, &["verify", "-f", &file], 3).await;
    assert!(told.contains("~ quotaAllowance: 3 -> 20\n          changed by alice at 20"), "{told}");
    assert!(told.contains("changed by unknown"), "{told}");
    let told = run(&stage.coderd, &["plan", "-o", "json", "-f", &file], 0).await;
    assert!(told.contains("\"by\": \"alice\""), "{told}");
}
