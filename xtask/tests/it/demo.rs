//! The demo on the sandbox, as a person runs it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

/// What a machine has at least.
const PROGRAMS: [&str; 2] = ["sh", "sed"];

/// A folder that is removed when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::remove_dir_all(&path).ok();
        fs::create_dir_all(path.join("bin")).unwrap();
        let search = std::env::var_os("PATH").unwrap();
        for program in PROGRAMS {
            let found = std::env::split_paths(&search).map(|it| it.join(program)).find(|it| it.exists());
            symlink(found.unwrap(), path.join("bin").join(program)).unwrap();
        }
        Self(path)
    }

    /// The demo with the binaries of this build, on a machine that has nothing else.
    fn demo(&self, manifests: &Path) -> Command {
        // The test binary is in `deps`, our own binaries beside that folder.
        let binaries = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["demo", "--manifests"]).arg(manifests).arg("--binaries").arg(binaries);
        command
            .env("PATH", self.0.join("bin"))
            .env_remove("CARGO")
            .env("TMPDIR", &self.0)
            .stdin(Stdio::null());
        command
    }

    /// What the demo left behind.
    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|it| it.unwrap().path());
        entries.filter(|it| it.to_string_lossy().contains("coder-operator-demo")).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/demo")
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn demo_needs_nothing_but_our_binary_and_a_shell() {
    let scratch = Scratch::new("demo");
    let begun = Instant::now();
    let output = scratch.demo(&examples()).output().unwrap();
    let took = begun.elapsed();
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    for (code, count) in [("0", 4), ("3", 1), ("4", 1)] {
        assert_eq!(told.matches(&format!("\nexit code {code}\n")).count(), count, "{code}: {told}");
    }
    assert!(told.contains("4. A change that needs approval") && told.contains("Done in "), "{told}");
    // Two to three seconds where nothing else runs.
    assert!(took < Duration::from_mins(1), "{took:?}");
    assert!(scratch.left().is_empty(), "{:?}", scratch.left());
}

#[test]
fn broken_step_fails_the_demo_on_the_sandbox() {
    let scratch = Scratch::new("demo-broken");
    fs::create_dir_all(scratch.0.join("state")).unwrap();
    for file in ["state/alpha.yaml", "state/deployment.yaml"] {
        let text = fs::read_to_string(examples().join(file)).unwrap();
        // No quota is declared, so none drifts.
        fs::write(scratch.0.join(file), text.replace("  quotaAllowance: 20\n", "")).unwrap();
    }
    let output = scratch.demo(&scratch.0).output().unwrap();
    let told = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("error: step 3 of the demo: exit code 0, expected 3"), "{told}");
    assert!(!told.contains("4. A change"), "{told}");
}

#[test]
fn kept_sandbox_serves_its_page_until_the_demo_is_interrupted() {
    let scratch = Scratch::new("demo-kept");
    let mut demo = scratch.demo(&examples()).arg("--keep").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address =
        lines.by_ref().find_map(|it| it.strip_prefix("export CODER_URL=http://").map(str::to_owned));
    let address = address.unwrap();
    assert!(lines.by_ref().any(|it| it.contains("goes on until Ctrl-C")), "the demo ended");
    std::net::TcpStream::connect(&address).unwrap();
    let pid = demo.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    // The stream ends when the demo and its sandbox have ended.
    let rest: Vec<String> = lines.collect();
    assert_eq!(demo.wait().unwrap().code(), Some(0), "{rest:?}");
    assert!(std::net::TcpStream::connect(&address).is_err(), "the sandbox outlives the demo");
    assert!(scratch.left().is_empty(), "{:?}", scratch.left());
}
