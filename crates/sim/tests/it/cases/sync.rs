//! The three documents of identity provider sync, with their null and empty values.

use serde_json::{Value, json};

use crate::side::{MEMBER, OWNER, Side};

/// Sends every document, and reads after each what was stored.
async fn replace(side: &mut Side, path: &str, documents: Vec<Value>) {
    side.get(OWNER, path).await;
    for document in documents {
        side.patch(OWNER, path, document).await;
        side.get(OWNER, path).await;
    }
    side.patch(MEMBER, path, json!({"field": "mine"})).await;
    side.get(MEMBER, path).await;
}

pub(super) async fn organization_sync(side: &mut Side) {
    let organization = side.default_organization().await;
    let stranger = "4f4f4f4f-0000-4000-8000-000000000009";
    let documents = vec![
        json!({"field": "orgs", "mapping": {"staff": [organization, organization, stranger]}, "organization_assign_default": true}),
        json!({"field": "orgs"}),
        json!({"field": "orgs", "mapping": {"null": null, "empty": []}}),
        json!({"field": "orgs", "mapping": null}),
        json!({"mapping": {"staff": ["no-uuid"]}}),
        json!({"mapping": ["staff"]}),
        Value::Null,
        json!({}),
        json!({"field": "", "mapping": {}, "organization_assign_default": true}),
    ];
    replace(side, "/api/v2/settings/idpsync/organization", documents).await;
}

pub(super) async fn group_sync(side: &mut Side) {
    let organization = side.default_organization().await;
    let path = format!("/api/v2/organizations/{organization}/settings/idpsync/groups");
    let documents = vec![
        json!({"field": "groups", "mapping": {"dev": [organization]}, "regex_filter": "^team-", "auto_create_missing_groups": true}),
        json!({"field": "groups", "regex_filter": ""}),
        json!({"field": "groups", "regex_filter": null, "mapping": {"null": null, "empty": []}}),
        json!({"field": "groups", "regex_filter": "(?=a)"}),
        json!({"field": "groups", "regex_filter": "(a"}),
        json!({"field": "groups", "legacy_group_name_mapping": {}}),
        json!({"field": "groups", "legacy_group_name_mapping": {"a": "b"}}),
        json!({}),
    ];
    replace(side, &path, documents).await;
    side.get(OWNER, "/api/v2/organizations/nowhere/settings/idpsync/groups").await;
}

pub(super) async fn role_sync(side: &mut Side) {
    let organization = side.default_organization().await;
    let path = format!("/api/v2/organizations/{organization}/settings/idpsync/roles");
    let documents = vec![
        json!({"field": "roles", "mapping": {"lead": ["organization-admin", "nonsense"], "null": null}}),
        json!({"field": "roles"}),
        json!({}),
    ];
    replace(side, &path, documents).await;
    side.get(OWNER, "/api/v2/organizations/payments/settings/idpsync/roles").await;
}
