//! The controllers and an API server that takes connections and never says a word.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::Folder;

/// Ends the process when the test is over, however it is over.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn an_operator_that_waits_for_its_first_lists_ends_when_told_and_has_nothing_to_cut_off() {
    // Connections are accepted by the kernel and answered by nobody.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new("silent");
    let server = format!("http://{}", listener.local_addr().unwrap());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "silent",
        "clusters": [{"name": "silent", "cluster": {"server": server}}],
        "users": [{"name": "silent", "user": {}}],
        "contexts": [{"name": "silent", "context": {"cluster": "silent", "user": "silent"}}],
    });
    let kubeconfig = folder.write("kubeconfig", &kubeconfig.to_string());
    let mut process = Process(
        Command::new(env!("CARGO_BIN_EXE_coder-operator"))
            .args(["run", "--log-format", "json"])
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let lines = BufReader::new(process.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut lines = lines.map(|it| serde_json::from_str::<Value>(&it).unwrap());
    assert!(lines.any(|it| it["message"] == "running"));
    // Its first question is on its way, so a controller does wait.
    let _asked = listener.accept().unwrap();
    let pid = process.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    // The stream ends with the process; a cut, after ten seconds, would be a line.
    let rest: Vec<Value> = lines.collect();
    assert_eq!(process.0.wait().unwrap().code(), Some(0), "{rest:?}");
    let said: Vec<&str> = rest.iter().filter_map(|it| it["message"].as_str()).collect();
    assert_eq!(said, ["ending"]);
}
