//! Answers of a Coder that is newer than the client: fields that it does not know, and words in fields that it does.

use std::fmt::Debug;

use client::{
    appearance::Appearance,
    deployment::{BuildInfo, Entitlements},
    groups::Group,
    idp_sync::{GroupSync, OrganizationSync, RoleSync},
    licenses::License,
    organizations::Organization,
    provisioner_keys::KeyWithDaemons,
    roles::AssignableRole,
    routes::ROUTES,
    users::{Token, User},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const ID: &str = "11111111-1111-4111-8111-111111111111";
const TIME: &str = "2027-01-02T03:04:05.678-03:30";
/// A word that no release has used.
const NEW: &str = "invented_in_2_99";

/// Adds unknown fields to every object.
fn grown(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for field in fields.values_mut() {
                *field = grown(field.take());
            }
            fields.insert("invented_flag".to_owned(), json!(true));
            fields.insert("invented_object".to_owned(), json!({"deep": [1, null, "x"]}));
        }
        Value::Array(list) => list.iter_mut().for_each(|it| *it = grown(it.take())),
        _ => {}
    }
    value
}

/// The decoded answer, with and without unknown fields.
fn same<T: DeserializeOwned + PartialEq + Debug>(answer: Value) -> T {
    let plain: T = serde_json::from_value(answer.clone()).unwrap();
    let read: T = serde_json::from_value(grown(answer)).unwrap();
    assert_eq!(read, plain);
    read
}

#[test]
fn answers_with_unknown_fields_and_words_are_read() {
    same::<BuildInfo>(json!({"version": "v2.99.0-rc.1+abc", "deployment_id": ID}));
    same::<User>(
        json!({"id": ID, "username": "a", "status": NEW, "login_type": NEW, "roles": [{"name": NEW}]}),
    );
    same::<Token>(
        json!({"id": "t", "user_id": ID, "created_at": TIME, "expires_at": TIME, "login_type": NEW,
        "scopes": [NEW]}),
    );
    same::<Organization>(json!({"id": ID, "name": "a", "default_org_member_roles": [NEW]}));
    same::<Group>(json!({"id": ID, "organization_id": ID, "name": "a", "source": NEW,
        "members": [{"id": ID, "username": "a", "status": NEW}]}));
    same::<AssignableRole>(json!({"name": NEW, "built_in": true}));
    same::<Appearance>(json!({"announcement_banners": [{"enabled": true}]}));
    let daemon = json!({"id": ID, "key_id": ID, "created_at": TIME, "status": NEW, "provisioners": [NEW]});
    let key = json!({"id": ID, "created_at": TIME, "organization": ID, "name": "a"});
    same::<KeyWithDaemons>(json!({"key": key, "daemons": [daemon]}));
}

#[test]
fn unknown_entitlements_are_kept_as_they_are() {
    // A map's keys are names of features, so nothing is added to it but a feature.
    let feature =
        json!({"entitlement": NEW, "enabled": true, "limit": null, "usage_period": {"start": TIME}});
    let answer = json!({"features": {"invented_feature": feature}, "has_license": true, "refreshed_at": TIME,
        "invented_flag": true});
    let read: Entitlements = serde_json::from_value(answer).unwrap();
    assert_eq!(read.features["invented_feature"].entitlement, NEW);
    assert!(read.is_enabled("invented_feature"));
    let license =
        json!({"id": 1, "uuid": ID, "uploaded_at": TIME, "claims": {"invented": [1]}, "invented": 1});
    let read: License = serde_json::from_value(license).unwrap();
    assert_eq!(read.claims["invented"], json!([1]));
}

#[test]
fn sync_documents_with_unknown_fields_are_read() {
    let unknown = json!({"field": "groups", "mapping": {"/a": [ID]}, "organization_assign_default": true,
        "regex_filter": null, "invented_flag": true});
    assert_eq!(serde_json::from_value::<OrganizationSync>(unknown.clone()).unwrap().field, "groups");
    assert_eq!(serde_json::from_value::<GroupSync>(unknown.clone()).unwrap().mapping.len(), 1);
    assert_eq!(serde_json::from_value::<RoleSync>(unknown).unwrap().mapping["/a"], [ID]);
}

/// Whether a schema refuses what it does not know.
fn is_closed(schema: &Value) -> bool {
    match schema {
        Value::Object(keywords) => {
            let closes = |(keyword, value): (&String, &Value)| match keyword.as_str() {
                "additionalProperties" | "unevaluatedProperties" => *value == json!(false),
                "enum" | "const" => !value.is_object(),
                _ => false,
            };
            keywords.iter().any(closes) || keywords.values().any(is_closed)
        }
        Value::Array(list) => list.iter().any(is_closed),
        _ => false,
    }
}

#[test]
fn no_answer_is_read_by_a_closed_type() {
    assert!(is_closed(&json!({"properties": {"a": {"enum": ["x"]}}})));
    for route in ROUTES.iter() {
        let schema = route.response().map(|it| serde_json::to_value(it).unwrap()).unwrap_or_default();
        assert!(!is_closed(&schema), "{} {}: {schema:#}", route.method(), route.path());
    }
}
