//! Custom roles of an organization.

use serde_json::{Value, json};

use crate::side::{MEMBER, OWNER, Side};

fn permission(resource: &str, action: &str) -> Value {
    json!({"negate": false, "resource_type": resource, "action": action})
}

pub(super) async fn names(side: &mut Side) {
    let organization = side.default_organization().await;
    let path = format!("/api/v2/organizations/{organization}/members/roles");
    let refused = ["", "owner", "organization-admin", "new", "two words", "a_b", &"n".repeat(33)];
    for name in refused {
        side.post(OWNER, &path, json!({"name": name})).await;
        side.put(OWNER, &path, json!({"name": name})).await;
    }
    for name in ["auditor", "ghost", "new", "a_b", &"n".repeat(33)] {
        side.delete(OWNER, &format!("{path}/{name}")).await;
    }
    side.put(OWNER, &path, json!({"name": "ghost"})).await;
    side.post(OWNER, &path, json!({"name": "reader"})).await;
    side.post(OWNER, &path, json!({"name": "Reader", "display_name": "Again"})).await;
    side.put(OWNER, &path, json!({"name": "READER", "display_name": "Again"})).await;
    side.roles(OWNER, "default").await;
    side.delete(OWNER, &format!("{path}/READER")).await;
    side.delete(OWNER, &format!("{path}/reader")).await;
}

pub(super) async fn permissions(side: &mut Side) {
    let organization = side.default_organization().await;
    let path = format!("/api/v2/organizations/{organization}/members/roles");
    let role = |permissions: Value| json!({"name": "tester", "display_name": "Tester", "organization_permissions": permissions});
    let refused = [
        json!([permission("template", "paint")]),
        json!([permission("canvas", "read")]),
        json!([permission("template", "*")]),
        json!([permission("*", "read")]),
        json!([{"negate": true, "resource_type": "template", "action": "read"}]),
    ];
    for permissions in &refused {
        side.post(OWNER, &path, role(permissions.clone())).await;
    }
    for field in ["site_permissions", "user_permissions", "organization_member_permissions"] {
        side.post(OWNER, &path, json!({"name": "tester", field: [permission("template", "read")]})).await;
    }
    side.post(MEMBER, &path, role(json!([]))).await;
    side.post(OWNER, &path, role(json!([permission("template", "read"), permission("group", "read")]))).await;
    for permissions in refused {
        side.put(OWNER, &path, role(permissions)).await;
        side.roles(OWNER, "default").await;
    }
    let twice = json!([permission("template", "read"), permission("template", "read")]);
    side.put(OWNER, &path, role(twice)).await;
    side.put(MEMBER, &path, role(json!([]))).await;
    side.delete(MEMBER, &format!("{path}/tester")).await;
    side.put(OWNER, &path, json!({"name": "tester"})).await;
    side.roles(MEMBER, "default").await;
    side.delete(OWNER, &format!("{path}/tester")).await;
    side.roles(OWNER, "default").await;
}
