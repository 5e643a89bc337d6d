//! Licences that do not simply work, each with its reason, words that help, and no upload too many.

use api::CoderControlPlane;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Flavour, coderd::sign_license};

use super::{
    get,
    operator::Operator,
    proxy::{Mood, Proxy},
    secrecy,
    stage::{Stage, is_held_up, is_ready, plane, says, until},
};

struct Terms {
    stage: Stage,
    proxy: Proxy,
    /// Every licence so far.
    licenses: Vec<String>,
}

impl Terms {
    /// A deployment without a licence, and a manifest that names one.
    async fn begin() -> Self {
        let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
        let proxy = Proxy::start(&coderd.owner.url).await;
        let stage = Stage::bare(coderd).await;
        stage.write_token(&stage.coderd.owner.token).await;
        let mut plane = plane("main", &proxy.url);
        plane["spec"]["licenseSecretRef"] = json!({"name": "license"});
        stage.apply(&plane).await;
        stage.wait::<CoderControlPlane>("main", "without", is_held_up("LicenseNotApplied")).await;
        Self { stage, proxy, licenses: Vec::new() }
    }

    async fn sign(&self, wanted: &Value) -> String {
        sign_license(self.stage.coderd.licenses.as_ref().unwrap(), wanted).await.unwrap()
    }

    fn uploads(&self) -> usize {
        let is_upload = |it: &&super::proxy::Seen| it.method == Method::POST && it.path == "/api/v2/licenses";
        self.proxy.requests().iter().filter(is_upload).count()
    }

    /// Puts a text into the Secret, and gives what is said of it in the end and how often it was sent: then, and after two
    /// more passes.
    async fn declare(&mut self, text: &str, status: &str, reason: &str) -> (Value, usize) {
        let before = self.uploads();
        self.stage.write_secret("license", &json!({"license": text})).await;
        self.licenses.push(text.to_owned());
        // A pass that began after the Secret was written speaks of this text and of no other.
        self.stage.look_again("CoderControlPlane", "main").await;
        self.stage
            .wait::<CoderControlPlane>("main", reason, |it| says(it, "LicenseApplied", status, reason))
            .await;
        let sent = self.uploads() - before;
        self.stage.look_again("CoderControlPlane", "main").await;
        let last = self.stage.look_again("CoderControlPlane", "main").await;
        assert!(says(&last, "LicenseApplied", status, reason), "{last:#}");
        assert_eq!(self.uploads() - before, sent, "it was sent again:\n{last:#}");
        (last, sent)
    }

    async fn tell_no_licence(&self) {
        let told = secrecy::told(&self.stage).await;
        for license in &self.licenses {
            secrecy::hides(&told, "a licence", license.as_bytes());
        }
        secrecy::hides(&told, "the token", self.stage.coderd.owner.token.as_bytes());
        assert!(!told.contains("eyJ"), "something like a licence was told");
    }
}

fn words(plane: &Value) -> &str {
    let conditions = plane["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|it| it["type"] == "LicenseApplied").unwrap()["message"].as_str().unwrap()
}

#[tokio::test]
async fn what_is_no_licence_of_this_deployment_is_told_and_sent_once_at_most() {
    let mut terms = Terms::begin().await;
    let (told, sent) = terms.declare("not a licence at all", "False", "Invalid").await;
    assert_eq!(sent, 0, "that can be seen without asking");
    assert!(
        words(&told).contains("is no licence") && words(&told).contains("Correct the Secret"),
        "{told:#}"
    );
    assert!(says(&told, "Stalled", "True", "LicenseNotApplied"), "{told:#}");
    assert_eq!(told["status"]["operatorAccessReady"], true, "what needs no licence goes on");

    let good = terms.sign(&json!({"feature_set": "premium"})).await;
    let forged = format!("{}.{}", good.rsplit_once('.').unwrap().0, "A".repeat(86));
    let (told, sent) = terms.declare(&forged, "False", "Invalid").await;
    assert_eq!(sent, 1);
    assert!(words(&told).contains("Coder does not accept the licence: "), "{told:#}");

    let elsewhere = json!({"feature_set": "premium", "deployment_ids": [uuid::Uuid::new_v4()]});
    let elsewhere = terms.sign(&elsewhere).await;
    let (told, sent) = terms.declare(&elsewhere, "False", "Invalid").await;
    assert_eq!(sent, 1);
    assert!(words(&told).contains("cannot be used on this deployment"), "{told:#}");

    let expired = terms.sign(&json!({"feature_set": "premium", "term": "expired"})).await;
    let (told, sent) = terms.declare(&expired, "False", "Expired").await;
    assert_eq!(sent, 0, "nobody takes it");
    assert!(words(&told).contains("expired on 2") && words(&told).contains("put a new one"), "{told:#}");
    assert_eq!(told["status"]["licenseTier"], "none");
    assert_eq!(get(&terms.stage.coderd, "/api/v2/licenses").await, json!([]));

    let (told, sent) = terms.declare(&good, "True", "Applied").await;
    assert_eq!((sent, &told["status"]["licenseTier"]), (1, &json!("premium")));
    assert!(is_ready(&told), "{told:#}");
    terms.tell_no_licence().await;
}

#[tokio::test]
async fn a_licence_that_is_refused_is_not_sent_again_though_the_manifest_changed_meanwhile() {
    let mut terms = Terms::begin().await;
    let good = terms.sign(&json!({"feature_set": "premium"})).await;
    let forged = format!("{}.{}", good.rsplit_once('.').unwrap().0, "A".repeat(86));
    terms.proxy.set(Mood::HoldingWrites);
    terms.stage.write_secret("license", &json!({"license": forged})).await;
    until("sent", || terms.uploads() == 1).await;
    // Whatever the pass writes in the end is of a version that is gone.
    terms.stage.annotate("CoderControlPlane", "main", "example.com/changed", Some("meanwhile")).await;
    terms.proxy.set(Mood::Passing);
    let (_, sent) = terms.declare(&forged, "False", "Invalid").await;
    assert_eq!((sent, terms.uploads()), (0, 1));
}

#[tokio::test]
async fn second_operator_does_not_lose_the_record_of_licences() {
    let terms = Terms::begin().await;
    let premium = json!({"feature_set": "premium"});
    let (first, second) = (terms.sign(&premium).await, terms.sign(&premium).await);
    terms.proxy.set_on("/licenses", Mood::HoldingOnce(Method::POST));
    terms.stage.write_secret("license", &json!({"license": first})).await;
    until("sent", || terms.uploads() == 1).await;
    // The first operator waits for its answer while the second one goes on.
    let other = Operator::start(&terms.stage.namespace, &[]);
    let is_applied = |it: &Value| says(it, "LicenseApplied", "True", "Applied") && recorded(it).len() == 1;
    let first_is_recorded = |it: &Value| is_applied(it) && recorded(it)[0]["id"].is_number();
    let told = terms.stage.wait::<CoderControlPlane>("main", "licensed", first_is_recorded).await;
    terms.stage.write_secret("license", &json!({"license": second})).await;
    let second_is_recorded = |it: &Value| first_is_recorded(it) && recorded(it) != recorded(&told);
    let replaced = terms.stage.wait::<CoderControlPlane>("main", "replaced", second_is_recorded).await;
    drop(other);
    terms.proxy.release();
    // The reconcile of the first operator that was held is over before its next one.
    let last = terms.stage.look_again("CoderControlPlane", "main").await;
    assert!(is_applied(&last), "{last:#}");
    assert_eq!(terms.uploads(), 2, "each licence is sent once");
    assert_eq!(recorded(&last), recorded(&replaced));
    let live = get(&terms.stage.coderd, "/api/v2/licenses").await;
    let live: Vec<&Value> = live.as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(live, [&recorded(&last)[0]["id"]]);
}

/// The licences that the status says we uploaded.
fn recorded(plane: &Value) -> Vec<Value> {
    let record = plane["status"]["licenseRecord"].as_str().unwrap_or("{}");
    let record: Value = serde_json::from_str(record).unwrap();
    record["uploaded"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn terms_that_are_not_the_usual_ones_are_told_and_have_their_tier() {
    let mut terms = Terms::begin().await;
    let future = terms.sign(&json!({"feature_set": "premium", "term": "future"})).await;
    let (told, sent) = terms.declare(&future, "True", "Applied").await;
    assert!(sent == 1 && words(&told).contains("counts from 2"), "{told:#}");
    assert_eq!(told["status"]["licenseTier"], "none", "it does not count yet");

    let trial = terms.sign(&json!({"feature_set": "premium", "trial": true, "term": "valid"})).await;
    let (told, sent) = terms.declare(&trial, "True", "Applied").await;
    assert_eq!((sent, &told["status"]["licenseTier"]), (1, &json!("trial")), "{told:#}");
    assert_eq!(told["status"]["licenses"][0]["trial"], true, "{told:#}");

    let telemetry = json!({"feature_set": "premium", "require_telemetry": true, "term": "valid"});
    let telemetry = terms.sign(&telemetry).await;
    let (told, sent) = terms.declare(&telemetry, "False", "Error").await;
    assert_eq!(sent, 1);
    assert!(words(&told).contains("has no effect: License requires telemetry"), "{told:#}");
    assert!(words(&told).contains("Switch telemetry on"), "{told:#}");
    assert!(is_held_up("LicenseNotApplied")(&told), "{told:#}");
    let errors = &told["status"]["licenseErrors"];
    assert!(errors[0].as_str().is_some_and(|it| it.contains("telemetry")), "{told:#}");

    // Another one in its place makes everything well again: what was to blame goes.
    let grace = terms.sign(&json!({"feature_set": "premium", "term": "grace"})).await;
    let (told, sent) = terms.declare(&grace, "True", "GracePeriod").await;
    assert_eq!(sent, 1);
    assert!(words(&told).contains("and works until 2") && words(&told).contains("put a new one"), "{told:#}");
    assert_eq!(told["status"]["externalProvisionerDaemonsEntitlement"], "grace_period");
    assert!(says(&told, "Entitlements", "True", "GracePeriod"), "{told:#}");
    assert!(is_ready(&told), "{told:#}");
    assert_eq!(told["status"]["licenses"].as_array().unwrap().len(), 1, "{told:#}");
    terms.tell_no_licence().await;
}

#[tokio::test]
async fn an_enterprise_build_without_a_licence_is_ready_and_says_what_it_lacks() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let stage = Stage::new(coderd).await;
    let ready = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    assert!(says(&ready, "LicenseApplied", "Unknown", "Pending"), "{ready:#}");
    assert!(words(&ready).contains("names no licence"), "{ready:#}");
    assert_eq!(ready["status"]["licenseTier"], "none");
    assert_eq!(ready["status"]["externalProvisionerDaemonsEntitlement"], "not_entitled");
    let conditions = ready["status"]["conditions"].as_array().unwrap();
    let entitlements = conditions.iter().find(|it| it["type"] == "Entitlements").unwrap();
    assert_ne!(entitlements["message"], "", "{entitlements}");
}
