//! The audit log: who changed which field of what.

use serde_json::{Value, json};

use crate::side::{MEMBER, OWNER, Side};

/// Reads entries and notes what the client reads of them; the rest is for people.
async fn entries(side: &mut Side, kind: &str, id: &str) {
    let query = format!("action:write+resource_type:{kind}+resource_id:{id}");
    let page = side.unrecorded(OWNER, &format!("/api/v2/audit?q={query}&limit=10")).await;
    let read = ["resource_type", "resource_id", "resource_target", "action", "diff", "status_code"];
    let shown = |entry: &Value| {
        let mut shown: Value = read.iter().map(|it| ((*it).to_owned(), entry[*it].clone())).collect();
        shown["organization"] = entry["organization_id"].clone();
        shown["user"] = entry["user"]["username"].clone();
        shown["user_id"] = entry["user"]["id"].clone();
        shown
    };
    let entries: Vec<Value> = page["audit_logs"].as_array().unwrap().iter().map(shown).collect();
    side.transcript
        .note(&format!("audit log of a {kind}"), &json!({"entries": entries, "count": page["count"]}));
}

pub(super) async fn writes(side: &mut Side) {
    let organization = side.default_organization().await;
    let path = format!("/api/v2/organizations/{organization}/groups");
    let id = side.post(OWNER, &path, json!({"name": "audited", "quota_allowance": 20})).await.text("id");
    let group = format!("/api/v2/groups/{id}");
    for quota in [3, 3, 0] {
        side.patch(
            OWNER,
            &group,
            json!({"quota_allowance": quota, "display_name": format!("Quota {quota}")}),
        )
        .await;
    }
    entries(side, "group", &id).await;
    side.get(MEMBER, "/api/v2/audit?limit=1").await;
    side.delete(OWNER, &group).await;

    let user = json!({"username": "audited", "email": "audited@sim.test", "password": crate::side::PASSWORD,
        "organization_ids": [organization]});
    let id = side.post(OWNER, "/api/v2/users", user).await.text("id");
    side.put(OWNER, &format!("/api/v2/users/{id}/roles"), json!({"roles": ["auditor"]})).await;
    side.put(OWNER, &format!("/api/v2/users/{id}/status/suspend"), Value::Null).await;
    entries(side, "user", &id).await;
    side.delete(OWNER, &format!("/api/v2/users/{id}")).await;

    let id = super::templates::created(side, "audited").await;
    let template = format!("/api/v2/templates/{id}");
    for change in [
        json!({"display_name": "Audited", "default_ttl_ms": 28_800_000, "max_port_share_level": "public"}),
        json!({"deprecation_message": "Use another one", "allow_user_cancel_workspace_jobs": true}),
    ] {
        side.patch(OWNER, &template, change).await;
    }
    entries(side, "template", &id).await;
    side.delete(OWNER, &template).await;

    let sharing = format!("/api/v2/organizations/{organization}/settings/workspace-sharing");
    for owners in ["none", "everyone"] {
        side.patch(OWNER, &sharing, json!({"shareable_workspace_owners": owners})).await;
    }
}
