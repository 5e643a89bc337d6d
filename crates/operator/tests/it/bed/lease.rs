//! Leadership and what the operator tells of itself, with real processes and a real API server.

use std::time::Duration;

use api::CoderGroup;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    licensed,
    operator::{Operator, writes},
    stage::{LIMIT, Stage, group, install, is_held_up, is_ready, plane},
};

impl Operator {
    fn elected(namespace: &str) -> Self {
        Self::start(namespace, &["--leader-elect"])
    }

    async fn leads(&self) -> bool {
        self.get("/readyz").await.is_some_and(|it| it == (200, "acts\n".to_owned()))
    }

    async fn stands_by(&self) -> bool {
        self.get("/readyz").await.is_some_and(|it| it == (200, "stands by\n".to_owned()))
    }
}

/// Waits until one of them leads, and says which.
async fn leader(operators: &[&Operator]) -> usize {
    let since = Instant::now();
    while since.elapsed() < LIMIT {
        for (number, operator) in operators.iter().enumerate() {
            if operator.leads().await {
                return number;
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
    unreachable!("nobody leads")
}

async fn place() -> (Client, String) {
    let bed = testbed::shared().unwrap();
    let client = bed.client().await.unwrap();
    install(&client).await;
    (client, bed.namespace("lease").await.unwrap())
}

async fn holder(client: &Client, namespace: &str) -> Option<String> {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    leases.get("coder-operator").await.unwrap().spec.unwrap().holder_identity
}

#[tokio::test]
async fn of_two_operators_one_leads_and_the_other_follows_when_it_dies() {
    let (client, namespace) = place().await;
    let mut operators = vec![Operator::elected(&namespace), Operator::elected(&namespace)];
    let first = leader(&[&operators[0], &operators[1]]).await;
    let mut dead = operators.remove(first);
    let waits = operators.remove(0);
    let held = holder(&client, &namespace).await;
    let since = Instant::now();
    while !waits.stands_by().await {
        assert!(since.elapsed() < LIMIT, "who waits never is ready to act");
        sleep(Duration::from_millis(50)).await;
    }
    // Longer than the lease lasts: it is renewed.
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(17) {
        assert!(dead.leads().await && !waits.leads().await, "one leads, and it is the same one");
        sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(waits.get("/healthz").await.unwrap().0, 200, "who waits is in good health");
    assert!(waits.get("/metrics").await.unwrap().1.contains("coder_operator_leader 0"));
    assert!(dead.get("/metrics").await.unwrap().1.contains("coder_operator_leader 1"));
    dead.process.kill().unwrap();
    dead.ended().await;
    leader(&[&waits]).await;
    assert_ne!(holder(&client, &namespace).await, held);
}

#[tokio::test]
async fn a_leader_that_is_told_to_end_releases_the_lease_at_once() {
    let (client, namespace) = place().await;
    let mut first = Operator::elected(&namespace);
    leader(&[&first]).await;
    let second = Operator::elected(&namespace);
    first.tell("-TERM");
    assert_eq!(first.ended().await.code(), Some(0));
    leader(&[&second]).await;
    let mut second = second;
    second.tell("-TERM");
    assert_eq!(second.ended().await.code(), Some(0));
    assert_eq!(holder(&client, &namespace).await.as_deref(), Some(""));
}

#[tokio::test]
async fn a_leader_that_is_replaced_ends_and_says_why() {
    let (client, namespace) = place().await;
    let mut operator = Operator::elected(&namespace);
    leader(&[&operator]).await;
    let leases = Api::<Lease>::namespaced(client.clone(), &namespace);
    let taken = json!({"spec": {"holderIdentity": "another"}});
    leases.patch("coder-operator", &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
    assert_eq!(operator.ended().await.code(), Some(1));
    let said = operator.last_line();
    let told = said.iter().find(|it| it["level"] == "ERROR").unwrap();
    assert!(told["message"].as_str().unwrap().starts_with("leadership was lost"), "{told}");
    assert_eq!(holder(&client, &namespace).await.as_deref(), Some("another"), "it is not ours to release");
}

#[tokio::test]
async fn a_leader_that_was_frozen_does_not_lead_when_it_wakes() {
    let (_, namespace) = place().await;
    let mut first = Operator::elected(&namespace);
    leader(&[&first]).await;
    let second = Operator::elected(&namespace);
    first.tell("-STOP");
    leader(&[&second]).await;
    first.tell("-CONT");
    assert_eq!(first.ended().await.code(), Some(1));
    assert!(second.leads().await);
}

/// Takes the Lease as another operator would: when its holder has not renewed it for as long as it says.
async fn take_over(client: &Client, namespace: &str) {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let since = Instant::now();
    loop {
        let spec = leases.get("coder-operator").await.unwrap().spec.unwrap();
        let lasts = i64::from(spec.lease_duration_seconds.unwrap());
        if jiff::Timestamp::now().as_second() > spec.renew_time.unwrap().0.as_second() + lasts {
            break;
        }
        assert!(since.elapsed() < LIMIT, "it is renewed all the time");
        sleep(Duration::from_millis(250)).await;
    }
    let taken = json!({"spec": {"holderIdentity": "another"}});
    leases.patch("coder-operator", &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
}

#[tokio::test]
async fn a_leader_that_was_frozen_writes_nothing_when_it_wakes() {
    let (client, namespace) = place().await;
    let operator = Operator::elected(&namespace);
    let mut stage = Stage { client, namespace, coderd: (), operator };
    leader(&[&stage.operator]).await;
    let nowhere = |name: &str| plane(name, "http://127.0.0.1:1");
    stage.apply(&nowhere("before")).await;
    stage.wait_for("CoderControlPlane", "before", "looked at", is_held_up("SecretNotFound")).await;
    stage.operator.tell("-STOP");
    take_over(&stage.client, &stage.namespace).await;
    // Work that waits for it, and reaches it as soon as it wakes.
    stage.apply(&nowhere("meanwhile")).await;
    stage.write_token("0123456789-0123456789012345678901").await;
    let written = writes(&stage.namespace).await.len();
    stage.operator.tell("-CONT");
    assert_eq!(stage.operator.ended().await.code(), Some(1));
    let more = writes(&stage.namespace).await.split_off(written);
    assert_eq!(more, Vec::<Value>::new(), "it wrote after it was replaced");
    // Whoever leads does that work.
    stage.operator = Operator::start(&stage.namespace, &[]);
    stage.wait_for("CoderControlPlane", "meanwhile", "looked at", is_held_up("Unreachable")).await;
}

#[tokio::test]
async fn what_was_done_is_counted_and_no_secret_is_shown() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group(&json!({"quotaAllowance": 4}))).await;
    stage.wait::<CoderGroup>("developers", "ready", |it: &Value| is_ready(it)).await;
    let expected = [
        "coder_operator_reconciles_total{kind=\"CoderGroup\",reason=\"UpToDate\"}".to_owned(),
        "coder_operator_reconcile_duration_seconds_count{kind=\"CoderControlPlane\"}".to_owned(),
        format!("coder_operator_control_plane_up{{namespace=\"{}\",name=\"main\"}} 1", stage.namespace),
        "coder_operator_control_plane_last_success_timestamp_seconds{".to_owned(),
        format!(
            "coder_operator_coder_requests_total{{namespace=\"{}\",name=\"main\",method=\"GET\",\
             route=\"/api/v2/organizations/{{organization}}/groups\",status=\"200\"}}",
            stage.namespace
        ),
        format!(
            "coder_operator_coder_circuit{{namespace=\"{}\",name=\"main\",state=\"closed\"}} 1",
            stage.namespace
        ),
        "coder_operator_objects{kind=\"CoderGroup\",reason=\"UpToDate\"} 1".to_owned(),
        "coder_operator_drifted_objects{kind=\"CoderGroup\"} 0".to_owned(),
        "coder_operator_leader 1".to_owned(),
    ];
    let text = stage.operator.shows("all of it", |text| expected.iter().all(|it| text.contains(it))).await;
    assert!(!text.contains(&stage.coderd.owner.token));
    stage.delete("CoderControlPlane", "main").await;
    stage.operator.shows("nothing of a plane that is gone", |text| !text.contains("name=\"main\"")).await;
    stage.delete("CoderGroup", "developers").await;
    stage
        .operator
        .shows("nothing of a group that is gone", |text| !text.contains("objects{kind=\"CoderGroup\","))
        .await;
    assert_eq!(stage.operator.get("/healthz").await.unwrap().0, 200);
    assert_eq!(stage.operator.get("/nothing").await.unwrap().0, 404);
}

/// The lines of passes over a group.
fn of_group(said: &[Value]) -> Vec<&Value> {
    said.iter().filter(|it| it["span"]["kind"] == "CoderGroup").collect()
}

#[tokio::test]
async fn a_change_is_a_line_a_pass_that_changes_nothing_is_none_and_trouble_is_told_once() {
    let mut stage = Stage::new(licensed().await).await;
    let operator = &stage.operator;
    let proved = "reconciles_total{kind=\"CoderControlPlane\",reason=\"UpToDate\"}";
    operator.shows(proved, |text| text.contains(proved)).await;
    stage.apply(&group(&json!({"quotaAllowance": 4}))).await;
    stage.wait::<CoderGroup>("developers", "ready", |it: &Value| is_ready(it)).await;
    let passes = |reason: &str| format!("reconciles_total{{kind=\"CoderGroup\",reason=\"{reason}\"}} ");
    let count = move |text: &str, reason: &str| {
        let line = text.lines().find_map(|it| it.split_once(&passes(reason)));
        line.and_then(|(_, count)| count.parse::<u32>().ok()).unwrap_or_default()
    };
    operator.shows("three more passes", |text| count(text, "UpToDate") >= 4).await;
    stage.write_token("0123456789-0123456789012345678901").await;
    operator.shows("passes that wait", |text| count(text, "ControlPlaneNotReady") >= 1).await;
    operator.tell("-TERM");
    assert_eq!(stage.operator.ended().await.code(), Some(0));
    let said = stage.operator.last_line();
    let text = format!("{said:#?}");
    assert!(!text.contains(&stage.coderd.owner.token) && !text.contains("0123456789012345678901"), "{text}");
    let lines = of_group(&said);
    assert!(
        lines.iter().all(|it| it["span"]["object"] == "developers"
            && it["span"]["namespace"] == stage.namespace.as_str()
            && it["span"]["generation"] == 1),
        "{text}"
    );
    let what =
        |it: &Value| it["action"].as_str().or_else(|| it["reason"].as_str()).unwrap_or_default().to_owned();
    let mut told: Vec<String> = lines.iter().map(|it| what(it)).collect();
    // While the new token is not proved yet the message says OriginChanged, which may be seen or not.
    told.dedup();
    assert_eq!(told, ["Create", "ControlPlaneNotReady"], "{text}");
    assert!(lines[0]["message"].as_str().unwrap().contains("quotaAllowance: null -> 4"), "{text}");
    let planes = said.iter().filter(|it| it["span"]["kind"] == "CoderControlPlane");
    assert_eq!(planes.filter(|it| it["reason"] == "Unauthorized").count(), 1, "{text}");
}
