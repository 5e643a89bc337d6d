//! The demo on the bed, as a person runs it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Runs the demo with the manifests of a folder and the binaries of this build.
fn demo(manifests: &Path) -> Output {
    // The test binary is in `deps`, our own binaries beside that folder.
    let binaries = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["demo", "--real", "--manifests"]).arg(manifests).arg("--binaries").arg(binaries);
    // A bed of its own: the operator of the chart acts on every namespace.
    command.output().unwrap()
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/demo")
}

#[test]
fn demo_shows_every_step() {
    let output = demo(&examples());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(told.matches("\nexit code 3\n").count(), 2, "of plan and of verify: {told}");
    assert!(told.contains("8. Uninstall") && told.contains("Done in "), "{told}");
}

#[test]
fn broken_step_fails_the_demo() {
    let broken = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken-demo");
    fs::remove_dir_all(&broken).ok();
    fs::create_dir_all(broken.join("state")).unwrap();
    for file in ["control-plane.yaml", "provisioner.yaml", "state/alpha.yaml", "state/deployment.yaml"] {
        let text = fs::read_to_string(examples().join(file)).unwrap();
        // No quota is declared, so none is healed.
        fs::write(broken.join(file), text.replace("  quotaAllowance: 20\n", "")).unwrap();
    }
    let output = demo(&broken);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("error: step 4 of the demo") && !told.contains("5. "), "{told}");
    fs::remove_dir_all(&broken).unwrap();
}
