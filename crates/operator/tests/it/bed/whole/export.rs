//! A second deployment that is made of the export of the first one.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Coderd;

use super::{KEY_SECRET, daemon, state};
use crate::{
    bed::{
        cluster_door::expect, get, job::Job, licensed, proxy::Proxy, stage::eventually,
        template_test::ask_database,
    },
    examples::request,
    support::{Folder, named},
};

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
const SCRIPT: &str = "#!/bin/sh\nexec true\n";
const TOKEN: &str = "registry-bed-0123456789-export";
/// The Secrets of the exported keys.
const KEY_SECRETS: [&str; 2] = ["alpha-alpha-eks-provisioner-key", "bravo-bravo-eks-provisioner-key"];
/// The Secrets that the export lists, in its order.
const LISTED: [&str; 6] = [
    "main-credentials/token",
    "ai-provider-anthropic/key",
    "ai-provider-openai/key",
    "alpha-alpha-eks-provisioner-key/key",
    "bravo-bravo-eks-provisioner-key/key",
    "template-alpha-ours/registry_token",
];

/// Adds what the example does not have: a template with a sensitive variable and a script, and a template of another tool.
async fn add_templates(coderd: &Coderd, folder: &Folder) {
    folder.write("ours/main.tf", TEMPLATE);
    folder.write("ours/cloud/init.yaml", "#cloud-config\nusers: [{{ .Users }}\n");
    let script = folder.write("ours/bin/start.sh", SCRIPT);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let tags = json!({"cluster": "alpha-eks"});
    let from = json!({"secretKeyRef": {"name": "registry", "key": "token"}});
    let ours = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": "ours"},
        "spec": {"controlPlaneRef": {"name": "main"}, "organization": "alpha", "displayName": "Ours",
            "source": {"directory": "ours"}, "provisionerTags": tags,
            "variables": [{"name": "registry_token", "valueFrom": from}],
            "schedule": {"defaultTTL": "8h", "autostop": {"days": ["saturday"]}}, "acl": {"users": {"admin": "admin"}}}});
    let file = folder.write("ours.json", &ours.to_string());
    let args = ["apply", "--yes", "--timeout", "4m", "-f", &file, "--secret", "registry/token=env:TOKEN"];
    let mut apply = named(&coderd.owner.url, &coderd.owner.token, &args);
    apply.env("TOKEN", TOKEN);
    expect(apply, 0).await;

    let organization = get(coderd, "/api/v2/organizations/alpha").await["id"].as_str().unwrap().to_owned();
    let version = coderd.owner.start_import(&organization, &tags).await.unwrap();
    let ended = || async { coderd.owner.ended_import(&version).await.unwrap() };
    eventually("built", ended, Option::is_some).await;
    let body = json!({"name": "pushed", "template_version_id": version["id"]});
    let path = format!("/api/v2/organizations/{organization}/templates");
    request(&coderd.owner, Method::POST, &path, Some(&body)).await;
}

/// The value of a Secret in a namespace.
async fn value(job: &Job, name: &str, key: &str) -> String {
    let secret = Api::<Secret>::namespaced(job.client.clone(), &job.namespace).get(name).await.unwrap();
    String::from_utf8(secret.data.unwrap()[key].0.clone()).unwrap()
}

/// The files below a folder by their paths, each with whether it is executable.
fn files(folder: &Path) -> BTreeMap<PathBuf, (String, bool)> {
    let mut files = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(place) = open.pop() {
        for path in fs::read_dir(place).unwrap().map(|it| it.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            let text = fs::read_to_string(&path).unwrap();
            files.insert(path.strip_prefix(folder).unwrap().to_path_buf(), (text, mode & 0o100 != 0));
        }
    }
    files
}

/// The files of an export that are the same for equal deployments: without notes, addresses and the list of Secrets.
fn compared(folder: &Path) -> BTreeMap<PathBuf, (String, bool)> {
    let mut files = files(folder);
    files.retain(|path, _| !path.starts_with("codercontrolplane") && !path.ends_with("SECRETS.txt"));
    for (path, (text, _)) in &mut files {
        if path.extension().is_some_and(|it| it == "yaml") && path.components().count() == 2 {
            *text = text.split_inclusive('\n').filter(|it| !it.starts_with('#')).collect();
        }
    }
    files
}

/// What the deployment has, without the marks of versions: those tell whether a version was tested, and who published it.
async fn unmarked_state(coderd: &Coderd) -> Value {
    let mut state = state(coderd).await;
    for template in state["templates"].as_array_mut().unwrap() {
        for text in template["active_version_id"].as_array_mut().unwrap() {
            let words = text.as_str().unwrap().split("[coder-operator ").next().unwrap_or_default();
            *text = json!(words.trim_end());
        }
    }
    state
}

/// The digest of the archive of a template's active version, as coderd has it.
async fn archive(coderd: &Coderd, template: &str) -> String {
    let question = format!(
        "SELECT hash FROM files JOIN provisioner_jobs ON files.id = file_id JOIN template_versions ON job_id = provisioner_jobs.id \
         JOIN templates ON active_version_id = template_versions.id WHERE templates.name = '{template}'"
    );
    ask_database(&coderd.database, &question).await
}

/// Exports everything, and checks that the export only reads and shows no secret.
async fn export(coderd: &Coderd, out: &str, secrets: &[String]) {
    let proxy = Proxy::start(&coderd.owner.url).await;
    let args = ["export", "--all", "--output-dir", out];
    let told = expect(named(&proxy.url, &coderd.owner.token, &args), 0).await;
    assert_eq!(proxy.writes(), [] as [&str; 0], "export only reads");
    assert!(!told.contains("not exported: files of"), "{told}");
    let texts: String = files(Path::new(out)).into_values().map(|(text, _)| text).collect();
    for secret in secrets {
        assert!(!told.contains(secret) && !texts.contains(secret), "a secret is in the export");
    }
}

/// A place for the exported manifests: a namespace with the Secrets that a person brings from elsewhere.
async fn place(name: &str, ai_keys: &[String; 2]) -> Job {
    let job = Job::new(name).await;
    job.write_secret("ai-provider-anthropic", &json!({"key": ai_keys[0]})).await;
    job.write_secret("ai-provider-openai", &json!({"key": ai_keys[1]})).await;
    job.write_secret("template-alpha-ours", &json!({"registry_token": TOKEN})).await;
    job
}

/// The keys of both organizations, from Secrets with these names.
async fn keys(job: &Job, names: [&str; 2]) -> [String; 2] {
    [value(job, names[0], "key").await, value(job, names[1], "key").await]
}

/// Exports the first deployment, and makes an equal second one of the files. `made_by` made the first.
pub(super) async fn second_is_equal(first: &Coderd, made_by: &Job) {
    let folder = Folder::new("whole-export");
    add_templates(first, &folder).await;
    let out = folder.0.join("out").display().to_string();
    let first_keys = keys(made_by, [KEY_SECRET, "bravo-eks-provisioner-key"]).await;
    let ai_keys = [value(made_by, "ai-keys", "anthropic").await, value(made_by, "ai-keys", "openai").await];
    let license = value(made_by, "coder-license", "license").await;
    let others = [TOKEN.to_owned(), first.owner.token.clone(), first.password.clone(), license];
    export(first, &out, &[&first_keys[..], &ai_keys, &others].concat()).await;
    let list = fs::read_to_string(folder.0.join("out/SECRETS.txt")).unwrap();
    let listed = list.lines().skip_while(|it| !it.is_empty()).filter_map(|it| Some(it.split_once(": ")?.0));
    assert_eq!(listed.collect::<Vec<_>>(), LISTED, "{list}");

    let command = |job: &Job, coderd: &Coderd, url: &str, verb: &[&str]| -> Command {
        let mut command = job.command(&[verb, &["-f", &out, "--url", url]].concat());
        command.env("CODER_SESSION_TOKEN", &coderd.owner.token);
        command
    };
    // Without their Secrets the keys are unknown, and no others are created.
    let here = place("whole-exported", &ai_keys).await;
    let proxy = Proxy::start(&first.owner.url).await;
    let told = expect(command(&here, first, &proxy.url, &["verify"]), 5).await;
    assert!(told.contains("NameTaken") && told.contains("2 waiting"), "{told}");
    for (name, value) in KEY_SECRETS.iter().zip(&first_keys) {
        here.write_secret(name, &json!({"key": value})).await;
    }
    expect(command(&here, first, &proxy.url, &["verify"]), 0).await;
    assert_eq!(proxy.writes(), [] as [&str; 0]);

    let second = licensed().await;
    let there = place("whole-second", &ai_keys).await;
    daemon(&there.client, &there.namespace, KEY_SECRETS[0], &second.owner.url).await;
    expect(command(&there, &second, &second.owner.url, &["apply", "--wait", "--yes"]), 0).await;
    expect(command(&there, &second, &second.owner.url, &["verify"]), 0).await;
    let proxy = Proxy::start(&second.owner.url).await;
    let again = expect(command(&there, &second, &proxy.url, &["apply", "--wait", "--yes"]), 0).await;
    assert_eq!(proxy.writes(), [] as [&str; 0], "the second run writes nothing: {again}");
    expect(command(&here, first, &first.owner.url, &["verify"]), 0).await;

    assert_eq!(unmarked_state(&second).await, unmarked_state(first).await);
    assert_eq!(archive(&second, "ours").await, archive(first, "ours").await);
    let again = folder.0.join("again").display().to_string();
    let others = [TOKEN.to_owned(), second.owner.token.clone(), second.password.clone()];
    export(&second, &again, &[&keys(&there, KEY_SECRETS).await[..], &ai_keys, &others].concat()).await;
    let (one, other) = (compared(Path::new(&out)), compared(Path::new(&again)));
    assert_eq!(other, one, "both exports are the same");
    let script = &one[Path::new("codertemplate/alpha-ours/bin/start.sh")];
    assert_eq!(*script, (SCRIPT.to_owned(), true));
    assert!(one.contains_key(Path::new("codertemplate/alpha-pushed/main.tf")));
}
