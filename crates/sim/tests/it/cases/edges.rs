//! Requests at the edges of what coderd reads: spelling of keys, types, ids, paths and repeated values.

use serde_json::{Value, json};

use crate::side::{ANONYMOUS, OWNER, PASSWORD, Side};

const DEFAULT: &str = "/api/v2/organizations/default";

pub(super) async fn bodies(side: &mut Side) {
    let groups = format!("{DEFAULT}/groups");
    side.post(OWNER, &groups, json!({"NAME": "loud", "Display_Name": "Loud", "unknown": 1})).await;
    let bodies = [
        json!([]),
        json!("\"text\""),
        json!("7"),
        json!("null"),
        json!("{} {}"),
        json!({"name": ["a"]}),
        json!({"name": true}),
        json!({"name": {"a": 1}}),
        json!({"name": "typed", "quota_allowance": "5"}),
        json!({"name": "typed", "avatar_url": 5}),
    ];
    for body in bodies {
        side.post(OWNER, &groups, body).await;
    }
    side.patch(OWNER, "/api/v2/settings/idpsync/organization", json!({"organization_assign_default": "yes"}))
        .await;
    side.patch(OWNER, "/api/v2/settings/idpsync/organization", json!({"mapping": {"a": "b"}})).await;
    side.patch(OWNER, "/api/v2/settings/idpsync/organization", json!({"mapping": {"a": [7]}})).await;
    side.patch(OWNER, &format!("{DEFAULT}/settings/idpsync/roles"), json!({"mapping": {"a": [7]}})).await;
    side.put(OWNER, "/api/v2/appearance", json!({"announcement_banners": {}})).await;
    side.put(OWNER, "/api/v2/appearance", json!({"announcement_banners": ["text"]})).await;
    side.post(OWNER, "/api/v2/users/me/keys/tokens", json!({"lifetime": "1h"})).await;
    side.post(OWNER, "/api/v2/users/me/keys/tokens", json!({"scopes": "coder:all"})).await;
    side.post(OWNER, &format!("{DEFAULT}/provisionerkeys"), json!({"name": "x", "tags": ["a"]})).await;
    side.post(OWNER, "/api/v2/licenses", json!({"license": 7})).await;
    side.post(ANONYMOUS, "/api/v2/users/login", json!({"email": 7})).await;
}

pub(super) async fn paths(side: &mut Side) {
    for path in [
        "/api/v2/organizations/",
        "/api/v2/groups/no-uuid",
        "/api/v2/users/me/keys/short",
        "/api/v2/organizations/00000000-0000-0000-0000-000000000000/paginated-members?limit=1",
        "/api/v2/organizations/CODER/paginated-members?limit=1",
        "/api/v2/organizations/Default/paginated-members",
        "/api/v2/organizations/%63oder/paginated-members?limit=1",
        "/api/v2/organizations/default/paginated-members?limit=99999999999",
        "/api/v2/organizations/default/paginated-members?offset=-1",
        "/api/v2/organizations/default/paginated-members?limit=2&nonsense=1",
    ] {
        side.get(OWNER, path).await;
    }
    let id = side.get(OWNER, "/api/v2/users/me").await.text("id");
    side.get(OWNER, &format!("/api/v2/users/{}", id.to_uppercase())).await;
    let plain = id.replace('-', "");
    side.transcript.name(&plain, "<plain id>");
    side.get(OWNER, &format!("/api/v2/users/{plain}")).await;
    side.get(OWNER, "/api/v2/users/owner@sim.test").await;
    side.delete(OWNER, &format!("{DEFAULT}/provisionerkeys/a%2Fb")).await;
    side.delete(OWNER, "/api/v2/licenses/99999999999").await;
}

pub(super) async fn repetitions(side: &mut Side) {
    let organization = side.post(OWNER, "/api/v2/organizations", json!({"name": "again"})).await.text("id");
    let default = "00000000-0000-0000-0000-000000000000";
    let person = |name: &str, organizations: &[&str]| {
        json!({"username": name, "email": format!("{name}@Sim.test"), "password": PASSWORD,
            "organization_ids": organizations})
    };
    side.post(OWNER, "/api/v2/users", person("Mixed", &[default, &organization])).await;
    side.get(OWNER, "/api/v2/users/mixed").await;
    side.post(OWNER, "/api/v2/users", person("twice", &[&organization, &organization])).await;
    let mut old = person("old", &[]);
    old["organization_id"] = json!(organization);
    side.post(OWNER, "/api/v2/users", old).await;
    let login = json!({"email": "mixed@sim.test", "password": PASSWORD});
    side.post(ANONYMOUS, "/api/v2/users/login", login).await;
    let user = side.get(OWNER, "/api/v2/users/mixed").await.text("id");
    let group = json!({"name": "again"});
    let path = format!("/api/v2/organizations/{organization}/groups");
    let group = side.post(OWNER, &path, group).await.text("id");
    let group = format!("/api/v2/groups/{group}");
    side.patch(OWNER, &group, json!({"add_users": [user.to_uppercase()], "remove_users": null})).await;
    side.patch(OWNER, &group, json!({"remove_users": [user, user]})).await;
    side.patch(OWNER, &group, json!({"add_users": [user]})).await;
    side.delete(OWNER, "/api/v2/users/mixed").await;
    side.get(OWNER, &group).await;
    side.delete(OWNER, "/api/v2/users/old").await;
    side.delete(OWNER, &group).await;
    side.delete(OWNER, &format!("/api/v2/organizations/{organization}")).await;
    // The name of a deleted organization does not conflict, in either direction.
    let path = format!("/api/v2/organizations/{organization}");
    side.patch(OWNER, &path, json!({"name": "coder"})).await;
    side.post(OWNER, &format!("{path}/groups"), json!({"name": "late"})).await;
    side.post(OWNER, &format!("{path}/provisionerkeys"), json!({"name": "late"})).await;
    side.get(OWNER, &format!("{path}/provisionerkeys/daemons")).await;
    side.delete(OWNER, &path).await;
}

pub(super) async fn statuses(side: &mut Side) {
    for status in ["active", "dormant", "suspended", ""] {
        let name = format!("is-{status}").trim_end_matches('-').to_owned();
        let user = json!({"username": name, "email": format!("{name}@sim.test"), "password": PASSWORD,
            "user_status": status, "organization_ids": ["00000000-0000-0000-0000-000000000000"]});
        side.post(OWNER, "/api/v2/users", user).await;
        let login = json!({"email": format!("{name}@sim.test"), "password": PASSWORD});
        let token = side.post(ANONYMOUS, "/api/v2/users/login", login).await.text("session_token");
        side.set_token("status", &token);
        side.get("status", "/api/v2/users/me").await;
        let tokens = format!("/api/v2/users/{name}/keys/tokens");
        let minted = side.post(OWNER, &tokens, json!({"token_name": "x"})).await.text("key");
        side.set_token("minted", &minted);
        side.get("minted", "/api/v2/users/me").await;
        side.get(OWNER, &format!("/api/v2/users/{name}")).await;
        side.delete(OWNER, &format!("/api/v2/users/{name}")).await;
        side.get("status", "/api/v2/users/me").await;
        side.post(
            ANONYMOUS,
            "/api/v2/users/login",
            json!({"email": format!("{name}@sim.test"), "password": PASSWORD}),
        )
        .await;
    }
    side.get(OWNER, "/api/v2/users/me/keys/tokens?include_all=true").await;
    let wrong = ["wrongwrong", &"W1".repeat(11)].join("-");
    for path in ["/api/v2/appearance", "/api/v2/buildinfo", "/api/v2/nonsense"] {
        let answer =
            side.unrecorded_with(("GET", path, &Value::Null), &[("coder-session-token", &wrong)]).await;
        side.transcript.note(&format!("wrong GET {path}"), &json!([answer.status, answer.body["message"]]));
    }
}
