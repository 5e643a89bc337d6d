//! The machine's Go toolchain, and what its complaints mean.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

const MISSING: &str =
    "the bed builds Kubernetes and Coder with Go: install Go 1.26.5 or newer and put `go` on PATH";

/// A Go toolchain that runs.
#[derive(Debug)]
pub(super) struct Toolchain {
    /// What it is and what it builds for, as `go env` says: whatever changes a binary without changing its sources.
    pub(super) identity: String,
}

impl Toolchain {
    pub(super) fn find() -> Result<Self> {
        let output = match Command::new("go")
            .args(["env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT"])
            .output()
        {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(MISSING),
            other => other.context("run `go env`")?,
        };
        let identity = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || identity.is_empty() {
            bail!("`go env` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Self { identity })
    }
}

/// What a failed build has to do with the machine rather than with the code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The registry asks for a pause.
    TooManyRequests,
    /// Something that a person has to mend, in one sentence.
    ForAPerson(&'static str),
}

/// Reads the complaint of a failed `go build`.
pub(super) fn diagnose(complaint: &str) -> Option<Trouble> {
    const UNREACHABLE: &str = "the Go module registry cannot be reached: check the network and GOPROXY, then run \
        `cargo xtask bed build` again";
    const OLD: &str = "this machine's Go is too old for the pinned parts: install Go 1.26.5 or newer";
    const FULL: &str = "the disk is full: a cold build of the parts needs about 15 GB for Go's caches";
    let has = |words: &[&str]| words.iter().any(|word| complaint.contains(word));
    if has(&["too many requests", "Too Many Requests"]) {
        Some(Trouble::TooManyRequests)
    } else if has(&["no space left on device"]) {
        Some(Trouble::ForAPerson(FULL))
    } else if has(&["requires go >="]) {
        Some(Trouble::ForAPerson(OLD))
    } else if has(&[
        "dial tcp",
        "no such host",
        "connection refused",
        "i/o timeout",
        "TLS handshake",
        "module lookup disabled by GOPROXY=off",
        "403 Forbidden",
        "502 Bad Gateway",
        "503 Service Unavailable",
    ]) {
        Some(Trouble::ForAPerson(UNREACHABLE))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_registry_is_told_from_a_broken_build() {
        let refused = "go: example.test/a@v1.0.0: Get \"http://127.0.0.1:1/a\": dial tcp 127.0.0.1:1: connect: connection refused";
        assert!(matches!(diagnose(refused), Some(Trouble::ForAPerson(it)) if it.contains("registry")));
        assert_eq!(diagnose("./serve_test.go:12:2: undefined: nothing"), None);
    }

    #[test]
    fn a_registry_that_asks_for_a_pause_gets_one() {
        assert_eq!(diagnose("reading a@v1: 429 Too Many Requests"), Some(Trouble::TooManyRequests));
        let dated =
            "go: a@v1.3.1-0.20240429000000-0123456789ab: dial tcp 127.0.0.1:1: connect: connection refused";
        assert!(matches!(diagnose(dated), Some(Trouble::ForAPerson(_))), "a date is not a status");
    }

    #[test]
    fn an_old_toolchain_is_named() {
        let old = "go: go.mod requires go >= 1.26.5 (running go 1.24.1; GOTOOLCHAIN=local)";
        assert!(matches!(diagnose(old), Some(Trouble::ForAPerson(it)) if it.contains("too old")));
    }
}
