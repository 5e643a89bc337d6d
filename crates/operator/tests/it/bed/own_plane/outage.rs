//! A Coder of ours that goes away and comes back: its process, and its database.

use api::{CoderControlPlane, CoderGroup};
use serde_json::{Value, json};

use super::{
    gate::Gate,
    ground::{kill, ours, owner, process, ready, running, shipped, stage, stage_with, token},
};
use crate::bed::{
    operator::writes,
    stage::{eventually, group, is_held_up, is_ready, words},
};

/// `Ready` is false for a reason that has words, and of this very manifest.
fn is_down(plane: &Value) -> bool {
    let conditions = plane["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "False")
        && !words(plane).is_empty()
}

#[tokio::test]
async fn a_coderd_that_is_killed_is_told_and_comes_back_with_the_account_and_the_token_that_it_had() {
    let stage = stage().await;
    ready(&stage, &shipped()).await;
    stage.apply(&group(&json!({}))).await;
    stage.wait::<CoderGroup>("developers", "told what it needs", is_held_up("NotEntitled")).await;
    let (held, had) = (token(&stage).await, ours(&owner(&stage, "main").await).await);
    assert_eq!((had.accounts.len(), had.tokens.len()), (1, 1), "{had:?}");
    let before = writes(&stage.namespace).await.len();

    let watch = stage.watch("CoderControlPlane", "main").await;
    kill(&process(&stage, "main").await);
    let told = watch.until("down", is_down).await;
    assert!(
        is_held_up("Progressing")(&told)
            || is_held_up("RolloutStuck")(&told)
            || is_held_up("Unreachable")(&told),
        "{}",
        words(&told)
    );
    stage.wait::<CoderControlPlane>("main", "back", is_ready).await;
    // On a busy machine a probe may end the new process once more.
    assert!(running(&stage, "main").await[0].1 >= 1, "the same pod was started again");
    // It was asked anew by what belongs to it.
    stage.look_again("CoderGroup", "developers").await;
    stage.wait::<CoderGroup>("developers", "as before", is_held_up("NotEntitled")).await;
    assert_eq!(token(&stage).await, held);
    assert_eq!(ours(&owner(&stage, "main").await).await, had);
    let written = writes(&stage.namespace).await.split_off(before);
    // A handful of things can be said on the way down and up again, each once.
    assert!(written.len() <= 20, "{written:#?}");
}

#[tokio::test]
async fn a_database_that_is_away_is_told_and_outlived_with_the_same_account_and_token() {
    let database = testbed::shared().unwrap().database().await.unwrap();
    let server = database.split('@').nth(1).unwrap().split('/').next().unwrap();
    let mut gate = Gate::before(server).await;
    let stage = stage_with(&database.replace(server, &gate.address)).await;
    ready(&stage, &shipped()).await;
    let (held, had) = (token(&stage).await, ours(&owner(&stage, "main").await).await);
    let (before, pods) = (writes(&stage.namespace).await.len(), running(&stage, "main").await);

    gate.close().await;
    let is_told = |it: &Value| is_held_up("Unreachable")(it) && words(it).contains("connection refused");
    let told = stage.wait::<CoderControlPlane>("main", "told", is_told).await;
    assert!(words(&told).contains("500") && words(&told).contains(&gate.address), "{}", words(&told));
    let failures = async || failed_requests(&stage.operator.get("/metrics").await.unwrap().1);
    // The pods become unready meanwhile, which is written too. From then on every try ends as the one before.
    let mut versions = Vec::new();
    for _ in 0..2 {
        let failed = failures().await;
        eventually("tried twice more", &failures, |it| *it >= failed + 2).await;
        let told = stage.wait::<CoderControlPlane>("main", "still told", is_told).await;
        versions.push(told["metadata"]["resourceVersion"].clone());
    }
    assert_eq!(versions[0], versions[1], "the same trouble is written once");
    gate.open().await;
    stage.wait::<CoderControlPlane>("main", "back", is_ready).await;
    assert_eq!(token(&stage).await, held);
    assert_eq!(ours(&owner(&stage, "main").await).await, had);
    assert_eq!(running(&stage, "main").await, pods, "no pod was touched");
    let written = writes(&stage.namespace).await.split_off(before);
    assert!(written.len() <= 8, "{written:#?}");
}

/// How many requests were answered with a failure of the server.
fn failed_requests(metrics: &str) -> u64 {
    let failed = metrics
        .lines()
        .filter(|it| it.starts_with("coder_operator_coder_requests_total") && it.contains("status=\"500\""));
    failed.map(|it| it.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}
