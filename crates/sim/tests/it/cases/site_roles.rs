//! What accounts with roles of the whole deployment may do.

use serde_json::{Value, json};

use crate::side::{MEMBER, OWNER, PASSWORD, Side};

const ROLES: [&str; 3] = ["user-admin", "template-admin", "auditor"];

/// One call of every kind of right over one organization.
async fn attempts_inside(side: &mut Side, who: &str, organization: &str) {
    let organization = format!("/api/v2/organizations/{organization}");
    side.patch(who, &organization, json!({"description": who})).await;
    side.delete(who, &organization).await;
    side.get(who, &format!("{organization}/paginated-members")).await;
    let group = side.post(who, &format!("{organization}/groups"), json!({"name": who})).await.text("id");
    if !group.is_empty() {
        side.patch(who, &format!("/api/v2/groups/{group}"), json!({"quota_allowance": 2})).await;
        side.delete(who, &format!("/api/v2/groups/{group}")).await;
    }
    let everyone = side.get(who, &format!("{organization}/groups")).await.body[0]["organization_id"].clone();
    let everyone =
        format!("/api/v2/groups/{}", everyone.as_str().unwrap_or("00000000-0000-0000-0000-000000000009"));
    side.patch(who, &everyone, json!({"quota_allowance": 2})).await;
    let keys = format!("{organization}/provisionerkeys");
    side.post(OWNER, &keys, json!({"name": "theirs"})).await;
    side.get(who, &format!("{keys}/daemons")).await;
    side.delete(who, &format!("{keys}/theirs")).await;
    side.delete(OWNER, &format!("{keys}/theirs")).await;
    side.post(who, &keys, json!({"name": who})).await;
    side.delete(who, &format!("{keys}/{who}")).await;
    for document in ["groups", "roles"] {
        let document = format!("{organization}/settings/idpsync/{document}");
        side.get(who, &document).await;
        side.patch(who, &document, json!({})).await;
    }
}

/// One call of every kind of right.
async fn attempts(side: &mut Side, who: &str) {
    side.get(who, "/api/v2/organizations").await;
    side.post(who, "/api/v2/organizations", json!({"name": "theirs"})).await;
    side.post(who, "/api/v2/organizations", json!({"name": "payments"})).await;
    attempts_inside(side, who, "default").await;
    attempts_inside(side, who, "payments").await;
    side.roles(who, "payments").await;
    side.get(who, "/api/v2/licenses").await;
    side.post(who, "/api/v2/licenses", json!({"license": "nonsense"})).await;
    side.post(who, "/api/v2/licenses/refresh-entitlements", Value::Null).await;
    side.put(who, "/api/v2/appearance", json!({"application_name": "Kept"})).await;
    let document = "/api/v2/settings/idpsync/organization";
    side.get(who, document).await;
    side.patch(who, document, json!({"organization_assign_default": true})).await;
    side.get(who, "/api/v2/users/owner").await;
    side.get(who, "/api/v2/users/owner/keys/tokens").await;
    side.get(who, "/api/v2/users/owner/keys/tokens/tokenconfig").await;
    side.post(who, "/api/v2/users/member/keys/tokens", json!({"token_name": who})).await;
    side.post(who, "/api/v2/users/me/keys/tokens", json!({"token_name": who})).await;
    let user = |roles: &[&str]| {
        json!({"username": "made", "email": "made@sim.test", "password": PASSWORD, "roles": roles,
            "organization_ids": [uuid::Uuid::nil()]})
    };
    side.post(who, "/api/v2/users", user(&["auditor"])).await;
    side.post(who, "/api/v2/users", user(&[])).await;
    side.delete(who, "/api/v2/users/made").await;
    side.post(OWNER, "/api/v2/users", user(&[])).await;
    side.post(who, "/api/v2/users", user(&[])).await;
    side.delete(OWNER, "/api/v2/users/made").await;
    side.post(OWNER, "/api/v2/users", user(&["owner"])).await;
    side.delete(who, "/api/v2/users/made").await;
    side.delete(OWNER, "/api/v2/users/made").await;
}

pub(super) async fn site_roles(side: &mut Side) {
    for role in ROLES {
        let user = json!({"username": role, "email": format!("{role}@sim.test"), "password": PASSWORD,
            "roles": [role], "organization_ids": [uuid::Uuid::nil()]});
        side.post(OWNER, "/api/v2/users", user).await;
        side.sign_in(role).await;
        attempts(side, role).await;
        side.roles(role, "default").await;
        side.delete(OWNER, &format!("/api/v2/users/{role}")).await;
    }
    attempts(side, MEMBER).await;
}

/// An account without rights that is a member of an organization which can be changed.
pub(super) async fn insider(side: &mut Side) {
    let id = side.post(OWNER, "/api/v2/organizations", json!({"name": "inside"})).await.text("id");
    let user = json!({"username": "insider", "email": "insider@sim.test", "password": PASSWORD,
        "organization_ids": [id]});
    side.post(OWNER, "/api/v2/users", user).await;
    side.sign_in("insider").await;
    let path = format!("/api/v2/organizations/{id}");
    side.get("insider", "/api/v2/organizations").await;
    side.patch("insider", &path, json!({"description": "mine"})).await;
    side.delete("insider", &path).await;
    side.get("insider", &format!("{path}/paginated-members")).await;
    side.get("insider", &format!("{path}/groups")).await;
    side.get("insider", &format!("{path}/settings/idpsync/roles")).await;
    side.get("insider", "/api/v2/organizations/default/groups").await;
    side.delete(OWNER, "/api/v2/users/insider").await;
    side.delete(OWNER, &path).await;
}
