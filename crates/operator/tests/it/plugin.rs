//! The binary under the name of a plugin of kubectl.

use std::{os::unix::fs::symlink, process::Command};

use crate::support::{Folder, said};

const NAME: &str = "kubectl-coder_operator";

#[test]
fn plugin_of_kubectl_has_every_verb_and_its_own_name_in_help() {
    let folder = Folder::new("plugin");
    let plugin = folder.0.join(NAME);
    symlink(env!("CARGO_BIN_EXE_coder-operator"), &plugin).unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(&plugin).args(args).env("HOME", "/nowhere").output().unwrap();
        (output.status.code(), said(&output))
    };
    let (code, help) = run(&["--help"]);
    assert_eq!(code, Some(0), "{help}");
    assert!(help.contains("Usage: kubectl coder-operator [OPTIONS] <COMMAND>"), "{help}");
    let (code, help) = run(&["status", "--help"]);
    assert!(code == Some(0) && help.contains("Usage: kubectl coder-operator status"), "{help}");
    let (code, crds) = run(&["crds"]);
    assert!(code == Some(0) && crds.contains("name: codergroups.coder.com"), "{crds}");
    let (code, refused) = run(&["status", "--wrong"]);
    assert_eq!(code, Some(2), "{refused}");
}
