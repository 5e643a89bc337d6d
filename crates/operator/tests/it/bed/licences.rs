//! Licences of a deployment that runs elsewhere, from Secrets.

use api::CoderControlPlane;
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testbed::{Flavour, coderd::sign_license};

use super::{
    get,
    operator::Operator,
    proxy::{Mood, Proxy},
    stage::{Stage, group, install, is_held_up, is_ready, plane, says, until, words},
};

/// A stage without a licence, and a manifest that names one.
async fn stage() -> (Stage, Value) {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let url = coderd.owner.url.clone();
    let stage = Stage::bare(coderd).await;
    stage.write_token(&stage.coderd.owner.token).await;
    (stage, with_licence(&url))
}

/// A manifest that names a licence.
fn with_licence(url: &str) -> Value {
    let mut plane = plane("main", url);
    plane["spec"]["licenseSecretRef"] = json!({"name": "license"});
    plane
}

async fn sign(stage: &Stage, wanted: &Value) -> String {
    sign_license(stage.coderd.licenses.as_ref().unwrap(), wanted).await.unwrap()
}

async fn installed(stage: &Stage) -> Vec<i64> {
    let found = get(&stage.coderd, "/api/v2/licenses").await;
    found.as_array().into_iter().flatten().map(|it| it["id"].as_i64().unwrap()).collect()
}

/// When the last licence was uploaded, in whole seconds, and the hash that it should have.
async fn uploaded(stage: &Stage, license: &str) -> (Value, Value) {
    let listed = get(&stage.coderd, "/api/v2/licenses").await;
    let last = listed.as_array().unwrap().iter().max_by_key(|it| it["id"].as_i64()).unwrap();
    let at: jiff::Timestamp = last["uploaded_at"].as_str().unwrap().parse().unwrap();
    let at = jiff::Timestamp::from_second(at.as_second()).unwrap();
    (json!(at.to_string()), hash_of(license))
}

fn hash_of(license: &str) -> Value {
    json!(base16ct::lower::encode_string(&Sha256::digest(license)))
}

/// What the status says of the licence that was applied last.
fn stamps(plane: &Value) -> (Value, Value) {
    let status = &plane["status"];
    (status["licenseLastApplied"].clone(), status["licenseLastAppliedHash"].clone())
}

fn license_says(status: &str, reason: &str) -> impl Fn(&Value) -> bool {
    move |it| says(it, "LicenseApplied", status, reason)
}

#[tokio::test]
async fn a_licence_comes_from_its_secret_and_what_waited_for_it_goes_on() {
    let (stage, plane) = stage().await;
    stage.apply(&plane).await;
    stage.apply(&group(&json!({}))).await;
    let waits =
        stage.wait::<CoderControlPlane>("main", "without", license_says("False", "SecretMissing")).await;
    assert!(is_held_up("LicenseNotApplied")(&waits), "{waits:#}");
    assert_eq!(waits["status"]["operatorAccessReady"], true, "what needs no licence goes on");
    assert_eq!(waits["status"]["licenseTier"], "none");
    stage.wait_for("CoderGroup", "developers", "waiting", is_held_up("NotEntitled")).await;

    let license = sign(&stage, &json!({"feature_set": "premium"})).await;
    stage.write_secret("license", &json!({"license": format!("{license}\n")})).await;
    let done = stage.wait::<CoderControlPlane>("main", "licensed", is_ready).await;
    assert!(license_says("True", "Applied")(&done), "{done:#}");
    assert_eq!(done["status"]["licenseTier"], "premium");
    assert_eq!(done["status"]["externalProvisionerDaemonsEntitlement"], "entitled");
    assert_eq!(done["status"]["licenses"][0]["featureSet"], "premium");
    assert_eq!(stamps(&done), uploaded(&stage, &license).await);
    stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;

    // The licence itself is in its Secret and nowhere else.
    let (_, metrics) = stage.operator.get("/metrics").await.unwrap();
    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap();
    for line in [
        "control_plane_licenses{",
        "license_expiry_timestamp_seconds{",
        "feature=\"multiple_organizations\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
    let told = [
        done.to_string(),
        metrics,
        serde_json::to_string(&events.items).unwrap(),
        format!("{:?}", stage.operator.said()),
    ];
    assert!(told[2].contains("LicenseInstalled"), "{}", told[2]);
    for text in told {
        assert!(!text.contains(&license) && !text.contains(&stage.coderd.owner.token), "{text}");
    }
}

#[tokio::test]
async fn licence_stamps_are_those_of_what_is_installed() {
    let (stage, plane) = stage().await;
    let valid = sign(&stage, &json!({"feature_set": "premium"})).await;
    let by_hand = json!({"license": valid});
    stage.coderd.owner.request(reqwest::Method::POST, "/api/v2/licenses", Some(&by_hand)).await.unwrap();
    let found = uploaded(&stage, &valid).await;
    stage.write_secret("license", &json!({"license": format!("  {valid}\n")})).await;
    stage.apply(&plane).await;
    let has = |expected: (Value, Value)| move |it: &Value| is_ready(it) && stamps(it) == expected;
    stage.wait::<CoderControlPlane>("main", "licensed by somebody else", has(found.clone())).await;

    // A status that is lost, as by a restored backup, is the same again.
    let planes = stage.api::<CoderControlPlane>();
    let lost = json!({"status": {"licenseLastApplied": null, "licenseLastAppliedHash": null, "licenseRecord": null}});
    planes.patch_status("main", &PatchParams::default(), &Patch::Merge(lost)).await.unwrap();
    stage.look_again("CoderControlPlane", "main").await;
    stage.wait::<CoderControlPlane>("main", "as before", has(found.clone())).await;

    // A licence for later is installed beside the one in force, and taken out of the Secret again.
    let future = sign(&stage, &json!({"feature_set": "premium", "term": "future"})).await;
    stage.write_secret("license", &json!({"license": future})).await;
    let is_future = |it: &Value| stamps(it).1 == hash_of(&future);
    let later = stage.wait::<CoderControlPlane>("main", "with a later one", is_future).await;
    assert_eq!(stamps(&later), uploaded(&stage, &future).await);
    stage.write_secret("license", &json!({"license": valid})).await;
    stage.wait::<CoderControlPlane>("main", "with the first one", has(found)).await;
}

#[tokio::test]
async fn unreadable_licences_hold_up_nobody_who_declares_none() {
    let bed = testbed::shared().unwrap();
    let coder = bed.coder.as_ref().unwrap();
    let proxy = Proxy::start(&coder.url).await;
    let client = bed.client().await.unwrap();
    install(&client).await;
    let namespace = bed.namespace("unread").await.unwrap();
    let operator = Operator::start(&namespace, &[]);
    let stage = Stage { client, namespace, coderd: (), operator };
    stage.write_token(&coder.token).await;
    for (name, path) in [("one", "/entitlements"), ("two", "/licenses")] {
        proxy.set_on(path, Mood::Failing(reqwest::Method::GET, 500));
        stage.apply(&super::stage::plane(name, &proxy.url)).await;
        let ready = stage.wait::<CoderControlPlane>(name, "ready", is_ready).await;
        assert!(license_says("Unknown", "Pending")(&ready), "{ready:#}");
        let conditions = ready["status"]["conditions"].as_array().unwrap();
        let entitlements = conditions.iter().find(|it| it["type"] == "Entitlements").unwrap();
        assert_eq!(
            (&entitlements["status"], &entitlements["reason"]),
            (&json!("Unknown"), &json!("NotObserved"))
        );
        assert_ne!(entitlements["message"], "", "{ready:#}");
    }
    // A request is handled once they are read.
    let asked = proxy.requests().len();
    stage.annotate("CoderControlPlane", "two", api::annotation::RECONCILE_REQUESTED_AT, Some("now")).await;
    until("asked", || proxy.requests()[asked..].iter().any(|it| it.path.ends_with("/licenses"))).await;
    let two = stage.wait::<CoderControlPlane>("two", "there", |_| true).await;
    assert_ne!(two["status"]["lastHandledReconcileAt"], "now", "{two:#}");
    proxy.set(Mood::Passing);
    let is_handled = |it: &Value| it["status"]["lastHandledReconcileAt"] == "now";
    let handled = stage.wait::<CoderControlPlane>("two", "handled", is_handled).await;
    assert!(says(&handled, "Entitlements", "True", "Unlicensed"), "{handled:#}");
}

#[tokio::test]
async fn a_renewal_adds_the_new_licence_first_and_retires_only_what_we_installed() {
    let (stage, mut plane) = stage().await;
    let foreign = sign(&stage, &json!({"feature_set": "enterprise"})).await;
    let body = json!({"license": foreign});
    stage.coderd.owner.request(reqwest::Method::POST, "/api/v2/licenses", Some(&body)).await.unwrap();
    let theirs = installed(&stage).await;
    let first = sign(&stage, &json!({"feature_set": "premium", "account_id": "first"})).await;
    stage.write_secret("license", &json!({"license": first})).await;
    stage.apply(&plane).await;
    stage.wait::<CoderControlPlane>("main", "licensed", is_ready).await;
    let before = installed(&stage).await;
    assert_eq!(before.len(), 2);

    let second = sign(&stage, &json!({"feature_set": "premium", "account_id": "second"})).await;
    stage.write_secret("license", &json!({"license": second})).await;
    stage
        .wait::<CoderControlPlane>("main", "renewed", |it| {
            is_ready(it)
                && it["status"]["licenses"].as_array().is_some_and(|it| {
                    it.len() == 2 && it.iter().any(|it| !before.contains(&it["id"].as_i64().unwrap()))
                })
        })
        .await;
    let after = installed(&stage).await;
    assert!(theirs.iter().all(|it| after.contains(it)), "what somebody else installed stays");
    assert_eq!(after.len(), 2, "ours was renewed: {before:?} -> {after:?}");

    // Back to the first: it converges too, and nothing is left of the second.
    stage.write_secret("license", &json!({"license": first})).await;
    stage
        .wait::<CoderControlPlane>("main", "as before", |it| {
            is_ready(it)
                && it["status"]["licenses"].as_array().is_some_and(|it| {
                    it.len() == 2
                        && it.iter().all(|it| {
                            let id = it["id"].as_i64().unwrap();
                            theirs.contains(&id) || !after.contains(&id)
                        })
                })
        })
        .await;

    // With the manifest it goes only where that is said.
    plane["spec"]["licenseDeletionPolicy"] = json!("Delete");
    stage.apply(&plane).await;
    let last = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&last).await;
    assert_eq!(installed(&stage).await, theirs);
}

#[tokio::test]
async fn a_licence_that_coder_does_not_take_is_told_in_its_words_and_not_sent_again() {
    let (stage, plane) = stage().await;
    let elsewhere =
        json!({"feature_set": "premium", "deployment_ids": ["00000000-0000-4000-8000-000000000001"]});
    let license = sign(&stage, &elsewhere).await;
    stage.write_secret("license", &json!({"license": license})).await;
    stage.apply(&plane).await;
    let refused = stage.wait::<CoderControlPlane>("main", "refused", license_says("False", "Invalid")).await;
    assert!(says(&refused, "Stalled", "True", "LicenseNotApplied"), "{refused:#}");
    assert!(!refused.to_string().contains(&license));
    let sent = async || {
        let (_, metrics) = stage.operator.get("/metrics").await.unwrap();
        metrics
            .lines()
            .filter(|it| it.contains("method=\"POST\",route=\"/api/v2/licenses\""))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = sent().await;
    stage.look_again("CoderControlPlane", "main").await;
    assert_eq!(sent().await, before);

    stage.write_secret("license", &json!({"license": "not a licence at all"})).await;
    stage.look_again("CoderControlPlane", "main").await;
    let expired = sign(&stage, &json!({"feature_set": "premium", "term": "expired"})).await;
    stage.write_secret("license", &json!({"license": expired})).await;
    stage.wait::<CoderControlPlane>("main", "expired", license_says("False", "Expired")).await;
    let grace = sign(&stage, &json!({"feature_set": "premium", "term": "grace"})).await;
    stage.write_secret("license", &json!({"license": grace})).await;
    stage.wait::<CoderControlPlane>("main", "in its grace period", license_says("True", "GracePeriod")).await;
    // A Secret that goes takes nothing away.
    stage.api::<Secret>().delete("license", &DeleteParams::default()).await.unwrap();
    stage.wait::<CoderControlPlane>("main", "without", license_says("False", "SecretMissing")).await;
    assert_eq!(installed(&stage).await.len(), 1);
}

#[tokio::test]
async fn licence_is_deleted_though_coder_fails_for_a_while() {
    let (stage, _) = stage().await;
    let proxy = Proxy::start(&stage.coderd.owner.url).await;
    let mut plane = with_licence(&proxy.url);
    plane["spec"]["licenseDeletionPolicy"] = json!("Delete");
    let license = sign(&stage, &json!({"feature_set": "premium"})).await;
    stage.write_secret("license", &json!({"license": license})).await;
    stage.apply(&plane).await;
    let ready = stage.wait::<CoderControlPlane>("main", "licensed", is_ready).await;
    let id = installed(&stage).await[0];
    for status in [500, 403] {
        proxy.set(Mood::Failing(reqwest::Method::DELETE, status));
        if status == 500 {
            stage.delete("CoderControlPlane", "main").await;
        }
        let reason = if status == 500 { "Unreachable" } else { "Forbidden" };
        let told = stage.wait::<CoderControlPlane>("main", "waiting", is_held_up(reason)).await;
        for part in [format!("licence {id} is not deleted yet").as_str(), "coder.com/force-finalize"] {
            assert!(words(&told).contains(part), "{part}: {}", words(&told));
        }
    }
    assert_eq!(installed(&stage).await, [id]);
    proxy.set(Mood::Passing);
    stage.gone(&ready).await;
    assert_eq!(installed(&stage).await, [0; 0]);
    assert_eq!(stage.left_behind().await, [""; 0]);
}

#[tokio::test]
async fn licence_that_cannot_be_deleted_is_named_once() {
    let (stage, _) = stage().await;
    let proxy = Proxy::start(&stage.coderd.owner.url).await;
    let mut plane = with_licence(&proxy.url);
    plane["spec"]["licenseDeletionPolicy"] = json!("Delete");
    let license = sign(&stage, &json!({"feature_set": "premium"})).await;
    stage.write_secret("license", &json!({"license": license})).await;
    stage.apply(&plane).await;
    let ready = stage.wait::<CoderControlPlane>("main", "licensed", is_ready).await;
    let id = installed(&stage).await[0];
    proxy.set(Mood::Down);
    stage.delete("CoderControlPlane", "main").await;
    stage.wait::<CoderControlPlane>("main", "waiting", is_held_up("Unreachable")).await;
    let asked = proxy.requests().len();
    until("tried again", || proxy.requests().len() >= asked + 2).await;
    assert_eq!(stage.left_behind().await, [""; 0], "the deletion is not over");
    stage.annotate("CoderControlPlane", "main", api::annotation::FORCE_FINALIZE, Some("true")).await;
    stage.gone(&ready).await;
    let left = stage.left_behind().await;
    assert_eq!(left.len(), 1, "{left:#?}");
    assert!(left[0].starts_with(&format!("licence {id} is left behind")), "{left:#?}");
    let counted = "coder_operator_left_behind_total{kind=\"CoderControlPlane\"} 1";
    stage.operator.shows("named once", |it| it.contains(counted)).await;
}

#[tokio::test]
async fn observed_control_plane_shows_the_licence_in_its_plan_and_uploads_none() {
    let (stage, mut plane) = stage().await;
    let license = sign(&stage, &json!({"feature_set": "premium"})).await;
    stage.write_secret("license", &json!({"license": license})).await;
    plane["spec"]["mode"] = "Observe".into();
    stage.apply(&plane).await;
    let observed = stage.wait::<CoderControlPlane>("main", "observed", is_held_up("Observed")).await;
    let step = &observed["status"]["plan"]["steps"][0];
    assert_eq!((&step["action"], &step["field"]), (&json!("Create"), &json!("licenseSecretRef")));
    assert!(!observed.to_string().contains(&license), "{observed:#}");
    assert_eq!(installed(&stage).await, [0; 0]);

    plane["spec"]["mode"] = "Enforce".into();
    stage.apply(&plane).await;
    let done = stage.wait::<CoderControlPlane>("main", "licensed", is_ready).await;
    assert_eq!((&done["status"]["plan"], installed(&stage).await.len()), (&Value::Null, 1));
}
