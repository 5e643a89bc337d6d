//! Groups: names, members, quota, and the group of everyone.

use serde_json::json;

use crate::side::{MEMBER, OWNER, Side};

async fn groups(side: &mut Side) -> String {
    let organization = side.default_organization().await;
    format!("/api/v2/organizations/{organization}/groups")
}

pub(super) async fn names(side: &mut Side) {
    let path = groups(side).await;
    let refused = ["", "Everyone", "new", "create", "two words", "a_b", &"n".repeat(256)];
    for name in refused {
        side.post(OWNER, &path, json!({"name": name})).await;
    }
    side.post(OWNER, &path, json!({})).await;
    side.post(OWNER, &path, json!({"name": "shown", "display_name": " x"})).await;
    side.post(
        OWNER,
        &path,
        json!({"name": "dev", "display_name": "Developers", "quota_allowance": 5,
        "avatar_url": "https://avatar.test/a.png"}),
    )
    .await;
    for name in ["dev", "Dev", "everyone", &"n".repeat(255)] {
        side.post(OWNER, &path, json!({"name": name})).await;
    }
    side.post(MEMBER, &path, json!({"name": "mine"})).await;
    side.post(OWNER, &path, json!({"name": "wide", "quota_allowance": 2_147_483_648_u64})).await;
    side.get(OWNER, &path).await;
    side.get(MEMBER, &path).await;
    side.get(OWNER, &format!("{path}?nonsense=1")).await;
}

pub(super) async fn changes(side: &mut Side) {
    let path = groups(side).await;
    let owner = side.get(OWNER, "/api/v2/users/me").await.text("id");
    let member = side.get(OWNER, "/api/v2/users/member").await.text("id");
    let id = side.post(OWNER, &path, json!({"name": "team"})).await.text("id");
    let group = format!("/api/v2/groups/{id}");
    let stranger = "00000000-0000-0000-0000-000000000009";
    let changes = [
        json!({}),
        json!({"name": "", "display_name": "Team", "avatar_url": "a", "quota_allowance": 3}),
        json!({"display_name": "", "avatar_url": "", "quota_allowance": null}),
        json!({"add_users": [member]}),
        json!({"add_users": [member], "quota_allowance": 9}),
        json!({"add_users": [owner, owner]}),
        json!({"add_users": [owner], "remove_users": [owner]}),
        json!({"remove_users": [owner]}),
        json!({"add_users": [stranger]}),
        json!({"add_users": ["nobody"]}),
        json!({"name": "dev"}),
        json!({"name": "Everyone"}),
        json!({"name": "no name"}),
        json!({"name": "Team"}),
        json!({"quota_allowance": -4}),
    ];
    for change in changes {
        side.patch(OWNER, &group, change).await;
    }
    side.get(OWNER, &group).await;
    side.get(MEMBER, &group).await;
    side.patch(MEMBER, &group, json!({"quota_allowance": 1})).await;
    side.delete(MEMBER, &group).await;
    side.get(OWNER, &path).await;
    side.delete(OWNER, &group).await;
    side.get(OWNER, &group).await;
    side.patch(OWNER, &group, json!({})).await;
    side.delete(OWNER, &group).await;
    side.post(OWNER, &path, json!({"name": "Team"})).await;
}

pub(super) async fn everyone(side: &mut Side) {
    let organization = side.default_organization().await;
    let member = side.get(OWNER, "/api/v2/users/member").await.text("id");
    let group = format!("/api/v2/groups/{organization}");
    let changes = [
        json!({"name": "all"}),
        json!({"display_name": "All"}),
        json!({"add_users": [member]}),
        json!({"remove_users": [member]}),
        json!({"name": "Everyone", "display_name": "", "quota_allowance": 2, "avatar_url": "e"}),
    ];
    for change in changes {
        side.patch(OWNER, &group, change).await;
    }
    side.get(OWNER, &group).await;
    side.get(MEMBER, &group).await;
    side.delete(OWNER, &group).await;
}
