//! Licences: which are taken, what they turn on, and how a second upload is refused.

use serde_json::{Value, json};

use crate::side::{ANONYMOUS, Answer, MEMBER, OWNER, Side};

const LICENSES: &str = "/api/v2/licenses";

/// Uploads a licence; the transcript holds a placeholder for it.
pub(super) async fn upload(side: &mut Side, who: &str, license: &str) -> Answer {
    if !license.is_empty() {
        side.transcript.name(license.trim(), "<licence>");
    }
    side.post(who, LICENSES, json!({"license": license})).await
}

/// Uploads a licence with these claims, shows what it turns on, and deletes it.
async fn shows(side: &mut Side, wanted: Value) {
    let license = side.sign_license(wanted).await;
    let uploaded = upload(side, OWNER, &license).await;
    side.entitlements().await;
    if uploaded.status == 201 {
        side.delete(OWNER, &format!("{LICENSES}/{}", uploaded.body["id"])).await;
    }
}

pub(super) async fn refused_licenses(side: &mut Side) {
    side.get(OWNER, LICENSES).await;
    side.get(MEMBER, LICENSES).await;
    side.post(OWNER, LICENSES, json!({})).await;
    let valid = side.sign_license(json!({"feature_set": "premium", "term": "valid"})).await;
    let (signed, signature) = valid.rsplit_once('.').unwrap();
    let reversed: String = signature.chars().rev().collect();
    let parts: Vec<&str> = valid.split('.').collect();
    let no_claims = format!("{}.e30.{}", parts[0], parts[2]);
    for license in ["nonsense", "a.b.c", &format!("{signed}.{reversed}"), &no_claims] {
        upload(side, OWNER, license).await;
    }
    upload(side, MEMBER, &valid).await;
    upload(side, ANONYMOUS, &valid).await;
    let expired = side.sign_license(json!({"feature_set": "premium", "term": "expired"})).await;
    upload(side, OWNER, &expired).await;
    let elsewhere = "4f4f4f4f-0000-4000-8000-000000000009";
    let locked = side.sign_license(json!({"feature_set": "premium", "deployment_ids": [elsewhere]})).await;
    upload(side, OWNER, &locked).await;
    let endless = json!({"feature_set": "premium", "grace_at": "2099-01-01T00:00:00Z",
        "expires_at": "2099-01-01T00:00:00Z"});
    let endless = side.sign_license(endless).await;
    upload(side, OWNER, &endless).await;
    side.get(OWNER, LICENSES).await;
    side.delete(OWNER, &format!("{LICENSES}/77")).await;
    side.delete(OWNER, &format!("{LICENSES}/x")).await;
    side.delete(MEMBER, &format!("{LICENSES}/77")).await;
    side.post(MEMBER, &format!("{LICENSES}/refresh-entitlements"), Value::Null).await;
    side.entitlements().await;
}

pub(super) async fn terms(side: &mut Side) {
    shows(side, json!({"feature_set": "premium", "term": "valid"})).await;
    shows(side, json!({"feature_set": "premium", "term": "grace"})).await;
    shows(side, json!({"feature_set": "premium", "term": "future"})).await;
    shows(side, json!({"feature_set": "premium"})).await;
    shows(side, json!({"feature_set": "enterprise", "term": "valid"})).await;
    shows(side, json!({"all_features": true, "term": "valid"})).await;
    shows(side, json!({"feature_set": "", "term": "valid"})).await;
    shows(side, json!({"features": {"user_limit": 1, "audit_log": 1, "nonsense": 1}, "term": "valid"})).await;
    shows(side, json!({"feature_set": "premium", "trial": true, "term": "valid"})).await;
    shows(side, json!({"feature_set": "premium", "addons": ["ai_governance"], "term": "valid"})).await;
    let governed = json!({"ai_governance_user_limit": 5, "user_limit": 100});
    shows(
        side,
        json!({"feature_set": "premium", "addons": ["ai_governance"], "features": governed, "term": "valid"}),
    )
    .await;
    shows(side, json!({"feature_set": "premium", "require_telemetry": true, "term": "valid"})).await;
    let governed = json!({"managed_agent_limit": 7, "user_limit": 5});
    shows(side, json!({"feature_set": "premium", "features": governed, "term": "grace"})).await;
    // Two licences: of every feature the better one counts.
    let old = json!({"feature_set": "premium", "features": {"user_limit": 9}, "term": "grace"});
    let old = side.sign_license(old).await;
    let old = upload(side, OWNER, &old).await.body["id"].clone();
    shows(side, json!({"feature_set": "enterprise", "features": {"user_limit": 3}, "term": "valid"})).await;
    shows(side, json!({"features": {"user_limit": 1}, "term": "valid"})).await;
    shows(side, json!({"feature_set": "premium", "term": "future"})).await;
    side.delete(OWNER, &format!("{LICENSES}/{old}")).await;
    side.entitlements().await;
}

pub(super) async fn premium(side: &mut Side) {
    let license = side.sign_license(json!({"feature_set": "premium", "term": "valid"})).await;
    upload(side, OWNER, &license).await;
    upload(side, OWNER, &license).await;
    side.post(OWNER, &format!("{LICENSES}/refresh-entitlements"), Value::Null).await;
    let listed = side.get(OWNER, LICENSES).await;
    side.get(MEMBER, LICENSES).await;
    let id = &listed.body[0]["id"];
    side.delete(MEMBER, &format!("{LICENSES}/{id}")).await;
    side.delete(OWNER, &format!("{LICENSES}/{id}")).await;
    side.delete(OWNER, &format!("{LICENSES}/{id}")).await;
    upload(side, OWNER, &license).await;
    upload(side, OWNER, &format!("{license}\n")).await;
    side.get(OWNER, LICENSES).await;
    side.entitlements().await;
}
