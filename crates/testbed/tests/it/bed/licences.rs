//! Licences that the harness signs, on a licensed coderd of the test's own.

use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Coderd, Flavour, coderd::sign_license};

async fn licensed() -> Coderd {
    testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap()
}

async fn entitlements(coderd: &Coderd) -> Value {
    coderd.owner.request(Method::GET, "/api/v2/entitlements", None).await.unwrap().1
}

async fn sign(coderd: &Coderd, wanted: &Value) -> String {
    sign_license(coderd.licenses.as_ref().unwrap(), wanted).await.unwrap()
}

async fn upload(coderd: &Coderd, wanted: &Value) -> (u16, Value) {
    let body = json!({"license": sign(coderd, wanted).await});
    coderd.owner.request(Method::POST, "/api/v2/licenses", Some(&body)).await.unwrap()
}

#[tokio::test]
async fn a_licensed_coderd_starts_without_a_licence_and_takes_one() {
    let coderd = licensed().await;
    assert_eq!(entitlements(&coderd).await["has_license"], false);
    let (status, answer) = upload(&coderd, &json!({"feature_set": "premium"})).await;
    assert_eq!(status, 201, "{answer}");
    let entitlements = entitlements(&coderd).await;
    assert_eq!(entitlements["has_license"], true);
    assert_eq!(entitlements["features"]["multiple_organizations"]["enabled"], true);
}

#[tokio::test]
async fn features_trial_and_add_ons_can_be_asked_for_one_by_one() {
    let coderd = licensed().await;
    let wanted = json!({"trial": true, "addons": ["ai_governance"],
        "features": {"user_limit": 7, "audit_log": 1, "ai_governance_user_limit": 5}});
    assert_eq!(upload(&coderd, &wanted).await.0, 201);
    let entitlements = entitlements(&coderd).await;
    assert_eq!(entitlements["trial"], true);
    assert_eq!(entitlements["features"]["user_limit"]["limit"], 7);
    assert_eq!(entitlements["features"]["audit_log"]["entitlement"], "entitled");
    assert_eq!(entitlements["features"]["multiple_organizations"]["entitlement"], "not_entitled");
}

#[tokio::test]
async fn a_licence_may_be_in_its_grace_period_over_or_not_yet_valid() {
    let coderd = licensed().await;
    let term = |term: &str| json!({"feature_set": "premium", "term": term});
    assert_eq!(upload(&coderd, &term("expired")).await.0, 400, "an expired licence is refused");
    assert_eq!(upload(&coderd, &term("future")).await.0, 201, "one for later is taken");
    let multiple = |answer: &Value| answer["features"]["multiple_organizations"]["entitlement"].clone();
    assert_eq!(multiple(&entitlements(&coderd).await), "not_entitled", "and does nothing yet");
    assert_eq!(upload(&coderd, &term("grace")).await.0, 201);
    assert_eq!(multiple(&entitlements(&coderd).await), "grace_period");
}

#[tokio::test]
async fn dates_go_over_the_term_and_a_licence_for_another_deployment_is_refused() {
    let coderd = licensed().await;
    let dated = json!({"feature_set": "premium", "term": "valid", "expires_at": "2030-01-02T03:04:05Z"});
    let (status, answer) = upload(&coderd, &dated).await;
    assert_eq!((status, answer["claims"]["exp"].as_i64()), (201, Some(1_893_553_445)));
    let elsewhere = json!({"feature_set": "premium", "deployment_ids": ["somewhere-else"]});
    assert_eq!(upload(&coderd, &elsewhere).await.0, 400);
}

#[tokio::test]
async fn a_word_that_no_licence_has_is_refused_by_name() {
    let coderd = licensed().await;
    let licenses = coderd.licenses.as_ref().unwrap();
    let error = sign_license(licenses, &json!({"feature_sett": "premium"})).await.unwrap_err().to_string();
    assert!(error.contains("feature_sett"), "{error}");
    let error = sign_license(licenses, &json!({"term": "eternal"})).await.unwrap_err().to_string();
    assert!(error.contains("eternal"), "{error}");
}

#[tokio::test]
async fn a_licence_is_worth_nothing_to_another_process() {
    let (signer, other) = tokio::join!(licensed(), licensed());
    let body = json!({"license": sign(&signer, &json!({"feature_set": "premium"})).await});
    let (status, _) = other.owner.request(Method::POST, "/api/v2/licenses", Some(&body)).await.unwrap();
    assert_eq!(status, 400);
}

#[tokio::test]
async fn the_shipped_coderd_has_no_licence_and_keeps_its_gates() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    assert_eq!(entitlements(&coderd).await["has_license"], false);
    let body = json!({"name": "second"});
    let (status, answer) =
        coderd.owner.request(Method::POST, "/api/v2/organizations", Some(&body)).await.unwrap();
    assert_eq!(status, 403, "{answer}");
    let (_, build) = coderd.owner.request(Method::GET, "/api/v2/buildinfo", None).await.unwrap();
    let version = &testbed::shared().unwrap().coder_version;
    assert!(build["version"].as_str().unwrap().starts_with(version.as_str()), "{build}");
}
