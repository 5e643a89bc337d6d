//! Sets with manifests that the command line cannot handle, or without any manifest: never a silent success.

use serde_json::Value;

use crate::support::{Folder, named, said};

/// Nothing listens there: exit code 1 is a request that was sent.
const NOWHERE: &str = "http://127.0.0.1:1";
const VERBS: [&[&str]; 3] = [&["plan"], &["verify"], &["apply", "--yes"]];

fn manifest(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: coder.com/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}, namespace: platform}}\nspec: {spec}\n"
    )
}

fn provisioner() -> String {
    manifest("CoderProvisioner", "linux", "{controlPlaneRef: {name: main}}")
}

fn organization() -> String {
    manifest("CoderOrganization", "alpha", "{controlPlaneRef: {name: main}}")
}

/// A control plane that no manifest refers to.
fn spare() -> String {
    manifest(
        "CoderControlPlane",
        "spare",
        "{external: {url: \"https://spare.example.com\", credentialsSecretRef: {name: t}}}",
    )
}

fn plane() -> String {
    manifest("CoderControlPlane", "main", "{replicas: 2, serviceAccount: {disableCreate: true}}")
}

fn run(args: &[&str], expected: i32) -> String {
    let output = named(NOWHERE, "0123456789-0123456789012345678901", args).output().unwrap();
    assert_eq!(output.status.code(), Some(expected), "{args:?}: {}", said(&output));
    said(&output)
}

#[test]
fn manifest_that_no_verb_can_handle_is_a_usage_error() {
    let folder = Folder::new("unsupported-alone");
    let file = folder.write("plane.yaml", &spare());
    for verb in VERBS {
        for flags in [&[][..], &["--skip-unsupported"]] {
            let told = run(&[verb, flags, &["-f", &file]].concat(), 2);
            assert!(told.contains(&format!("{file}:2: CoderControlPlane platform/spare: ")), "{told}");
            assert!(told.contains("nothing was changed") && told.contains("no other manifest"), "{told}");
        }
    }
}

#[test]
fn objects_of_a_managed_control_plane_are_compared_in_a_cluster_and_skipped_by_apply() {
    let folder = Folder::new("unsupported-managed");
    let file = folder.write("a.yaml", &plane());
    for verb in ["plan", "verify"] {
        let told = run(&[verb, "-f", &file], 5);
        assert!(told.contains("CoderControlPlane platform/main: control plane main"), "{told}");
        assert!(told.contains("NeedsCluster: "), "{told}");
    }
    let told = run(&["apply", "--yes", "-f", &file], 0);
    let note = "applied by the controllers (`coder-operator run`), not by `apply`";
    assert!(told.contains(&format!("skipped {file}:2: CoderControlPlane platform/main: {note}")), "{told}");
}

#[test]
fn provisioner_is_compared_in_a_cluster_and_skipped_by_apply() {
    let folder = Folder::new("unsupported-provisioner");
    let file = folder.write("a.yaml", &provisioner());
    for verb in ["plan", "verify"] {
        let told = run(&[verb, "-f", &file], 5);
        assert!(told.contains("CoderProvisioner platform/linux: provisioner platform/linux"), "{told}");
        assert!(told.contains("NeedsCluster: "), "{told}");
    }
    let note = "applied by the controllers (`coder-operator run`), not by `apply`";
    let told = run(&["apply", "--yes", "-f", &file], 0);
    assert!(told.contains(&format!("skipped {file}:2: CoderProvisioner platform/linux: {note}")), "{told}");
    let told = run(&["apply", "--yes", "--quiet", "-o", "json", "-f", &file], 0);
    let result: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(result["objects"], serde_json::json!([]));
    assert_eq!(result["skipped"][0]["reason"], "Controller");
}

#[test]
fn mixed_set_is_a_usage_error_until_the_rest_is_skipped_on_request() {
    let folder = Folder::new("unsupported-mixed");
    let file = folder.write("a.yaml", &(spare() + &organization()));
    for verb in VERBS {
        let told = run(&[verb, &["-f", &file]].concat(), 2);
        assert!(
            told.contains("a.yaml:2: CoderControlPlane platform/spare: it is external, names no licence"),
            "{told}"
        );
        assert!(told.contains("give --skip-unsupported to skip them"), "{told}");
        let told = run(&[verb, &["--skip-unsupported", "-f", &file]].concat(), 1);
        assert!(
            told.contains("skipped ") && told.contains("a.yaml:2: CoderControlPlane platform/spare"),
            "{told}"
        );
        assert!(told.contains("1 failed, 1 skipped"), "{told}");
    }
    let told = run(&["plan", "--quiet", "-o", "json", "--skip-unsupported", "-f", &file], 1);
    let result: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(result["objects"][0]["name"], "alpha");
    assert_eq!(result["skipped"][0]["reason"], "Unsupported");
    assert_eq!(result["skipped"][0]["kind"], "CoderControlPlane");
    assert_eq!(
        (result["skipped"][0]["namespace"].as_str(), result["skipped"][0]["line"].as_u64()),
        (Some("platform"), Some(2))
    );
}

#[test]
fn control_plane_that_others_refer_to_is_used_and_its_other_fields_are_named() {
    let folder = Folder::new("unsupported-reference");
    let file = folder.write("a.yaml", &(plane() + &organization()));
    for verb in VERBS {
        let told = run(&[verb, &["-f", &file]].concat(), 1);
        let words = "a.yaml:2: CoderControlPlane platform/main names the deployment; only `coder-operator run` reconciles its \
                     replicas, serviceAccount";
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn set_without_a_manifest_of_ours_is_a_usage_error() {
    let empty = Folder::new("unsupported-empty");
    let comments = Folder::new("unsupported-comments");
    comments.write("a.yaml", "# nothing yet\n---\n");
    let other = Folder::new("unsupported-other");
    other.write("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    let secret = Folder::new("unsupported-secret");
    secret.write("a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n");
    for (folder, words) in [
        (&empty, "holds no manifest"),
        (&comments, "no manifest of coder.com/v1alpha1 in the files: check -f"),
        (&other, "no manifest of coder.com/v1alpha1 in the files: check -f"),
        (&secret, "no manifest of coder.com/v1alpha1 in the files: check -f"),
    ] {
        let path = folder.0.display().to_string();
        for verb in VERBS {
            let told = run(&[verb, &["--skip-unsupported", "-f", &path]].concat(), 2);
            assert!(told.contains(words), "{told}");
        }
    }
}

#[test]
fn documents_of_other_kinds_are_skipped_with_a_note() {
    let folder = Folder::new("unsupported-note");
    let other = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let file = folder.write("a.yaml", &(organization() + other));
    let told = run(&["plan", "-f", &file], 1);
    assert!(
        told.contains("skipped ") && told.contains("a.yaml:7: ConfigMap a: not a manifest of coder-operator"),
        "{told}"
    );
}
