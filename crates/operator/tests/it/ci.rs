//! The shipped jobs of CI systems: their scripts are run as they stand, on the sandbox.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::support::{Folder, bare, said};

const GROUP: &str = "apiVersion: coder.com/v1alpha1\nkind: CoderOrganization\nmetadata: {name: alpha}\nspec: {controlPlaneRef: {name: main}}\n";

fn shipped(path: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/ci").join(path);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The `PATH` of a runner that has the binary.
pub(crate) fn path() -> String {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_coder-operator"));
    format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap())
}

/// The script of a job for GitLab CI.
pub(crate) fn gitlab(job: &str) -> String {
    let jobs = shipped("gitlab/coder-operator.yml").remove(1);
    let lines = jobs[job]["script"].as_array().unwrap().iter().filter_map(Value::as_str);
    lines.collect::<Vec<_>>().join("\n")
}

/// Runs a script beside a sandbox, with the binary on the PATH.
fn on_the_sandbox(folder: &Folder, script: &str, variables: &[(&str, &str)]) -> Output {
    let script = folder.write("script", script);
    let with_url = format!("export DEPLOYMENT=\"$CODER_URL\"; exec bash -e {script}");
    let mut command: Command = bare(&["sandbox", "--", "bash", "-c", &with_url]);
    command.env("PATH", path()).envs(variables.iter().copied()).current_dir(&folder.0).output().unwrap()
}

/// The script of the GitHub action, and what it wrote: exit code, summary, outputs.
fn github(folder: &Folder, verb: &str) -> (Option<i32>, String, String) {
    let action = shipped("github/action.yml").remove(0);
    let steps = action["runs"]["steps"].as_array().unwrap();
    let script = steps.iter().find(|it| it["id"] == "run").unwrap()["run"].as_str().unwrap();
    let (summary, outputs) = (folder.write("summary.md", ""), folder.write("outputs", ""));
    let variables = [
        ("FILES", "manifests"),
        ("VERB", verb),
        ("STRICT", "false"),
        ("GITHUB_STEP_SUMMARY", &*summary),
        ("GITHUB_OUTPUT", &*outputs),
    ];
    let output = on_the_sandbox(folder, script, &variables);
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    (output.status.code(), read(&summary) + &said(&output), read(&outputs))
}

#[test]
fn github_action_validates_compares_and_passes_the_exit_code_on() {
    let folder = Folder::new("github-action");
    std::fs::create_dir(folder.0.join("manifests")).unwrap();
    folder.write("manifests/a.yaml", GROUP);
    let (code, summary, outputs) = github(&folder, "validate");
    assert_eq!((code, outputs.trim()), (Some(0), "exit-code=0"), "{summary}");
    let (code, summary, _) = github(&folder, "plan");
    assert_eq!(code, Some(0), "{summary}");
    assert!(summary.contains("### coder-operator: 1 to change") && summary.contains("+ create"), "{summary}");
    let (code, summary, outputs) = github(&folder, "verify");
    assert_eq!((code, outputs.trim()), (Some(3), "exit-code=3"), "{summary}");
    let (code, summary, _) = github(&folder, "destroy");
    assert_eq!(code, Some(2), "{summary}");
    folder.write("manifests/a.yaml", &GROUP.replace("alpha", "REPLACE_ME"));
    let (code, summary, _) = github(&folder, "verify");
    assert_eq!(code, Some(2), "{summary}");
}

#[test]
fn gitlab_jobs_validate_and_report_drift() {
    let folder = Folder::new("gitlab-jobs");
    std::fs::create_dir(folder.0.join("manifests")).unwrap();
    folder.write("manifests/a.yaml", GROUP);
    for (job, code) in [("coder-operator-validate", 0), ("coder-operator-verify", 3)] {
        let output = on_the_sandbox(&folder, &gitlab(job), &[("FILES", "manifests")]);
        assert_eq!(output.status.code(), Some(code), "{job}: {}", said(&output));
    }
    let report = std::fs::read_to_string(folder.0.join("coder-operator.md")).unwrap();
    assert!(report.contains("1 to change"), "{report}");
}

#[test]
fn pre_commit_hook_names_a_verb_that_there_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.pre-commit-hooks.yaml");
    let hooks: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let entry = hooks[0]["entry"].as_str().unwrap().strip_prefix("coder-operator ").unwrap();
    let args = hooks[0]["args"].as_array().unwrap().iter().filter_map(Value::as_str);
    let words: Vec<&str> = entry.split(' ').chain(args).collect();
    let folder = Folder::new("pre-commit");
    std::fs::create_dir(folder.0.join("manifests")).unwrap();
    folder.write("manifests/a.yaml", GROUP);
    let output = bare(&words).current_dir(&folder.0).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}
