//! Which address a command uses, and which address gets no request.

use std::{io::ErrorKind, net::TcpListener, process::Output};

use serde_json::Value;

use crate::support::{Folder, bare, in_environment, named, said};

const TOKEN: &str = "0123456789-0123456789012345678901";
/// Nothing listens there.
const NOWHERE: &str = "http://127.0.0.1:1";
const ORGANIZATION: &str = "apiVersion: coder.com/v1alpha1\nkind: CoderOrganization\nmetadata: {name: alpha}\nspec: {controlPlaneRef: {name: main}}\n";

/// A server that accepts connections and counts them.
struct Stranger(TcpListener);

impl Stranger {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// The kernel accepts connections by itself, so a connection of a process that has ended is here.
    fn assert_untouched(&self) {
        let connected = self.0.accept();
        assert!(matches!(&connected, Err(error) if error.kind() == ErrorKind::WouldBlock), "{connected:?}");
    }
}

/// An organization with its control plane and the control plane's token.
fn set(external: &str) -> String {
    format!(
        "{ORGANIZATION}---\napiVersion: coder.com/v1alpha1\nkind: CoderControlPlane\nmetadata: {{name: main}}\nspec:\n  external: {{url: \"{external}\", credentialsSecretRef: {{name: coder}}}}\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: coder}}\nstringData: {{token: \"{TOKEN}\"}}\n"
    )
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn apply_refuses_an_address_that_only_the_environment_names() {
    let stranger = Stranger::new();
    let folder = Folder::new("address-refused");
    let file = folder.write("a.yaml", ORGANIZATION);
    for (args, why) in [
        (&["apply", "--yes", "-f", &file][..], "--yes was given"),
        (&["apply", "-f", &file], "there is no terminal"),
        (&["apply", "--yes", "--quiet", "--wait", "-o", "json", "-f", &file], "--yes was given"),
    ] {
        let output = in_environment(&stranger.url(), TOKEN, args).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{}", said(&output));
        let url = format!("{}/", stranger.url());
        for words in [&format!("refused to apply to {url}: "), why, &format!("give --url {url}")] {
            assert!(errors(&output).contains(words), "{words:?} is not in:\n{}", said(&output));
        }
        assert!(output.stdout.is_empty() && !said(&output).contains(TOKEN), "{}", said(&output));
    }
    stranger.assert_untouched();
}

#[test]
fn apply_with_a_flag_for_the_same_address_is_not_refused() {
    let folder = Folder::new("address-named");
    let file = folder.write("a.yaml", ORGANIZATION);
    let mut command = named(NOWHERE, TOKEN, &["apply", "--yes", "-f", &file]);
    let output = command.env("CODER_URL", NOWHERE).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(!said(&output).contains("CODER_URL"), "{}", said(&output));
}

#[test]
fn plan_and_verify_announce_an_address_of_the_environment() {
    let folder = Folder::new("address-announced");
    let file = folder.write("a.yaml", ORGANIZATION);
    let words = format!("the address {NOWHERE}/ comes from the environment variable CODER_URL");
    for verb in ["plan", "verify"] {
        let output = in_environment(NOWHERE, TOKEN, &[verb, "-f", &file]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(errors(&output).contains(&words), "{}", said(&output));
        let output = in_environment(NOWHERE, TOKEN, &[verb, "--quiet", "-f", &file]).output().unwrap();
        assert_eq!(errors(&output), "");
        let output = named(NOWHERE, TOKEN, &[verb, "-f", &file]).output().unwrap();
        assert!(!said(&output).contains("CODER_URL"), "{}", said(&output));
    }
}

#[test]
fn token_file_needs_no_flag_for_the_address_of_the_environment() {
    let stranger = Stranger::new();
    let folder = Folder::new("address-token-file");
    let file = folder.write("a.yaml", ORGANIZATION);
    let token = folder.write("token", TOKEN);
    let words = format!("the address {NOWHERE}/ comes from the environment variable CODER_URL");
    for verb in ["plan", "verify"] {
        let args = [verb, "--token-file", &token, "-f", &file];
        let output = bare(&args).env("CODER_URL", NOWHERE).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(errors(&output).contains(&words), "{}", said(&output));
    }
    for args in [&["apply", "--yes"][..], &["apply"]] {
        let args = [args, &["--token-file", &token, "-f", &file]].concat();
        let output = bare(&args).env("CODER_URL", stranger.url()).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{}", said(&output));
        assert!(errors(&output).contains("give --url"), "{}", said(&output));
    }
    stranger.assert_untouched();
}

#[test]
fn workspace_adds_a_warning() {
    let folder = Folder::new("address-workspace");
    let file = folder.write("a.yaml", ORGANIZATION);
    for variable in ["CODER_AGENT_TOKEN", "CODER_WORKSPACE_NAME"] {
        for args in [&["plan", "-f", &file][..], &["apply", "--yes", "-f", &file]] {
            let output = in_environment(NOWHERE, TOKEN, args).env(variable, "hunter2").output().unwrap();
            let words = format!("warning: this is a Coder workspace ({variable} is set)");
            assert!(errors(&output).contains(&words), "{}", said(&output));
            assert!(!said(&output).contains("hunter2"), "{}", said(&output));
        }
    }
    let output = in_environment(NOWHERE, TOKEN, &["plan", "-f", &file]).output().unwrap();
    assert!(!said(&output).contains("warning"), "{}", said(&output));
    let file = folder.write("a.yaml", &set(NOWHERE));
    let output = bare(&["plan", "-f", &file]).env("CODER_WORKSPACE_NAME", "x").output().unwrap();
    assert!(!said(&output).contains("warning"), "the files name the address: {}", said(&output));
}

#[test]
fn address_in_the_files_is_used_and_not_the_one_of_the_environment() {
    let stranger = Stranger::new();
    let folder = Folder::new("address-external");
    let file = folder.write("a.yaml", &set(NOWHERE));
    for args in [&["plan", "-f", &file][..], &["verify", "-f", &file], &["apply", "--yes", "-f", &file]] {
        let output = in_environment(&stranger.url(), "another-token-0000", args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let words = format!("CODER_URL ({}/) is ignored", stranger.url());
        assert!(errors(&output).contains(&words), "{}", said(&output));
        assert!(said(&output).contains(&format!("Deployment {NOWHERE}/ (")), "{}", said(&output));
    }
    stranger.assert_untouched();
}

#[test]
fn address_of_the_environment_that_the_files_confirm_is_not_refused() {
    let folder = Folder::new("address-confirmed");
    let file = folder.write("a.yaml", &set(NOWHERE));
    let output = in_environment(NOWHERE, TOKEN, &["apply", "--yes", "-f", &file]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(!said(&output).contains("CODER_URL"), "{}", said(&output));
}

#[test]
fn deployment_without_an_answer_is_named_by_its_address() {
    let folder = Folder::new("address-silent");
    let file = folder.write("a.yaml", ORGANIZATION);
    let output = named(NOWHERE, TOKEN, &["plan", "-f", &file]).output().unwrap();
    let words = format!("Deployment {NOWHERE}/ (version and deployment id unknown: no answer)");
    assert!(said(&output).contains(&words), "{}", said(&output));
    let output = named(NOWHERE, TOKEN, &["plan", "-o", "json", "-f", &file]).output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["deployments"], serde_json::json!([{"url": format!("{NOWHERE}/")}]));
}
