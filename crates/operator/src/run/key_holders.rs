//! Who else in the cluster has keys, of whichever kind: two objects may have set out for the same name, or the same Secret.
//!
//! Nothing here is from a cache: the other one may have written it down just now.

use std::fmt::Debug;

use api::{CoderProvisioner, CoderProvisionerKey, ProvisionerKeyState, Reason};
use engine::{
    Blocked, Kind as _, Trouble,
    kinds::ProvisionerKey,
    provisioner_keys::{Held, Record, mirror::of_status},
};
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Shared, provisioner};

/// An object that has keys.
trait KeyHolder:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
    /// What its status says of them.
    fn keys(&self) -> Option<&ProvisionerKeyState>;

    /// Whether its key is in that Secret, or should be.
    fn is_in(&self, secret: &str) -> bool;
}

impl KeyHolder for CoderProvisioner {
    fn keys(&self) -> Option<&ProvisionerKeyState> {
        self.status.as_ref().map(|it| &it.key)
    }

    fn is_in(&self, secret: &str) -> bool {
        provisioner::refers_to(self, secret)
    }
}

impl KeyHolder for CoderProvisionerKey {
    fn keys(&self) -> Option<&ProvisionerKeyState> {
        self.status.as_ref().map(|it| &it.key)
    }

    fn is_in(&self, secret: &str) -> bool {
        ProvisionerKey::refers_to_secret(self, secret)
    }
}

/// Whether another object has, or is about to have, a key of that name there.
pub(super) async fn is_of_another(own: &str, held: &Held, shared: &Shared) -> Result<bool, Trouble> {
    let namespace = shared.namespace.as_deref();
    let found = async {
        let has = any::<CoderProvisioner>(namespace, own, held, &shared.client).await?;
        Ok(has || any::<CoderProvisionerKey>(namespace, own, held, &shared.client).await?)
    };
    found.await.map_err(|error: kube::Error| {
        let message = format!("whose key {} is cannot be found out: {error}", held.name);
        Blocked { reason: Reason::Progressing, message }.into()
    })
}

/// The object with that uid, in words, if it keeps its key in that Secret of its namespace.
pub(super) async fn keeper(
    client: &Client,
    namespace: &str,
    secret: &str,
    uid: &str,
) -> Result<Option<String>, Trouble> {
    find(client, namespace, secret, uid).await.map_err(|error| {
        let message = format!("cannot determine which object holds Secret {secret}: {error}; retrying");
        Blocked { reason: Reason::Progressing, message }.into()
    })
}

/// The same with the error of the API server.
pub(super) async fn find(
    client: &Client,
    namespace: &str,
    secret: &str,
    uid: &str,
) -> Result<Option<String>, kube::Error> {
    match keeps::<CoderProvisioner>(client, namespace, secret, uid).await? {
        Some(keeper) => Ok(Some(keeper)),
        None => keeps::<CoderProvisionerKey>(client, namespace, secret, uid).await,
    }
}

async fn any<K: KeyHolder>(
    namespace: Option<&str>,
    own: &str,
    held: &Held,
    client: &Client,
) -> Result<bool, kube::Error> {
    let all = list::<K>(namespace, client).await?;
    Ok(all.iter().filter(|it| it.metadata().uid.as_deref() != Some(own)).any(|it| it.has_key(held)))
}

/// An object of a list. One that this build cannot decode concerns only whoever asks for its keys.
enum Listed<K> {
    Decoded(Box<K>),
    Undecodable(Box<DynamicObject>),
}

impl<K: KeyHolder> Listed<K> {
    fn new(object: DynamicObject) -> Self {
        let decoded = serde_json::to_value(&object).and_then(serde_json::from_value);
        decoded.map_or_else(|_| Self::Undecodable(Box::new(object)), |it| Self::Decoded(Box::new(it)))
    }

    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Decoded(object) => object.meta(),
            Self::Undecodable(object) => &object.metadata,
        }
    }

    /// Whether it has that key or is about to have it. A status that cannot be decoded counts if it has the name anywhere.
    fn has_key(&self, held: &Held) -> bool {
        let object = match self {
            Self::Decoded(object) => return has_key(object.keys(), held),
            Self::Undecodable(object) => object,
        };
        let status = object.data.get("status").unwrap_or(&Value::Null);
        let state = serde_json::from_value::<ProvisionerKeyState>(status.clone());
        state.map_or_else(|_| mentions(status, &held.name), |it| has_key(Some(&it), held))
    }

    /// Whether its key is in that Secret, or should be. The question is asked of the object that the record in the Secret
    /// names, so an object that cannot be decoded is taken to keep it.
    fn is_in(&self, secret: &str) -> bool {
        match self {
            Self::Decoded(object) => object.is_in(secret),
            Self::Undecodable(_) => true,
        }
    }
}

fn mentions(value: &Value, text: &str) -> bool {
    match value {
        Value::String(it) => it.eq_ignore_ascii_case(text),
        Value::Array(items) => items.iter().any(|it| mentions(it, text)),
        Value::Object(fields) => fields.values().any(|it| mentions(it, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether that key is in use, or about to be.
fn has_key(state: Option<&ProvisionerKeyState>, held: &Held) -> bool {
    let Some(state) = state else { return false };
    let Record { current, intent, retiring, .. } = of_status(state, "");
    let retiring = retiring.into_iter().filter(|it| !it.lost).map(|it| it.held);
    let mut keys = current.into_iter().chain(intent.map(|it| it.held())).chain(retiring);
    keys.any(|it| it.is_called(&held.name, held.organization_id) && it.place.is_same(&held.place))
}

async fn keeps<K: KeyHolder>(
    client: &Client,
    namespace: &str,
    secret: &str,
    uid: &str,
) -> Result<Option<String>, kube::Error> {
    let all = list::<K>(Some(namespace), client).await?;
    let keeper = all.iter().find(|it| it.metadata().uid.as_deref() == Some(uid) && it.is_in(secret));
    let name = keeper.map(|it| it.metadata().name.as_deref().unwrap_or_default());
    Ok(name.map(|it| format!("{} {it}", K::kind(&()))))
}

async fn list<K: KeyHolder>(namespace: Option<&str>, client: &Client) -> Result<Vec<Listed<K>>, kube::Error> {
    let resource = ApiResource::erase::<K>(&());
    let objects: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    match objects.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items.into_iter().map(Listed::new).collect()),
        // The cluster does not know the kind, so there is none of it.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, http::header::CONTENT_TYPE};
    use serde_json::json;

    use super::*;

    /// A cluster whose every list has these items.
    async fn cluster(items: Value) -> Client {
        let body = json!({"metadata": {}, "items": items}).to_string();
        let answer = move || async move { ([(CONTENT_TYPE, "application/json")], body.clone()) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
        Client::try_from(kube::Config::new(url)).unwrap()
    }

    #[tokio::test]
    async fn undecodable_objects_are_asked_for_their_keys_too() {
        let key = json!({"provisionerKeyName": "alpha", "controlPlaneRefName": "main", "isOurs": true});
        let object = |uid: &str, spec: Value, status: Value| json!({"metadata": {"name": uid, "namespace": "n", "uid": uid}, "spec": spec, "status": status});
        let good = json!({"controlPlaneRef": {"name": "main"}});
        let bad = json!({"replicas": "many"});
        let mut undecodable = key.clone();
        undecodable["retiringKeys"] = json!("none");
        let held = of_status(&serde_json::from_value(key.clone()).unwrap(), "").current.unwrap();
        for (items, has) in [
            (json!([object("a", bad.clone(), json!({})), object("b", good.clone(), key.clone())]), true),
            (json!([object("a", bad.clone(), json!({})), object("b", good, json!({}))]), false),
            (json!([object("a", bad.clone(), key.clone())]), true),
            (json!([object("a", bad.clone(), undecodable)]), true),
            (json!([object("own", bad.clone(), key.clone())]), false),
        ] {
            let client = cluster(items.clone()).await;
            let found = any::<CoderProvisioner>(None, "own", &held, &client).await.unwrap();
            assert_eq!(found, has, "{items}");
        }
        let client = cluster(json!([object("a", bad, json!({}))])).await;
        let keeper = |uid| keeper(&client, "n", "a-provisioner-key", uid);
        assert_eq!(keeper("a").await.unwrap().as_deref(), Some("CoderProvisioner a"));
        assert_eq!(keeper("b").await.unwrap(), None);
    }

    #[test]
    fn whoever_has_had_or_sets_out_for_a_key_is_another_and_whoever_lost_one_is_not() {
        let place = json!({"controlPlaneRefName": "main", "controlPlaneURL": "http://coder", "isOurs": true});
        let other = |lost: bool| {
            let mut key = place.clone();
            (key["name"], key["since"], key["lost"]) =
                ("alpha".into(), "2026-01-01T00:00:00Z".into(), lost.into());
            key
        };
        let mut current = place.clone();
        current["provisionerKeyName"] = "alpha".into();
        let held = of_status(&serde_json::from_value(current.clone()).unwrap(), "").current.unwrap();
        let has = |state: Value| has_key(Some(&serde_json::from_value(state).unwrap()), &held);
        assert!(has(current));
        assert!(has(json!({"pendingKey": other(false)})));
        assert!(has(json!({"retiringKeys": [other(false)]})), "its daemons may still have it");
        assert!(!has(json!({"retiringKeys": [other(true)]})));
        assert!(!has(json!({})));
    }
}
