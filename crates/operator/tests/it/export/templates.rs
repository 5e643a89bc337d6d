//! Templates of an export: their files beside the manifest or in it, and a second deployment made of them.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Output,
};

use reqwest::Method;
use serde_json::{Value, json};

use super::texts;
use crate::{
    sandbox::{Sandbox, assert_code},
    support::{Folder, bare, named, said},
};

const SECRET: &str = "registry-export-0123456789";
const HIDDEN: &str = "hidden-export-0123456789";
const SCRIPT: &str = "#!/bin/sh\nexec true\n";
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
    let script = folder.write("ours/bin/start.sh", SCRIPT);
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
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
    for (path, text, mode) in [("main.tf", "locals {}\n", 0o664), ("run.sh", SCRIPT, 0o775)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(mode);
        archive.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
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

/// The modes of the files of the active version of a template.
async fn modes(sandbox: &Sandbox, template: &str) -> Vec<(String, u32)> {
    let templates =
        by_hand(sandbox, Method::GET, "/api/v2/organizations/default/templates", &Value::Null).await;
    let template = templates.as_array().unwrap().iter().find(|it| it["name"] == template).unwrap();
    let path = format!("/api/v2/templateversions/{}", template["active_version_id"].as_str().unwrap());
    let version = by_hand(sandbox, Method::GET, &path, &Value::Null).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let file = version["job"]["file_id"].as_str().unwrap();
    let request = client.get(format!("{}/api/v2/files/{file}", sandbox.url));
    let request = request.header("coder-session-token", &sandbox.token);
    let bytes = request.send().await.unwrap().bytes().await.unwrap();
    let mut archive = tar::Archive::new(&bytes[..]);
    let entries = archive.entries().unwrap().map(Result::unwrap);
    let files = entries.filter(|it| it.header().entry_type().is_file());
    files.map(|it| (it.path().unwrap().display().to_string(), it.header().mode().unwrap())).collect()
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
async fn executable_files_of_templates_stay_executable() {
    let folder = Folder::new("export-templates-modes");
    let first = filled(&folder).await;
    built(&first).await;
    let out = folder.0.join("out").display().to_string();
    assert_code(&first.run(&["export", "--output-dir", &out]), 0);
    let files = Path::new(&out).join("codertemplate");
    let is_executable =
        |path: &str| fs::metadata(files.join(path)).unwrap().permissions().mode() & 0o100 != 0;
    for (path, expected) in [
        ("coder-ours/bin/start.sh", true),
        ("coder-pushed/run.sh", true),
        ("coder-ours/main.tf", false),
        ("coder-pushed/main.tf", false),
    ] {
        assert_eq!(is_executable(path), expected, "{path}");
    }
    let second = Sandbox::start(&[]);
    connect(&second).await;
    assert_code(&with_secrets(&second, &["apply", "--yes", "--timeout", "1m", "-f", &out]), 0);
    let expected = [("main.tf".to_owned(), 0o644), ("run.sh".to_owned(), 0o755)];
    assert_eq!(modes(&second, "pushed").await, expected);
    assert_eq!(modes(&second, "ours").await, modes(&first, "ours").await);
    assert!(modes(&first, "ours").await.contains(&("bin/start.sh".to_owned(), 0o755)));

    // A change of the bit alone is one, and a second export sets it back.
    let script = files.join("coder-ours/bin/start.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
    assert_code(&with_secrets(&first, &["verify", "-f", &out]), 3);
    assert_code(&first.run(&["export", "--output-dir", &out]), 4);
    assert_code(&first.run(&["export", "--overwrite", "--output-dir", &out]), 0);
    assert!(is_executable("coder-ours/bin/start.sh"));
    assert_code(&with_secrets(&first, &["verify", "-f", &out]), 0);

    // A manifest cannot say it.
    let stream = first.run(&["export"]);
    assert_code(&stream, 0);
    assert!(said(&stream).contains("are not executable, and these are: bin/start.sh"), "{}", said(&stream));
}

#[tokio::test]
async fn files_that_are_never_published_are_left_alone() {
    let folder = Folder::new("export-templates-unpublished");
    let sandbox = filled(&folder).await;
    built(&sandbox).await;
    let out = folder.0.join("out");
    let source = out.join("codertemplate/coder-ours");
    fs::create_dir_all(source.join(".terraform/providers")).unwrap();
    let kept = ["terraform.tfvars", "terraform.tfstate", ".terraform/providers/x"].map(|it| source.join(it));
    for path in &kept {
        fs::write(path, "mine").unwrap();
    }
    let surplus = source.join("old.tf");
    for more in [&[][..], &["--overwrite"]] {
        let args = [&["export", "--output-dir", out.to_str().unwrap()], more].concat();
        assert_code(&sandbox.run(&args), 0);
        assert!(kept.iter().all(|it| it.is_file()), "{more:?}");
        fs::write(&surplus, "locals {}").unwrap();
    }
    assert_code(&sandbox.run(&["export", "--output-dir", out.to_str().unwrap()]), 4);
    assert_code(&sandbox.run(&["export", "--output-dir", out.to_str().unwrap(), "--overwrite"]), 0);
    assert!(!surplus.exists(), "it would be published");
}

#[tokio::test]
async fn links_below_the_folder_are_refused_and_not_followed() {
    let folder = Folder::new("export-templates-links");
    let sandbox = filled(&folder).await;
    built(&sandbox).await;
    let elsewhere = folder.0.join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let kept = elsewhere.join("main.tf");
    fs::write(&kept, "kept").unwrap();
    for (link, target) in [
        ("codertemplate", &elsewhere),
        ("codertemplate/coder-ours", &elsewhere),
        ("codertemplate/coder-ours/cloud", &elsewhere),
        ("codertemplate/coder-ours/main.tf", &kept),
        ("codertemplate/coder-ours.yaml", &kept),
        ("SECRETS.txt", &kept),
        // One that leads nowhere is followed by a write, too.
        ("codercontrolplane/main.yaml", &elsewhere.join("new.yaml")),
    ] {
        let out = folder.0.join("out");
        fs::remove_dir_all(&out).ok();
        fs::create_dir_all(out.join(link).parent().unwrap()).unwrap();
        symlink(target, out.join(link)).unwrap();
        for more in [&[][..], &["--overwrite"]] {
            let args = [&["export", "--output-dir", out.to_str().unwrap()], more].concat();
            let refused = sandbox.run(&args);
            assert_code(&refused, 4);
            let words = format!("{} is a symbolic link", out.join(link).display());
            assert!(said(&refused).contains(&words), "{link}: {}", said(&refused));
        }
        let found: Vec<_> = fs::read_dir(&elsewhere).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(found, ["main.tf"], "{link}");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept", "{link}");
        assert!(!out.join("coderuser").exists() && !out.join("codergroup").exists(), "{link}");
    }
    // The folder itself may be one: a person named it.
    let (real, out) = (folder.0.join("real"), folder.0.join("linked"));
    fs::create_dir_all(&real).unwrap();
    symlink(&real, &out).unwrap();
    assert_code(&sandbox.run(&["export", "--output-dir", out.to_str().unwrap()]), 0);
    assert!(real.join("codertemplate/coder-ours/main.tf").is_file());
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
