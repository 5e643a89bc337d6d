//! Accounts that others make, and what stays of a deleted one.

use serde_json::{Value, json};

use crate::side::{MEMBER, OWNER, PASSWORD, Side};

const USERS: &str = "/api/v2/users";
const DEFAULT: &str = "00000000-0000-0000-0000-000000000000";

fn person(change: &Value) -> Value {
    let mut wanted = json!({"username": "person", "email": "person@sim.test", "password": PASSWORD,
        "login_type": "password", "organization_ids": [DEFAULT]});
    for (key, value) in change.as_object().unwrap() {
        wanted[key] = value.clone();
    }
    wanted
}

pub(super) async fn accounts(side: &mut Side) {
    let changes = [
        json!({"username": "no name"}),
        json!({"username": "n".repeat(33)}),
        json!({"username": "new"}),
        json!({"name": " outer"}),
        json!({"email": "no e-mail"}),
        json!({"email": ""}),
        json!({"password": "hunter2"}),
        json!({"password": ""}),
        json!({"organization_ids": []}),
        json!({"organization_ids": ["00000000-0000-0000-0000-000000000009"]}),
        json!({"organization_ids": ["no-uuid"]}),
        json!({"username": "OWNER"}),
        json!({"email": "OWNER@sim.test"}),
        json!({"login_type": "none"}),
        json!({"login_type": "none", "password": ""}),
        json!({"login_type": "oidc", "password": ""}),
        json!({"login_type": "nonsense", "password": ""}),
        json!({"roles": ["nonsense"]}),
    ];
    for change in changes {
        side.post(OWNER, USERS, person(&change)).await;
    }
    side.post(MEMBER, USERS, person(&json!({}))).await;
    side.post(OWNER, USERS, person(&json!({"name": "A Person", "roles": ["user-admin", "auditor"]}))).await;
    side.get(OWNER, &format!("{USERS}/person")).await;
    side.get(MEMBER, &format!("{USERS}/person")).await;
    side.post(
        OWNER,
        USERS,
        person(&json!({"username": "other", "user_status": "nonsense", "email": "o@sim.test"})),
    )
    .await;
}

pub(super) async fn deletion(side: &mut Side) {
    let owner = side.get(OWNER, &format!("{USERS}/me")).await.text("id");
    let person = side.get(OWNER, &format!("{USERS}/person")).await.text("id");
    side.delete(OWNER, &format!("{USERS}/{owner}")).await;
    side.delete(OWNER, &format!("{USERS}/me")).await;
    side.delete(MEMBER, &format!("{USERS}/{owner}")).await;
    side.delete(OWNER, &format!("{USERS}/nobody")).await;
    side.delete(OWNER, &format!("{USERS}/{person}")).await;
    side.get(OWNER, &format!("{USERS}/{person}")).await;
    side.get(OWNER, &format!("{USERS}/person")).await;
    side.delete(OWNER, &format!("{USERS}/{person}")).await;
    side.post(OWNER, USERS, self::person(&json!({}))).await;
    side.get(OWNER, &format!("{USERS}/person")).await;
}

pub(super) async fn service_accounts(side: &mut Side) {
    let robot = |change: Value| {
        let mut wanted = json!({"username": "robot", "service_account": true, "organization_ids": [DEFAULT]});
        for (key, value) in change.as_object().unwrap() {
            wanted[key] = value.clone();
        }
        wanted
    };
    side.post(OWNER, USERS, robot(json!({"login_type": "password"}))).await;
    side.post(OWNER, USERS, robot(json!({"email": "robot@sim.test"}))).await;
    side.post(OWNER, USERS, robot(json!({"password": PASSWORD}))).await;
    side.post(OWNER, USERS, robot(json!({"login_type": "none", "roles": ["owner"]}))).await;
    side.get(OWNER, &format!("{USERS}/robot/keys/tokens/tokenconfig")).await;
    let day = 24_i64 * 3_600_000_000_000;
    let token = json!({"token_name": "day", "lifetime": day});
    let token = side.post(OWNER, &format!("{USERS}/robot/keys/tokens"), token).await.text("key");
    side.set_token("robot", &token);
    side.get("robot", &format!("{USERS}/me")).await;
    side.post("robot", &format!("{USERS}/me/keys/tokens"), json!({"token_name": "own"})).await;
    side.get(OWNER, &format!("{USERS}/robot/keys/tokens")).await;
    side.delete(OWNER, &format!("{USERS}/robot")).await;
    side.get("robot", &format!("{USERS}/me")).await;
}
