//! The doors against real coderds: the command line here, the controllers below.

mod account;
mod admin_job;
mod ai;
mod argo_jobs;
mod asked;
mod attribution;
mod ban;
mod beside_the_pods;
mod cluster_door;
mod deletion;
mod docs;
mod events;
mod every_kind;
mod export;
mod faults;
mod freshness;
mod given_token;
mod install;
mod job;
mod last_line;
mod lease;
mod licence_terms;
mod licences;
mod operator;
mod order;
mod own_plane;
mod people;
mod provisioner;
mod provisioner_key;
mod proxy;
mod quarrel;
mod rbac;
mod references;
mod roles;
mod run;
mod sandbox_page;
mod secrecy;
mod service_account;
mod stage;
mod strangers;
mod takeover;
mod template;
mod template_test;
mod tls;
mod undecodable;
mod upgrade;
mod users;
mod whole;

use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Coderd, Flavour, coderd::sign_license};

use crate::support::{Folder, coder_operator, said};

pub(crate) const MANIFESTS: &str = r##"
apiVersion: coder.com/v1alpha1
kind: CoderRoleSync
metadata: {name: alpha, namespace: platform}
spec:
  controlPlaneRef: {name: main}
  organization: alpha
  field: groups
  mapping: {/alpha/org-admins: [organization-admin], /alpha/auditors: [organization-auditor]}
---
apiVersion: coder.com/v1alpha1
kind: CoderGroupSync
metadata: {name: alpha, namespace: platform}
spec:
  controlPlaneRef: {name: main}
  organization: alpha
  field: groups
  regexFilter: "^/alpha/.*"
  autoCreateMissingGroups: false
  mapping: {/alpha/developers: [developers], /alpha/security: [security]}
---
apiVersion: coder.com/v1alpha1
kind: CoderOrganizationSync
metadata: {name: organization-sync, namespace: platform}
spec:
  controlPlaneRef: {name: main}
  field: groups
  assignDefault: true
  mapping: {/alpha: [alpha], /bravo: [bravo]}
---
apiVersion: coder.com/v1alpha1
kind: CoderGroup
metadata: {name: alpha-developers, namespace: platform}
spec:
  controlPlaneRef: {name: main}
  organization: alpha
  name: developers
  displayName: Developers
  quotaAllowance: 20
  members: [admin]
---
apiVersion: coder.com/v1alpha1
kind: CoderGroup
metadata: {name: alpha-security, namespace: platform}
spec: {controlPlaneRef: {name: main}, organization: alpha, name: security}
---
apiVersion: coder.com/v1alpha1
kind: CoderOrganization
metadata: {name: alpha, namespace: platform}
spec:
  controlPlaneRef: {name: main}
  displayName: Mission Partner Alpha
  description: Alpha's workspaces
  icon: /emojis/1f98a.png
---
apiVersion: coder.com/v1alpha1
kind: CoderOrganization
metadata: {name: bravo, namespace: platform}
spec: {controlPlaneRef: {name: main}, displayName: Mission Partner Bravo}
---
apiVersion: coder.com/v1alpha1
kind: CoderAppearance
metadata: {name: appearance, namespace: platform}
spec:
  controlPlaneRef: {name: main}
  applicationName: Mission Cloud
  logoURL: https://example.com/logo.svg
  announcementBanners:
    - {enabled: true, message: UNCLASSIFIED, backgroundColor: "#007a33"}
"##;

pub(crate) async fn licensed() -> Coderd {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    license(&coderd).await;
    coderd
}

pub(crate) async fn license(coderd: &Coderd) {
    let signer = coderd.licenses.as_ref().unwrap();
    let license = sign_license(signer, &json!({"feature_set": "premium"})).await.unwrap();
    let body = json!({"license": license});
    let (status, _) = coderd.owner.request(Method::POST, "/api/v2/licenses", Some(&body)).await.unwrap();
    assert_eq!(status, 201);
}

/// Runs the binary beside the runtime, and checks its exit code.
async fn run(coderd: &Coderd, args: &[&str], expected: i32) -> String {
    let (url, token) = (coderd.owner.url.clone(), coderd.owner.token.clone());
    let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
    let output = tokio::task::spawn_blocking(move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        coder_operator(&url, &token, &args)
    });
    let output = output.await.unwrap();
    assert_eq!(output.status.code(), Some(expected), "{}", said(&output));
    assert!(!said(&output).contains(&coderd.owner.token), "the token is nobody's business");
    said(&output)
}

pub(crate) async fn get(coderd: &Coderd, path: &str) -> Value {
    coderd.owner.request(Method::GET, path, None).await.unwrap().1
}

#[tokio::test]
async fn a_set_in_any_order_is_applied_once_and_then_equal_until_somebody_changes_something() {
    let coderd = licensed().await;
    let folder = Folder::new("set");
    let file = folder.write("set.yaml", MANIFESTS);
    let plan = run(&coderd, &["plan", "--exit-code", "-f", &file], 3).await;
    assert!(plan.contains("8 to change"), "{plan}");
    assert!(plan.contains("+ create: the organization does not exist"), "{plan}");
    run(&coderd, &["apply", "--yes", "-f", &file], 0).await;
    let again = run(&coderd, &["plan", "--exit-code", "-f", &file], 0).await;
    assert!(again.contains("8 equal"), "{again}");
    run(&coderd, &["verify", "-f", &file], 0).await;

    let groups = get(&coderd, "/api/v2/organizations/alpha/groups").await;
    let developers = groups.as_array().unwrap().iter().find(|it| it["name"] == "developers").unwrap();
    assert_eq!(developers["quota_allowance"], 20);
    assert_eq!(developers["members"][0]["username"], "admin");
    let sync = get(&coderd, "/api/v2/organizations/alpha/settings/idpsync/groups").await;
    assert_eq!(sync["mapping"]["/alpha/developers"], json!([developers["id"]]));

    let path = format!("/api/v2/groups/{}", developers["id"].as_str().unwrap());
    let by_hand = json!({"name": "", "quota_allowance": 3});
    let (status, _) = coderd.owner.request(Method::PATCH, &path, Some(&by_hand)).await.unwrap();
    assert_eq!(status, 200);
    let drift = run(&coderd, &["verify", "-f", &file], 3).await;
    assert!(drift.contains("~ quotaAllowance: 3 -> 20") && drift.contains("1 to change, 7 equal"), "{drift}");
    run(&coderd, &["apply", "--yes", "-f", &file], 0).await;
    run(&coderd, &["verify", "-f", &file], 0).await;
}

#[tokio::test]
async fn examples_apply_to_a_licensed_coder() {
    let coderd = licensed().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kinds");
    let example = |kind: &str| format!("{folder}/coder{kind}.yaml");
    run(&coderd, &["apply", "--yes", "-f", &example("organization")], 0).await;
    // The one person whom the examples name.
    let alpha = get(&coderd, "/api/v2/organizations/alpha").await["id"].clone();
    let alice = json!({"username": "alice", "email": "alice@example.com", "password": "SomeSecurePassword!",
        "organization_ids": [alpha]});
    let (status, answer) = coderd.owner.request(Method::POST, "/api/v2/users", Some(&alice)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    let kinds = [
        "organization",
        "group",
        "organizationsync",
        "groupsync",
        "role",
        "rolesync",
        "appearance",
        "aiprovider",
        "aimodel",
        "user",
    ];
    let files = kinds.map(example);
    let values = Folder::new("values-of-the-examples");
    let value = values.write("value", "A-value-of-a-secret-of-example-4!");
    let secrets = ["ai-keys/anthropic", "aws/id", "aws/secret", "people/alice", "people/bob"]
        .map(|it| format!("{it}=file:{value}"));
    let named = files.iter().flat_map(|it| ["-f", it.as_str()]);
    let args: Vec<&str> = named.chain(secrets.iter().flat_map(|it| ["--secret", it.as_str()])).collect();
    run(&coderd, &[&["apply", "--yes"], args.as_slice()].concat(), 0).await;
    run(&coderd, &[&["verify"], args.as_slice()].concat(), 0).await;
}

#[tokio::test]
async fn json_says_what_text_says() {
    let coderd = licensed().await;
    let folder = Folder::new("json");
    let file = folder.write("set.yaml", MANIFESTS);
    let plan: Value =
        serde_json::from_str(&run(&coderd, &["plan", "--quiet", "-o", "json", "-f", &file], 0).await)
            .unwrap();
    let first = &plan["objects"][0];
    assert_eq!((first["kind"].as_str(), first["state"].as_str()), (Some("CoderAppearance"), Some("Differs")));
    assert_eq!(first["plan"]["steps"][0]["changes"][0]["field"], "applicationName");
    assert_eq!(plan["objects"].as_array().unwrap().len(), 8);
}

#[tokio::test]
async fn without_a_licence_every_object_waits_and_says_for_what() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let folder = Folder::new("unlicensed");
    let file = folder.write("set.yaml", MANIFESTS);
    let told = run(&coderd, &["apply", "--yes", "-f", &file], 5).await;
    assert!(told.contains("NotEntitled: needs a Premium licence: multiple_organizations"), "{told}");
    assert!(told.contains("8 waiting"), "{told}");
}

#[tokio::test]
async fn a_mapping_with_a_name_that_means_nothing_is_not_written_at_all() {
    let coderd = licensed().await;
    let folder = Folder::new("ghost");
    let sync = "apiVersion: coder.com/v1alpha1\nkind: CoderGroupSync\nmetadata: {name: a}\nspec: {controlPlaneRef: {name: main}, field: groups, mapping: {/a: [ghost]}}\n";
    let file = folder.write("sync.yaml", sync);
    let told = run(&coderd, &["apply", "--yes", "-f", &file], 5).await;
    assert!(told.contains("ReferenceNotFound: spec.mapping[/a]: group ghost does not exist"), "{told}");
    let document = get(&coderd, "/api/v2/organizations/default/settings/idpsync/groups").await;
    assert_eq!(document["field"], "");
}

#[tokio::test]
async fn what_must_not_be_taken_over_is_refused_and_nobody_is_asked_without_a_terminal() {
    let coderd = licensed().await;
    let body = json!({"name": "alpha", "display_name": "Made by hand"});
    coderd.owner.request(Method::POST, "/api/v2/organizations", Some(&body)).await.unwrap();
    let folder = Folder::new("taken");
    let organization = |policy: &str| {
        format!(
            "apiVersion: coder.com/v1alpha1\nkind: CoderOrganization\nmetadata: {{name: alpha}}\nspec: {{controlPlaneRef: {{name: main}}, displayName: Ours, adoptionPolicy: {policy}}}\n"
        )
    };
    let file = folder.write("never.yaml", &organization("Never"));
    let told = run(&coderd, &["apply", "--yes", "-f", &file], 4).await;
    assert!(told.contains("AdoptionRefused: it exists, and adoptionPolicy is Never"), "{told}");
    let file = folder.write("adopt.yaml", &organization("Adopt"));
    assert!(run(&coderd, &["apply", "-f", &file], 2).await.contains("give --yes"));
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["display_name"], "Made by hand");
    run(&coderd, &["apply", "--yes", "-f", &file], 0).await;
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["display_name"], "Ours");
}

#[tokio::test]
async fn a_wrong_token_is_a_failure_with_words_and_without_the_token() {
    let coderd = licensed().await;
    let folder = Folder::new("signed-out");
    let file = folder.write("set.yaml", MANIFESTS);
    let url = coderd.owner.url.clone();
    let token = "0123456789-0123456789012345678901";
    let output = tokio::task::spawn_blocking(move || coder_operator(&url, token, &["plan", "-f", &file]))
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("Unauthorized: "), "{}", said(&output));
    assert!(!said(&output).contains(token));
}
