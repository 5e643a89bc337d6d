//! `export` against a sandbox: its files, its exit codes, and a second deployment made of them.

mod templates;

use std::{fs, path::Path, process::Output};

use crate::{
    sandbox::{Sandbox, assert_code, examples},
    support::{Folder, bare, named, said},
};

const KEY: &str = "key-export-0123456789-abcdefghij";
const AWS_ID: &str = "aws-id-0123456789-abcdef";
const AWS_SECRET: &str = "aws-secret-value-0123456789";

fn kind_example(name: &str) -> String {
    format!("{}/../../examples/kinds/{name}.yaml", env!("CARGO_MANIFEST_DIR"))
}

/// A sandbox with the examples applied, AI providers and a custom role among them.
fn filled() -> Sandbox {
    let sandbox = Sandbox::start(&[]);
    let mut command = named(&sandbox.url, &sandbox.token, &["apply", "--yes", "-f", &examples()]);
    for kind in ["coderaiprovider", "coderaimodel", "coderrole"] {
        command.args(["-f", &kind_example(kind)]);
    }
    for secret in ["ai-keys/anthropic=env:KEY", "aws/id=env:AWS_ID", "aws/secret=env:AWS_SECRET"] {
        command.args(["--secret", secret]);
    }
    let output =
        command.envs([("KEY", KEY), ("AWS_ID", AWS_ID), ("AWS_SECRET", AWS_SECRET)]).output().unwrap();
    assert_code(&output, 0);
    sandbox
}

/// Runs a verb on exported manifests, with the Secret that the export asks for.
fn with_key(sandbox: &Sandbox, args: &[&str]) -> Output {
    let mut command = named(&sandbox.url, &sandbox.token, args);
    command.args(["--secret", "ai-provider-anthropic/key=env:KEY"]).env("KEY", KEY).output().unwrap()
}

/// Every file below a folder, as one text.
fn texts(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        text += &if path.is_dir() { texts(&path) } else { fs::read_to_string(path).unwrap() };
    }
    text
}

async fn changes(sandbox: &Sandbox) -> usize {
    sandbox.state().await["changes"].as_array().unwrap().len()
}

#[tokio::test]
async fn exported_deployment_is_equal_and_makes_an_equal_second_one() {
    let (first, folder) = (filled(), Folder::new("export"));
    let out = folder.0.join("manifests").display().to_string();
    let before = changes(&first).await;
    let exported = first.run(&["export", "--output-dir", &out]);
    assert_code(&exported, 0);
    assert_eq!(changes(&first).await, before, "export only reads");
    let words = said(&exported);
    for expected in
        ["ai-provider-anthropic/key: API key of AI provider anthropic", "not exported: CoderProvisioner: "]
    {
        assert!(words.contains(expected), "{words}");
    }
    let files = texts(&folder.0) + &words;
    for secret in [KEY, AWS_ID, AWS_SECRET, first.token.as_str(), "key-...ghij"] {
        assert!(!files.contains(secret), "{secret} is in the export");
    }
    assert!(folder.0.join("manifests/codergroup/alpha-developers.yaml").is_file());
    assert!(files.contains("ai-provider-anthropic/key"), "the list of Secrets is a file, too");
    assert_code(&bare(&["validate", "--strict", "-f", &out]).output().unwrap(), 0);

    // Without the Secret the key is unknown, which is a failure or a note.
    let waits = first.run(&["verify", "-f", &out]);
    assert_code(&waits, 5);
    let skipped = first.run(&["verify", "--skip-missing-secrets", "-f", &out]);
    assert_code(&skipped, 0);
    assert!(
        said(&skipped).contains("CoderAIProvider anthropic: fields that refer to Secrets are unknown"),
        "{}",
        said(&skipped)
    );
    assert_code(&with_key(&first, &["verify", "-f", &out]), 0);

    let second = Sandbox::start(&[]);
    assert_code(&with_key(&second, &["apply", "--yes", "-f", &out]), 0);
    assert_code(&with_key(&second, &["verify", "-f", &out]), 0);
    let written = changes(&second).await;
    let again = with_key(&second, &["apply", "--yes", "-f", &out]);
    assert_code(&again, 0);
    assert_eq!(changes(&second).await, written, "the second run writes: {}", said(&again));
    assert_code(&with_key(&first, &["verify", "-f", &out]), 0);
}

#[test]
fn stream_is_the_same_every_time_and_has_the_secrets_in_front() {
    let sandbox = filled();
    let stream = |args: &[&str]| {
        let output = sandbox.run(&[&["export", "--quiet"], args].concat());
        assert_code(&output, 0);
        String::from_utf8(output.stdout).unwrap()
    };
    let first = stream(&[]);
    assert_eq!(stream(&[]), first);
    let (head, _) = first.split_once("---\n").unwrap();
    assert!(
        head.lines().all(|it| it.starts_with("# ")) && head.contains("ai-provider-anthropic/key"),
        "{head}"
    );
    let observed = stream(&[
        "--mode",
        "Observe",
        "--namespace",
        "coder",
        "--control-plane",
        "prod",
        "--kind",
        "codergroup",
    ]);
    for expected in ["kind: CoderGroup", "mode: Observe", "namespace: coder", "name: prod"] {
        assert!(observed.contains(expected), "{expected}: {observed}");
    }
    assert!(!observed.contains("CoderRole"), "{observed}");
}

#[test]
fn files_that_differ_are_replaced_only_on_request_and_stale_ones_are_named() {
    let (sandbox, folder) = (filled(), Folder::new("export-again"));
    let out = folder.0.display().to_string();
    let export = |args: &[&str]| sandbox.run(&[&["export", "--output-dir", &out], args].concat());
    assert_code(&export(&[]), 0);
    let unchanged = export(&[]);
    assert_code(&unchanged, 0);
    assert!(said(&unchanged).contains("(0 files written)"), "{}", said(&unchanged));
    let file = folder.0.join("codergroup/alpha-security.yaml");
    let content = fs::read_to_string(&file).unwrap();
    fs::write(&file, "another").unwrap();
    fs::write(folder.0.join("codergroup/gone.yaml"), &content).unwrap();
    let refused = export(&[]);
    assert_code(&refused, 4);
    assert!(
        said(&refused).contains("alpha-security.yaml exists and differs; nothing was written"),
        "{}",
        said(&refused)
    );
    let replaced = export(&["--overwrite"]);
    assert_code(&replaced, 0);
    assert!(said(&replaced).contains("gone.yaml: no object of this export"), "{}", said(&replaced));
    assert_eq!(fs::read_to_string(&file).unwrap(), content);
}

#[test]
fn unknown_kind_organization_and_token_are_refused() {
    let sandbox = Sandbox::start(&[]);
    for (args, words) in [
        (["--kind", "CoderGroups"], "no kind CoderGroups: there are"),
        (["--organization", "nowhere"], "there is no organization nowhere"),
    ] {
        let refused = sandbox.run(&[&["export"], &args[..]].concat());
        assert_code(&refused, 2);
        assert!(said(&refused).contains(words), "{}", said(&refused));
    }
    let wrong =
        crate::support::coder_operator(&sandbox.url, "abcdefghij-0123456789012345678901", &["export"]);
    assert_code(&wrong, 1);
    assert!(wrong.stdout.is_empty(), "{}", said(&wrong));
}

#[tokio::test]
async fn lists_that_the_account_may_not_read_are_named_and_the_exit_code_is_1() {
    let sandbox = filled();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = async |path: &str, body: serde_json::Value| -> serde_json::Value {
        let request = client.post(format!("{}/api/v2{path}", sandbox.url)).json(&body);
        request.header("coder-session-token", &sandbox.token).send().await.unwrap().json().await.unwrap()
    };
    let request = client.get(format!("{}/api/v2/organizations", sandbox.url));
    let request = request.header("coder-session-token", &sandbox.token);
    let found: serde_json::Value = request.send().await.unwrap().json().await.unwrap();
    let home = found.as_array().unwrap().iter().find(|it| it["is_default"] == true).unwrap();
    let (email, password) = ("reader@example.com", "A-password-of-a-reader-4!");
    let reader = serde_json::json!({"username": "reader", "email": email, "password": password,
        "organization_ids": [home["id"]]});
    assert_eq!(post("/users", reader).await["username"], "reader");
    let session = post("/users/login", serde_json::json!({"email": email, "password": password})).await;
    let token = session["session_token"].as_str().unwrap();
    let output = crate::support::coder_operator(&sandbox.url, token, &["export"]);
    assert_code(&output, 1);
    let words = said(&output);
    for expected in [
        "the account reader is no owner",
        "the export is incomplete; not read:",
        "CoderOrganizationSync: ",
        "CoderAIProvider: ",
        "kind: CoderControlPlane",
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
}

#[test]
fn secret_value_that_a_person_put_into_coder_is_left_out_by_name() {
    let (sandbox, folder) = (Sandbox::start(&[]), Folder::new("export-secret"));
    // Not as one word: this file holds no token.
    let token = format!("{}-{}", "abcdefghij", "0123456789012345678901");
    let banner = |message: &str| {
        format!(
            "{{apiVersion: coder.com/v1alpha1, kind: CoderAppearance, metadata: {{name: a}}, spec: {{controlPlaneRef: {{name: main}}, \
             announcementBanners: [{{message: '{message}', backgroundColor: '#007a33'}}]}}}}"
        )
    };
    for (message, is_exported) in
        [(format!("use {token} for builds"), false), ("ask <your-team>".to_owned(), true)]
    {
        let file = folder.write("banner.yaml", &banner(&message));
        assert_code(&sandbox.run(&["apply", "--yes", "-f", &file]), 0);
        let exported = sandbox.run(&["export"]);
        assert_code(&exported, 0);
        assert_eq!(said(&exported).contains(&message), is_exported, "{}", said(&exported));
        let is_named = said(&exported).contains("not exported: CoderAppearance appearance: ");
        assert_eq!(is_named, !is_exported, "{}", said(&exported));
    }
}

#[test]
fn unlicensed_deployment_names_the_kinds_that_need_a_licence() {
    let sandbox = Sandbox::start(&["--license", "none"]);
    let exported = sandbox.run(&["export"]);
    assert_code(&exported, 0);
    let words = said(&exported);
    assert!(words.contains("not exported: CoderGroup: needs a Premium or Enterprise licence"), "{words}");
    assert!(words.contains("kind: CoderControlPlane"), "{words}");
}
