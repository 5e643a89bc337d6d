//! Licences: what coderd shows of them, and what it says to the second and to the wrong one.

use client::Class;
use secrecy::SecretString;
use serde_json::{Value, json};
use testbed::{Coderd, Flavour, coderd::sign_license};

use super::{client, shipped};

async fn sign(coderd: &Coderd, wanted: Value) -> SecretString {
    SecretString::from(sign_license(coderd.licenses.as_ref().unwrap(), &wanted).await.unwrap())
}

#[tokio::test]
async fn a_licence_lives_from_upload_to_deletion_and_is_shown_without_its_text() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let client = client(&coderd.owner.url, Some(&coderd.owner.token));
    assert_eq!(client.list_licenses().await.unwrap(), []);
    let license = sign(&coderd, json!({"feature_set": "premium", "account_id": "a", "term": "valid"})).await;
    let added = client.add_license(&license).await.unwrap();
    assert_eq!(added.claims["account_id"], "a");
    assert_eq!(added.claims["jti"], added.uuid.to_string(), "its own name is its uuid");
    assert_eq!(client.list_licenses().await.unwrap(), std::slice::from_ref(&added));
    let entitlements = client.entitlements().await.unwrap();
    assert!(entitlements.has_license && !entitlements.require_telemetry);

    let error = client.add_license(&license).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "the same one again is a 500: {error}");
    assert!(!error.nothing_was_done(), "and says nothing about the first try");
    let error = client.refresh_entitlements().await.unwrap_err();
    assert_eq!(error.class(), Class::RateLimited, "the upload was a refresh: {error}");
    assert!(error.retry_after().is_some());

    client.delete_license(added.id).await.unwrap();
    assert_eq!(client.delete_license(added.id).await.unwrap_err().class(), Class::Missing);
    assert!(!client.entitlements().await.unwrap().has_license);
    assert!(client.add_license(&license).await.unwrap().id > added.id, "and may come again");
}

#[tokio::test]
async fn a_licence_that_is_not_coders_is_invalid_and_not_repeated() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let license = sign(&coderd, json!({"feature_set": "premium"})).await;
    let error = shipped().add_license(&license).await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid, "{error}");
    assert!(!format!("{error} {error:?}").contains("eyJ"), "{error}");
}
