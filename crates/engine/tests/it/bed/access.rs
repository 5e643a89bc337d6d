//! Access on real coderds: how a token is come by, renewed and given up, also when something breaks in between.

mod account;
mod own;

use std::sync::Arc;

use api::{CoderControlPlane, annotation};
use client::{Client, ClientOptions, HttpOptions, HttpTransport};
use engine::kinds::control_plane::{
    access::{TokenNames, TokenRecord},
    operator_token_secret,
    token_secret::{Contents, TokenSecret},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use kube::Resource as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sim::MemoryCluster;

use crate::support;

const UID: &str = "0f0e0d0c-0000-4000-8000-000000000000";

/// The token Secret of a control plane, in a cluster that can be made to refuse a token.
struct Kept {
    plane: CoderControlPlane,
    cluster: MemoryCluster,
}

impl Default for Kept {
    fn default() -> Self {
        let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "spec": {},
            "metadata": {"name": "main", "namespace": "platform", "uid": UID}});
        Self { plane: serde_json::from_value(plane).unwrap(), cluster: support::cluster() }
    }
}

impl Kept {
    async fn open(&self) -> (TokenSecret<'_>, Contents) {
        TokenSecret::open(&self.plane, &self.cluster).await.unwrap()
    }

    fn found(&self) -> Option<Value> {
        self.cluster.find("Secret", &operator_token_secret(&self.plane))
    }

    fn record(&self) -> TokenRecord {
        let found = self.found().unwrap_or_default();
        let text = found["metadata"]["annotations"][annotation::OPERATOR_ACCESS].as_str();
        text.map(|it| serde_json::from_str(it).unwrap()).unwrap_or_default()
    }

    fn token(&self) -> Option<SecretString> {
        let bytes: ByteString = serde_json::from_value(self.found()?["data"].get("token")?.clone()).unwrap();
        Some(String::from_utf8(bytes.0).unwrap().into())
    }

    fn id(&self) -> Option<String> {
        self.token().map(|it| it.expose_secret().split('-').next().unwrap().to_owned())
    }

    /// Changes the Secret as another client would.
    fn edit(&self, edit: impl FnOnce(&mut Value)) {
        let owner = self.plane.controller_owner_ref(&());
        let empty = json!({"apiVersion": "v1", "kind": "Secret", "data": {}, "metadata": {"namespace": "platform",
            "name": operator_token_secret(&self.plane), "annotations": {}, "ownerReferences": [owner]}});
        let mut secret = self.found().unwrap_or(empty);
        edit(&mut secret);
        self.cluster.set(&secret);
    }

    fn set_record(&self, record: &TokenRecord) {
        let text = serde_json::to_string(record).unwrap();
        self.edit(|it| it["metadata"]["annotations"][annotation::OPERATOR_ACCESS] = text.into());
    }

    fn set_token(&self, token: Option<SecretString>) {
        let bytes = token.map(|it| ByteString(it.expose_secret().as_bytes().to_vec()));
        self.edit(|it| {
            it["data"].as_object_mut().unwrap().remove("token");
            if let Some(bytes) = bytes {
                it["data"]["token"] = json!(bytes);
            }
        });
    }

    fn refuse_tokens(&self, refuse: bool) {
        let has_token: fn(&Value) -> bool = |it| !it["data"]["token"].is_null();
        self.cluster.refuse_writes(refuse.then_some(has_token));
    }
}

fn anonymous(url: &str) -> Client {
    let transport = Arc::new(HttpTransport::new(HttpOptions::default()).unwrap());
    Client::new(ClientOptions { url: url.parse().unwrap(), token: None, transport }).unwrap()
}

fn names() -> TokenNames {
    TokenNames::of(UID)
}

fn later(now: Timestamp, hours: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_hours(hours)).unwrap()
}
