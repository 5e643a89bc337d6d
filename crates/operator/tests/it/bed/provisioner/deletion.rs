//! The end of provisioners: no key is left behind, whatever goes first and whatever fails, or it is named.

use api::{CoderControlPlane, CoderProvisioner};
use k8s_openapi::api::{
    core::v1::{Pod, Secret},
    events::v1::Event,
};
use kube::{
    api::{DeleteParams, ListParams, PostParams},
    runtime::wait::await_condition,
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    super::{
        licensed,
        operator::Operator,
        proxy::{Mood, Proxy},
        stage::{CREDENTIALS, LIMIT, Stage, is_ready, plane, says, until, words},
    },
    keys, provisioner, revocations,
    scene::{Scene, is_settled},
};

/// One without daemons.
async fn made(stage: &Stage, name: &str) -> Value {
    stage.apply(&provisioner(name, &json!({"replicas": 0}))).await;
    stage.wait::<CoderProvisioner>(name, "ready", is_ready).await
}

async fn proxied() -> (Stage, Proxy) {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    (Stage::at(coderd, &proxy.url).await, proxy)
}

#[tokio::test]
async fn the_key_that_was_made_is_revoked_whatever_the_manifest_calls_it_by_then() {
    let stage = Stage::new(licensed().await).await;
    made(&stage, "alpha").await;
    let edited = json!({"replicas": 0, "suspend": true, "organizationName": "elsewhere",
        "key": {"name": "edited", "secretName": "edited"}});
    stage.apply(&provisioner("alpha", &edited)).await;
    let held = stage
        .wait::<CoderProvisioner>("alpha", "suspended", |it| says(it, "Ready", "Unknown", "Suspended"))
        .await;
    assert_eq!(held["status"]["provisionerKeyName"], "alpha");
    stage.delete("CoderProvisioner", "alpha").await;
    stage.gone(&held).await;
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
}

#[tokio::test]
async fn a_coderd_that_fails_for_a_while_does_not_cost_a_key() {
    let (stage, proxy) = proxied().await;
    for status in [429, 500, 503] {
        let alpha = made(&stage, &format!("alpha-{status}")).await;
        proxy.set(Mood::Failing(Method::DELETE, status));
        stage.delete("CoderProvisioner", &format!("alpha-{status}")).await;
        stage.operator.says(&[&format!("alpha-{status}"), "not revoked yet"]).await;
        assert_eq!(keys(&stage.coderd).await, [format!("alpha-{status}")]);
        proxy.set(Mood::Passing);
        stage.gone(&alpha).await;
        assert_eq!(keys(&stage.coderd).await, [""; 0], "after {status}");
    }
}

#[tokio::test]
async fn one_refusal_does_not_cost_a_key_whether_a_provisioner_goes_or_takes_another_one() {
    let (stage, proxy) = proxied().await;
    let scene = Scene::on(stage).await;
    for status in [429, 500, 503] {
        let since = proxy.writes().len();
        let before = scene.made(&json!({})).await;
        proxy.set(Mood::FailingOnce(Method::DELETE, status));
        scene.ask_for_rotation().await;
        let is_other = |it: &Value| is_settled(it) && it["status"]["provisionerKeyID"] != before.id;
        scene.wait("replaced", is_other).await;
        let after = scene.held().await;
        proxy.set(Mood::FailingOnce(Method::DELETE, status));
        scene.end().await;
        for name in [&before.name, &after.name] {
            let is_it = |it: &&String| it.starts_with("DELETE") && it.ends_with(&format!("/{name}"));
            let asked = proxy.writes()[since..].iter().filter(is_it).count();
            assert!(asked >= 2, "{name} met no {status}: {:?}", &proxy.writes()[since..]);
            let notes = revocations(&scene.stage, "alpha").await;
            let note = format!("provisioner key {name} was revoked");
            assert!(notes.iter().any(|it| it.starts_with(&note)), "{name}: {notes:#?}");
        }
    }
    let left = scene.stage.operator.said().into_iter().filter(|it| it.to_string().contains("left behind"));
    assert_eq!(left.collect::<Vec<_>>(), [Value::Null; 0]);
}

#[tokio::test]
async fn a_list_that_cannot_be_read_once_holds_the_deletion_up_and_ends_it_not() {
    let (stage, proxy) = proxied().await;
    let alpha = made(&stage, "alpha").await;
    proxy.set_on("/provisionerkeys/daemons", Mood::Failing(Method::GET, 500));
    stage.delete("CoderProvisioner", "alpha").await;
    stage.operator.says(&["alpha", "not revoked yet"]).await;
    proxy.set(Mood::Passing);
    stage.gone(&alpha).await;
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
}

/// Deletes everything at once, in this order, with the credentials and the Secret of the key.
async fn all_at_once(plane_first: bool) {
    let stage = Stage::new(licensed().await).await;
    let mut objects = vec![made(&stage, "alpha").await, made(&stage, "beta").await];
    let plane = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    objects.insert(if plane_first { 0 } else { 2 }, plane);
    let secrets = stage.api::<Secret>();
    for name in [CREDENTIALS, "alpha-provisioner-key"] {
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }
    for object in &objects {
        stage.delete(object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap()).await;
    }
    for object in &objects {
        stage.gone(object).await;
    }
    assert_eq!(keys(&stage.coderd).await, [""; 0], "{:#?}", stage.operator.said());
}

#[tokio::test]
async fn everything_at_once_with_the_control_plane_first_leaves_no_key() {
    all_at_once(true).await;
}

#[tokio::test]
async fn everything_at_once_with_the_control_plane_last_leaves_no_key() {
    all_at_once(false).await;
}

/// Whether an event names what was left of that object.
async fn is_named(stage: &Stage, name: &str, key: &str) -> bool {
    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    events.iter().any(|it| {
        it.reason.as_deref() == Some("LeftBehind")
            && it.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name))
            && it.note.as_deref().is_some_and(|it| it.contains(key))
    })
}

#[tokio::test]
async fn somebody_who_does_not_want_to_wait_is_told_what_is_left() {
    let (stage, proxy) = proxied().await;
    let alpha = made(&stage, "alpha").await;
    proxy.set(Mood::Down);
    stage.delete("CoderProvisioner", "alpha").await;
    stage.operator.says(&["alpha", "not revoked yet"]).await;
    stage.annotate("CoderProvisioner", "alpha", api::annotation::FORCE_FINALIZE, Some("true")).await;
    stage.gone(&alpha).await;
    stage.operator.says(&["provisioner key alpha is left behind"]).await;
    assert!(is_named(&stage, "alpha", "provisioner key alpha").await);
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
}

#[tokio::test]
async fn one_whose_control_plane_has_gone_before_goes_at_once_and_its_key_is_named() {
    let stage = Stage::new(licensed().await).await;
    let alpha = made(&stage, "alpha").await;
    let plane = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&plane).await;
    stage.delete("CoderProvisioner", "alpha").await;
    stage.gone(&alpha).await;
    stage.operator.says(&["provisioner key alpha is left behind"]).await;
    assert!(is_named(&stage, "alpha", "provisioner key alpha").await);
}

#[tokio::test]
async fn a_namespace_goes_and_its_keys_with_it_as_far_as_anybody_answers() {
    let coderd = licensed().await;
    let url = coderd.owner.url.clone();
    let stage = Stage::cluster_wide(coderd, &url).await;
    made(&stage, "alpha").await;
    stage.delete_namespace().await;
    if !keys(&stage.coderd).await.is_empty() {
        stage.operator.says(&["provisioner key alpha", "left behind"]).await;
    }
}

#[tokio::test]
async fn daemons_finish_what_they_do_before_their_key_is_revoked() {
    let stage = Stage::new(licensed().await).await;
    let alpha = made(&stage, "alpha").await;
    // A pod of this provisioner that does not hear that it should end.
    let stubborn = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stubborn", "labels": {
        "app.kubernetes.io/name": "coder-provisioner", "app.kubernetes.io/instance": "alpha",
        "app.kubernetes.io/managed-by": "coder-k8s"}}, "spec": {"terminationGracePeriodSeconds": 6,
        "containers": [{"name": "build", "image": "bed/host", "command": ["sh", "-c",
            "trap '' TERM; while :; do sleep 1; done"]}]}});
    let pods = stage.api::<Pod>();
    pods.create(&PostParams::default(), &serde_json::from_value(stubborn).unwrap()).await.unwrap();
    let runs = |it: Option<&Pod>| {
        it.and_then(|it| it.status.as_ref()?.phase.as_deref()).is_some_and(|it| it == "Running")
    };
    timeout(LIMIT, await_condition(pods.clone(), "stubborn", runs)).await.unwrap().unwrap();
    stage.delete("CoderProvisioner", "alpha").await;
    let told =
        stage.wait::<CoderProvisioner>("alpha", "told", |it| says(it, "Ready", "False", "Deleting")).await;
    assert!(told.to_string().contains("stubborn"), "{told:#}");
    assert_eq!(told["status"]["terminationGracePeriodSeconds"], 6, "it has more than is declared");
    pods.delete("stubborn", &DeleteParams::default()).await.unwrap();
    let revoked = async {
        while keys(&stage.coderd).await == ["alpha"] {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    assert!(timeout(LIMIT, revoked).await.is_ok(), "{:#?}", stage.operator.said());
    assert!(pods.get_opt("stubborn").await.unwrap().is_none(), "the key went before the pod");
    stage.gone(&alpha).await;
}

#[tokio::test]
async fn key_of_a_pod_that_no_watch_has_shown_is_not_revoked() {
    let stage = Stage::new(licensed().await).await;
    let alpha = made(&stage, "alpha").await;
    // Pod and deletion reach the operator at the same moment, in whichever order.
    stage.operator.tell("-STOP");
    let labels = json!({"app.kubernetes.io/name": "coder-provisioner", "app.kubernetes.io/instance": "alpha",
        "app.kubernetes.io/managed-by": "coder-k8s"});
    // Nothing schedules it, so it stays until it is deleted.
    let unscheduled = json!({"metadata": {"name": "late", "labels": labels}, "spec": {"schedulerName": "none",
        "containers": [{"name": "build", "image": "bed/host"}]}});
    let pods = stage.api::<Pod>();
    pods.create(&PostParams::default(), &serde_json::from_value(unscheduled).unwrap()).await.unwrap();
    stage.delete("CoderProvisioner", "alpha").await;
    stage.operator.tell("-CONT");
    let waits =
        stage.wait::<CoderProvisioner>("alpha", "waits", |it| says(it, "Ready", "False", "Deleting")).await;
    assert!(words(&waits).contains("late"), "{waits:#}");
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
    pods.delete("late", &DeleteParams::default().grace_period(0)).await.unwrap();
    stage.gone(&alpha).await;
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
}

#[tokio::test]
async fn another_control_plane_of_that_name_is_not_asked_for_a_key_that_it_does_not_have() {
    let (stage, proxy) = proxied().await;
    let alpha = made(&stage, "alpha").await;
    let main = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&main).await;
    let other = licensed().await;
    let elsewhere = Proxy::start(&other.owner.url).await;
    stage.write_token(&other.owner.token).await;
    stage.apply(&provisioner("alpha", &json!({"replicas": 0, "suspend": true}))).await;
    stage.apply(&plane("main", &elsewhere.url)).await;
    stage.wait::<CoderControlPlane>("main", "another one", is_ready).await;
    let since = proxy.requests().len();
    stage.delete("CoderProvisioner", "alpha").await;
    stage.gone(&alpha).await;
    assert_eq!(elsewhere.writes(), Vec::<String>::new());
    assert_eq!(proxy.requests().len(), since);
    until("named", || {
        stage.operator.said().iter().any(|it| it.to_string().contains("provisioner key alpha is left behind"))
    })
    .await;
}

/// Another operator, which remembers nothing.
async fn restart(stage: &mut Stage, meanwhile: impl AsyncFnOnce(&Stage)) {
    stage.operator.process.kill().unwrap();
    stage.operator.ended().await;
    meanwhile(stage).await;
    stage.operator = Operator::start(&stage.namespace, &[]);
}

#[tokio::test]
async fn a_deletion_waits_for_a_wrong_token_and_ends_without_one_or_without_an_address() {
    let mut stage = Stage::new(licensed().await).await;
    let (alpha, beta, gamma) =
        (made(&stage, "alpha").await, made(&stage, "beta").await, made(&stage, "gamma").await);
    let token = stage.coderd.owner.token.clone();

    restart(&mut stage, async |it| it.write_token("wrong-aaaaaaaaaaaaaaaaaaaaaa").await).await;
    stage.delete("CoderProvisioner", "alpha").await;
    let waits = |it: &Value| says(it, "Ready", "False", "ControlPlaneNotReady");
    let told = stage.wait::<CoderProvisioner>("alpha", "waiting", waits).await;
    for part in ["provisioner key alpha is not revoked yet", "Unauthorized"] {
        assert!(words(&told).contains(part), "{part}: {}", words(&told));
    }
    assert!(keys(&stage.coderd).await.contains(&"alpha".to_owned()));
    stage.write_token(&token).await;
    stage.gone(&alpha).await;
    assert_eq!(keys(&stage.coderd).await, ["beta", "gamma"]);

    // Nobody has a token any more: there is nothing to wait for.
    restart(&mut stage, async |it| it.write_token("").await).await;
    stage.delete("CoderProvisioner", "beta").await;
    stage.gone(&beta).await;
    stage.operator.says(&["provisioner key beta is left behind"]).await;
    assert!(is_named(&stage, "beta", "provisioner key beta").await);

    // A control plane of that name which has no address yet.
    let main = stage.wait::<CoderControlPlane>("main", "there", |_| true).await;
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&main).await;
    let bare = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main"}, "spec": {"suspend": true}});
    stage.apply(&bare).await;
    let is_suspended =
        |it: &Value| says(it, "Ready", "Unknown", "Suspended") && it["status"]["url"].is_null();
    stage.wait::<CoderControlPlane>("main", "suspended", is_suspended).await;
    stage.delete("CoderProvisioner", "gamma").await;
    stage.operator.says(&["gamma", "not revoked yet"]).await;
    stage.annotate("CoderProvisioner", "gamma", api::annotation::FORCE_FINALIZE, Some("true")).await;
    stage.gone(&gamma).await;
    assert!(is_named(&stage, "gamma", "provisioner key gamma").await);
    assert_eq!(keys(&stage.coderd).await, ["beta", "gamma"]);
}
