//! What the controllers promise for every registered kind, from its example: a new kind needs no line here.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    licensed,
    proxy::Proxy,
    stage::{Stage, is_held_up, is_ready, plane, says, until},
};
use crate::examples::{Hand, all, by_hand, edit, request};

/// One of every kind, ready for a namespace, looked at when something is said and not by the clock.
fn examples() -> Vec<Value> {
    let mut all = all();
    for manifest in &mut all {
        manifest["metadata"].as_object_mut().unwrap().remove("namespace");
        manifest["spec"]["interval"] = json!("1h");
    }
    all
}

fn kind_of(manifest: &Value) -> &str {
    manifest["kind"].as_str().unwrap()
}

async fn ready(stage: &Stage, manifest: &Value) -> Value {
    stage.wait_for(kind_of(manifest), "example", "ready", is_ready).await
}

fn is_suspended(object: &Value) -> bool {
    says(object, "Ready", "Unknown", "Suspended")
        && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// All of them, made and held, applied in the order that fits least.
async fn one_of_every_kind(stage: &Stage) -> Vec<Value> {
    let examples = examples();
    for manifest in examples.iter().rev() {
        stage.apply(manifest).await;
    }
    for manifest in &examples {
        ready(stage, manifest).await;
    }
    examples
}

fn id_of(object: &Value) -> &str {
    object["status"]["id"].as_str().unwrap()
}

/// A value as a status shows it.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[tokio::test]
async fn what_is_changed_by_hand_is_shown_field_by_field_where_it_is_observed_and_healed_where_it_is_not() {
    let stage = Stage::new(licensed().await).await;
    for mut manifest in one_of_every_kind(&stage).await {
        let kind = kind_of(&manifest).to_owned();
        let Some(hand) = by_hand(&kind) else { continue };
        let made = ready(&stage, &manifest).await;
        manifest["spec"]["mode"] = json!("Observe");
        stage.apply(&manifest).await;
        ready(&stage, &manifest).await;
        hand.change(&stage.coderd.owner, id_of(&made)).await;
        let seen = stage.look_again(&kind, "example").await;
        assert!(says(&seen, "Drifted", "True", "DriftFound"), "{kind}: {seen}");
        let drift = seen["status"]["drift"].as_array().unwrap();
        assert_eq!(drift.len(), 1, "{kind}: {drift:?}");
        assert_eq!(drift[0]["field"], hand.field, "{kind}");
        assert_eq!(drift[0]["found"], shown(&hand.value), "{kind}");
        assert!(is_held_up("Observed")(&seen), "{kind}: {seen}");
        assert_eq!(seen["status"]["lastAppliedTime"], made["status"]["lastAppliedTime"], "{kind}");

        manifest["spec"]["mode"] = json!("Enforce");
        stage.apply(&manifest).await;
        let healed = ready(&stage, &manifest).await;
        assert!(says(&healed, "Drifted", "False", "NoDrift"), "{kind}: {healed}");
        assert_eq!(healed["status"]["drift"], Value::Null, "{kind}");
        assert_eq!(id_of(&healed), id_of(&made), "{kind}");
    }
}

#[tokio::test]
async fn only_the_plan_that_was_approved_is_applied() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    for mut manifest in examples() {
        let kind = kind_of(&manifest).to_owned();
        let ((field, value), before) = (edit(&kind), proxy.writes());
        if value == json!(false) {
            // A switch that is off by default has no other plan.
            continue;
        }
        manifest["spec"]["approval"] = json!("Manual");
        stage.apply(&manifest).await;
        let refuses = is_held_up("ApprovalRequired");
        let first = stage.wait_for(&kind, "example", "refused", &refuses).await;
        let hash = first["status"]["plan"]["hash"].as_str().unwrap().to_owned();
        assert!(says(&first, "Stalled", "True", "ApprovalRequired"), "{kind}: {first}");

        // Approved and changed in one: what was approved is not what would be done.
        manifest["spec"][&field] = value;
        manifest["metadata"]["annotations"] = json!({(api::annotation::APPROVED_PLAN): hash});
        stage.apply(&manifest).await;
        let second = stage.wait_for(&kind, "example", "refused", &refuses).await;
        let other = second["status"]["plan"]["hash"].as_str().unwrap().to_owned();
        assert_ne!(other, hash, "{kind}");
        assert_eq!(second["status"]["id"], Value::Null, "{kind}");
        assert_eq!(proxy.writes(), before, "{kind}");

        manifest["metadata"]["annotations"] = json!({(api::annotation::APPROVED_PLAN): other});
        stage.apply(&manifest).await;
        let done = ready(&stage, &manifest).await;
        assert_eq!(done["status"]["plan"], Value::Null, "{kind}");
        assert_ne!(proxy.writes(), before, "{kind}");
    }
}

#[tokio::test]
async fn what_is_suspended_is_neither_read_nor_written_and_can_be_deleted() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::bare(coderd).await;
    stage.write_token(&stage.coderd.owner.token).await;
    let mut suspended = examples();
    for manifest in &mut suspended {
        manifest["spec"]["suspend"] = json!(true);
        manifest["spec"]["deletionPolicy"] = json!("Delete");
        stage.apply(manifest).await;
    }
    stage.apply(&plane("main", &proxy.url)).await;
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    for manifest in &suspended {
        stage.wait_for(kind_of(manifest), "example", "suspended", is_suspended).await;
    }
    for _ in 0..2 {
        for manifest in &suspended {
            let asked = uuid::Uuid::new_v4().to_string();
            let requested = api::annotation::RECONCILE_REQUESTED_AT;
            stage.annotate(kind_of(manifest), "example", requested, Some(&asked)).await;
        }
        let proofs = proxy.reads("/users/me");
        stage.look_again("CoderControlPlane", "main").await;
        until("proved again", || proxy.reads("/users/me") > proofs).await;
    }
    let of_the_plane = ["/buildinfo", "/users/me", "/entitlements", "/licenses"];
    // And when the token that it was given ends.
    let is_of_the_plane =
        |path: &str| path.contains("/users/me/keys/") || of_the_plane.iter().any(|it| path.ends_with(it));
    let others: Vec<String> =
        proxy.requests().into_iter().map(|it| it.path).filter(|it| !is_of_the_plane(it)).collect();
    assert_eq!(others, Vec::<String>::new());

    // All of them go on when they may.
    for manifest in &mut suspended {
        manifest["spec"]["suspend"] = json!(false);
        stage.apply(manifest).await;
    }
    let mut made = Vec::new();
    for manifest in &mut suspended {
        made.push(ready(&stage, manifest).await);
        manifest["spec"]["suspend"] = json!(true);
        stage.apply(manifest).await;
    }
    for object in &made {
        stage.wait_for(kind_of(object), "example", "suspended", is_suspended).await;
    }
    let before = proxy.writes();
    for object in made.iter().rev() {
        if let Some(hand) = by_hand(kind_of(object)) {
            hand.change(&stage.coderd.owner, id_of(object)).await;
        }
    }
    stage.look_again("CoderControlPlane", "main").await;
    assert_eq!(proxy.writes(), before, "what is suspended is not healed");
    for object in made.iter().rev() {
        stage.delete(kind_of(object), "example").await;
        stage.gone(object).await;
    }
    assert_eq!(proxy.writes().len(), before.len() + made.len(), "{:#?}", proxy.writes());
}

#[tokio::test]
async fn what_is_renamed_or_deleted_behind_our_back_is_there_again() {
    let stage = Stage::new(licensed().await).await;
    let examples = one_of_every_kind(&stage).await;
    // Keys are neither renamed nor made again, and Coder renames neither AI providers nor models; see their own tests.
    let is_renamed =
        |it: &Hand| !it.is_document && !it.path.contains("/ai/") && !it.path.contains("/experimental/");
    let named = || examples.iter().filter(|it| by_hand(kind_of(it)).is_some_and(|it| is_renamed(&it)));
    let path = |object: &Value| by_hand(kind_of(object)).unwrap().path.replace("{id}", id_of(object));
    let owner = &stage.coderd.owner;
    for manifest in named() {
        let (kind, made) = (kind_of(manifest), ready(&stage, manifest).await);
        request(owner, Method::PATCH, &path(&made), Some(&json!({"name": "renamed"}))).await;
        let now = stage.look_again(kind, "example").await;
        assert!(is_ready(&now), "{kind}: {now}");
        assert_eq!(id_of(&now), id_of(&made), "{kind}");
        let found = request(owner, Method::GET, &path(&made), None).await;
        assert_eq!(found["name"], manifest["spec"]["name"], "{kind}");
    }
    let mut before = Vec::new();
    for manifest in named() {
        before.push(ready(&stage, manifest).await);
    }
    // Coder deletes no organization that has a key.
    let key = "/api/v2/organizations/alpha/provisionerkeys/alpha-eks";
    request(owner, Method::DELETE, key, None).await;
    for made in before.iter().rev() {
        request(owner, Method::DELETE, &path(made), None).await;
    }
    for made in &before {
        let now = stage.look_again(kind_of(made), "example").await;
        assert!(is_ready(&now), "{now}");
        assert_ne!(id_of(&now), id_of(made), "{}", kind_of(made));
        request(owner, Method::GET, &path(&now), None).await;
    }
    // What they contained, or pointed at, follows.
    for manifest in &examples {
        let now = stage.look_again(kind_of(manifest), "example").await;
        if kind_of(manifest) == "CoderProvisionerKey" {
            assert!(is_held_up("KeyRevoked")(&now), "nobody has asked for another one: {now}");
        } else {
            ready(&stage, manifest).await;
        }
    }
}

#[tokio::test]
async fn what_exists_is_taken_over_only_as_the_policy_says() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    for mut manifest in one_of_every_kind(&stage).await {
        let kind = kind_of(&manifest).to_owned();
        // Nobody can take over a key whose value only its maker has.
        let Some(hand) = by_hand(&kind) else { continue };
        let held = ready(&stage, &manifest).await;
        stage.delete(&kind, "example").await;
        stage.gone(&held).await;
        let before = proxy.writes();
        let refuses = is_held_up("AdoptionRefused");
        manifest["spec"]["adoptionPolicy"] = json!("Never");
        stage.apply(&manifest).await;
        let refused = stage.wait_for(&kind, "example", "refused", &refuses).await;
        assert_eq!(refused["status"]["id"], Value::Null, "{kind}");
        assert_eq!(proxy.writes(), before, "{kind}");

        hand.change(&stage.coderd.owner, id_of(&held)).await;
        let before = proxy.writes();
        manifest["spec"].as_object_mut().unwrap().remove("adoptionPolicy");
        stage.apply(&manifest).await;
        let seen = stage.wait_for(&kind, "example", "refused", &refuses).await;
        assert_eq!(seen["status"]["plan"]["steps"][0]["field"], hand.field, "{kind}");
        assert_eq!(seen["status"]["id"], Value::Null, "{kind}");
        assert_eq!(proxy.writes(), before, "{kind}");

        manifest["spec"]["adoptionPolicy"] = json!("Adopt");
        stage.apply(&manifest).await;
        let taken = ready(&stage, &manifest).await;
        assert_eq!(id_of(&taken), id_of(&held), "{kind}");
        assert_eq!(proxy.writes().len(), before.len() + 1, "{kind}");

        // And by default what is equal is taken without a write.
        stage.delete(&kind, "example").await;
        stage.gone(&taken).await;
        manifest["spec"]["adoptionPolicy"] = json!("IfEqual");
        stage.apply(&manifest).await;
        let again = ready(&stage, &manifest).await;
        assert_eq!(id_of(&again), id_of(&held), "{kind}");
        assert_eq!(proxy.writes().len(), before.len() + 1, "{kind}");
    }
}
