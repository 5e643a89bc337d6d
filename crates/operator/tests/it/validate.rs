//! `validate` and `schema`: files checked without a request.

use std::process::Output;

use serde_json::Value;

use crate::support::{Folder, bare, said};

const GROUP: &str = "apiVersion: coder.com/v1alpha1\nkind: CoderGroup\nmetadata: {name: developers}\nspec:\n  controlPlaneRef: {name: main}\n";

fn validate(folder: &Folder, args: &[&str]) -> Output {
    let path = folder.0.display().to_string();
    bare(&[&["validate", "-f", &path], args].concat()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn validate_reports_every_finding_and_exits_with_2() {
    let folder = Folder::new("validate");
    folder.write("a.yaml", &format!("{GROUP}  displayName: REPLACE_ME\n  organisation: alpha\n"));
    folder
        .write("b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {token: hunter2}\n");
    let output = validate(&folder, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let said = said(&output);
    for words in [
        "error: spec.displayName: has the placeholder REPLACE_ME; replace it",
        "; did you mean organization?",
        "error: stringData.token: holds a secret value in the open",
        "1 manifest: 3 errors, 0 warnings",
    ] {
        assert!(said.contains(words), "{words:?} is not in:\n{said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn validate_warns_of_references_and_strict_refuses_them() {
    let folder = Folder::new("validate-references");
    folder.write("a.yaml", &format!("{GROUP}  organization: alpha\n"));
    let output = validate(&folder, &["-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let result = json(&output);
    assert_eq!(result["isValid"], true);
    assert_eq!(result["findings"][0]["severity"], "Warning");
    assert!(result["findings"][0]["file"].as_str().unwrap().ends_with("a.yaml"));
    assert_eq!(result["findings"][0]["line"], 1);
    let output = validate(&folder, &["-o", "json", "--strict"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert_eq!(json(&output)["isValid"], false);
    let output = validate(&folder, &["-o", "markdown"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.starts_with("### coder-operator validate: 1 manifest: 0 errors, 1 warning\n\n```diff\n! "),
        "{page}"
    );
}

#[test]
fn validate_passes_the_examples() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kinds");
    let output = bare(&["validate", "-f", examples]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn schemas_are_printed_and_written() {
    let output = bare(&["schema", "codergroup"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(json(&output)["properties"]["kind"]["const"], "CoderGroup");
    let output = bare(&["schema", "CoderGruppe"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let folder = Folder::new("schemas");
    let output = bare(&["schema", "--folder", &folder.0.display().to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    for name in ["codergroup_v1alpha1.json", "all.json"] {
        let text = std::fs::read_to_string(folder.0.join(name)).unwrap();
        let schema: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#", "{name}");
    }
}
