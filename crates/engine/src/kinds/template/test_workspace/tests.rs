use client::users::UserRole;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn declared() -> DesiredTest {
    let spec = TemplateVersionTest { owner: "tests".to_owned(), ..TemplateVersionTest::default() };
    DesiredTest::declared(&spec).unwrap()
}

/// A workspace that is so many minutes old.
fn workspace(age: i64, build: &Value) -> Workspace {
    let created = now() - SignedDuration::from_mins(age);
    let mut latest = json!({"id": Uuid::nil(), "transition": "start", "created_at": created,
        "job": {"id": Uuid::nil(), "status": "succeeded"}});
    latest.as_object_mut().unwrap().extend(build.as_object().unwrap().clone());
    serde_json::from_value(json!({"id": Uuid::nil(), "name": "test-a", "owner_name": "tests",
        "template_id": Uuid::nil(), "created_at": created, "latest_build": latest}))
    .unwrap()
}

fn job(status: &str) -> Value {
    json!({"job": {"id": Uuid::nil(), "status": status, "error": "exit status 1"}})
}

fn agents(states: &[(&str, &str)]) -> Value {
    let agent = |(status, state): &(&str, &str)| json!({"id": Uuid::nil(), "name": "main", "status": status, "lifecycle_state": state});
    json!({"resources": [{"agents": null}, {"agents": states.iter().map(agent).collect::<Vec<_>>()}]})
}

fn progress(age: i64, build: &Value) -> Progress {
    let tags = BTreeMap::from([("site".to_owned(), "bed".to_owned())]);
    declared().progress(&workspace(age, build), "v1", &tags, now())
}

fn starts(age: i64, build: &Value) -> Blocked {
    match progress(age, build) {
        Progress::Starts(waits) => waits,
        other => panic!("{other:?}"),
    }
}

#[test]
fn workspace_passes_once_every_agent_is_connected_and_ready() {
    assert_eq!(progress(1, &agents(&[("connected", "ready"), ("connected", "ready")])), Progress::Passed);
    assert_eq!(progress(1, &json!({})), Progress::Passed, "there is no agent to wait for");
    for open in [
        ("connecting", "created"),
        ("connected", "starting"),
        ("timeout", "created"),
        ("disconnected", "ready"),
    ] {
        let waits = starts(1, &agents(&[("connected", "ready"), open]));
        assert_eq!(waits.reason, Reason::VersionTesting);
        let expected = format!("agent main is {} and {}", open.0, open.1);
        assert!(waits.message.ends_with(&expected), "{}", waits.message);
    }
    assert_eq!(progress(1, &json!({"transition": "delete"})), Progress::Leaves);
}

#[test]
fn workspace_fails_with_its_build_its_script_or_its_time() {
    assert_eq!(progress(1, &job("failed")), Progress::Failed("exit status 1".to_owned()));
    // A stopped workspace has no agents: it has not come up.
    assert!(matches!(progress(1, &json!({"transition": "stop"})), Progress::Failed(_)));
    for lost in LOST {
        let Progress::Failed(why) = progress(1, &agents(&[("connected", lost)])) else { panic!("{lost}") };
        assert!(why.contains(lost), "{why}");
    }
    for open in [agents(&[("connecting", "created")]), job("running"), job("pending")] {
        assert!(matches!(progress(14, &open), Progress::Starts(_)));
        let Progress::Failed(why) = progress(15, &open) else { panic!("{open}") };
        assert!(why.starts_with("the workspace did not come up within 15m"), "{why}");
    }
    assert_eq!(progress(15, &agents(&[("connected", "ready")])), Progress::Passed, "it came up");
}

#[test]
fn build_without_a_daemon_is_reported_with_its_tags() {
    let mut build = job("pending");
    assert_eq!(starts(1, &build).reason, Reason::VersionTesting);
    build["matched_provisioners"] = json!({"count": 0});
    let waits = starts(1, &build);
    assert_eq!(waits.reason, Reason::NoProvisioner);
    assert!(waits.message.contains(r#"{"site":"bed"}"#), "{}", waits.message);
}

#[test]
fn workspace_is_deleted_once_and_again_only_after_a_while() {
    let of = |age, transition: &str, status: &str| {
        let mut build = job(status);
        build["transition"] = json!(transition);
        removal(&workspace(age, &build), now())
    };
    for status in ["pending", "running", "succeeded", "failed", "canceled"] {
        assert_eq!(of(1, "start", status), Removal::Due, "{status}");
    }
    assert_eq!(of(1, "start", "canceling"), Removal::Awaited);
    for status in ["pending", "running", "failed"] {
        assert_eq!(of(1, "delete", status), Removal::Awaited, "{status}");
    }
    assert_eq!(of(6, "delete", "failed"), Removal::Due);
    assert_eq!(of(60, "delete", "pending"), Removal::Awaited);
}

#[test]
fn only_what_was_never_provisioned_is_forgotten() {
    let of = |build: &Value| is_unprovisioned(workspace(1, build).latest_build.as_ref().unwrap());
    assert!(of(&job("pending")) && of(&job("canceled")));
    let mut begun = job("canceled");
    begun["job"]["started_at"] = json!(now());
    assert!(!of(&begun) && !of(&job("running")) && !of(&job("failed")));
}

#[test]
fn name_of_the_workspace_follows_from_manifest_version_and_test() {
    let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let start = prefix("template alpha/kubernetes");
    let name = declared().workspace_name(&start, one);
    assert_eq!(name, declared().workspace_name(&start, one));
    assert!(name.starts_with(&start) && name.len() <= 32, "{name}");
    let others = [
        declared().workspace_name(&start, two),
        declared().workspace_name(&prefix("template bravo/kubernetes"), one),
        DesiredTest { owner: "others".to_owned(), ..declared() }.workspace_name(&start, one),
        DesiredTest { timeout: SignedDuration::from_mins(1), ..declared() }.workspace_name(&start, one),
        DesiredTest { parameters: BTreeMap::from([("a".to_owned(), "b".to_owned())]), ..declared() }
            .workspace_name(&start, one),
    ];
    assert!(!others.contains(&name), "{others:?}");
}

#[test]
fn timeout_is_a_duration_and_not_too_short() {
    let with = |text: &str| {
        let timeout = Some(text.to_owned());
        DesiredTest::declared(&TemplateVersionTest { owner: "tests".to_owned(), timeout, parameters: None })
    };
    assert_eq!(with("90s").unwrap().timeout, SignedDuration::from_secs(90));
    for wrong in ["0s", "9s", "soon", ""] {
        assert_eq!(with(wrong).unwrap_err().field, "spec.version.test.timeout", "{wrong}");
    }
}

fn account(change: &Value) -> User {
    let mut user = json!({"id": Uuid::nil(), "username": "tests", "status": "active", "login_type": "none"});
    user.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    serde_json::from_value(user).unwrap()
}

fn member(roles: &[&str]) -> (String, Option<MemberRef>) {
    let role = |name: &&str| UserRole { name: (*name).to_owned(), display_name: String::new() };
    let member: MemberRef =
        serde_json::from_value(json!({"user_id": Uuid::nil(), "username": "tests"})).unwrap();
    ("alpha".to_owned(), Some(MemberRef { roles: roles.iter().map(role).collect(), ..member }))
}

#[test]
fn owner_is_an_active_service_account_without_roles() {
    assert_eq!(refusal(&account(&json!({"is_service_account": true})), &[member(&[])], None), None);
    assert_eq!(refusal(&account(&json!({})), &[member(&["organization-workspace-access"])], None), None);
    let role = |name: &str| json!({"roles": [{"name": name}]});
    for (change, roles, why) in [
        (role("owner"), &[][..], "tests has the role owner"),
        (role("template-admin"), &[], "tests has the role template-admin"),
        (json!({}), &["organization-admin"], "tests has the role organization-admin in organization alpha"),
        (json!({}), &["custom"], "tests has the role custom in organization alpha"),
        (json!({"login_type": "password"}), &[], "tests signs in with password"),
        (json!({"login_type": "oidc"}), &[], "tests signs in with oidc"),
        (json!({"status": "dormant"}), &[], "tests is dormant"),
        (json!({"status": "suspended"}), &[], "tests is suspended"),
    ] {
        let refused = refusal(&account(&change), &[member(&[]), member(roles)], None).unwrap();
        assert_eq!(refused.reason, Reason::TestOwnerRefused);
        let expected = format!("spec.version.test.owner: {why}");
        assert!(refused.message.starts_with(&expected), "{}", refused.message);
    }
}

#[test]
fn owner_whose_roles_are_not_shown_is_not_one_without_roles() {
    let hidden = ("bravo".to_owned(), None);
    let refused = refusal(&account(&json!({})), &[member(&[]), hidden], None).unwrap();
    assert_eq!(refused.reason, Reason::TestOwnerRefused);
    let expected = "member of organization bravo, and Coder does not show with which roles";
    assert!(refused.message.contains(expected), "{}", refused.message);
}
