//! Templates with real daemons and Terraform: published, built, promoted, healed, and deleted when no workspace is left.

use api::CoderProvisioner;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    attribution::drift_notes,
    get, licensed,
    provisioner::provisioner,
    run, secrecy,
    stage::{Stage, eventually, is_held_up, is_ready, says, words},
};
use crate::{examples::request, support::Folder};

const FIRST: &str = "registry-bed-0123456789-first";
const SECOND: &str = "registry-bed-0123456789-second";
const TAGS: &str = r#"{"site":"bed"}"#;
const GOOD: &str = r#"
variable "registry_token" { type = string }
resource "terraform_data" "workspace" { input = sha256(var.registry_token) }
"#;
/// Terraform reports the value of the variable in its error.
const BROKEN: &str = r#"
variable "registry_token" { type = string }
resource "terraform_data" "workspace" {
  lifecycle {
    precondition {
      condition     = var.registry_token == ""
      error_message = "The token ${var.registry_token} is of no use."
    }
  }
}
"#;

fn template(more: &Value) -> Value {
    let from = json!({"secretKeyRef": {"name": "registry", "key": "token"}});
    let mut spec = json!({"controlPlaneRef": {"name": "main"}, "interval": "1h", "displayName": "Kubernetes",
        "provisionerTags": {"site": "bed"}, "source": {"configMapRef": {"name": "files"}},
        "variables": [{"name": "registry_token", "valueFrom": from}],
        "acl": {"groups": {"Everyone": "use"}, "users": {"admin": "admin"}}, "deletionPolicy": "Delete",
        "allowDestructive": true});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": "kubernetes"}, "spec": spec})
}

async fn write_files(stage: &Stage, text: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"main.tf": text}});
    let apply = PatchParams::apply("test").force();
    stage.api::<ConfigMap>().patch("files", &apply, &Patch::Apply(map)).await.unwrap();
}

async fn ready(stage: &Stage) -> Value {
    stage.wait_for("CoderTemplate", "kubernetes", "ready", is_ready).await
}

/// Waits until another version is active, woken by a watch.
async fn replaced(stage: &Stage, before: &Value) -> Value {
    let name = &before["status"]["version"]["name"];
    let is_new = |it: &Value| is_ready(it) && it["status"]["version"]["name"] != *name;
    stage.is_noticed("CoderTemplate", "kubernetes", "with another version", is_new).await
}

/// The template, as Coder shows it.
async fn remote(stage: &Stage, object: &Value) -> Value {
    get(&stage.coderd, &path(object)).await
}

fn path(object: &Value) -> String {
    format!("/api/v2/templates/{}", object["status"]["id"].as_str().unwrap())
}

#[tokio::test]
async fn template_lives_from_its_first_version_to_its_deletion() {
    let stage = Stage::new(licensed().await).await;
    let owner = &stage.coderd.owner;
    stage.write_secret("registry", &json!({"token": FIRST})).await;
    stage.apply(&template(&json!({}))).await;
    stage.wait_for("CoderTemplate", "kubernetes", "waiting", is_held_up("ReferenceNotFound")).await;
    write_files(&stage, GOOD).await;
    let waits = stage.is_noticed("CoderTemplate", "kubernetes", "queued", is_held_up("NoProvisioner")).await;
    assert!(words(&waits).contains(TAGS), "{}", words(&waits));
    stage.apply(&provisioner("alpha", &json!({"tags": {"site": "bed"}}))).await;
    stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    let first = ready(&stage).await;
    let found = remote(&stage, &first).await;
    assert_eq!(found["active_version_id"], first["status"]["version"]["id"]);
    assert_eq!(found["display_name"], "Kubernetes");

    // The ConfigMap and the Secret wake the template.
    write_files(&stage, &format!("{GOOD}\nlocals {{}}\n")).await;
    let second = replaced(&stage, &first).await;
    stage.write_secret("registry", &json!({"token": SECOND})).await;
    let third = replaced(&stage, &second).await;
    assert_eq!(remote(&stage, &third).await["active_version_id"], third["status"]["version"]["id"]);

    // A source that Terraform refuses: the active version stays, and the failed one is archived.
    write_files(&stage, BROKEN).await;
    let failed = stage.is_noticed("CoderTemplate", "kubernetes", "failed", is_held_up("VersionFailed")).await;
    assert!(words(&failed).contains("Error: Resource precondition failed"), "{}", words(&failed));
    assert!(says(&failed, "Stalled", "True", "VersionFailed"), "{failed:#}");
    assert_eq!(remote(&stage, &third).await["active_version_id"], third["status"]["version"]["id"]);
    let version = failed["status"]["version"]["id"].as_str().unwrap();
    let is_archived = |it: &Value| it["archived"] == true;
    let version = format!("/api/v2/templateversions/{version}");
    eventually("archived", || get(&stage.coderd, &version), is_archived).await;
    write_files(&stage, GOOD).await;
    let fourth = stage.is_noticed("CoderTemplate", "kubernetes", "ready again", is_ready).await;
    assert_ne!(fourth["status"]["version"]["id"], failed["status"]["version"]["id"]);

    // Drift: another version, other words, another role. What is not declared stays.
    let older = json!({"id": first["status"]["version"]["id"]});
    request(owner, Method::PATCH, &format!("{}/versions", path(&first)), Some(&older)).await;
    let by_hand = json!({"display_name": "By hand", "description": "kept"});
    request(owner, Method::PATCH, &path(&first), Some(&by_hand)).await;
    let everyone =
        get(&stage.coderd, "/api/v2/organizations/default").await["id"].as_str().unwrap().to_owned();
    let access = json!({"group_perms": {(everyone): "admin"}});
    request(owner, Method::PATCH, &format!("{}/acl", path(&first)), Some(&access)).await;
    let healed = stage.look_again("CoderTemplate", "kubernetes").await;
    assert!(is_ready(&healed) && says(&healed, "Drifted", "False", "NoDrift"), "{healed:#}");
    let is_told = |it: &Vec<String>| it.iter().any(|it| it.contains("By hand"));
    let told = eventually("told", || drift_notes(&stage, "kubernetes"), is_told).await;
    let note = told.iter().find(|it| it.contains("By hand")).unwrap();
    for field in ["activeVersion ", "displayName ", "acl.groups "] {
        let is_attributed = |it: &str| it.starts_with(field) && it.contains(" by admin at 20");
        assert!(note.split(", ").any(is_attributed), "{field}: {note}");
    }
    let found = remote(&stage, &healed).await;
    assert_eq!(found["active_version_id"], healed["status"]["version"]["id"]);
    assert_eq!((&found["display_name"], &found["description"]), (&json!("Kubernetes"), &json!("kept")));
    let access = get(&stage.coderd, &format!("{}/acl", path(&first))).await;
    assert_eq!((&access["group"][0]["role"], &access["users"][0]["role"]), (&json!("use"), &json!("admin")));

    from_the_command_line(&stage).await;
    deletion_waits_for_workspaces(&stage, &healed).await;
    let told = secrecy::told(&stage).await;
    for (what, secret) in [("the first token", FIRST), ("the second token", SECOND)] {
        secrecy::hides(&told, what, secret.as_bytes());
    }
}

/// A template of a directory, published by `apply` and equal for `verify`.
async fn from_the_command_line(stage: &Stage) {
    let folder = Folder::new("template");
    folder.write("source/main.tf", "resource \"terraform_data\" \"only\" {}");
    folder.write("source/modules/a/main.tf", "locals {}");
    let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": "directory"},
        "spec": {"controlPlaneRef": {"name": "main"}, "source": {"directory": "source"},
            "provisionerTags": {"site": "bed"}}});
    let file = folder.write("template.json", &manifest.to_string());
    let told = run(&stage.coderd, &["apply", "--yes", "--timeout", "4m", "-f", &file], 0).await;
    assert!(told.contains("CoderTemplate"), "{told}");
    run(&stage.coderd, &["verify", "-f", &file], 0).await;
    folder.write("source/modules/a/main.tf", "locals { a = 1 }");
    run(&stage.coderd, &["verify", "-f", &file], 3).await;
}

async fn deletion_waits_for_workspaces(stage: &Stage, object: &Value) {
    let owner = &stage.coderd.owner;
    let body = json!({"template_id": object["status"]["id"], "name": "dev"});
    let members = "/api/v2/organizations/default/members/me/workspaces";
    let workspace = request(owner, Method::POST, members, Some(&body)).await;
    let workspace = format!("/api/v2/workspaces/{}", workspace["id"].as_str().unwrap());
    let is_built = |it: &Value| it["latest_build"]["job"]["completed_at"].is_string();
    let built = eventually("built", || get(&stage.coderd, &workspace), is_built).await;
    stage.delete("CoderTemplate", "kubernetes").await;
    let held = stage.wait_for("CoderTemplate", "kubernetes", "in use", is_in_use).await;
    assert!(words(&held).contains("admin/dev"), "{}", words(&held));
    let now = get(&stage.coderd, &workspace).await;
    assert_eq!(now["latest_build"]["id"], built["latest_build"]["id"], "the workspace is as it was");
    request(owner, Method::POST, &format!("{workspace}/builds"), Some(&json!({"transition": "delete"})))
        .await;
    stage.gone(object).await;
    assert_eq!(owner.request(Method::GET, &path(object), None).await.unwrap().0, 404);
    assert_eq!(stage.left_behind().await, Vec::<String>::new());
}

fn is_in_use(object: &Value) -> bool {
    says(object, "Ready", "False", "InUse")
}
