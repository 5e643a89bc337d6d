//! What is only observed: nothing is written but the status, and what keeps access alive.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use client::{Transport, TransportError};
use engine::ports::{Answer, Write};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sim::{
    Clock, Coder, ManualClock, MemoryCluster,
    cluster::{ClusterCall, Interceptor},
    state::State,
};
use tokio_util::bytes::Bytes;

use super::{PASSWORD, Stage, connect_daemon, deployment, examples, external, manifests, reach, which};

/// The writes and deletions of a client, but for those of statuses and Events.
#[derive(Debug, Default)]
struct Writes(Mutex<Vec<String>>);

impl Writes {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Interceptor for Writes {
    fn before<'a>(&'a self, call: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        match call {
            ClusterCall::Write(Write::MergeStatus { .. } | Write::ReplaceStatus(_)) => {}
            ClusterCall::Write(_) | ClusterCall::Delete(_) => {
                self.0.lock().unwrap().push(format!("{call:?}"));
            }
            _ => {}
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn after<'a>(&'a self, _: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A stage whose controllers have a client of their own, and the writes of that client.
fn watched(clock: Clock) -> (Stage, Arc<Writes>) {
    let (cluster, writes) = (MemoryCluster::new(clock, 1), Arc::<Writes>::default());
    let mut stage = Stage::on(cluster.intercepted_by(Arc::clone(&writes) as _));
    stage.cluster = cluster;
    (stage, writes)
}

/// What people have in a deployment, without what reads leave behind.
fn content(state: &State) -> Value {
    let mut state = serde_json::to_value(state).unwrap();
    let all = state.as_object_mut().unwrap();
    all.retain(|field, _| {
        [
            "organizations",
            "groups",
            "templates",
            "ai_providers",
            "custom_roles",
            "provisioner_keys",
            "appearance",
        ]
        .contains(&field.as_str())
    });
    assert_eq!(all.len(), 7, "{:?}", all.keys());
    state
}

fn is_observed(object: Option<&Value>) -> bool {
    let conditions = object.and_then(|it| it["status"]["conditions"].as_array()).into_iter().flatten();
    let reasons = ["Observed", "ReferenceNotFound", "NotEqual"];
    let mut ready = conditions.filter(|it| it["type"] == "Ready");
    ready.any(|it| reasons.iter().any(|reason| it["reason"] == *reason))
}

#[tokio::test(start_paused = true)]
async fn observed_manifests_of_every_kind_change_nothing() {
    let (stage, writes) = watched(Arc::new(Timestamp::now));
    let keys = examples::ai_keys();
    let keys = keys.as_object().unwrap().iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap()));
    stage.write_secret(examples::AI_KEYS, &keys.collect::<Vec<_>>()).await;
    external(&stage).await;
    connect_daemon(&stage).await;
    stage.ready("CoderControlPlane", "main").await;
    let before = stage.coder.read(content);
    writes.take();
    for mut manifest in manifests() {
        manifest["spec"]["mode"] = json!("Observe");
        stage.apply(&manifest).await;
    }
    for manifest in manifests() {
        let [kind, name] = which(&manifest);
        stage.until(kind, name, "observed", is_observed).await;
    }
    assert_eq!(stage.coder.read(content), before);
    // Plans show fingerprints of values, whose key must not be another one after a restart.
    assert_eq!(writes.take(), ["Write(create Secret platform/main-operator-token)"]);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn token_of_a_supplied_account_is_renewed_while_the_control_plane_is_observed() {
    let clock = ManualClock::new(Timestamp::now());
    let (stage, writes) = watched(clock.clock());
    let token = deployment(&stage).await;
    reach(&stage, super::NAMESPACE, &token).await;
    stage.ready("CoderControlPlane", "main").await;
    let account = [("email", "admin@coder.test"), ("password", PASSWORD)];
    stage.write_secret("coder-account", &account).await;
    writes.take();
    stage.cluster.edit("CoderControlPlane", "main", |it| {
        it["spec"]["external"]["credentialsSecretRef"]["name"] = json!("coder-account");
        it["spec"]["mode"] = json!("Observe");
        let generation = it["metadata"]["generation"].as_i64().unwrap();
        it["metadata"]["generation"] = json!(generation + 1);
    });
    let minted =
        |it: &State| it.api_keys.values().filter(|it| it.token_name.starts_with("coder-operator-")).count();
    stage.eventually("a token is minted", |it| minted(it) == 1).await;
    stage.ready("CoderControlPlane", "main").await;
    // A token lives for a day, and is renewed at half of that.
    clock.advance(SignedDuration::from_hours(13));
    stage.cluster.edit("CoderControlPlane", "main", |it| {
        it["metadata"]["annotations"] = json!({"example.com/looked-at": "again"});
    });
    stage.eventually("the token is renewed", |it| minted(it) == 2).await;
    stage.ready("CoderControlPlane", "main").await;
    // A valid token does not hide that the account cannot sign in any more.
    stage.coder.edit(|it| it.users.values_mut().for_each(|it| it.email = "other@coder.test".to_owned()));
    clock.advance(SignedDuration::from_hours(13));
    stage.cluster.edit("CoderControlPlane", "main", |it| {
        it["metadata"]["annotations"] = json!({"example.com/looked-at": "once more"});
    });
    let is_refused = |it: Option<&Value>| {
        let conditions = it.and_then(|it| it["status"]["conditions"].as_array()).into_iter().flatten();
        conditions.into_iter().any(|it| it["type"] == "Ready" && it["reason"] == "Unauthorized")
    };
    stage.until("CoderControlPlane", "main", "refused", is_refused).await;
    let written = writes.take();
    assert!(!written.is_empty());
    assert!(written.iter().all(|it| it.contains("Secret platform/main-operator-token")), "{written:?}");
    stage.end().await;
}

/// The way to a deployment that counts requests.
#[derive(Debug)]
struct Counting {
    coder: Coder,
    requests: AtomicUsize,
}

impl Transport for Counting {
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, TransportError>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Box::pin(self.coder.send(request))
    }
}

#[tokio::test(start_paused = true)]
async fn supplied_token_after_a_supplied_account_is_not_renewed() {
    let mut wire = None;
    // The token is minted thirteen hours ago, so that it would be renewed by now.
    let clock = ManualClock::new(Timestamp::now() - SignedDuration::from_hours(13));
    let stage = Stage::over(MemoryCluster::new(clock.clock(), 1), |coder| {
        let counting = Arc::new(Counting { coder: coder.clone(), requests: AtomicUsize::new(0) });
        wire = Some(Arc::clone(&counting));
        counting
    });
    let wire = wire.unwrap();
    let token = deployment(&stage).await;
    let account = [("email", "admin@coder.test"), ("password", PASSWORD)];
    stage.write_secret("coder-account", &account).await;
    reach(&stage, super::NAMESPACE, &token).await;
    let refer_to = |secret: &str| {
        stage.cluster.edit("CoderControlPlane", "main", |it| {
            it["spec"]["external"]["credentialsSecretRef"]["name"] = json!(secret);
            it["spec"]["interval"] = json!("1h");
            it["metadata"]["generation"] = json!(it["metadata"]["generation"].as_i64().unwrap() + 1);
        });
    };
    refer_to("coder-account");
    let minted = |it: &State| it.api_keys.values().any(|it| it.token_name.starts_with("coder-operator-"));
    stage.eventually("a token is minted", minted).await;
    stage.ready("CoderControlPlane", "main").await;
    refer_to("coder-automation");
    stage.ready("CoderControlPlane", "main").await;
    let before = wire.requests.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_hours(15)).await;
    let asked = wire.requests.load(Ordering::Relaxed) - before;
    assert!((15..200).contains(&asked), "{asked} requests in 15 hours");
    stage.end().await;
}
