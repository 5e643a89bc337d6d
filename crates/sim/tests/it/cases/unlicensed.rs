//! What a deployment without a licence refuses, takes and hides.

use serde_json::{Value, json};

use crate::side::{ANONYMOUS, MEMBER, OWNER, Side};

const ACCOUNTS: [&str; 3] = [OWNER, MEMBER, ANONYMOUS];

async fn gated(side: &mut Side, organization: &str) {
    let keys = format!("/api/v2/organizations/{organization}/provisionerkeys");
    let groups = format!("/api/v2/organizations/{organization}/groups");
    for who in ACCOUNTS {
        side.post(who, "/api/v2/organizations", json!({"name": "second"})).await;
        side.patch(who, &format!("/api/v2/organizations/{organization}"), json!({})).await;
        side.delete(who, &format!("/api/v2/organizations/{organization}")).await;
        side.get(who, &groups).await;
        side.post(who, &groups, json!({"name": "dev"})).await;
        let group = format!("/api/v2/groups/{organization}");
        side.get(who, &group).await;
        side.patch(who, &group, json!({})).await;
        side.delete(who, &group).await;
        side.get(who, &format!("{keys}/daemons")).await;
        side.post(who, &keys, json!({"name": "builders"})).await;
        side.delete(who, &format!("{keys}/builders")).await;
    }
    let robot = json!({"username": "robot", "service_account": true, "organization_ids": [organization]});
    side.post(OWNER, "/api/v2/users", robot).await;
}

pub(super) async fn gates(side: &mut Side) {
    let organization = side.default_organization().await;
    gated(side, &organization).await;
    side.entitlements().await;
    let prove = ("GET", "/api/v2/provisionerkeys/own", &Value::Null);
    side.call_with(ANONYMOUS, prove, &[]).await;
    side.call_with(ANONYMOUS, prove, &[("coder-provisioner-daemon-key", "short")]).await;
    let unknown = "x".repeat(43);
    side.call_with(ANONYMOUS, prove, &[("coder-provisioner-daemon-key", &unknown)]).await;
    side.get(OWNER, "/api/v2/organizations/nowhere/groups").await;
    side.get(OWNER, "/api/v2/groups/no-uuid").await;
}

pub(super) async fn documents(side: &mut Side) {
    let organization = side.default_organization().await;
    let banner = json!({"enabled": true, "message": "kept", "background_color": "#004852"});
    let wanted = json!({"application_name": "Kept", "logo_url": "", "announcement_banners": [banner]});
    side.put(OWNER, "/api/v2/appearance", wanted).await;
    side.get(OWNER, "/api/v2/appearance").await;
    let settings = format!("/api/v2/organizations/{organization}/settings/idpsync");
    for path in
        ["/api/v2/settings/idpsync/organization", &format!("{settings}/groups"), &format!("{settings}/roles")]
    {
        side.get(OWNER, path).await;
        side.get(MEMBER, path).await;
    }
    side.patch(OWNER, &format!("{settings}/roles"), json!({"field": "roles"})).await;
    side.get(OWNER, &format!("{settings}/roles")).await;
    side.get(OWNER, &format!("/api/v2/organizations/{organization}/paginated-members")).await;
}

/// After the last licence is deleted.
pub(super) async fn lapsed(side: &mut Side) {
    let organization = side.default_organization().await;
    let listed = side.get(OWNER, "/api/v2/licenses").await.body;
    for license in listed.as_array().unwrap() {
        side.delete(OWNER, &format!("/api/v2/licenses/{}", license["id"])).await;
    }
    side.entitlements().await;
    side.get(OWNER, "/api/v2/organizations").await;
    side.get(OWNER, "/api/v2/appearance").await;
    gated(side, &organization).await;
    let license = side.sign_license(json!({"feature_set": "premium", "term": "valid"})).await;
    super::licenses::upload(side, OWNER, &license).await;
    side.get(OWNER, "/api/v2/appearance").await;
    side.get(OWNER, &format!("/api/v2/organizations/{organization}/groups")).await;
}
