//! What became of the Job that makes our account.

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ContainerStatus, Pod},
};
use kube::ResourceExt as _;
use secrecy::{ExposeSecret as _, SecretString};

/// Shorter values are words like any other.
const SHORTEST_SECRET: usize = 4;

/// How far a Job has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// What it is at.
    Running(String),
    Succeeded,
    /// What its pod said. The words are the pod's own: nobody has taken secrets out of them.
    Failed(String),
}

/// How far a Job has come, given the pods that are its own.
pub fn progress(job: &Job, pods: &[Pod]) -> Progress {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let condition = |kind: &str| conditions.iter().find(|it| it.type_ == kind && it.status == "True");
    if condition("Complete").is_some() || status.succeeded.is_some_and(|it| it > 0) {
        return Progress::Succeeded;
    }
    let said = pods.iter().find_map(said);
    let whose = |words: &str| format!("Job {}, {words}", job.name_any());
    match (condition("Failed"), said) {
        (Some(_), Some(said)) => Progress::Failed(whose(&said)),
        (Some(failed), None) => {
            Progress::Failed(whose(failed.message.as_deref().unwrap_or("without a word")))
        }
        (None, Some(said)) => Progress::Running(whose(&said)),
        (None, None) => Progress::Running(format!("Job {}", job.name_any())),
    }
}

/// What a pod said, without what it was given. A complaint about an address of a database quotes it, or what it takes for its
/// parts.
pub fn without_secrets(words: &str, secrets: &[SecretString]) -> String {
    let whole = secrets.iter().map(|it| it.expose_secret().trim());
    let parts =
        whole.clone().filter_map(password).flat_map(|it| it.split(['/', '?', '#', ':', '@']).chain([it]));
    let mut all: Vec<&str> = whole.chain(parts).filter(|it| it.len() >= SHORTEST_SECRET).collect();
    // A part would otherwise tear the whole apart and leave the rest of it.
    all.sort_by_key(|it| std::cmp::Reverse(it.len()));
    client::scrub::clean(words, &all)
}

/// The password in an address, however it is to be read.
fn password(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let (user_info, _) = rest.rsplit_once('@')?;
    user_info.split_once(':').map(|(_, password)| password)
}

/// What a pod says: at its end, or of what it waits for.
fn said(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let of_container = |it: &ContainerStatus| {
        let state = it.state.as_ref()?;
        let ended = state.terminated.as_ref().filter(|it| it.exit_code != 0).map(|it| {
            let words = last_line(it.message.as_deref().unwrap_or_default());
            let words = words.or(it.reason.as_deref()).unwrap_or("without a word");
            format!("exit code {}: {words}", it.exit_code)
        });
        let waits =
            state.waiting.as_ref().and_then(|it| Some((it.reason.as_deref()?, it.message.as_deref()?)));
        ended.or_else(|| waits.map(|(reason, message)| format!("{reason}: {message}")))
    };
    let containers = status.container_statuses.iter().flatten().find_map(of_container);
    let unscheduled = || {
        let conditions = status.conditions.iter().flatten();
        let mut conditions = conditions.filter(|it| it.type_ == "PodScheduled" && it.status == "False");
        conditions.find_map(|it| it.message.clone())
    };
    let words = containers.or_else(unscheduled)?;
    Some(format!("pod {}: {words}", pod.name_any()))
}

/// The line that counts of what a program wrote: its complaint, or else the last one.
fn last_line(text: &str) -> Option<&str> {
    let lines = || text.lines().map(str::trim).filter(|it| !it.is_empty());
    lines().rfind(|it| it.starts_with("error:")).or_else(|| lines().next_back())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(conditions: &Value) -> Job {
        serde_json::from_value(
            json!({"metadata": {"name": "main-create-admin-user"}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn pod(state: &Value) -> Pod {
        let container = json!({"name": "coder", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        serde_json::from_value(
            json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [container]}}),
        )
        .unwrap()
    }

    fn failed() -> Job {
        job(
            &json!([{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}]),
        )
    }

    #[test]
    fn a_job_that_failed_says_what_its_pod_said() {
        let words = "Creating user...\nerror: insert user: no\nsee --help\n";
        let ended = pod(&json!({"terminated": {"exitCode": 1, "message": words}}));
        let expected = "Job main-create-admin-user, pod p: exit code 1: error: insert user: no";
        assert_eq!(progress(&failed(), &[ended]), Progress::Failed(expected.to_owned()));
        let expected = "Job main-create-admin-user, too long";
        assert_eq!(progress(&failed(), &[]), Progress::Failed(expected.to_owned()));
    }

    #[test]
    fn a_job_that_waits_says_for_what() {
        let waits = pod(&json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}));
        let expected = "Job main-create-admin-user, pod p: ImagePullBackOff: no such image";
        assert_eq!(progress(&job(&json!([])), &[waits]), Progress::Running(expected.to_owned()));
        let runs = pod(&json!({"running": {}}));
        assert_eq!(
            progress(&job(&json!([])), &[runs]),
            Progress::Running("Job main-create-admin-user".to_owned())
        );
    }

    #[test]
    fn an_address_that_is_quoted_is_told_without_its_password() {
        let address = "postgres://coder:s3cr/t-pass@db:5432/coder";
        let secrets = [SecretString::from(address), SecretString::from("on")];
        for words in [
            format!("error: parse \"{address}\": invalid port \":s3cr\" after host"),
            "error: on db: s3cr/t-pass".to_owned(),
            "error: postgres://coder:s3cr/t-pass@db".to_owned(),
        ] {
            let shown = without_secrets(&words, &secrets);
            assert!(
                !shown.contains("s3cr") && !shown.contains("t-pass") && shown.contains("error"),
                "{shown}"
            );
        }
        assert_eq!(without_secrets("error: no connection", &secrets), "error: no connection");
    }

    #[test]
    fn a_job_that_is_complete_succeeded() {
        let done = job(&json!([{"type": "Complete", "status": "True"}]));
        assert_eq!(progress(&done, &[pod(&json!({"terminated": {"exitCode": 0}}))]), Progress::Succeeded);
        let not_yet = job(&json!([{"type": "Complete", "status": "False"}]));
        assert!(matches!(progress(&not_yet, &[]), Progress::Running(_)));
    }
}
