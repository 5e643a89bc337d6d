//! `sandbox`, and the other verbs against it.

mod docs;

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Output, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Folder, bare, coder_operator, named, said};

/// A sandbox that is killed when the test is over.
pub(crate) struct Sandbox {
    process: Child,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Sandbox {
    /// Starts a sandbox and reads the two lines that it prints.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = bare(&["sandbox"]);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.as_mut().unwrap()).lines().take(2);
        let lines: Vec<String> = lines.map(Result::unwrap).collect();
        let [url, token] = lines.as_slice() else { panic!("{lines:?}") };
        let url = url.strip_prefix("export CODER_URL=").unwrap().to_owned();
        let token = token.strip_prefix("export CODER_SESSION_TOKEN=").unwrap().to_owned();
        Self { process, url, token }
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        coder_operator(&self.url, &self.token, args)
    }

    /// Sends a signal and returns the exit code with what was written to standard error.
    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        let pid = self.process.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let mut words = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut words).unwrap();
        (self.process.wait().unwrap().code(), words)
    }

    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) async fn state(&self) -> Value {
        browser().get(self.path("/sandbox/state")).send().await.unwrap().json().await.unwrap()
    }

    /// Changes something as the page does, from the given origin.
    async fn change(&self, origin: &str, change: &Value) -> (u16, Value) {
        let request = browser().post(self.path("/sandbox/change"));
        let answer = request.header("origin", origin).json(change).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn group(&self, name: &str) -> Value {
        let state = self.state().await;
        let groups = state["groups"].as_array().unwrap();
        groups.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{state}")).clone()
    }
}

pub(crate) fn examples() -> String {
    format!("{}/../../examples/demo/state", env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
}

#[test]
fn verbs_work_against_a_sandbox_as_against_a_real_coder() {
    let sandbox = Sandbox::start(&[]);
    let examples = examples();
    let planned = sandbox.run(&["plan", "--exit-code", "-f", &examples]);
    assert_code(&planned, 3);
    assert!(said(&planned).contains("Coder v2.36.1+sandbox"), "{}", said(&planned));
    let applied = sandbox.run(&["apply", "--yes", "-f", &examples]);
    assert_code(&applied, 0);
    assert!(said(&applied).contains("7 applied in "), "{}", said(&applied));
    assert_code(&sandbox.run(&["verify", "-f", &examples]), 0);
    let (code, words) = sandbox.stop("-TERM");
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("SANDBOX: this is not Coder") && words.contains("state is gone"), "{words}");
}

/// A client as a browser on this machine: no proxy leads to loopback.
fn browser() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

#[tokio::test]
async fn drift_by_hand_is_found_healed_and_attributed() {
    let sandbox = Sandbox::start(&[]);
    let examples = examples();
    assert_code(&sandbox.run(&["apply", "--yes", "-f", &examples]), 0);
    let change = json!({"what": "quota", "group": sandbox.group("developers").await["id"], "quota": 1});
    assert_eq!(sandbox.change(&sandbox.url, &change).await.0, 200);
    let drifted = sandbox.run(&["verify", "-f", &examples]);
    assert_code(&drifted, 3);
    assert!(said(&drifted).contains("quotaAllowance: 1 -> 20"), "{}", said(&drifted));
    assert_eq!(sandbox.state().await["changes"][0]["who"], "a person on this page");
    assert_code(&sandbox.run(&["apply", "--yes", "-f", &examples]), 0);
    let healed = sandbox.state().await;
    assert_eq!(healed["changes"][0]["who"], "coder-operator");
    assert_eq!(healed["changes"][0]["fields"][0]["after"], 20);
    assert_code(&sandbox.run(&["verify", "-f", &examples]), 0);
    let banner = json!({"what": "banner", "message": "<script>alert(1)</script>"});
    assert_eq!(sandbox.change(&sandbox.url, &banner).await.0, 200);
    let drifted = sandbox.run(&["verify", "-f", &examples]);
    assert_code(&drifted, 3);
    assert!(said(&drifted).contains("<script>"), "{}", said(&drifted));
}

#[tokio::test]
async fn other_sites_can_neither_read_nor_change_the_sandbox() {
    let sandbox = Sandbox::start(&[]);
    let banner = json!({"what": "banner", "message": "from elsewhere"});
    let (status, answer) = sandbox.change("http://evil.example", &banner).await;
    assert_eq!(status, 403, "{answer}");
    let client = browser();
    for path in ["/", "/sandbox/state", "/api/v2/buildinfo"] {
        let rebound = client.get(sandbox.path(path)).header("host", "evil.example").send().await.unwrap();
        assert_eq!(rebound.status(), 421, "{path}");
    }
    let form = client.post(sandbox.path("/sandbox/change")).body(banner.to_string());
    let form = form.header("origin", &sandbox.url).header("content-type", "text/plain").send().await.unwrap();
    assert_eq!(form.status(), 403);
    assert!(!sandbox.state().await.to_string().contains("from elsewhere"));
    let page = client.get(sandbox.path("/")).send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(page.headers().get("access-control-allow-origin").is_none());
    let anonymous = client.get(sandbox.path("/api/v2/organizations")).send().await.unwrap();
    assert_eq!(anonymous.status(), 401, "the API needs the token");
    assert!(!sandbox.state().await.to_string().contains(&sandbox.token));
}

#[test]
fn unlicensed_sandbox_refuses_organizations_as_coder_does() {
    let sandbox = Sandbox::start(&["--license", "none"]);
    let waiting = sandbox.run(&["apply", "--yes", "-f", &examples()]);
    assert_code(&waiting, 5);
    assert!(said(&waiting).contains("licen"), "{}", said(&waiting));
}

#[test]
fn state_is_saved_and_loaded() {
    let folder = Folder::new("sandbox-state");
    let file = folder.0.join("state.json").display().to_string();
    let missing = bare(&["sandbox", "--state", &file]).output().unwrap();
    assert_code(&missing, 2);
    assert!(said(&missing).contains("give --save to create it"), "{}", said(&missing));
    let first = Sandbox::start(&["--state", &file, "--save"]);
    assert_code(&first.run(&["apply", "--yes", "-f", &examples()]), 0);
    let token = first.token.clone();
    let (code, words) = first.stop("-INT");
    assert_eq!(code, Some(0), "{words}");
    let saved = std::fs::read_to_string(&file).unwrap();
    assert!(!saved.contains(token.split('-').nth(1).unwrap()), "the token is in the file");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let second = Sandbox::start(&["--state", &file]);
    assert_code(&second.run(&["verify", "-f", &examples()]), 0);
    assert_ne!(second.token, token);
    let unlicensed = Sandbox::start(&["--state", &file, "--license", "none"]);
    assert_code(&unlicensed.run(&["verify", "-f", &examples()]), 5);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), saved, "only --save writes the file");
    let broken = folder.write("broken.json", "{}");
    let refused = bare(&["sandbox", "--state", &broken]).output().unwrap();
    assert_code(&refused, 2);
    assert!(said(&refused).contains("not a state of a sandbox"), "{}", said(&refused));
}

#[test]
fn state_is_saved_before_the_end() {
    let folder = Folder::new("sandbox-killed");
    let file = folder.0.join("state.json").display().to_string();
    let mut sandbox = Sandbox::start(&["--state", &file, "--save"]);
    assert_code(&sandbox.run(&["apply", "--yes", "-f", &examples()]), 0);
    // The file is written after the answer of the last change.
    let is_saved = || std::fs::read_to_string(&file).is_ok_and(|it| it.contains("/alpha/org-admins"));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_saved() {
        assert!(std::time::Instant::now() < deadline, "the last change is not in the file");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    sandbox.process.kill().unwrap();
    let next = Sandbox::start(&["--state", &file]);
    assert_code(&next.run(&["verify", "-f", &examples()]), 0);
}

#[test]
fn command_finds_the_sandbox_and_its_exit_code_is_ours() {
    let folder = Folder::new("sandbox-command");
    let organization = "{apiVersion: coder.com/v1alpha1, kind: CoderOrganization, metadata: {name: alpha}, \
                        spec: {controlPlaneRef: {name: main}}}";
    let file = folder.write("alpha.yaml", organization);
    let operator = env!("CARGO_BIN_EXE_coder-operator");
    let script = "test -n \"$CODER_SESSION_TOKEN\" && echo \"$CODER_URL\"; \"$0\" verify -q -f \"$1\" > /dev/null 2>&1";
    let output = bare(&["sandbox", "--quiet", "--", "sh", "-c", script, operator, &file]).output().unwrap();
    assert_code(&output, 3);
    let words = said(&output);
    assert!(words.starts_with("http://127.0.0.1:") && words.lines().count() == 1, "{words}");
    let unknown = bare(&["sandbox", "--", "/no/such/program"]).output().unwrap();
    assert_code(&unknown, 2);
    assert!(said(&unknown).contains("cannot run /no/such/program"), "{}", said(&unknown));
}

#[test]
fn command_that_is_interrupted_has_not_succeeded() {
    let mut command = bare(&["sandbox", "--quiet", "--", "sh", "-c", "echo runs; exec sleep 600"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "runs\n");
    let pid = process.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(143));
}

#[test]
fn port_in_use_is_reported_with_what_to_do() {
    let sandbox = Sandbox::start(&[]);
    let port = sandbox.url.rsplit(':').next().unwrap();
    let refused = bare(&["sandbox", "--port", port]).output().unwrap();
    assert_code(&refused, 1);
    assert!(said(&refused).contains("give another --port"), "{}", said(&refused));
}

#[test]
fn plan_is_applied_once_its_hash_is_approved() {
    let sandbox = Sandbox::start(&[]);
    let folder = Folder::new("sandbox-approve");
    let group = |name: &str, quota: u32| {
        format!(
            "apiVersion: coder.com/v1alpha1\nkind: CoderGroup\nmetadata: {{name: {name}}}\nspec:\n  \
             controlPlaneRef: {{name: main}}\n  organization: coder\n  quotaAllowance: {quota}\n  approval: Manual\n"
        )
    };
    let file = folder.write("groups.yaml", &format!("{}---\n{}", group("one", 1), group("two", 2)));
    let planned = sandbox.run(&["plan", "-o", "json", "-f", &file]);
    let planned: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let hashes = [0, 1].map(|it| planned["objects"][it]["plan"]["hash"].as_str().unwrap().to_owned());
    let apply = |hashes: &[&str]| {
        let mut command = named(&sandbox.url, &sandbox.token, &["apply", "--yes", "-f", &file]);
        for hash in hashes {
            command.args(["--approve", hash]);
        }
        command.output().unwrap()
    };
    let refused = apply(&[]);
    assert_code(&refused, 4);
    for hash in &hashes {
        assert!(said(&refused).contains(&format!("give --approve {hash}")), "{}", said(&refused));
    }
    let half = apply(&[&hashes[0]]);
    assert_code(&half, 4);
    assert!(said(&half).contains("1 applied, 1 refused"), "{}", said(&half));
    let stale = apply(&[&hashes[0]]);
    assert_code(&stale, 4);
    let both = apply(&[&hashes[0], &hashes[1]]);
    assert_code(&both, 0);
    assert_code(&sandbox.run(&["verify", "-f", &file]), 0);
}

#[tokio::test]
async fn daemon_that_connects_to_a_sandbox_is_listed() {
    let sandbox = Sandbox::start(&[]);
    let organization = sandbox.path("/api/v2/organizations/default");
    let keys = format!("{organization}/provisionerkeys");
    let (http, token) = (browser(), sandbox.token.as_str());
    let created = http.post(&keys).header("coder-session-token", token).json(&json!({"name": "builders"}));
    let created: Value = created.send().await.unwrap().json().await.unwrap();
    let serve =
        format!("{organization}/provisionerdaemons/serve?name=pod-1&provisioner=terraform&version=1.18");
    for (key, status) in [("wrong", 401), (created["key"].as_str().unwrap(), 426)] {
        let connected = http.get(&serve).header("coder-provisioner-daemon-key", key).send().await.unwrap();
        assert_eq!(connected.status(), status, "{key}");
    }
    let listed = http.get(format!("{keys}/daemons")).header("coder-session-token", token);
    let listed: Value = listed.send().await.unwrap().json().await.unwrap();
    let builders = listed.as_array().unwrap().iter().find(|it| it["key"]["name"] == "builders").unwrap();
    assert_eq!(builders["daemons"][0]["name"], "pod-1", "{listed}");
}
