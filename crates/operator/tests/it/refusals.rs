//! What wrong input gets: a place, a path, what was expected, and nothing asked of anybody.

use crate::support::{Folder, bare, coder_operator, said};

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
        "error: spec.quota: is not a field of this kind",
        "one.yaml:6:3\n  |\n6 |   quota: 3\n  |   ^^^^^\n",
        "error: spec.controlPlaneRef: is missing",
        "error: spec.mode: expected one of Enforce, Observe, found \"Watch\"",
        "one.yaml:12:3\n   |\n12 |   mode: Watch\n   |   ^^^^\n",
        "error: apiVersion \"coder.com/v1alpha1\", kind \"CoderGruppe\": expected coder.com/v1alpha1 and one of",
        "two.yaml:2:1\n  |\n2 | kind: CoderGruppe\n  | ^^^^\n",
        "error: 4 errors in the manifests; nothing was changed",
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
        said.contains("group default/same is declared twice")
            && said.contains("one.yaml:1 has it already")
            && said.contains("two.yaml:1:1\n"),
        "{said}"
    );
}

#[test]
fn a_text_that_is_not_yaml_is_refused_with_its_line() {
    let folder = Folder::new("unreadable");
    folder.write("bad.yaml", "kind: A\nspec: [\n");
    let said = refused(&folder, &["verify"]);
    assert!(said.contains("bad.yaml:") && said.contains("error: 1 error in the manifests"), "{said}");
    folder.write("bad.yaml", "kind: A\n---\nkind: B\nkind: C\n");
    let said = refused(&folder, &["verify"]);
    for words in ["error: duplicate mapping key: kind", "bad.yaml:4:1\n  |\n4 | kind: C\n  | ^"] {
        assert!(said.contains(words), "{words:?} is not in:\n{said}");
    }
}

#[test]
fn a_text_that_is_not_yaml_shows_no_line_of_a_secret() {
    let folder = Folder::new("unreadable-secret");
    folder.write("bad.yaml", "kind: Secret\nstringData:\n  token: hunter2: [\n");
    let said = refused(&folder, &["verify"]);
    assert!(said.contains("bad.yaml:3:") && !said.contains("hunter2"), "{said}");
}

#[test]
fn a_missing_token_is_a_usage_error_that_says_where_one_goes() {
    let folder = Folder::new("no-token");
    let file = folder.write("a.yaml", &format!("{GROUP}{SPEC}"));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_coder-operator"))
        .args(["plan", "--url", NOWHERE, "-f", &file])
        .env_remove("CODER_SESSION_TOKEN")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("CODER_SESSION_TOKEN"));
}

#[test]
fn definitions_of_all_kinds_are_printed() {
    let output = bare(&["crds"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(said(&output).matches("kind: CustomResourceDefinition").count(), api::crds().len());
}

/// The binary where there is neither an address nor a cluster.
fn refused_alone(folder: &Folder, args: &[&str]) -> String {
    let path = folder.0.display().to_string();
    let output = bare(&[&["plan"], args, &["-f", &path]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    said(&output)
}

const SPEC: &str = "spec: {controlPlaneRef: {name: main}}\n";
const PLANE: &str = "---\napiVersion: coder.com/v1alpha1\nkind: CoderControlPlane\nmetadata: {name: main}\n";
const EXTERNAL: &str =
    "spec:\n  external: {url: 'http://127.0.0.1:1', credentialsSecretRef: {name: coder}}\n";

#[test]
fn a_broken_rule_is_told_with_file_line_path_and_its_own_words() {
    let folder = Folder::new("rules");
    folder.write("a.yaml", &format!("{GROUP}spec:\n  controlPlaneRef: {{name: main}}\n  name: create\n"));
    folder.write("b.yaml", &format!("{PLANE}{}", EXTERNAL.replace("http://", "http://me:word@")));
    let said = refused(&folder, &["apply", "--yes"]);
    for words in [
        "error: spec.name: must not be `new` or `create`, which Coder reserves",
        "a.yaml:6:3\n  |\n6 |   name: create\n  |   ^^^^\n",
        "error: spec.external.url: must be an address alone",
        "b.yaml:6:14\n",
        "nothing was changed",
    ] {
        assert!(said.contains(words), "{words:?} is not in:\n{said}");
    }
}

#[test]
fn without_an_address_a_control_plane_and_a_cluster_there_is_nothing_to_compare_with() {
    let folder = Folder::new("nowhere");
    folder.write("a.yaml", &format!("{GROUP}{SPEC}"));
    let said = refused_alone(&folder, &[]);
    assert!(
        said.contains("a.yaml:1: CoderControlPlane main: it is not among the files, and there is no cluster")
            && said.contains("give --url"),
        "{said}"
    );
}

#[test]
fn a_control_plane_that_we_run_is_not_reached_from_outside_its_cluster() {
    let folder = Folder::new("ours");
    folder.write("a.yaml", &format!("{GROUP}{SPEC}{PLANE}spec: {{}}\n"));
    let said = refused_alone(&folder, &[]);
    assert!(said.contains("CoderControlPlane main: ") && said.contains("with --url"), "{said}");
}

#[test]
fn credentials_that_are_nowhere_are_told_with_their_secret() {
    let folder = Folder::new("no-secret");
    folder.write("a.yaml", &format!("{GROUP}{SPEC}{PLANE}{EXTERNAL}"));
    let said = refused_alone(&folder, &[]);
    assert!(
        said.contains("Secret coder cannot be read: it is not among the files, and there is no"),
        "{said}"
    );
    let said = refused_alone(&folder, &["--secret", "coder/other=env:PATH"]);
    assert!(said.contains("Secret coder has no text under token"), "{said}");
}

#[test]
fn a_secret_in_the_files_is_there_once_and_can_be_read() {
    let folder = Folder::new("secrets");
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: coder}\n";
    folder
        .write("a.yaml", &format!("{GROUP}{SPEC}{PLANE}{EXTERNAL}{secret}stringData: {{token: hunter2}}\n"));
    folder.write("b.yaml", &format!("{secret}data:\n  token: aHVudGVyMg==\n"));
    folder.write("c.yaml", &format!("{}data:\n  token: 'hunter2!'\n", secret.replace("coder", "other")));
    let said = refused_alone(&folder, &[]);
    for words in [
        "error: Secret coder is declared twice: ",
        "a.yaml:12 has it",
        "b.yaml:2:1\n",
        "error: data.token: is not base64",
        "c.yaml:6:3\n",
    ] {
        assert!(said.contains(words), "{words:?} is not in:\n{said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_wrong_secret_on_the_command_line_is_told_by_its_name_and_never_by_its_value() {
    let folder = Folder::new("flags");
    folder.write("a.yaml", &format!("{GROUP}{SPEC}{PLANE}{EXTERNAL}"));
    for (flag, words) in [
        (
            "coder/token=env:NOT_SET_ANYWHERE",
            "--secret coder/token: the variable NOT_SET_ANYWHERE is not set",
        ),
        ("coder/token=file:/nowhere", "--secret coder/token: read /nowhere: "),
        ("coder/token=hunter2", "--secret coder/token: expected env:VARIABLE or file:PATH"),
        ("hunter2", "--secret: expected NAME/KEY=env:VARIABLE"),
    ] {
        for said in
            [refused_alone(&folder, &["--secret", flag]), refused(&folder, &["plan", "--secret", flag])]
        {
            assert!(said.contains(words) && !said.contains("hunter2"), "{said}");
        }
    }
}

#[test]
fn a_token_without_the_address_that_it_is_for_is_refused() {
    let folder = Folder::new("token-file");
    let said = refused_alone(&folder, &["--token-file", "/nowhere"]);
    assert!(said.contains("--url"), "{said}");
}

#[test]
fn a_timeout_has_a_unit_or_is_in_seconds() {
    let folder = Folder::new("timeout");
    folder.write("a.yaml", &format!("{GROUP}{SPEC}"));
    let said = refused(&folder, &["apply", "--timeout", "soon"]);
    assert!(said.contains("90s, 5m, 1h30m or a number of seconds"), "{said}");
}

#[test]
fn an_operator_with_a_mistake_in_what_it_may_allow_does_not_start() {
    let folder = Folder::new("allow-rules");
    let wrong =
        folder.write("rules.yaml", "- {apiGroups: [batch], resources: [jobs], verbs: [get, escalate]}\n");
    let missing = folder.0.join("nowhere.yaml").display().to_string();
    for (file, words) in [
        (&wrong, "rules.yaml cannot be used: rule 1: the verb escalate allows privilege escalation"),
        (&missing, "--allow-rules: read "),
    ] {
        let by_flag = bare(&["run", "--allow-rules", file]).output().unwrap();
        let by_variable = bare(&["run"]).env("CODER_OPERATOR_ALLOW_RULES", file).output().unwrap();
        for output in [by_flag, by_variable] {
            assert_eq!(output.status.code(), Some(1), "{}", said(&output));
            assert!(said(&output).contains(words), "{words:?} is not in:\n{}", said(&output));
        }
    }
}
