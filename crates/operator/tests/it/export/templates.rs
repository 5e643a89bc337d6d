//! Templates of an export: their files beside the manifest or in it, and a second deployment made of them.

use std::{fs, path::Path, process::Output};

use reqwest::Method;
use serde_json::{Value, json};

use super::texts;
use crate::{
    sandbox::{Sandbox, assert_code},
    support::{Folder, bare, named, said},
};

const SECRET: &str = "registry-export-0123456789";
const HIDDEN: &str = "hidden-export-0123456789";
/// YAML that is no manifest, and no YAML either before it is rendered.
const CLOUD_INIT: &str = "#cloud-config\nusers: [{{ .Users }}\n---\nkind: CoderGroup\n";
const MAIN: &str = r#"
variable "registry_token" {
  type = string
}
variable "hidden" {
  type      = string
  sensitive = true
}
variable "region" {
  type    = string
  default = "eu"
}
resource "terraform_data" "workspace" {}
"#;

/// Sends a request with the owner's token.
async fn send(sandbox: &Sandbox, method: Method, path: &str, (kind, body): (&str, Vec<u8>)) -> Value {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.request(method, format!("{}{path}", sandbox.url));
    let request = request.header("coder-session-token", &sandbox.token).header("content-type", kind);
    request.body(body).send().await.unwrap().json().await.unwrap_or_default()
}

async fn by_hand(sandbox: &Sandbox, method: Method, path: &str, body: &Value) -> Value {
    send(sandbox, method, path, ("application/json", body.to_string().into_bytes())).await
}

/// Connects a daemon that builds every version without tags.
async fn connect(sandbox: &Sandbox) {
    let organization = "/api/v2/organizations/default";
    let keys = format!("{organization}/provisionerkeys");
    let key = by_hand(sandbox, Method::POST, &keys, &json!({"name": "builders"})).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let path =
        format!("{organization}/provisionerdaemons/serve?name=pod-1&provisioner=terraform&version=1.18");
    let request = client.get(format!("{}{path}", sandbox.url));
    request.header("coder-provisioner-daemon-key", key["key"].as_str().unwrap()).send().await.unwrap();
}

/// A sandbox with a template of this program and one of another tool.
async fn filled(folder: &Folder) -> Sandbox {
    let sandbox = Sandbox::start(&[]);
    connect(&sandbox).await;
    folder.write("ours/main.tf", MAIN);
    folder.write("ours/cloud/init.yaml", CLOUD_INIT);
    folder.write("ours/.terraform.lock.hcl", "# lock\r\n");
    let from = |key: &str| json!({"secretKeyRef": {"name": "registry", "key": key}});
    let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": "ours"},
        "spec": {"controlPlaneRef": {"name": "main"}, "source": {"directory": "ours"}, "displayName": "Ours",
            "schedule": {"defaultTTL": "8h"}, "acl": {"groups": {"Everyone": "admin"}},
            "variables": [{"name": "registry_token", "valueFrom": from("token")}, {"name": "hidden", "valueFrom": from("hidden")}]}});
    let file = folder.write("ours.json", &manifest.to_string());
    let mut apply = named(&sandbox.url, &sandbox.token, &["apply", "--yes", "--timeout", "1m", "-f", &file]);
    apply.args(["--secret", "registry/token=env:SECRET", "--secret", "registry/hidden=env:HIDDEN"]);
    let applied = apply.envs([("SECRET", SECRET), ("HIDDEN", HIDDEN)]).output().unwrap();
    assert_code(&applied, 0);

    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    let text = "locals {}\n";
    header.set_size(text.len() as u64);
    header.set_mode(0o755);
    archive.append_data(&mut header, "main.tf", text.as_bytes()).unwrap();
    let archive = archive.into_inner().unwrap();
    let stored = send(&sandbox, Method::POST, "/api/v2/files", ("application/x-tar", archive)).await;
    let body = json!({"name": "happy_bohr1", "storage_method": "file", "file_id": stored["hash"],
        "provisioner": "terraform", "tags": {}});
    let version =
        by_hand(&sandbox, Method::POST, "/api/v2/organizations/default/templateversions", &body).await;
    let body = json!({"name": "pushed", "template_version_id": version["id"]});
    by_hand(&sandbox, Method::POST, "/api/v2/organizations/default/templates", &body).await;
    sandbox
}

/// Runs a verb with the Secrets that the export asks for.
fn with_secrets(sandbox: &Sandbox, args: &[&str]) -> Output {
    let mut command = named(&sandbox.url, &sandbox.token, args);
    for secret in ["template-coder-ours/registry_token=env:SECRET", "template-coder-ours/hidden=env:HIDDEN"] {
        command.args(["--secret", secret]);
    }
    command.envs([("SECRET", SECRET), ("HIDDEN", HIDDEN)]).output().unwrap()
}

async fn changes(sandbox: &Sandbox) -> usize {
    sandbox.state().await["changes"].as_array().unwrap().len()
}

/// Waits until the version that was pushed by hand is built.
async fn built(sandbox: &Sandbox) {
    let jobs = "/api/v2/organizations/default/provisionerjobs";
    for _ in 0..3000 {
        let jobs = by_hand(sandbox, Method::GET, jobs, &Value::Null).await;
        if jobs.as_array().unwrap().iter().all(|it| it["status"] == "succeeded") {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("not built");
}

#[tokio::test]
async fn templates_are_exported_with_their_files_and_make_equal_ones() {
    let folder = Folder::new("export-templates");
    let first = filled(&folder).await;
    built(&first).await;
    let before = changes(&first).await;
    let out = folder.0.join("out").display().to_string();
    let exported = first.run(&["export", "--output-dir", &out]);
    assert_code(&exported, 0);
    assert_eq!(changes(&first).await, before, "export only reads");
    let files = Path::new(&out).join("codertemplate");
    let read = |path: &str| fs::read_to_string(files.join(path)).unwrap();
    assert_eq!(
        (read("coder-ours/main.tf"), read("coder-ours/cloud/init.yaml")),
        (MAIN.into(), CLOUD_INIT.into())
    );
    assert_eq!(read("coder-ours/.terraform.lock.hcl"), "# lock\r\n");
    assert!(read("coder-ours.yaml").contains("directory: ./coder-ours"), "{}", read("coder-ours.yaml"));
    assert!(!read("coder-ours.yaml").contains("sha-"), "{}", read("coder-ours.yaml"));
    assert!(read("coder-pushed.yaml").contains("happy_bohr1"), "{}", read("coder-pushed.yaml"));
    let told = texts(Path::new(&out)) + &said(&exported);
    assert!(!told.contains(SECRET) && !told.contains(HIDDEN), "{told}");
    assert!(
        told.contains("template-coder-ours/hidden: value of variable hidden of template coder/ours"),
        "{told}"
    );
    assert_code(&bare(&["validate", "--strict", "-f", &out]).output().unwrap(), 0);
    assert_code(&with_secrets(&first, &["verify", "-f", &out]), 0);
    assert_code(&first.run(&["verify", "--skip-missing-secrets", "-f", &out]), 0);

    let second = Sandbox::start(&[]);
    connect(&second).await;
    assert_code(&with_secrets(&second, &["apply", "--yes", "--timeout", "1m", "-f", &out]), 0);
    assert_code(&with_secrets(&second, &["verify", "-f", &out]), 0);
    let written = changes(&second).await;
    assert_code(&with_secrets(&second, &["apply", "--yes", "-f", &out]), 0);
    assert_eq!(changes(&second).await, written, "the second run writes nothing");
    assert_code(&with_secrets(&first, &["verify", "-f", &out]), 0);
    assert_eq!(changes(&first).await, before);
    let again = folder.0.join("again").display().to_string();
    assert_code(&second.run(&["export", "--output-dir", &again]), 0);
    let manifests = |folder: &str| texts(&Path::new(folder).join("codertemplate"));
    assert_eq!(manifests(&again), manifests(&out), "both deployments are the same");
}

#[tokio::test]
async fn stream_has_the_files_in_the_manifests() {
    let folder = Folder::new("export-templates-stream");
    let sandbox = filled(&folder).await;
    built(&sandbox).await;
    let exported = sandbox.run(&["export"]);
    assert_code(&exported, 0);
    let stream = String::from_utf8(exported.stdout).unwrap();
    assert!(
        stream.contains("cloud/init.yaml") && !stream.contains(SECRET) && !stream.contains(HIDDEN),
        "{stream}"
    );
    let file = folder.write("stream.yaml", &stream);
    assert_code(&with_secrets(&sandbox, &["verify", "-f", &file]), 0);
    let out = folder.0.join("out").display().to_string();
    assert_code(&sandbox.run(&["export", "--inline-files", "--output-dir", &out]), 0);
    assert!(!Path::new(&out).join("codertemplate/coder-ours").exists());
    assert_code(&with_secrets(&sandbox, &["verify", "-f", &out]), 0);
}

#[tokio::test]
async fn file_that_a_template_does_not_have_is_deleted_only_on_request() {
    let folder = Folder::new("export-templates-again");
    let sandbox = filled(&folder).await;
    built(&sandbox).await;
    let out = folder.0.join("out").display().to_string();
    let export = |args: &[&str]| sandbox.run(&[&["export", "--output-dir", &out], args].concat());
    assert_code(&export(&[]), 0);
    let unchanged = export(&[]);
    assert_code(&unchanged, 0);
    assert!(said(&unchanged).contains("(0 files written)"), "{}", said(&unchanged));
    assert!(!said(&unchanged).contains("no object of this export"), "{}", said(&unchanged));
    let surplus = Path::new(&out).join("codertemplate/coder-ours/modules/old.tf");
    fs::create_dir_all(surplus.parent().unwrap()).unwrap();
    fs::write(&surplus, "locals {}").unwrap();
    assert_code(&with_secrets(&sandbox, &["verify", "-f", &out]), 3);
    let refused = export(&[]);
    assert_code(&refused, 4);
    assert!(said(&refused).contains("old.tf is no file of the template"), "{}", said(&refused));
    assert_code(&export(&["--overwrite"]), 0);
    assert!(!surplus.exists());
    assert_code(&with_secrets(&sandbox, &["verify", "-f", &out]), 0);
}

#[tokio::test]
async fn source_with_a_secret_value_in_it_is_left_out_by_name() {
    let folder = Folder::new("export-templates-secret");
    let sandbox = Sandbox::start(&[]);
    connect(&sandbox).await;
    // Not as one word: this file holds no token.
    let token = format!("{}-{}", "abcdefghij", "0123456789012345678901");
    folder.write("source/main.tf", &format!("locals {{ token = \"{token}\" }}\n"));
    let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": "open"},
        "spec": {"controlPlaneRef": {"name": "main"}, "source": {"directory": "source"}}});
    let file = folder.write("open.json", &manifest.to_string());
    assert_code(&sandbox.run(&["apply", "--yes", "--timeout", "1m", "-f", &file]), 0);
    let out = folder.0.join("out").display().to_string();
    for args in [&["export"][..], &["export", "--output-dir", &out]] {
        let exported = sandbox.run(args);
        assert_code(&exported, 0);
        let words = said(&exported);
        assert!(
            words.contains(
                "not exported: files of template default/open: main.tf holds a Coder session token"
            ),
            "{words}"
        );
        assert!(!words.contains(&token), "{words}");
    }
    assert!(!texts(&folder.0.join("out")).contains(&token));
    assert_code(&sandbox.run(&["verify", "-f", &out]), 0);
}
