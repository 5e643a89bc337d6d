//! What a machine that lacks something is told. Nothing here starts a bed.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

fn xtask(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(args);
    command
}

/// A folder that is removed when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn assert_refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(matches!(errors[..], [error] if error.contains(words)), "{said}");
}

#[test]
fn a_machine_without_go_is_told_to_install_it() {
    let scratch = Scratch::new("no-go");
    let output = xtask(&["bed", "build"]).env("PATH", &scratch.0).output().unwrap();
    assert_refused(&output, "install Go 1.26.5 or newer");
}

#[test]
fn a_machine_without_a_reachable_registry_is_told_so() {
    let scratch = Scratch::new("no-registry");
    let output = xtask(&["bed", "build"])
        .env("CODER_OPERATOR_BED_CACHE", scratch.0.join("bed"))
        .env("GOMODCACHE", scratch.0.join("modules"))
        .env("GOCACHE", scratch.0.join("build"))
        .env("GOFLAGS", "-modcacherw")
        .env("GOPROXY", "http://127.0.0.1:1")
        .output()
        .unwrap();
    assert_refused(&output, "the Go module registry cannot be reached");
}

#[test]
fn an_unknown_verb_is_a_usage_error() {
    assert_eq!(xtask(&["bed", "fly"]).output().unwrap().status.code(), Some(2));
}
