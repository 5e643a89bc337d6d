//! `export` of a licensed coderd, and a second one made of it.

use std::{fs, path::Path, process::Command};

use api::CoderProvisioner;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Coderd;

use super::{
    MANIFESTS,
    cluster_door::expect,
    get,
    job::Job,
    licensed,
    provisioner::provisioner,
    proxy::Proxy,
    stage::{Stage, eventually, is_ready},
};
use crate::{
    examples::request,
    support::{Folder, named, said},
};

const KEY: &str = "key-bed-0123456789-export-abcd";
const MORE: &str = "
---
apiVersion: coder.com/v1alpha1
kind: CoderRole
metadata: {name: auditor}
spec:
  controlPlaneRef: {name: main}
  organization: alpha
  name: template-auditor
  permissions: [{resource: template, actions: [read, view_insights]}]
---
apiVersion: coder.com/v1alpha1
kind: CoderGroup
metadata: {name: everyone}
spec: {controlPlaneRef: {name: main}, organization: bravo, name: Everyone, quotaAllowance: 3}
---
apiVersion: coder.com/v1alpha1
kind: CoderUser
metadata: {name: automation}
spec: {controlPlaneRef: {name: main}, serviceAccount: true, roles: [template-admin], organizations: [default, alpha]}
---
apiVersion: coder.com/v1alpha1
kind: CoderAIProvider
metadata: {name: anthropic}
spec:
  controlPlaneRef: {name: main}
  type: anthropic
  enabled: true
  baseURL: https://api.anthropic.com
  apiKeySecretRefs: [{name: ai-keys}]
---
apiVersion: coder.com/v1alpha1
kind: CoderAIModel
metadata: {name: opus}
spec: {controlPlaneRef: {name: main}, provider: anthropic, model: claude-x, displayName: Opus, contextLimit: 200000}
";

/// Runs the binary beside the runtime, with the key under both names of its Secret.
async fn run(url: &str, token: &str, args: &[&str], expected: i32) -> String {
    let mut command: Command = named(url, token, args);
    if args[0] != "export" {
        for secret in ["ai-keys/key=env:KEY", "ai-provider-anthropic/key=env:KEY"] {
            command.args(["--secret", secret]);
        }
    }
    command.env("KEY", KEY);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(expected), "{}", said(&output));
    said(&output)
}

async fn on(coderd: &Coderd, args: &[&str], expected: i32) -> String {
    run(&coderd.owner.url, &coderd.owner.token, args, expected).await
}

#[tokio::test]
async fn exported_coderd_is_equal_and_makes_an_equal_second_one() {
    let (first, second) = tokio::join!(licensed(), licensed());
    let folder = Folder::new("bed-export");
    let file = folder.write("set.yaml", &format!("{MANIFESTS}{MORE}"));
    on(&first, &["apply", "--yes", "-f", &file], 0).await;
    let proxy = Proxy::start(&first.owner.url).await;
    let out = folder.0.join("out").display().to_string();
    let told = run(&proxy.url, &first.owner.token, &["export", "--output-dir", &out], 0).await;
    assert_eq!(proxy.writes(), [] as [&str; 0], "export only reads");
    for secret in [KEY, &first.owner.token, &first.password] {
        assert!(!told.contains(secret));
    }
    on(&first, &["verify", "-f", &out], 0).await;
    on(&first, &["verify", "-f", &file], 0).await;

    on(&second, &["apply", "--yes", "-f", &out], 0).await;
    on(&second, &["verify", "-f", &out], 0).await;
    let proxy = Proxy::start(&second.owner.url).await;
    let again = run(&proxy.url, &second.owner.token, &["apply", "--yes", "-f", &out], 0).await;
    assert_eq!(proxy.writes(), [] as [&str; 0], "the second run writes nothing: {again}");
    on(&first, &["verify", "-f", &out], 0).await;
    let organizations = async |coderd: &Coderd| {
        let found = get(coderd, "/api/v2/organizations").await;
        let names =
            found.as_array().unwrap().iter().map(|it| json!([it["name"], it["display_name"], it["icon"]]));
        let mut names: Vec<Value> = names.collect();
        names.sort_by_key(Value::to_string);
        names
    };
    assert_eq!(organizations(&first).await, organizations(&second).await);
}

const TEMPLATE: &str = r#"
variable "registry_token" {
  type      = string
  sensitive = true
}
variable "region" {
  type    = string
  default = "eu"
}
resource "terraform_data" "workspace" { input = sha256(var.registry_token) }
"#;
const TOKEN: &str = "registry-bed-0123456789-export";

/// A coderd with a daemon that builds templates.
async fn with_daemon() -> Stage {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&provisioner("builders", &json!({"tags": {"site": "bed"}}))).await;
    stage.wait::<CoderProvisioner>("builders", "ready", is_ready).await;
    stage
}

/// Runs the binary with the values of the variable under both names of its Secret.
async fn with_token(url: &str, coderd: &Coderd, args: &[&str], expected: i32) -> String {
    let mut command: Command = named(url, &coderd.owner.token, args);
    for secret in ["registry/token=env:TOKEN", "template-coder-ours/registry_token=env:TOKEN"] {
        command.args(["--secret", secret]);
    }
    command.env("TOKEN", TOKEN);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(expected), "{}", said(&output));
    said(&output)
}

#[tokio::test]
async fn exported_templates_are_equal_and_make_equal_ones() {
    let (first, second) = tokio::join!(with_daemon(), with_daemon());
    let (first, second) = (&first.coderd, &second.coderd);
    let folder = Folder::new("bed-export-templates");
    folder.write("ours/main.tf", TEMPLATE);
    folder.write("ours/cloud/init.yaml", "#cloud-config\nusers: [{{ .Users }}\n");
    let from = json!({"secretKeyRef": {"name": "registry", "key": "token"}});
    let ours = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": "ours"},
        "spec": {"controlPlaneRef": {"name": "main"}, "source": {"directory": "ours"}, "displayName": "Ours",
            "provisionerTags": {"site": "bed"}, "variables": [{"name": "registry_token", "valueFrom": from}],
            "schedule": {"defaultTTL": "8h", "autostop": {"days": ["saturday"]}}, "acl": {"users": {"admin": "admin"}}}});
    let file = folder.write("ours.json", &ours.to_string());
    with_token(&first.owner.url, first, &["apply", "--yes", "--timeout", "4m", "-f", &file], 0).await;
    // One that another tool has pushed.
    let organization = get(first, "/api/v2/organizations/default").await["id"].as_str().unwrap().to_owned();
    let version = first.owner.start_import(&organization, &json!({"site": "bed"})).await.unwrap();
    let ended = || async { first.owner.ended_import(&version).await.unwrap() };
    eventually("built", ended, Option::is_some).await;
    let body = json!({"name": "pushed", "template_version_id": version["id"]});
    let path = format!("/api/v2/organizations/{organization}/templates");
    request(&first.owner, Method::POST, &path, Some(&body)).await;

    let proxy = Proxy::start(&first.owner.url).await;
    let out = folder.0.join("out").display().to_string();
    let kind = ["--kind", "CoderTemplate"];
    let args = [&["export", "--output-dir", &out], &kind[..]].concat();
    let told = run(&proxy.url, &first.owner.token, &args, 0).await;
    assert!(told.contains("template-coder-ours/registry_token: value of variable registry_token"), "{told}");
    for name in
        ["coder-ours/main.tf", "coder-ours/cloud/init.yaml", "coder-pushed/main.tf", "coder-pushed.yaml"]
    {
        let file = folder.0.join("out/codertemplate").join(name);
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains(TOKEN) && !text.is_empty(), "{name}");
    }
    with_token(&proxy.url, first, &["verify", "-f", &out], 0).await;
    with_token(&proxy.url, first, &["apply", "--yes", "-f", &out], 0).await;
    assert_eq!(proxy.writes(), [] as [&str; 0], "neither export nor apply publish a version");

    with_token(&second.owner.url, second, &["apply", "--yes", "--timeout", "4m", "-f", &out], 0).await;
    with_token(&second.owner.url, second, &["verify", "-f", &out], 0).await;
    let proxy = Proxy::start(&second.owner.url).await;
    with_token(&proxy.url, second, &["apply", "--yes", "-f", &out], 0).await;
    assert_eq!(proxy.writes(), [] as [&str; 0], "the second run writes nothing");
    with_token(&first.owner.url, first, &["verify", "-f", &out], 0).await;
    let again = folder.0.join("again").display().to_string();
    run(
        &second.owner.url,
        &second.owner.token,
        &[&["export", "--output-dir", &again], &kind[..]].concat(),
        0,
    )
    .await;
    for name in ["coder-ours.yaml", "coder-pushed.yaml", "coder-ours/main.tf", "coder-pushed/main.tf"] {
        let text =
            |folder: &str| fs::read_to_string(Path::new(folder).join("codertemplate").join(name)).unwrap();
        assert_eq!(text(&again), text(&out), "{name}");
    }
}

#[tokio::test]
async fn exported_manifests_are_adopted_without_a_write() {
    let coderd = licensed().await;
    let folder = Folder::new("bed-export-adopt");
    let file = folder.write("set.yaml", &format!("{MANIFESTS}{MORE}"));
    on(&coderd, &["apply", "--yes", "-f", &file], 0).await;
    let (url, token) = (coderd.owner.url.clone(), coderd.owner.token.clone());
    let out = folder.0.join("out");
    let export = async |args: &[&str]| {
        let out = out.display().to_string();
        run(&url, &token, &[&["export", "--overwrite", "--output-dir", &out], args].concat(), 0).await
    };
    let proxy = Proxy::start(&url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.write_secret("ai-provider-anthropic", &json!({"key": KEY})).await;
    for mode in ["Observe", "Enforce"] {
        export(&["--mode", mode]).await;
        let manifests = manifests(&out);
        assert!(manifests.len() >= 10, "{manifests:?}");
        for manifest in &manifests {
            stage.apply(manifest).await;
        }
        for manifest in &manifests {
            let (kind, name) =
                (manifest["kind"].as_str().unwrap(), manifest["metadata"]["name"].as_str().unwrap());
            let is_settled = |it: &Value| {
                is_ready(it)
                    && it["status"]["observedGeneration"] == it["metadata"]["generation"]
                    && it["spec"]["mode"] == mode
            };
            stage.wait_for(kind, name, "ready", is_settled).await;
        }
    }
    assert_eq!(proxy.writes(), [] as [&str; 0], "what is equal is adopted without a write");
    let held =
        stage.wait_for("CoderGroup", "alpha-developers", "held", |it| it["status"]["id"].is_string()).await;
    assert!(is_ready(&held), "{held:#}");
}

#[tokio::test]
async fn exported_key_is_equal_once_its_secret_is_supplied() {
    let coderd = licensed().await;
    let job = Job::new("export-key").await;
    let wanted = json!({"name": "eks", "tags": {"site": "bed"}});
    let keys = "/api/v2/organizations/default/provisionerkeys";
    let (status, created) = coderd.owner.request(Method::POST, keys, Some(&wanted)).await.unwrap();
    assert_eq!(status, 201);
    let value = created["key"].as_str().unwrap().to_owned();
    let folder = Folder::new("bed-export-key");
    let out = folder.0.display().to_string();
    let kind = ["--kind", "CoderProvisionerKey", "--namespace", job.namespace.as_str()];
    let told = on(&coderd, &[&["export", "--output-dir", &out], &kind[..]].concat(), 0).await;
    assert!(told.contains("coder-eks-provisioner-key/key: value of provisioner key coder/eks"), "{told}");
    let verify = || {
        let mut command = job.command(&["verify", "-f", &out, "--url", &coderd.owner.url]);
        command.env("CODER_SESSION_TOKEN", &coderd.owner.token);
        command
    };
    // Without the Secret no other key is created.
    let told = expect(verify(), 5).await;
    assert!(told.contains("NameTaken"), "{told}");
    job.write_secret("coder-eks-provisioner-key", &json!({"key": value})).await;
    let told = expect(verify(), 0).await;
    assert!(told.contains("1 equal") && !told.contains(&value), "{told}");
}

/// The exported manifests, without the control plane: the stage has it.
fn manifests(folder: &Path) -> Vec<Value> {
    let mut manifests = Vec::new();
    for kind in fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).filter(|it| it.is_dir()) {
        for file in fs::read_dir(kind).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            manifests.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap());
        }
    }
    manifests.retain(|it| it["kind"] != "CoderControlPlane");
    manifests
}
