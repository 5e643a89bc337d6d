//! `apply` with somebody there to be asked: what is agreed to is done, and nothing else.

use reqwest::Method;
use serde_json::json;
use testbed::Coderd;

use super::{get, licensed, run};
use crate::{
    support::{Folder, in_environment, named},
    terminal::Terminal,
};

/// An organization that can be made, and a document that has to wait for a group.
const SET: &str = "
apiVersion: coder.com/v1alpha1
kind: CoderOrganization
metadata: {name: alpha}
spec: {controlPlaneRef: {name: main}}
---
apiVersion: coder.com/v1alpha1
kind: CoderGroupSync
metadata: {name: default}
spec: {controlPlaneRef: {name: main}, field: groups, mapping: {/late: [late]}}
";

fn apply(coderd: &Coderd, args: &[&str]) -> Terminal {
    Terminal::start(named(&coderd.owner.url, &coderd.owner.token, &[&["apply"], args].concat()))
}

/// A deployment as plans, questions and results name it.
pub(super) async fn deployment(coderd: &Coderd) -> String {
    let build = get(coderd, "/api/v2/buildinfo").await;
    let (version, id) = (build["version"].as_str().unwrap(), build["deployment_id"].as_str().unwrap());
    format!("{}/ (Coder {version}, deployment id {id})", coderd.owner.url)
}

async fn make_the_group(coderd: &Coderd) {
    let group = json!({"name": "late"});
    let path = "/api/v2/organizations/default/groups";
    let (status, answer) = coderd.owner.request(Method::POST, path, Some(&group)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
}

async fn field_of_the_document(coderd: &Coderd) -> String {
    let document = get(coderd, "/api/v2/organizations/default/settings/idpsync/groups").await;
    document["field"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_shown_is_not_done_by_a_yes_to_the_rest() {
    let coderd = licensed().await;
    let folder = Folder::new("asked");
    let file = folder.write("set.yaml", SET);
    let mut terminal = apply(&coderd, &["-f", &file]);
    let deployment = deployment(&coderd).await;
    terminal.wait_for(&format!("Change 1 object in {deployment}? Only `yes` is accepted: "));
    make_the_group(&coderd).await;
    terminal.type_line("yes");
    let (exit, shown, screen) = terminal.end();
    assert_eq!(exit, Some(1), "{screen}");
    assert!(shown.starts_with(&format!("Deployment {deployment}\n")), "{shown}");
    assert!(shown.contains("1 to change, 1 waiting"), "{shown}");
    assert!(screen.contains("[1/2] CoderOrganization alpha: applied"), "{screen}");
    assert!(screen.contains("CoderGroupSync default: the plan has changed since it was shown"), "{screen}");
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], "alpha");
    assert_eq!(field_of_the_document(&coderd).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_beforehand_agrees_to_what_comes_while_it_waits() {
    let coderd = licensed().await;
    let folder = Folder::new("waited");
    let file = folder.write("set.yaml", SET);
    let mut terminal = apply(&coderd, &["--yes", "--timeout", "10m", "-f", &file]);
    terminal.wait_for("[2/2] CoderGroupSync default: waiting, ReferenceNotFound");
    make_the_group(&coderd).await;
    let (exit, _, screen) = terminal.end();
    assert_eq!(exit, Some(0), "{screen}");
    let end =
        format!("[2/2] CoderGroupSync default: applied\r\n2 applied in {}\r\n", deployment(&coderd).await);
    assert!(screen.ends_with(&end), "{screen}");
    assert_eq!(field_of_the_document(&coderd).await, "groups");
}

#[tokio::test(flavor = "multi_thread")]
async fn anything_but_yes_is_a_no() {
    let coderd = licensed().await;
    let folder = Folder::new("no");
    let file = folder.write("set.yaml", SET);
    let mut terminal = apply(&coderd, &["-f", &file]);
    terminal.wait_for("Only `yes` is accepted: ");
    terminal.type_line("y");
    let (exit, _, screen) = terminal.end();
    assert_eq!(exit, Some(4), "{screen}");
    assert!(screen.contains(&format!("nothing was changed in {}", deployment(&coderd).await)), "{screen}");
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_the_environment_is_confirmed_by_its_host_name() {
    let coderd = licensed().await;
    let folder = Folder::new("confirmed");
    let file = folder.write("set.yaml", SET.split("---").next().unwrap());
    let deployment = deployment(&coderd).await;
    let host = reqwest::Url::parse(&coderd.owner.url).unwrap().host_str().unwrap().to_owned();
    for (answer, expected) in [("yes", 4), ("coder.example.com", 4), (&*host, 0)] {
        let mut command = in_environment(&coderd.owner.url, &coderd.owner.token, &["apply", "-f", &file]);
        command.env("CODER_WORKSPACE_NAME", "dev");
        let mut terminal = Terminal::start(command);
        terminal.wait_for(&format!(
            "Change 1 object in {deployment}? The address came only from the environment variable CODER_URL. \
             Type the host name to continue ({host}): "
        ));
        assert!(terminal.seen.contains("this is a Coder workspace"), "{}", terminal.seen);
        assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], json!(null));
        terminal.type_line(answer);
        let (exit, _, screen) = terminal.end();
        assert_eq!(exit, Some(expected), "{answer}: {screen}");
    }
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], "alpha");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_for_people_at_a_terminal_who_want_it() {
    let coderd = licensed().await;
    let folder = Folder::new("progress");
    let file = folder.write("set.yaml", SET.split("---").next().unwrap());
    let (exit, _, screen) = apply(&coderd, &["--yes", "--quiet", "-f", &file]).end();
    assert_eq!((exit, screen.as_str()), (Some(0), ""));
    let (_, _, screen) = apply(&coderd, &["--yes", "-f", &file]).end();
    assert!(screen.ends_with("[1/1] CoderOrganization alpha: equal\r\n"), "{screen}");
    assert!(!run(&coderd, &["apply", "--yes", "-f", &file], 0).await.contains("[1/1]"));
}

#[tokio::test]
async fn a_program_reads_the_plan_and_what_became_of_it_as_one() {
    let coderd = licensed().await;
    let folder = Folder::new("results");
    let file = folder.write("set.yaml", SET);
    let told = run(&coderd, &["apply", "--yes", "--quiet", "-o", "json", "-f", &file], 5).await;
    let objects = &serde_json::from_str::<serde_json::Value>(&told).unwrap()["objects"];
    assert_eq!(objects[0]["state"], "Differs");
    assert_eq!(objects[0]["result"], json!({"state": "Applied"}));
    assert_eq!(objects[1]["result"]["state"], "Blocked");
    let message = objects[1]["result"]["message"].as_str().unwrap();
    assert!(message.starts_with("ReferenceNotFound: "), "{message}");
}

#[tokio::test]
async fn what_is_suspended_is_skipped_with_a_note() {
    let coderd = licensed().await;
    let folder = Folder::new("suspended");
    let manifest = SET.split("---").next().unwrap().replace("{name: main}}", "{name: main}, suspend: true}");
    let file = folder.write("set.yaml", &manifest);
    let told = run(&coderd, &["apply", "--yes", "-f", &file], 0).await;
    assert!(told.contains("set.yaml:2: CoderOrganization alpha: suspended"), "{told}");
    assert!(told.ends_with("1 skipped\n") || told.starts_with("1 skipped\n"), "{told}");
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], json!(null));
    assert_eq!(run(&coderd, &["verify", "--quiet", "-f", &file], 0).await, "1 skipped\n");
}
