//! Requests that are refused before their route is reached, or for their form.

use serde_json::{Value, json};

use crate::side::{ANONYMOUS, MEMBER, OWNER, Side};

pub(super) async fn signed_out(side: &mut Side) {
    // In pieces, so that nothing in this file looks like a token.
    let unknown = ["wrongwrong", &"W1".repeat(11)].join("-");
    let other_secret = [&side.token(OWNER)[..10], &"W1".repeat(11)].join("-");
    for token in ["nonsense", "a-b", "", &unknown, &other_secret] {
        let headers = [("coder-session-token", token)];
        side.call_with("wrong", ("GET", "/api/v2/users/me", &Value::Null), &headers).await;
    }
    let paths = [
        "/api/v2/users/me",
        "/api/v2/organizations",
        "/api/v2/licenses",
        "/api/v2/appearance",
        "/api/v2/settings/idpsync/organization",
        "/api/v2/organizations/default/groups",
        "/api/v2/organizations/default/provisionerkeys/daemons",
        "/api/v2/organizations/default/paginated-members",
        "/api/v2/groups/00000000-0000-0000-0000-000000000009",
        "/api/v2/users/owner/keys/tokens",
    ];
    for path in paths {
        side.get(ANONYMOUS, path).await;
    }
    side.post(ANONYMOUS, "/api/v2/users", json!({})).await;
    side.post(ANONYMOUS, "/api/v2/users/logout", Value::Null).await;
}

pub(super) async fn bad_requests(side: &mut Side) {
    side.get(OWNER, "/api/v2/nonsense").await;
    side.get(ANONYMOUS, "/api/v2/nonsense").await;
    side.call(OWNER, "PUT", "/api/v2/users", &json!({})).await;
    side.call(OWNER, "POST", "/api/v2/licenses/trial", &json!({})).await;
    side.post(OWNER, "/api/v2/users", Value::Null).await;
    side.post(OWNER, "/api/v2/users", json!("{")).await;
    side.post(OWNER, "/api/v2/users", json!({"username": 7})).await;
    side.get(OWNER, "/api/v2/users/nobody").await;
    side.get(OWNER, "/api/v2/users/00000000-0000-0000-0000-000000000009").await;
    side.get(OWNER, "/api/v2/organizations/nowhere/paginated-members").await;
    side.get(OWNER, "/api/v2/organizations/00000000-0000-0000-0000-000000000009/members/roles").await;
    side.get(MEMBER, "/api/v2/users/owner").await;
    side.get(MEMBER, "/api/v2/users/me").await;
}
