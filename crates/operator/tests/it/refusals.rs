//! What wrong input gets: a place, a path, what was expected, and nothing asked of anybody.

use crate::support::{Folder, coder_operator, said};

/// Nobody listens there: a request would be a failure and not a usage error.
const NOWHERE: &str = "http://127.0.0.1:1";

fn refused(folder: &Folder, args: &[&str]) -> String {
    let path = folder.0.display().to_string();
    let output = coder_operator(NOWHERE, "token-0000000000", &[args, &["-f", &path]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    said(&output)
}

const GROUP: &str = "apiVersion: coder.com/v1alpha1\nkind: CoderGroup\nmetadata: {name: a}\n";

#[test]
fn every_mistake_is_told_with_its_file_line_and_path() {
    let folder = Folder::new("mistakes");
    folder.write(
        "one.yaml",
        &format!(
            "{GROUP}spec:\n  controlPlaneRef: {{name: main}}\n  quota: 3\n---\n{GROUP}spec:\n  mode: Watch\n"
        ),
    );
    folder.write("two.yaml", "apiVersion: coder.com/v1alpha1\nkind: CoderGruppe\nmetadata: {name: a}\n");
    let said = refused(&folder, &["apply", "--yes"]);
    for words in [
        "one.yaml:6: spec.quota: is not a field of this kind",
        "spec.controlPlaneRef: is missing",
        "one.yaml:12: spec.mode: expected one of Enforce, Observe, found \"Watch\"",
        "two.yaml:2: apiVersion \"coder.com/v1alpha1\", kind \"CoderGruppe\": expected coder.com/v1alpha1 and one of",
        "nothing was changed",
    ] {
        assert!(said.contains(words), "{words:?} is not in:\n{said}");
    }
}

#[test]
fn two_manifests_for_one_object_are_refused_with_both_places() {
    let folder = Folder::new("twice");
    let group = |name: &str| {
        format!(
            "apiVersion: coder.com/v1alpha1\nkind: CoderGroup\nmetadata: {{name: {name}}}\nspec: {{controlPlaneRef: {{name: main}}, name: same}}\n"
        )
    };
    folder.write("one.yaml", &group("a"));
    folder.write("two.yaml", &group("b"));
    let said = refused(&folder, &["plan"]);
    assert!(
        said.contains("two.yaml:1: group default/same is declared twice") && said.contains("one.yaml:1"),
        "{said}"
    );
}

#[test]
fn a_text_that_is_not_yaml_is_refused_with_its_line() {
    let folder = Folder::new("unreadable");
    folder.write("bad.yaml", "kind: A\nspec: [\n");
    assert!(refused(&folder, &["verify"]).contains("bad.yaml:"));
}

#[test]
fn a_missing_token_is_a_usage_error_that_says_where_one_goes() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_coder-operator"))
        .args(["plan", "--url", NOWHERE, "-f", "-"])
        .env_remove("CODER_SESSION_TOKEN")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("CODER_SESSION_TOKEN"));
}

#[test]
fn definitions_of_all_kinds_are_printed() {
    let output = coder_operator(NOWHERE, "", &["crds"]);
    assert!(output.status.success());
    assert_eq!(said(&output).matches("kind: CustomResourceDefinition").count(), api::crds().len());
}
