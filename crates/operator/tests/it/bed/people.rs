//! What a person does beside the controllers: looks at the objects of a cluster, compares one, approves its plan.

use std::process::Command;

use serde_json::{Value, json};

use super::{
    cluster_door::expect,
    licensed,
    stage::{Stage, group, is_held_up, is_ready},
};
use crate::support::bare;

pub(super) fn command(args: &[&str]) -> Command {
    let mut command = bare(args);
    command.env("KUBECONFIG", &testbed::shared().unwrap().kubeconfig);
    command
}

#[tokio::test]
async fn plan_is_seen_in_status_and_diff_and_applied_once_approved() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group(&json!({"quotaAllowance": 3, "approval": "Manual"}))).await;
    let held = stage.wait_for("CoderGroup", "developers", "to approve", is_held_up("ApprovalRequired")).await;
    let hash = held["status"]["plan"]["hash"].as_str().unwrap().to_owned();
    let namespace = ["--namespace", stage.namespace.as_str()];

    let told = expect(command(&[&["status"], &namespace[..]].concat()), 0).await;
    assert!(told.contains("codergroup/developers") && told.contains("ApprovalRequired"), "{told}");
    assert!(told.contains("1 to approve"), "{told}");
    let told = expect(command(&[&["status", "-o", "json"], &namespace[..]].concat()), 0).await;
    let rows: Vec<Value> = serde_json::from_str(&told).unwrap();
    let row = rows.iter().find(|it| it["kind"] == "CoderGroup").unwrap();
    assert_eq!((&row["ready"], &row["plan"]["hash"]), (&json!("False"), &json!(hash)));
    let told = expect(command(&[&["status", "-o", "markdown"], &namespace[..]].concat()), 0).await;
    assert!(told.contains("1 to approve\n") && told.contains("```"), "{told}");

    let told =
        expect(command(&[&["diff", "codergroup/developers", "--exit-code"], &namespace[..]].concat()), 4)
            .await;
    assert!(told.contains("+ quotaAllowance: 3"), "{told}");

    let approve = |hash: &str| {
        command(&[&["approve", "codergroup/developers", "--hash", hash], &namespace[..]].concat())
    };
    let told = expect(approve("another"), 4).await;
    assert!(told.contains(&hash), "{told}");
    let told = expect(command(&[&["approve", "codergroup/developers"], &namespace[..]].concat()), 2).await;
    assert!(told.contains("quotaAllowance: absent -> 3"), "{told}");
    expect(approve(&hash), 0).await;
    stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;

    expect(command(&[&["diff", "codergroup/developers", "--exit-code"], &namespace[..]].concat()), 0).await;
    let told =
        expect(command(&[&["approve", "codergroup/developers", "--yes"], &namespace[..]].concat()), 4).await;
    assert!(told.contains("has no plan to approve"), "{told}");
    let told = expect(command(&[&["diff", "codergroup/nobody"], &namespace[..]].concat()), 2).await;
    assert!(told.contains("there is no CoderGroup nobody"), "{told}");
}
