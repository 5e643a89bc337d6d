//! Templates and their versions: archives, jobs that no daemon takes, settings, access, and what is refused.

use serde_json::{Value, json};

use crate::side::{Answer, MEMBER, OWNER, Side};

const FILES: &str = "/api/v2/files";
const TAR: &str = "application/x-tar";
const STRANGER: &str = "00000000-0000-0000-0000-000000000009";

/// A tar archive of one file, as text: everything in it is ASCII.
fn archive(text: &str) -> Value {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "main.tf", text.as_bytes()).unwrap();
    String::from_utf8(archive.into_inner().unwrap()).unwrap().into()
}

async fn upload(side: &mut Side, who: &str, kind: &str, body: &Value) -> Answer {
    let token = side.token(who);
    let headers = [("coder-session-token", token.as_str()), ("content-type", kind)];
    side.call_with(who, ("POST", FILES, body), &headers).await
}

pub(super) async fn versions(side: &mut Side) {
    let organization = side.default_organization().await;
    let versions = format!("/api/v2/organizations/{organization}/templateversions");
    let source = archive("resource \"terraform_data\" \"only\" {}");
    for kind in ["application/json", "application/x-tar; charset=utf-8", TAR] {
        upload(side, OWNER, kind, &source).await;
    }
    let file = upload(side, OWNER, TAR, &source).await;
    assert_eq!(file.status, 200, "the same bytes are the same file");
    let other = upload(side, MEMBER, TAR, &source).await.text("hash");
    let file = file.text("hash");
    for (who, id) in [
        (OWNER, file.as_str()),
        (OWNER, &other),
        (MEMBER, &other),
        (MEMBER, &file),
        (OWNER, STRANGER),
        (OWNER, "one"),
    ] {
        side.get(who, &format!("{FILES}/{id}")).await;
    }
    let body = |more: Value| {
        let mut body = json!({"name": "v1", "message": "first", "storage_method": "file", "file_id": file,
            "provisioner": "terraform", "tags": {"site": "a", "empty": ""}, "user_variable_values": []});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for refused in [
        json!({}),
        body(json!({"file_id": STRANGER})),
        body(json!({"template_id": STRANGER})),
        body(json!({"provisioner": "ansible"})),
        body(json!({"name": "a b"})),
    ] {
        side.post(OWNER, &versions, refused).await;
    }
    side.post(MEMBER, &versions, body(json!({}))).await;
    let values = json!([{"name": "undeclared", "value": "x"}]);
    let first = side.post(OWNER, &versions, body(json!({"user_variable_values": values}))).await.text("id");
    // Without a template a name is nobody's.
    side.post(OWNER, &versions, body(json!({}))).await;
    for who in [OWNER, MEMBER] {
        side.get(who, &format!("/api/v2/templateversions/{first}")).await;
        side.get(who, &format!("/api/v2/templateversions/{first}/logs")).await;
        side.get(who, &format!("/api/v2/templateversions/{first}/variables")).await;
        side.get(who, &format!("/api/v2/organizations/{organization}/provisionerjobs")).await;
    }
    side.get(OWNER, &format!("/api/v2/templateversions/{STRANGER}")).await;
    side.get(OWNER, "/api/v2/templateversions/one").await;
    for verb in ["archive", "unarchive"] {
        side.post(OWNER, &format!("/api/v2/templateversions/{first}/{verb}"), Value::Null).await;
    }
}

/// A template from a version that no daemon has built: coderd does not wait for builds.
pub(super) async fn created(side: &mut Side, name: &str) -> String {
    let organization = side.default_organization().await;
    created_in(side, &organization, name).await
}

async fn created_in(side: &mut Side, organization: &str, name: &str) -> String {
    let source = archive("locals {}");
    let file = upload(side, OWNER, TAR, &source).await.text("hash");
    let body = json!({"name": "v1", "storage_method": "file", "file_id": file, "provisioner": "terraform", "tags": {}});
    let path = format!("/api/v2/organizations/{organization}/templateversions");
    let version = side.post(OWNER, &path, body).await.text("id");
    let templates = format!("/api/v2/organizations/{organization}/templates");
    let body = json!({"name": name, "template_version_id": version});
    side.post(OWNER, &templates, body).await.text("id")
}

pub(super) async fn templates(side: &mut Side) {
    let organization = side.default_organization().await;
    let templates = format!("/api/v2/organizations/{organization}/templates");
    side.get(OWNER, &templates).await;
    let first = created(side, "first").await;
    let version = side.get(OWNER, &format!("/api/v2/templates/{first}")).await.text("active_version_id");
    for refused in [
        json!({}),
        json!({"name": "a--b", "template_version_id": version}),
        json!({"name": "First", "template_version_id": version}),
        json!({"name": "second", "template_version_id": STRANGER}),
        json!({"name": "second", "template_version_id": version}),
    ] {
        side.post(OWNER, &templates, refused).await;
    }
    for path in [first.as_str(), STRANGER, "first"] {
        side.get(OWNER, &format!("/api/v2/templates/{path}")).await;
        side.get(MEMBER, &format!("/api/v2/templates/{path}")).await;
    }
    let path = format!("/api/v2/templates/{first}");
    for change in [
        json!({}),
        json!({"display_name": "First", "description": "One", "icon": "/icon/k8s.png"}),
        json!({"name": "a--b"}),
        json!({"default_ttl_ms": 28_800_000, "activity_bump_ms": 0, "time_til_autostop_notify_ms": 1_800_000}),
        json!({"time_til_autostop_notify_ms": 1000}),
        json!({"default_ttl_ms": -1}),
        json!({"failure_ttl_ms": 1000}),
        json!({"failure_ttl_ms": 86_400_000, "time_til_dormant_ms": 60_000, "time_til_dormant_autodelete_ms": 120_000}),
        json!({"autostop_requirement": {"days_of_week": ["sunday", "saturday"], "weeks": 2}}),
        json!({"autostop_requirement": {"days_of_week": [], "weeks": 0}}),
        json!({"autostop_requirement": {"days_of_week": [], "weeks": 17}}),
        json!({"autostart_requirement": {"days_of_week": ["friday", "monday"]}}),
        json!({"allow_user_autostart": false, "allow_user_autostop": false, "allow_user_cancel_workspace_jobs": true}),
        json!({"require_active_version": true, "max_port_share_level": "organization"}),
        json!({"cors_behavior": "passthru", "use_classic_parameter_flow": true}),
        json!({"deprecation_message": "Use another one"}),
    ] {
        side.patch(OWNER, &path, change).await;
    }
    side.get(OWNER, &templates).await;
    side.get(OWNER, &format!("{templates}?q=deprecated%3Atrue")).await;
    side.patch(OWNER, &path, json!({"deprecation_message": "", "name": "renamed"})).await;
    side.patch(MEMBER, &path, json!({"description": "mine"})).await;
    side.get(OWNER, &format!("{path}/versions/v1")).await;
    side.get(OWNER, &format!("{path}/versions/v2")).await;
    for id in [version.as_str(), STRANGER] {
        side.patch(OWNER, &format!("{path}/versions"), json!({"id": id})).await;
    }
    side.post(OWNER, &format!("/api/v2/templateversions/{version}/archive"), Value::Null).await;
    side.post(OWNER, &format!("/api/v2/templateversions/{version}/unarchive"), Value::Null).await;
    side.get(OWNER, "/api/v2/workspaces?q=template%3Arenamed&limit=5").await;
    side.delete(MEMBER, &path).await;
    side.delete(OWNER, &path).await;
    side.get(OWNER, &path).await;
    side.get(OWNER, &templates).await;
    let other = side.post(OWNER, "/api/v2/organizations", json!({"name": "templated"})).await.text("id");
    let template = created_in(side, &other, "only").await;
    side.delete(OWNER, &format!("/api/v2/organizations/{other}")).await;
    side.delete(OWNER, &format!("/api/v2/templates/{template}")).await;
    side.delete(OWNER, &format!("/api/v2/organizations/{other}")).await;
}

pub(super) async fn access(side: &mut Side) {
    let organization = side.default_organization().await;
    let template = created(side, "shared").await;
    let path = format!("/api/v2/templates/{template}/acl");
    let member = side.get(MEMBER, "/api/v2/users/me").await.text("id");
    side.get(OWNER, &path).await;
    side.get(MEMBER, &path).await;
    for change in [
        json!({}),
        json!({"user_perms": {(&member): "admin"}}),
        json!({"user_perms": {(&member): "use"}, "group_perms": {(&organization): "admin"}}),
        json!({"user_perms": {(&member): "owner"}}),
        json!({"user_perms": {STRANGER: "use"}}),
        json!({"group_perms": {STRANGER: "use"}}),
        json!({"user_perms": {"one": "use"}}),
        json!({"group_perms": {(&organization): ""}}),
        json!({"user_perms": {(&member): ""}}),
    ] {
        side.patch(OWNER, &path, change).await;
        side.get(OWNER, &path).await;
    }
    side.patch(MEMBER, &path, json!({"user_perms": {(&member): "admin"}})).await;
    side.get(MEMBER, &format!("/api/v2/templates/{template}")).await;
    side.delete(OWNER, &format!("/api/v2/templates/{template}")).await;
}

/// Workspaces of a version that no daemon has built cannot be made: these are refusals.
pub(super) async fn workspaces(side: &mut Side) {
    let organization = side.default_organization().await;
    let template = created(side, "tested").await;
    let version = side.get(OWNER, &format!("/api/v2/templates/{template}")).await.text("active_version_id");
    let path = format!("/api/v2/templateversions/{version}");
    for change in [
        json!({"message": "tested"}),
        json!({}),
        json!({"message": ""}),
        json!({"name": "a b"}),
        json!({"message": 1}),
    ] {
        side.patch(OWNER, &path, change).await;
    }
    side.patch(OWNER, &format!("/api/v2/templateversions/{STRANGER}"), json!({"message": "tested"})).await;
    side.get(OWNER, &path).await;
    let workspaces = format!("/api/v2/organizations/{organization}/members/me/workspaces");
    for body in [
        json!({}),
        json!({"name": "a b", "template_version_id": version}),
        json!({"name": "one", "template_version_id": STRANGER}),
        json!({"name": "one", "template_version_id": version}),
    ] {
        side.post(OWNER, &workspaces, body).await;
    }
    let of_stranger = format!("/api/v2/organizations/{organization}/members/{STRANGER}/workspaces");
    side.post(OWNER, &of_stranger, json!({"name": "one", "template_version_id": version})).await;
    let check = |object: Value| json!({"checks": {"one": {"object": object, "action": "read"}}});
    for account in [OWNER, MEMBER] {
        let every = json!({"resource_type": "workspace"});
        side.post(account, "/api/v2/authcheck", check(every)).await;
        let of_organization = json!({"resource_type": "workspace", "organization_id": organization});
        side.post(account, "/api/v2/authcheck", check(of_organization)).await;
        side.get(account, &format!("/api/v2/workspaces/{STRANGER}")).await;
    }
    side.post(OWNER, "/api/v2/authcheck", check(json!({}))).await;
    side.post(OWNER, "/api/v2/authcheck", json!({})).await;
    for id in [STRANGER, "one"] {
        side.get(OWNER, &format!("/api/v2/workspaces/{id}")).await;
        side.post(OWNER, &format!("/api/v2/workspaces/{id}/builds"), json!({"transition": "delete"})).await;
        side.get(OWNER, &format!("/api/v2/workspacebuilds/{id}/logs")).await;
        side.patch(OWNER, &format!("/api/v2/workspacebuilds/{id}/cancel"), Value::Null).await;
    }
    side.get(OWNER, &format!("/api/v2/workspaces?q=name%3Atest-%20organization%3A{organization}&limit=20"))
        .await;
    side.delete(OWNER, &format!("/api/v2/templates/{template}")).await;
}
