//! Two Coders of ours beside each other, and what one costs that has nothing to do.

use std::io::Write as _;

use api::CoderControlPlane;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use serde_json::{Value, json};

use super::ground::{Ground, ours, owner, running, shipped, stage};
use crate::bed::{
    operator::writes,
    stage::{eventually, is_ready},
};

/// What must not change: pods, Deployment, token Secret and what coderd has of us.
async fn fingerprint(stage: &Ground, plane: &str) -> String {
    let deployment = stage.api::<Deployment>().get(plane).await.unwrap().metadata.generation;
    let secret = format!("{plane}-operator-token");
    let secret = stage.api::<Secret>().get(&secret).await.unwrap().metadata.resource_version;
    let ours = ours(&owner(stage, plane).await).await;
    format!("{:?} {deployment:?} {secret:?} {ours:?}", running(stage, plane).await)
}

#[tokio::test]
async fn two_coders_in_one_namespace_do_not_touch_each_other() {
    let stage = stage().await;
    let database = testbed::shared().unwrap().database().await.unwrap();
    stage.write_secret("other-db", &json!({"url": database})).await;
    let mut other = shipped();
    other["metadata"]["name"] = json!("other");
    other["spec"]["operatorAccess"] = json!({"firstUserSecretRef": {"name": "coder-first-user"}});
    other["spec"]["extraEnv"][0]["valueFrom"]["secretKeyRef"]["name"] = json!("other-db");
    stage.apply(&shipped()).await;
    stage.apply(&other).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let second = stage.wait::<CoderControlPlane>("other", "ready", is_ready).await;
    // Both are there: what is said from now on is not of how they came up.
    let main = stage.look_again("CoderControlPlane", "main").await;
    for field in ["url", "deploymentID", "operatorAccountID"] {
        assert_ne!(main["status"][field], second["status"][field], "{field}");
    }

    let before = fingerprint(&stage, "main").await;
    other["spec"]["podAnnotations"] = json!({"rolled": "once"});
    stage.apply(&other).await;
    stage.wait::<CoderControlPlane>("other", "rolled", is_ready).await;
    stage.delete("CoderControlPlane", "other").await;
    stage.gone(&second).await;
    eventually("without its pods", || running(&stage, "other"), Vec::is_empty).await;
    stage.look_again("CoderControlPlane", "main").await;
    assert_eq!(fingerprint(&stage, "main").await, before);
    let after = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    assert_eq!(after["status"]["conditions"], main["status"]["conditions"]);
}

/// The remote ends of a process' TCP connections, as the kernel writes them: address and port in hexadecimal.
fn connections(process: u32) -> Vec<String> {
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|it| std::fs::read_link(it.ok()?.path()).ok())
        .filter_map(|it| Some(it.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap();
    let rows = table.lines().skip(1).map(|it| it.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| inodes.iter().any(|it| it == row[9])).map(|row| row[2].to_owned()).collect()
}

#[tokio::test]
async fn a_coder_of_ours_that_is_as_declared_costs_no_write_few_questions_and_no_connection_to_its_database()
{
    const PASSES: u64 = 5;
    let stage = stage().await;
    stage.apply(&shipped()).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let database = stage.api::<Secret>().get("coder-db").await.unwrap().data.unwrap().remove("url").unwrap();
    let database = String::from_utf8(database.0).unwrap();
    let port: u16 = database.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
    let port = format!(":{port:04X}");
    // The pods that are new are looked at a few times more.
    stage.look_again("CoderControlPlane", "main").await;
    let passes = || stage.operator.counted("coder_operator_reconciles_total", "CoderControlPlane");
    let requests = || stage.operator.counted("coder_operator_coder_requests_total", "name=\"main\"");
    let (first, asked, written) = (passes().await, requests().await, writes(&stage.namespace).await.len());
    let done = eventually("looked at several times", passes, |it| *it >= first + PASSES).await;
    let asked = requests().await - asked;
    let written: Vec<Value> = writes(&stage.namespace).await.split_off(written);
    assert!(written.is_empty(), "{written:#?}");
    let found = connections(stage.operator.process.id());
    assert!(!found.is_empty() && found.iter().all(|it| !it.ends_with(&port)), "{found:?}");
    // Each reconcile asks who answers, whether our token is taken, what is entitled and which licences are there. At the
    // default interval of five minutes twelve reconciles make an hour.
    let a_pass = asked / (done - first);
    writeln!(
        std::io::stderr(),
        "{asked} requests to coderd in {} passes: {} an hour at the default interval",
        done - first,
        a_pass * 12
    )
    .unwrap();
    assert!(a_pass <= 4, "{asked} requests in {} passes", done - first);
}
