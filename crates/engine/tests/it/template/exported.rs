//! Templates as manifests, and versions of other tools that have the content of a manifest.

use std::sync::Arc;

use api::Reason;
use client::{Transport, TransportError};
use engine::{
    Coder, Decision, Door, Verdict,
    coder::Promises,
    export::{Export, ExportScope},
    kinds,
};
use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};

use super::{CHANGED, SECRET, Scene, source, template, variables};
use crate::{
    memory,
    support::{secret, subject},
};

/// A source with a variable for each way in which it may be set.
const SOURCE: &str = r#"
variable "registry_token" {
  type = string
}
variable "region" {
  type    = string
  default = "eu"
}
variable "size" {
  type    = string
  default = "small"
}
variable "hidden" {
  type      = string
  sensitive = true
  default   = "none"
}
resource "terraform_data" "one" {}
"#;

/// A tar archive of another tool: a folder for the root, an owner, a time.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(if path.ends_with('/') {
            tar::EntryType::Directory
        } else {
            tar::EntryType::Regular
        });
        let is_executable = *path == "run.sh" || path.ends_with('/');
        header.set_mode(if is_executable { 0o775 } else { 0o664 });
        header.set_mtime(1_700_000_000);
        header.set_uid(1000);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, *content).unwrap();
    }
    archive.into_inner().unwrap()
}

impl Scene {
    /// Publishes a template as `coder templates push` does, and returns it.
    async fn pushed(&self, files: &[(&str, &[u8])], values: &Value) -> Value {
        let file = self.send(Method::POST, "/api/v2/files", "application/x-tar", archive(files)).await;
        let body = json!({"name": "wonderful_haslett3", "storage_method": "file", "file_id": file["hash"],
            "provisioner": "terraform", "tags": {}, "user_variable_values": values, "message": "By hand"});
        let version =
            self.by_hand(Method::POST, "/api/v2/organizations/default/templateversions", &body).await;
        self.build();
        let body = json!({"name": "kubernetes", "template_version_id": version["id"], "display_name": "K8s"});
        self.by_hand(Method::POST, "/api/v2/organizations/default/templates", &body).await
    }

    async fn export(&self, inlines_files: bool) -> Export {
        self.export_by(self.deployment.transport(), inlines_files).await
    }

    async fn export_by(&self, transport: Arc<dyn Transport>, inlines_files: bool) -> Export {
        let scope = ExportScope {
            control_plane: "main".to_owned(),
            namespace: Some("platform".to_owned()),
            kinds: ["CoderTemplate".to_owned()].into(),
            inlines_files,
            ..ExportScope::default()
        };
        let client = memory::owner(transport);
        kinds::export(&scope, &Coder::new(client, Promises::default())).await.unwrap()
    }

    /// The one template of an export with its files inline, and the Secret that it asks for in the cluster.
    async fn exported(&self) -> Value {
        let export = self.export(true).await;
        assert_eq!((&export.left_out[..], &export.unread[..]), (&[][..], &[][..]));
        let told = format!("{export:?}");
        assert!(!told.contains(SECRET) && !told.contains(CHANGED), "{told}");
        let values: serde_json::Map<String, Value> =
            export.manifests[0].secrets.iter().map(|it| (it.key.clone(), json!(SECRET))).collect();
        self.cluster.set(&secret("template-coder-kubernetes", &values.into()));
        export.manifests[0].manifest.clone()
    }

    /// Whether the plan on the command line is empty.
    async fn is_equal(&self, manifest: &Value) -> bool {
        let coder = self.command_line("owner");
        let assessment = subject(manifest).assess(&coder, Door::CommandLine).await;
        matches!(assessment.verdict, Verdict::Decided(Decision::Nothing))
    }
}

#[tokio::test]
async fn template_of_another_tool_is_exported_and_adopted_without_a_version() {
    let scene = Scene::new().await;
    let files: [(&str, &[u8]); 4] = [
        ("./", b""),
        ("./main.tf", SOURCE.as_bytes()),
        ("modules/a/main.tf", b"locals {}"),
        (".terraform.lock.hcl", b"# lock"),
    ];
    let values = json!([{"name": "registry_token", "value": SECRET}, {"name": "size", "value": "large"},
        {"name": "hidden", "value": SECRET}]);
    let made = scene.pushed(&files, &values).await;
    let mut manifest = scene.exported().await;
    let spec = &manifest["spec"];
    assert_eq!((&spec["name"], &spec["displayName"]), (&json!("kubernetes"), &json!("K8s")));
    assert_eq!(spec["version"], json!({"name": "wonderful_haslett3", "message": "By hand"}));
    assert_eq!(spec["acl"], json!({"groups": {"Everyone": "use"}, "users": {}}));
    let paths: Vec<&String> = spec["source"]["files"].as_object().unwrap().keys().collect();
    assert_eq!(paths, [".terraform.lock.hcl", "main.tf", "modules/a/main.tf"]);
    let from = |key: &str| json!({"secretKeyRef": {"name": "template-coder-kubernetes", "key": key}});
    let expected = json!([{"name": "hidden", "valueFrom": from("hidden")},
        {"name": "registry_token", "valueFrom": from("registry_token")}, {"name": "size", "value": "large"}]);
    assert_eq!(spec["variables"], expected);
    assert!(scene.is_equal(&manifest).await);
    scene.equal(&mut manifest).await;
    assert_eq!((scene.versions(), &manifest["status"]["id"]), (1, &made["id"]));
    assert_eq!(manifest["status"]["version"]["name"], "wonderful_haslett3");

    // Coder does not show the value of a sensitive variable, but a change of its Secret is one.
    manifest["spec"].as_object_mut().unwrap().remove("version");
    scene.equal(&mut manifest).await;
    let changed = json!({"registry_token": SECRET, "hidden": CHANGED});
    scene.cluster.set(&secret("template-coder-kubernetes", &changed));
    scene.published(&mut manifest).await;
    assert_eq!(scene.versions(), 2);
}

#[tokio::test]
async fn differing_value_tag_or_file_is_no_version_of_another_tool() {
    let scene = Scene::new().await;
    let token = json!([{"name": "registry_token", "value": SECRET}]);
    scene.pushed(&[("main.tf", SOURCE.as_bytes())], &token).await;
    let exported = scene.exported().await;
    assert!(scene.is_equal(&exported).await);
    for (field, value) in [
        ("variables", json!([{"name": "registry_token", "value": "other"}])),
        (
            "variables",
            json!([{"name": "registry_token", "value": SECRET}, {"name": "size", "value": "large"}]),
        ),
        ("provisionerTags", json!({"site": "a"})),
        ("source", source(&format!("{SOURCE}\n"))),
    ] {
        let mut other = exported.clone();
        other["spec"][field] = value;
        let coder = scene.command_line("owner");
        let assessment = subject(&other).assess(&coder, Door::CommandLine).await;
        let told = format!("{:?} {:?}", assessment.verdict, assessment.plan);
        assert!(told.contains(&format!("{:?}", Reason::VersionNameTaken)), "{field}: {told}");
        other["spec"].as_object_mut().unwrap().remove("version");
        assert!(!scene.is_equal(&other).await, "{field}");
    }
    // A value that is the default may be declared or not.
    let mut explicit = exported.clone();
    explicit["spec"]["variables"].as_array_mut().unwrap().push(json!({"name": "size", "value": "small"}));
    assert!(scene.is_equal(&explicit).await);
    assert_eq!(scene.versions(), 1, "nothing was published");
}

#[tokio::test]
async fn own_version_is_exported_with_the_references_that_published_it() {
    let scene = Scene::new().await;
    let mut declared = variables();
    declared.as_array_mut().unwrap().push(json!({"name": "size", "value": "small"}));
    let mut manifest = template(&json!({"source": source(SOURCE), "variables": declared,
        "version": {"message": "First"}, "provisionerTags": {}, "schedule": {"defaultTTL": "8h"}}));
    scene.published(&mut manifest).await;
    let mut exported = scene.exported().await;
    let spec = &exported["spec"];
    assert_eq!(spec["version"], json!({"message": "First"}), "a derived name is not exported");
    let names: Vec<(&Value, bool)> = spec["variables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["name"], it["valueFrom"].is_object()))
        .collect();
    assert_eq!(names, [(&json!("region"), false), (&json!("registry_token"), true), (&json!("size"), false)]);
    assert!(scene.is_equal(&exported).await);
    scene.equal(&mut exported).await;
    assert_eq!(scene.versions(), 1);
    // Without the Secret everything else is compared.
    scene.cluster.remove("Secret", "template-coder-kubernetes");
    let skipping = scene.command_line("owner").skipping_missing_secrets();
    let assessment = subject(&exported).assess(&skipping, Door::CommandLine).await;
    assert!(
        matches!(assessment.verdict, Verdict::Decided(Decision::Nothing)) && assessment.unknown.is_some(),
        "{:?}",
        assessment.verdict
    );
}

#[tokio::test]
async fn files_that_cannot_be_exported_are_named_and_the_settings_are_exported() {
    for (files, inlines, why) in [
        (
            vec![("main.tf", &b"locals {}"[..]), ("prod.auto.tfvars", b"a = 1")],
            true,
            "they have prod.auto.tfvars",
        ),
        (vec![("main.tf", b"locals {}"), (".env", b"A=1")], false, "they have .env"),
        (vec![("main.tf", b"locals {}"), ("logo.png", &[0xff, 0xfe])], true, "logo.png is no text"),
        (vec![("main.tf", &[b'#'; 300_000][..])], true, "300000 bytes"),
    ] {
        let scene = Scene::new().await;
        scene.pushed(&files, &json!([])).await;
        let export = scene.export(inlines).await;
        assert_eq!(export.left_out.len(), 1, "{:?}", export.left_out);
        assert!(export.left_out[0].why.contains(why), "{:?}", export.left_out);
        let manifest = &export.manifests[0].manifest;
        assert_eq!((&manifest["spec"]["source"], &manifest["spec"]["version"]), (&Value::Null, &Value::Null));
        assert!(scene.is_equal(manifest).await, "{manifest}");
        if !inlines {
            continue;
        }
        // What is no text or large is beside the manifest.
        let beside = scene.export(false).await;
        assert_eq!(beside.left_out.is_empty(), !why.starts_with("they"), "{:?}", beside.left_out);
        if why.starts_with("they") {
            continue;
        }
        assert_eq!(
            beside.manifests[0].manifest["spec"]["source"],
            json!({"directory": "./coder-kubernetes"})
        );
        assert_eq!(beside.manifests[0].files.len(), files.len());
    }
}

/// A deployment whose archives are larger than the client takes.
#[derive(Debug)]
struct LargeFiles(Arc<dyn Transport>);

impl Transport for LargeFiles {
    fn send(
        &self,
        request: http::Request<bytes::Bytes>,
    ) -> BoxFuture<'_, Result<http::Response<bytes::Bytes>, TransportError>> {
        if request.uri().path().starts_with("/api/v2/files/") {
            return Box::pin(async { Err(TransportError::TooLarge { limit: 8_388_608 }) });
        }
        self.0.send(request)
    }
}

#[tokio::test]
async fn archive_that_is_too_large_to_read_is_named_with_the_way_out() {
    let scene = Scene::new().await;
    scene.pushed(&[("main.tf", b"locals {}")], &json!([])).await;
    let export = scene.export_by(Arc::new(LargeFiles(scene.deployment.transport())), false).await;
    assert_eq!((export.unread.len(), export.left_out.len()), (0, 1), "{:?}", export.left_out);
    assert_eq!(export.left_out[0].what, "files of template default/kubernetes");
    for words in ["larger than 8388608 bytes", "set spec.source to the files where they are kept"] {
        assert!(export.left_out[0].why.contains(words), "{:?}", export.left_out);
    }
    let manifest = &export.manifests[0].manifest;
    assert!(manifest["spec"]["source"].is_null() && scene.is_equal(manifest).await, "{manifest}");
}

#[tokio::test]
async fn script_in_a_manifest_is_equal_to_the_executable_one_with_a_note() {
    let scene = Scene::new().await;
    scene.pushed(&[("main.tf", b"locals {}"), ("run.sh", b"#!/bin/sh")], &json!([])).await;
    let beside = scene.export(false).await;
    let executable: Vec<&str> = beside.manifests[0]
        .files
        .iter()
        .filter(|(_, it)| it.is_executable)
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(executable, ["run.sh"]);
    let inline = scene.export(true).await;
    let notes = inline.manifests[0].notes.join("\n");
    assert!(notes.contains("these are: run.sh. Export to files with --output-dir"), "{notes}");
    assert!(scene.is_equal(&inline.manifests[0].manifest).await);
}

#[tokio::test]
async fn files_that_the_account_may_not_read_are_named() {
    let scene = Scene::new().await;
    scene.pushed(&[("main.tf", b"locals {}")], &json!([])).await;
    scene.deployment.edit(|it| it.files.clear());
    let export = scene.export(true).await;
    assert_eq!(export.unread, []);
    assert!(export.left_out[0].why.contains("cannot be read"), "{:?}", export.left_out);
    assert_eq!(export.left_out[0].what, "files of template default/kubernetes");
}

#[tokio::test]
async fn lost_fingerprint_key_is_named_where_the_version_has_a_fixed_name() {
    let mut scene = Scene::new().await;
    let mut manifest = template(&json!({"variables": variables(), "version": {"name": "v1"}}));
    scene.published(&mut manifest).await;
    let before = manifest["status"]["version"].clone();
    // The Secret with the key is lost, and another process makes a new one.
    for lost in scene.cluster.all("Secret") {
        let name = lost["metadata"]["name"].as_str().unwrap().to_owned();
        if name != "registry" {
            scene.cluster.remove("Secret", &name);
        }
    }
    scene.coder = scene.controller();
    let waiting = scene.blocked(&mut manifest).await;
    assert_eq!(waiting.reason, Reason::VersionNameTaken);
    assert!(waiting.message.contains("with another key for their fingerprints"), "{}", waiting.message);
    assert_eq!(manifest["status"]["version"], before);
}
