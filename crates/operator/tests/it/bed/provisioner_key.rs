//! Keys for daemons that run elsewhere, through the controller: made once, written into a Secret, never again by themselves.

mod approval;
mod deletion;
mod neighbours;
mod restored;
mod schedule;

use api::CoderProvisionerKey;
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::api::{DeleteParams, ListParams};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    licensed,
    operator::{Operator, writes},
    provisioner::keys,
    proxy::{Mood, Proxy},
    stage::{Stage, eventually, is_held_up, is_ready, says, until, words},
};
use crate::examples::request;

const KIND: &str = "CoderProvisionerKey";
const SECRET: &str = "alpha-provisioner-key";

/// The manifest `alpha`, with more in its spec.
fn key(spec: &Value) -> Value {
    let mut whole = json!({"controlPlaneRef": {"name": "main"}, "interval": "10s", "tags": {"site": "bed"},
        "rotation": {"overlap": "10s"}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "coder.com/v1alpha1", "kind": KIND, "metadata": {"name": "alpha"}, "spec": whole})
}

/// The value in the Secret.
async fn value(stage: &Stage) -> Option<String> {
    let secret = stage.api::<Secret>().get_opt(SECRET).await.unwrap()?;
    Some(String::from_utf8(secret.data?.get("key")?.0.clone()).unwrap())
}

/// The name of the key that a value is, as coderd tells whoever shows it.
async fn proof(stage: &Stage, value: &str) -> Option<String> {
    let url = format!("{}/api/v2/provisionerkeys/own", stage.coderd.owner.url.trim_end_matches('/'));
    let answer = reqwest::Client::new().get(url).header("Coder-Provisioner-Daemon-Key", value).send().await;
    let answer = answer.unwrap();
    let is_one = answer.status().is_success();
    let body: Value = answer.json().await.unwrap();
    is_one.then(|| body["name"].as_str().unwrap().to_owned())
}

/// Asks for a new key.
async fn rotate(stage: &Stage) {
    let now = uuid::Uuid::new_v4().to_string();
    stage.annotate(KIND, "alpha", api::annotation::ROTATE_REQUESTED_AT, Some(&now)).await;
}

/// Waits until the key in use is another one.
async fn rotated(stage: &Stage, before: &Value) -> Value {
    let name = &before["status"]["provisionerKeyName"];
    let is_other = |it: &Value| is_ready(it) && it["status"]["provisionerKeyName"] != *name;
    stage.wait::<CoderProvisionerKey>("alpha", "rotated", is_other).await
}

fn name_of(object: &Value) -> String {
    object["status"]["provisionerKeyName"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_is_made_once_and_its_value_is_in_the_secret_and_nowhere_else() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let mut stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&key(&json!({}))).await;
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
    let secret = value(&stage).await.unwrap();
    assert_eq!(proof(&stage, &secret).await.as_deref(), Some("alpha"));
    let stored = stage.api::<Secret>().get(SECRET).await.unwrap();
    assert!(stored.metadata.owner_references.is_none(), "it would go with the object");

    // Another pass, and another operator, find nothing to do on either side.
    stage.look_again(KIND, "alpha").await;
    stage.operator.process.kill().unwrap();
    stage.operator.ended().await;
    let coder = proxy.writes();
    let lines = stage.operator.said();
    stage.operator = Operator::start(&stage.namespace, &[]);
    stage.look_again(KIND, "alpha").await;
    assert_eq!(proxy.writes(), coder);
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
    // By now the value was shown to coderd; from here on it is not any more, and nobody writes.
    let kubernetes = writes(&stage.namespace).await.len();
    let (lists, proofs) = (proxy.reads("/provisionerkeys/daemons"), proxy.reads("/provisionerkeys/own"));
    until("looked at", || proxy.reads("/provisionerkeys/daemons") >= lists + 2).await;
    assert_eq!(proxy.reads("/provisionerkeys/own"), proofs);
    let written = writes(&stage.namespace).await;
    assert_eq!(written.len(), kubernetes, "{:#?}", written.last());

    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap();
    let everything = [
        serde_json::to_string(&events).unwrap(),
        format!("{lines:?}{:?}", stage.operator.said()),
        format!("{made}{:?}{:?}", stored.metadata, written),
    ];
    for text in everything {
        assert!(!text.contains(&secret), "the value is where it should not be");
    }
}

#[tokio::test]
async fn what_is_lost_is_said_and_made_again_only_for_somebody_who_asks() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&key(&json!({"rotation": {"overlap": "1h"}}))).await;
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    let before = proxy.writes();

    stage.api::<Secret>().delete(SECRET, &DeleteParams::default()).await.unwrap();
    let told = stage.wait::<CoderProvisionerKey>("alpha", "told", is_held_up("SecretMissing")).await;
    assert!(words(&told).contains("rotate-requested-at"), "{}", words(&told));
    stage.look_again(KIND, "alpha").await;
    assert_eq!((proxy.writes(), value(&stage).await), (before.clone(), None));

    rotate(&stage).await;
    let second = rotated(&stage, &made).await;
    let name = name_of(&second);
    assert!(name.starts_with("alpha-") && name.ends_with("-2"), "{name}");
    assert_eq!(proof(&stage, &value(&stage).await.unwrap()).await.as_ref(), Some(&name));
    assert_eq!(keys(&stage.coderd).await.len(), 2, "whoever has the first one may go on for a while");

    let before = proxy.writes();
    let path = format!("/api/v2/organizations/default/provisionerkeys/{name}");
    request(&stage.coderd.owner, Method::DELETE, &path, None).await;
    stage.wait::<CoderProvisionerKey>("alpha", "told", is_held_up("KeyRevoked")).await;
    stage.look_again(KIND, "alpha").await;
    assert_eq!(proxy.writes(), before);
    rotate(&stage).await;
    let third = rotated(&stage, &second).await;
    assert!(name_of(&third).ends_with("-3"), "{third}");
    assert_eq!(proof(&stage, &value(&stage).await.unwrap()).await, Some(name_of(&third)));
}

#[tokio::test]
async fn a_rotation_overlaps_and_a_deletion_takes_away_what_is_ours_alone() {
    let stage = Stage::new(licensed().await).await;
    let theirs = json!({"name": "theirs", "tags": {}});
    let path = "/api/v2/organizations/default/provisionerkeys";
    request(&stage.coderd.owner, Method::POST, path, Some(&theirs)).await;
    stage.apply(&key(&json!({"name": "theirs"}))).await;
    let taken = stage.wait::<CoderProvisionerKey>("alpha", "told", is_held_up("NameTaken")).await;
    assert!(words(&taken).contains("theirs"), "{}", words(&taken));
    assert_eq!(value(&stage).await, None);

    stage.apply(&key(&json!({"rotation": {"overlap": "30s"}}))).await;
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    let first = value(&stage).await.unwrap();
    rotate(&stage).await;
    let turned = rotated(&stage, &made).await;
    let second = value(&stage).await.unwrap();
    assert_eq!(turned["status"]["retiringKeys"][0]["name"], "alpha", "{turned}");
    assert_eq!(proof(&stage, &first).await.as_deref(), Some("alpha"));
    assert_eq!(proof(&stage, &second).await, Some(name_of(&turned)));
    let is_over = |it: &Value| is_ready(it) && it["status"]["retiringKeys"].is_null();
    let over = stage.wait::<CoderProvisionerKey>("alpha", "over", is_over).await;
    assert_eq!(proof(&stage, &first).await, None);
    assert_eq!(value(&stage).await.as_ref(), Some(&second));
    assert_eq!(over["status"]["id"], over["status"]["provisionerKeyID"]);

    // Retained, which is what nobody has to say.
    stage.delete(KIND, "alpha").await;
    stage.gone(&over).await;
    assert_eq!(proof(&stage, &value(&stage).await.unwrap()).await, Some(name_of(&over)));

    // Another object of that name finds a Secret that is not its own, and uses what is in it. It never takes it away.
    stage.apply(&key(&json!({"deletionPolicy": "Delete"}))).await;
    let other = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    assert_eq!(other["status"]["provisionerKeyIsOurs"], false, "{other}");
    stage.delete(KIND, "alpha").await;
    stage.gone(&other).await;
    assert_eq!(proof(&stage, &value(&stage).await.unwrap()).await, Some(name_of(&over)));

    stage.api::<Secret>().delete(SECRET, &DeleteParams::default()).await.unwrap();
    let own = json!({"name": "own", "deletionPolicy": "Delete"});
    stage.apply(&key(&own)).await;
    let own = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    assert_eq!(name_of(&own), "own");
    stage.delete(KIND, "alpha").await;
    stage.gone(&own).await;
    assert_eq!(value(&stage).await, None);
    let mut left = keys(&stage.coderd).await;
    left.sort();
    assert_eq!(left, [name_of(&over), "theirs".to_owned()]);
}

#[tokio::test]
async fn what_is_only_observed_is_planned_and_not_made() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&key(&json!({"mode": "Observe"}))).await;
    let seen = stage.wait::<CoderProvisionerKey>("alpha", "observed", is_held_up("Observed")).await;
    assert_eq!(seen["status"]["plan"]["summary"], "1 to create", "{seen}");
    assert!(says(&seen, "Drifted", "False", "NoDrift"), "{seen}");
    assert_eq!((keys(&stage.coderd).await, value(&stage).await), (vec![], None));
    stage.apply(&key(&json!({"mode": "Enforce"}))).await;
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    stage.apply(&key(&json!({"mode": "Observe"}))).await;
    rotate(&stage).await;
    let is_shown = |it: &Value| is_held_up("Observed")(it) && it["status"]["drift"][0]["field"] == "name";
    let seen = stage.wait::<CoderProvisionerKey>("alpha", "observed", is_shown).await;
    assert_eq!(seen["status"]["drift"][0]["found"], "alpha", "{seen}");
    assert_eq!((keys(&stage.coderd).await, name_of(&seen)), (vec!["alpha".to_owned()], name_of(&made)));
}

#[tokio::test]
async fn one_refusal_does_not_cost_a_key() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    for status in [429, 500, 503] {
        stage.apply(&key(&json!({"deletionPolicy": "Delete"}))).await;
        let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
        let before = proxy.writes().len();
        proxy.set(Mood::FailingOnce(Method::DELETE, status));
        stage.delete(KIND, "alpha").await;
        stage.gone(&made).await;
        let asked = proxy.writes()[before..].to_vec();
        assert!(
            asked.len() == 2 && asked[0] == asked[1] && asked[0].ends_with("/alpha"),
            "{status}: {asked:?}"
        );
        assert_eq!((keys(&stage.coderd).await, value(&stage).await), (vec![], None), "after {status}");
    }
    let left = stage.operator.said().into_iter().filter(|it| it.to_string().contains("left behind"));
    assert_eq!(left.collect::<Vec<_>>(), [Value::Null; 0]);
}

#[tokio::test]
async fn key_of_a_request_that_was_sent_twice_is_named() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    proxy.set_on("/provisionerkeys", Mood::Twice(Method::POST));
    stage.apply(&key(&json!({"deletionPolicy": "Delete"}))).await;
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    assert_ne!(name_of(&made), "alpha", "{made:#}");
    let events = stage.api::<Event>();
    let named = || async {
        let events = events.list(&ListParams::default()).await.unwrap();
        let left = events.items.into_iter().filter(|it| it.reason.as_deref() == Some("LeftBehind"));
        left.filter_map(|it| it.note).collect::<Vec<_>>()
    };
    let named = eventually("named", named, |it| !it.is_empty()).await;
    assert!(named.len() == 1 && named[0].contains("provisioner key alpha is left behind"), "{named:?}");
    stage.delete(KIND, "alpha").await;
    stage.gone(&made).await;
    assert_eq!(keys(&stage.coderd).await, ["alpha"], "nobody can tell whose the key is");
}
