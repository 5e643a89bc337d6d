//! Exported manifests in a cluster. `whole` makes a second coderd of an export.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use testbed::Coderd;

use super::{
    MANIFESTS, licensed,
    proxy::Proxy,
    stage::{Stage, is_ready},
};
use crate::support::{Folder, named, said};

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
