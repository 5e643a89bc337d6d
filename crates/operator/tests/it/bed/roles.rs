//! The role in Coder that each kind needs: an account with just that role is enough, and one without it is refused.

use std::{fmt::Write as _, path::Path};

use api::CoderProvisioner;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Coderd, Session, coderd::sign_license};

use super::{
    get, licensed,
    provisioner::provisioner,
    stage::{Stage, is_ready, plane, says, words},
};
use crate::support::{Folder, bare, said};

/// The roles of an account.
#[derive(Clone, Copy)]
enum Roles {
    Site(&'static [&'static str]),
    /// In the organization that the manifests name.
    Organization(&'static [&'static str]),
}

use Roles::{Organization, Site};

/// What a kind needs.
struct Need {
    /// The kind, as the security model names it.
    what: &'static str,
    role: &'static str,
    enough: Roles,
    not_enough: Roles,
}

const EVERYTHING_BUT_OWNER: Roles = Site(&["auditor", "template-admin", "user-admin"]);
const PLAIN_MEMBER: Roles = Organization(&[]);

/// The table of the security model.
const NEEDS: [Need; 16] = [
    need("CoderOrganization, to create it", "owner", Site(&["owner"]), EVERYTHING_BUT_OWNER),
    need(
        "CoderOrganization, to change it",
        "organization-admin",
        Organization(&["organization-admin"]),
        Organization(&["organization-user-admin", "organization-template-admin"]),
    ),
    need(
        "CoderGroup",
        "organization-user-admin",
        Organization(&["organization-user-admin"]),
        Organization(&["organization-template-admin"]),
    ),
    need("CoderOrganizationSync", "user-admin", Site(&["user-admin"]), Site(&["template-admin", "auditor"])),
    need(
        "CoderGroupSync",
        "organization-user-admin",
        Organization(&["organization-user-admin"]),
        Organization(&["organization-template-admin"]),
    ),
    need(
        "CoderRoleSync",
        "organization-user-admin",
        Organization(&["organization-user-admin"]),
        Organization(&["organization-template-admin"]),
    ),
    need(
        "CoderRole",
        "organization-admin",
        Organization(&["organization-admin"]),
        Organization(&["organization-user-admin", "organization-template-admin"]),
    ),
    need("CoderUser", "user-admin", Site(&["user-admin"]), Site(&["template-admin", "auditor"])),
    need("CoderUser with roles", "owner", Site(&["owner"]), Site(&["user-admin"])),
    need("CoderAppearance", "owner", Site(&["owner"]), EVERYTHING_BUT_OWNER),
    need("CoderAIProvider", "owner", Site(&["owner"]), EVERYTHING_BUT_OWNER),
    need("CoderAIModel", "owner", Site(&["owner"]), EVERYTHING_BUT_OWNER),
    need(
        "CoderTemplate",
        "organization-template-admin",
        Organization(&["organization-template-admin"]),
        PLAIN_MEMBER,
    ),
    need(
        TESTED,
        "organization-admin",
        Organization(&["organization-admin"]),
        // Reads workspaces, and makes none for others.
        Site(&["template-admin"]),
    ),
    need(
        "CoderProvisionerKey, CoderProvisioner",
        "organization-template-admin",
        Organization(&["organization-template-admin"]),
        PLAIN_MEMBER,
    ),
    need("CoderControlPlane with a licence", "owner", Site(&["owner"]), EVERYTHING_BUT_OWNER),
];

const fn need(what: &'static str, role: &'static str, enough: Roles, not_enough: Roles) -> Need {
    Need { what, role, enough, not_enough }
}

const ORGANIZATION: &str = "alpha";
/// A template of the organization whose manifests declare no source.
const TEMPLATE: &str = "shared";
/// The row of templates whose versions are tested: workspaces are made for another account, read and deleted.
const TESTED: &str = "CoderTemplate with `version.test`";
/// The account that owns test workspaces.
const TEST_OWNER: &str = "template-tests";

/// What coderd answers to an account that may not do something.
const REFUSALS: [&str; 4] = ["forbidden", "insufficient permissions", "not authorized", "do not have access"];

/// The manifest of a row that the command line applies. The two accounts of a row write different values.
fn manifest(what: &str, account: &str) -> Option<String> {
    let (kind, spec) = match what {
        "CoderOrganization, to create it" => ("CoderOrganization", json!({"name": format!("new-{account}")})),
        "CoderOrganization, to change it" => {
            ("CoderOrganization", json!({"name": ORGANIZATION, "displayName": account}))
        }
        "CoderGroup" => (
            "CoderGroup",
            json!({"organization": ORGANIZATION, "name": account, "quotaAllowance": 7, "members": ["admin"]}),
        ),
        "CoderOrganizationSync" => (
            "CoderOrganizationSync",
            json!({"field": account, "assignDefault": true, "mapping": {"/alpha": [ORGANIZATION]}}),
        ),
        "CoderGroupSync" => (
            "CoderGroupSync",
            json!({"organization": ORGANIZATION, "field": account, "mapping": {"/a": ["Everyone"]}}),
        ),
        "CoderRoleSync" => (
            "CoderRoleSync",
            json!({"organization": ORGANIZATION, "field": account, "mapping": {"/a": ["organization-auditor"]}}),
        ),
        "CoderRole" => (
            "CoderRole",
            json!({"organization": ORGANIZATION, "name": account,
                "permissions": [{"resource": "template", "actions": ["read"]}]}),
        ),
        "CoderUser" => (
            "CoderUser",
            json!({"username": format!("by-{account}"), "serviceAccount": true, "organizations": [ORGANIZATION]}),
        ),
        "CoderUser with roles" => (
            "CoderUser",
            json!({"username": format!("by-{account}"), "serviceAccount": true, "roles": ["auditor"]}),
        ),
        "CoderAppearance" => ("CoderAppearance", json!({"applicationName": account})),
        "CoderAIProvider" => (
            "CoderAIProvider",
            json!({"name": "roles", "type": "openai", "enabled": true, "baseURL": "https://ai.example.com"}),
        ),
        "CoderTemplate" => (
            "CoderTemplate",
            json!({"organization": ORGANIZATION, "name": TEMPLATE, "adoptionPolicy": "Adopt", "description": account}),
        ),
        TESTED => (
            "CoderTemplate",
            json!({"organization": ORGANIZATION, "name": account, "provisionerTags": {"site": "bed"},
                "source": {"files": {"main.tf": "resource \"terraform_data\" \"one\" {}"}},
                "version": {"test": {"owner": TEST_OWNER, "timeout": "3m"}}}),
        ),
        "CoderAIModel" => {
            ("CoderAIModel", json!({"provider": "roles", "model": account, "contextLimit": 1000}))
        }
        _ => return None,
    };
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind,
        "metadata": {"name": "example", "namespace": "platform"}, "spec": spec});
    manifest["spec"]["controlPlaneRef"] = json!({"name": "main"});
    Some(manifest.to_string())
}

/// An account with just these roles, signed in.
async fn account(coderd: &Coderd, name: &str, roles: Roles) -> Session {
    let organization = get(coderd, &format!("/api/v2/organizations/{ORGANIZATION}")).await["id"].clone();
    let (email, password) = (format!("{name}@bed.test"), format!("Bed-{name}-{}", uuid::Uuid::new_v4()));
    let user = json!({"email": email, "username": name, "password": password, "user_status": "active",
        "organization_ids": [organization]});
    let (status, answer) = coderd.owner.request(Method::POST, "/api/v2/users", Some(&user)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    let (path, roles) = match roles {
        Site(roles) => (format!("/api/v2/users/{name}/roles"), roles),
        Organization(roles) => (format!("/api/v2/organizations/{ORGANIZATION}/members/{name}/roles"), roles),
    };
    let body = json!({"roles": roles});
    let (status, answer) = coderd.owner.request(Method::PUT, &path, Some(&body)).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    Session::sign_in(http, &coderd.owner.url, &email, &password).await.unwrap()
}

/// Applies a manifest with the token of an account, and returns the exit code and everything that was printed.
async fn apply(session: &Session, manifest: &str, folder: &Folder) -> (Option<i32>, String) {
    let file = folder.write("manifest.json", manifest);
    let mut command =
        bare(&["apply", "-f", &file, "--url", &session.url, "--yes", "--wait", "--timeout", "5m"]);
    command.env("CODER_SESSION_TOKEN", &session.token);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (output.status.code(), said(&output))
}

/// A control plane with an account's token, and with more in its spec.
async fn plane_of(stage: &Stage, session: &Session, name: &str, more: &Value) {
    stage.write_secret(name, &json!({"token": session.token})).await;
    let mut plane = plane(name, &session.url);
    plane["spec"]["external"]["credentialsSecretRef"]["name"] = json!(name);
    plane["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    stage.apply(&plane).await;
}

/// The kinds that need a cluster: keys, daemons, licences.
async fn check_in_a_cluster(stage: &Stage, what: &str, enough: &Session, not_enough: &Session) {
    if what == "CoderControlPlane with a licence" {
        let signer = stage.coderd.licenses.as_ref().unwrap();
        let license = sign_license(signer, &json!({"feature_set": "premium"})).await.unwrap();
        stage.write_secret("coder-license", &json!({"license": license})).await;
        let licensed = json!({"licenseSecretRef": {"name": "coder-license"}});
        plane_of(stage, not_enough, "licence-without", &licensed).await;
        let is_forbidden = |it: &Value| says(it, "LicenseApplied", "False", "Forbidden");
        stage.wait_for("CoderControlPlane", "licence-without", "forbidden", is_forbidden).await;
        plane_of(stage, enough, "licence-with", &licensed).await;
        stage.wait_for("CoderControlPlane", "licence-with", "ready", is_ready).await;
        return;
    }
    for (name, session) in [("keys-without", not_enough), ("keys-with", enough)] {
        plane_of(stage, session, name, &json!({})).await;
        let spec = json!({"controlPlaneRef": {"name": name}, "interval": "10s"});
        let (mut key, mut provisioner) = (spec.clone(), spec);
        key["organization"] = json!(ORGANIZATION);
        provisioner["organizationName"] = json!(ORGANIZATION);
        provisioner["replicas"] = json!(0);
        let (key_name, daemons) = (format!("{name}-key"), format!("{name}-daemons"));
        for (kind, name, spec) in
            [("CoderProvisionerKey", &key_name, key), ("CoderProvisioner", &daemons, provisioner)]
        {
            stage.apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})).await;
            if session.token == enough.token {
                stage.wait_for(kind, name, "ready", is_ready).await;
            } else {
                let refused = stage
                    .wait_for(kind, name, "forbidden", |it| says(it, "Ready", "False", "Forbidden"))
                    .await;
                assert!(!words(&refused).is_empty(), "{refused:#?}");
            }
        }
    }
}

/// A daemon for the organization, and the account that owns test workspaces.
async fn prepare_tests(stage: &Stage) {
    plane_of(stage, &stage.coderd.owner, "daemons", &json!({})).await;
    let spec = json!({"controlPlaneRef": {"name": "daemons"}, "organizationName": ORGANIZATION, "tags": {"site": "bed"}});
    stage.apply(&provisioner("daemons", &spec)).await;
    stage.wait::<CoderProvisioner>("daemons", "ready", is_ready).await;
    let spec = json!({"controlPlaneRef": {"name": "daemons"}, "serviceAccount": true, "suspended": false,
        "organizations": [ORGANIZATION]});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderUser", "metadata": {"name": TEST_OWNER}, "spec": spec}))
        .await;
    stage.wait_for("CoderUser", TEST_OWNER, "ready", is_ready).await;
}

#[tokio::test]
async fn the_role_of_every_kind_is_enough_and_needed() {
    let stage = Stage::bare(licensed().await).await;
    let coderd = &stage.coderd;
    let alpha = json!({"name": ORGANIZATION});
    let (status, _) =
        coderd.owner.request(Method::POST, "/api/v2/organizations", Some(&alpha)).await.unwrap();
    assert_eq!(status, 201);
    let version = coderd.owner.start_import(ORGANIZATION, &json!({})).await.unwrap();
    let template = json!({"name": TEMPLATE, "template_version_id": version["id"]});
    let path = format!("/api/v2/organizations/{ORGANIZATION}/templates");
    let (status, answer) = coderd.owner.request(Method::POST, &path, Some(&template)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    prepare_tests(&stage).await;
    let folder = Folder::new("roles");
    for (index, Need { what, enough, not_enough, .. }) in NEEDS.iter().enumerate() {
        let (with, without) = (format!("with-{index}"), format!("without-{index}"));
        let enough = account(coderd, &with, *enough).await;
        let not_enough = account(coderd, &without, *not_enough).await;
        let Some(refused) = manifest(what, &without) else {
            check_in_a_cluster(&stage, what, &enough, &not_enough).await;
            continue;
        };
        let (code, text) = apply(&not_enough, &refused, &folder).await;
        assert_eq!(code, Some(1), "{what} without its role: {text}");
        // coderd has several words for it.
        let says_so = REFUSALS.iter().any(|it| text.to_lowercase().contains(it));
        assert!(says_so, "{what} without its role: {text}");
        let (code, text) = apply(&enough, &manifest(what, &with).unwrap(), &folder).await;
        assert_eq!(code, Some(0), "{what} with its role: {text}");
    }
    assert_eq!(get(coderd, "/api/v2/workspaces").await["count"], 0, "test workspaces are deleted");
}

#[test]
fn roles_in_the_security_model_are_the_tested_ones() {
    let mut table = "| kind | role in Coder | scope |\n|---|---|---|\n".to_owned();
    for Need { what, role, enough, .. } in &NEEDS {
        let scope = match enough {
            Site(_) => "site",
            Organization(_) if what.contains("to change it") => "that organization",
            Organization(_) => "its organization",
        };
        let (Site(roles) | Organization(roles)) = enough;
        assert_eq!(roles, &[*role], "{what}: the account has the role of the table and no other");
        writeln!(table, "| {what} | `{role}` | {scope} |").unwrap();
    }
    for kind in engine::kinds::names() {
        let is_it = |it: &Need| it.what.split([' ', ',']).next() == Some(kind.as_str());
        assert!(NEEDS.iter().any(is_it), "nothing says which role {kind} needs");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security-model.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&table), "docs/security-model.md must have this table:\n{table}");
}
