//! The token Secret of a control plane, in a cluster.

use api::{CoderControlPlane, annotation, finalizer};
use engine::{
    kinds::control_plane::token_secret::{
        Contents, FingerprintKey, TokenSecret, fingerprint_key, release_all, release_orphans,
    },
    secrets::FingerprintKeys,
};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use serde_json::{Value, json};
use sim::MemoryCluster;

use crate::support;

const NAME: &str = "main-operator-token";

fn plane() -> CoderControlPlane {
    let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "spec": {},
        "metadata": {"name": "main", "namespace": "platform", "uid": "u"}});
    serde_json::from_value(plane).unwrap()
}

fn found(cluster: &MemoryCluster) -> Value {
    cluster.find("Secret", NAME).unwrap()
}

/// A cluster with the token Secret of a control plane that is not deleted.
async fn stored() -> MemoryCluster {
    let cluster = support::cluster();
    cluster.set(
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "platform", "namespace": ""}}),
    );
    let (secret, Contents { mut record, .. }) = TokenSecret::open(&plane(), &cluster).await.unwrap();
    record.token = serde_json::from_value(json!({"name": "first", "mintedAt": "2026-01-01T00:00:00Z",
        "expiresAt": "2026-01-02T00:00:00Z"}))
    .unwrap();
    secret.store(&record, Some(&SecretString::from("id-hunter2"))).await.unwrap();
    assert!(!format!("{secret:?}").contains("hunter2"));
    cluster
}

fn delete(cluster: &MemoryCluster) {
    cluster.edit("Secret", NAME, |it| it["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z".into());
}

#[tokio::test]
async fn deleted_secret_is_replaced_and_its_token_counts_as_lost() {
    let cluster = stored().await;
    let before = found(&cluster);
    delete(&cluster);
    let (_, Contents { token, record }) = TokenSecret::open(&plane(), &cluster).await.unwrap();
    assert_eq!(token.unwrap().expose_secret(), "id-hunter2");
    assert_eq!(record.minting.as_deref(), Some("first"));
    let after = found(&cluster);
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["metadata"]["finalizers"], json!([finalizer::TOKEN]));
}

#[tokio::test]
async fn deleted_secret_is_not_replaced_in_a_namespace_that_goes() {
    let cluster = stored().await;
    cluster.edit("Namespace", "platform", |it| {
        it["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z".into();
    });
    delete(&cluster);
    let before = found(&cluster);
    TokenSecret::open(&plane(), &cluster).await.unwrap();
    assert_eq!(found(&cluster), before);
}

#[tokio::test]
async fn secret_of_another_owner_is_refused() {
    let cluster = stored().await;
    cluster.edit("Secret", NAME, |it| it["metadata"]["ownerReferences"] = json!([]));
    let refused = TokenSecret::open(&plane(), &cluster).await.unwrap_err();
    assert_eq!(refused.reason, api::Reason::NotOurs);
}

/// Stores the key for fingerprints, and returns the key that is used from then on.
async fn stored_key(known: &FingerprintKeys, cluster: &MemoryCluster) -> SecretSlice<u8> {
    let used = fingerprint_key(&plane(), known, cluster).await.unwrap().key;
    let (secret, _) = TokenSecret::open(&plane(), cluster).await.unwrap();
    secret.store_fingerprint_key(&plane(), &used, known).await.unwrap();
    let FingerprintKey { key, is_stored } = fingerprint_key(&plane(), known, cluster).await.unwrap();
    assert!(is_stored);
    key
}

#[tokio::test]
async fn fingerprint_key_is_the_same_before_and_after_it_is_stored() {
    let (cluster, known) = (support::cluster(), FingerprintKeys::default());
    let made = fingerprint_key(&plane(), &known, &cluster).await.unwrap();
    assert!(!made.is_stored);
    assert_eq!(cluster.find("Secret", NAME), None, "nothing is written by who only asks for it");
    let stored = stored_key(&known, &cluster).await;
    assert_eq!(stored.expose_secret(), made.key.expose_secret());
}

#[tokio::test]
async fn removed_fingerprint_key_is_put_back_while_it_is_known() {
    let (cluster, known) = (support::cluster(), FingerprintKeys::default());
    let first = stored_key(&known, &cluster).await;
    let stored = found(&cluster)["data"].clone();
    cluster.remove("Secret", NAME);
    let second = stored_key(&known, &cluster).await;
    assert_eq!(first.expose_secret(), second.expose_secret());
    assert_eq!(found(&cluster)["data"], stored);
    cluster.remove("Secret", NAME);
    known.forget(&("platform".to_owned(), "main".to_owned()));
    let third = stored_key(&known, &cluster).await;
    assert_ne!(first.expose_secret(), third.expose_secret());
}

#[tokio::test]
async fn fingerprint_key_that_two_make_at_once_is_the_first_ones() {
    let (cluster, known) = (support::cluster(), FingerprintKeys::default());
    let (slow, _) = TokenSecret::open(&plane(), &cluster).await.unwrap();
    let other = FingerprintKeys::default();
    let used = fingerprint_key(&plane(), &other, &cluster).await.unwrap().key;
    let first = stored_key(&known, &cluster).await;
    assert_ne!(first.expose_secret(), used.expose_secret());
    // Meanwhile another reconcile of the same process has seen the first one's.
    fingerprint_key(&plane(), &other, &cluster).await.unwrap();
    let refused = slow.store_fingerprint_key(&plane(), &used, &other).await.unwrap_err();
    assert_eq!(refused.reason, api::Reason::Progressing, "what was made with the other key is made again");
    let second = stored_key(&other, &cluster).await;
    assert_eq!(first.expose_secret(), second.expose_secret());
}

#[tokio::test]
async fn fingerprint_key_of_a_deleted_secret_is_stored_again() {
    let (cluster, known) = (stored().await, FingerprintKeys::default());
    let first = stored_key(&known, &cluster).await;
    delete(&cluster);
    let going = fingerprint_key(&plane(), &known, &cluster).await.unwrap();
    assert!(!going.is_stored, "no other step replaces a Secret that only holds this key");
    let second = stored_key(&known, &cluster).await;
    assert_eq!(first.expose_secret(), second.expose_secret());
    assert!(found(&cluster)["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn emptied_secret_keeps_the_fingerprint_key() {
    let cluster = stored().await;
    stored_key(&FingerprintKeys::default(), &cluster).await;
    let (secret, _) = TokenSecret::open(&plane(), &cluster).await.unwrap();
    secret.empty_out().await.unwrap();
    let found = found(&cluster);
    assert!(found["data"]["token"].is_null() && !found["data"]["fingerprint-key"].is_null());
    assert!(found["metadata"]["annotations"].get(annotation::OPERATOR_ACCESS).is_none());
}

#[tokio::test]
async fn secrets_of_a_deleted_control_plane_are_released() {
    let cluster = stored().await;
    delete(&cluster);
    release_all(&plane(), &cluster).await.unwrap();
    assert_eq!(cluster.find("Secret", NAME), None);
}

#[tokio::test]
async fn orphan_is_released_only_when_its_control_plane_is_gone() {
    let cluster = stored().await;
    cluster.set(&serde_json::to_value(plane()).unwrap());
    assert_eq!(release_orphans("platform", &cluster).await.unwrap(), [""; 0], "it is not deleted");
    delete(&cluster);
    assert_eq!(release_orphans("platform", &cluster).await.unwrap(), [""; 0], "its owner releases it");
    cluster.remove("CoderControlPlane", "main");
    assert_eq!(release_orphans("platform", &cluster).await.unwrap(), [NAME]);
    assert_eq!(cluster.find("Secret", NAME), None);
}
