//! Organizations: names, changes, and what stays of a deleted one.

use serde_json::json;

use crate::side::{MEMBER, OWNER, Side};

const ORGANIZATIONS: &str = "/api/v2/organizations";

pub(super) async fn names(side: &mut Side) {
    let long = "n".repeat(33);
    let refused = ["", "default", "new", "create", "two words", "-a", "a--b", "a_b", &long];
    for name in refused {
        side.post(OWNER, ORGANIZATIONS, json!({"name": name})).await;
    }
    side.post(OWNER, ORGANIZATIONS, json!({})).await;
    let displays = [" outer", "outer ", &"d".repeat(65)];
    for display in displays {
        side.post(OWNER, ORGANIZATIONS, json!({"name": "shown", "display_name": display})).await;
    }
    let wanted =
        json!({"name": "payments", "display_name": "Payments", "description": "cards", "icon": "/a.png"});
    let id = side.post(OWNER, ORGANIZATIONS, wanted).await.text("id");
    for name in ["payments", "PAYMENTS", "coder"] {
        side.post(OWNER, ORGANIZATIONS, json!({"name": name})).await;
    }
    side.post(OWNER, ORGANIZATIONS, json!({"name": "Default"})).await;
    side.post(MEMBER, ORGANIZATIONS, json!({"name": "mine"})).await;
    side.get(OWNER, ORGANIZATIONS).await;
    side.get(MEMBER, ORGANIZATIONS).await;
    side.get(OWNER, "/api/v2/users/me").await;
    side.get(OWNER, &format!("{ORGANIZATIONS}/{id}/paginated-members")).await;
    side.get(OWNER, &format!("{ORGANIZATIONS}/PAYMENTS/groups")).await;
    side.get(MEMBER, &format!("{ORGANIZATIONS}/payments/groups")).await;
}

pub(super) async fn changes(side: &mut Side) {
    let path = format!("{ORGANIZATIONS}/payments");
    let changes = [
        json!({}),
        json!({"name": "", "display_name": "", "description": null, "icon": null}),
        json!({"description": "", "icon": ""}),
        json!({"name": "PAYMENTS"}),
        json!({"name": "payments", "display_name": "Pay"}),
        json!({"name": "default"}),
        json!({"name": "coder"}),
        json!({"name": "no name"}),
        json!({"display_name": " x"}),
        json!({"default_org_member_roles": ["organization-workspace-access"]}),
        json!({"default_org_member_roles": []}),
        json!({"default_org_member_roles": ["nonsense"]}),
        json!({"description": 7}),
    ];
    for change in changes {
        side.patch(OWNER, &path, change).await;
    }
    side.patch(MEMBER, &path, json!({"description": "mine"})).await;
    side.patch(MEMBER, &format!("{ORGANIZATIONS}/default"), json!({"description": "mine"})).await;
    side.patch(OWNER, &format!("{ORGANIZATIONS}/default"), json!({"description": "all of us"})).await;
    side.patch(OWNER, &format!("{ORGANIZATIONS}/nowhere"), json!({})).await;
    side.get(OWNER, ORGANIZATIONS).await;
}

pub(super) async fn deletion(side: &mut Side) {
    side.delete(OWNER, &format!("{ORGANIZATIONS}/default")).await;
    side.delete(MEMBER, &format!("{ORGANIZATIONS}/default")).await;
    side.delete(MEMBER, &format!("{ORGANIZATIONS}/payments")).await;
    side.delete(OWNER, &format!("{ORGANIZATIONS}/nowhere")).await;
    side.delete(OWNER, &format!("{ORGANIZATIONS}/Default")).await;
    let id = side.post(OWNER, ORGANIZATIONS, json!({"name": "leaving"})).await.text("id");
    let path = format!("{ORGANIZATIONS}/{id}");
    let user = json!({"username": "leaver", "email": "leaver@sim.test", "password": crate::side::PASSWORD,
        "organization_ids": [id]});
    let user = side.post(OWNER, "/api/v2/users", user).await.text("id");
    let group = side.post(OWNER, &format!("{path}/groups"), json!({"name": "dev"})).await.text("id");
    side.post(OWNER, &format!("{path}/groups"), json!({"name": "ops"})).await;
    side.post(OWNER, &format!("{path}/provisionerkeys"), json!({"name": "builders"})).await;
    side.delete(OWNER, &path).await;
    side.delete(OWNER, &format!("/api/v2/groups/{group}")).await;
    side.delete(OWNER, &path).await;
    side.delete(OWNER, &format!("{path}/provisionerkeys/BUILDERS")).await;
    side.delete(OWNER, &format!("/api/v2/users/{user}")).await;
    let groups = side.get(OWNER, &format!("{path}/groups")).await.body;
    for group in groups.as_array().unwrap().iter().filter(|it| it["name"] == "ops") {
        side.delete(OWNER, &format!("/api/v2/groups/{}", group["id"].as_str().unwrap())).await;
    }
    side.delete(OWNER, &path).await;
    side.get(OWNER, ORGANIZATIONS).await;
    side.get(OWNER, &format!("{ORGANIZATIONS}/leaving/groups")).await;
    side.get(OWNER, &format!("{path}/groups")).await;
    side.patch(OWNER, &path, json!({"description": "deleted"})).await;
    side.delete(OWNER, &path).await;
    side.get(OWNER, "/api/v2/users/me").await;
    side.post(OWNER, ORGANIZATIONS, json!({"name": "leaving"})).await;
    side.delete(OWNER, &format!("{ORGANIZATIONS}/leaving")).await;
}

pub(super) async fn sharing(side: &mut Side) {
    let path = format!("{ORGANIZATIONS}/default/settings/workspace-sharing");
    side.get(OWNER, &path).await;
    side.get(MEMBER, &path).await;
    for owners in ["none", "service_accounts", "friends", "everyone"] {
        side.patch(OWNER, &path, json!({"shareable_workspace_owners": owners})).await;
        side.get(OWNER, &path).await;
    }
    side.patch(OWNER, &path, json!({"sharing_disabled": true})).await;
    side.patch(OWNER, &path, json!({"sharing_disabled": true, "shareable_workspace_owners": "everyone"}))
        .await;
    side.patch(OWNER, &path, json!({})).await;
    side.patch(MEMBER, &path, json!({"shareable_workspace_owners": "none"})).await;
    side.get(OWNER, &path).await;
    side.get(OWNER, &format!("{ORGANIZATIONS}/nowhere/settings/workspace-sharing")).await;
}
