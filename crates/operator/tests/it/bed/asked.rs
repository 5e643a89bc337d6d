//! `apply` with somebody there to be asked: what is agreed to is done, and nothing else.

use reqwest::Method;
use serde_json::json;
use testbed::Coderd;

use super::{get, licensed, run};
use crate::{
    support::{Folder, bare},
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
    let mut command = bare(&[&["apply"], args].concat());
    command.env("CODER_URL", &coderd.owner.url).env("CODER_SESSION_TOKEN", &coderd.owner.token);
    Terminal::start(command)
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
    terminal.wait_for("Change 1 object? Only `yes` does: ");
    make_the_group(&coderd).await;
    terminal.type_line("yes");
    let (exit, shown, screen) = terminal.end();
    assert_eq!(exit, Some(1), "{screen}");
    assert!(shown.contains("1 to change, 1 waiting"), "{shown}");
    assert!(screen.contains("[1/2] CoderOrganization alpha: applied"), "{screen}");
    assert!(screen.contains("CoderGroupSync default: there is another plan now"), "{screen}");
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
    assert!(screen.ends_with("[2/2] CoderGroupSync default: applied\r\n2 applied\r\n"), "{screen}");
    assert_eq!(field_of_the_document(&coderd).await, "groups");
}

#[tokio::test(flavor = "multi_thread")]
async fn anything_but_yes_is_a_no() {
    let coderd = licensed().await;
    let folder = Folder::new("no");
    let file = folder.write("set.yaml", SET);
    let mut terminal = apply(&coderd, &["-f", &file]);
    terminal.wait_for("Only `yes` does: ");
    terminal.type_line("y");
    let (exit, _, screen) = terminal.end();
    assert_eq!(exit, Some(4), "{screen}");
    assert!(screen.contains("nothing was changed"), "{screen}");
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], json!(null));
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
    assert_eq!(objects[1]["result"]["state"], "Waiting");
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
    assert!(told.contains("set.yaml:2: CoderOrganization alpha is suspended"), "{told}");
    assert!(told.contains("no objects"), "{told}");
    assert_eq!(get(&coderd, "/api/v2/organizations/alpha").await["name"], json!(null));
    assert!(run(&coderd, &["verify", "--quiet", "-f", &file], 0).await.contains("no objects"));
}
