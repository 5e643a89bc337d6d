//! Who else in the cluster has keys, of whichever kind: two objects may have set out for the same name, or the same Secret.
//!
//! Nothing here is from a cache: the other one may have written it down just now.

use std::fmt::Debug;

use api::{CoderProvisioner, CoderProvisionerKey, ProvisionerKeyState, reason};
use engine::{
    Kind as _, Trouble, Waiting,
    kinds::ProvisionerKey,
    provisioner_keys::{Held, Record, mirror::of_status},
};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;

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
        Waiting { reason: reason::PROGRESSING, message }.into()
    })
}

/// The object with that uid, in words, if it keeps its key in that Secret of its namespace.
pub(super) async fn keeper(
    client: &Client,
    namespace: &str,
    secret: &str,
    uid: &str,
) -> Result<Option<String>, Trouble> {
    let found = async {
        match keeps::<CoderProvisioner>(client, namespace, secret, uid).await? {
            Some(keeper) => Ok(Some(keeper)),
            None => keeps::<CoderProvisionerKey>(client, namespace, secret, uid).await,
        }
    };
    found.await.map_err(|error: kube::Error| {
        let message = format!("who keeps Secret {secret} cannot be found out: {error}");
        Waiting { reason: reason::PROGRESSING, message }.into()
    })
}

async fn any<K: KeyHolder>(
    namespace: Option<&str>,
    own: &str,
    held: &Held,
    client: &Client,
) -> Result<bool, kube::Error> {
    let all = list::<K>(namespace, client).await?;
    Ok(all.iter().filter(|it| it.uid().as_deref() != Some(own)).any(|it| has_key(it.keys(), held)))
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
    let keeper = all.iter().find(|it| it.uid().as_deref() == Some(uid) && it.is_in(secret));
    Ok(keeper.map(|it| format!("{} {}", K::kind(&()), it.name_any())))
}

async fn list<K: KeyHolder>(namespace: Option<&str>, client: &Client) -> Result<Vec<K>, kube::Error> {
    let objects: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    match objects.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items),
        // The cluster does not know the kind, so there is none of it.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let has = |state: serde_json::Value| has_key(Some(&serde_json::from_value(state).unwrap()), &held);
        assert!(has(current));
        assert!(has(json!({"pendingKey": other(false)})));
        assert!(has(json!({"retiringKeys": [other(false)]})), "its daemons may still have it");
        assert!(!has(json!({"retiringKeys": [other(true)]})));
        assert!(!has(json!({})));
    }
}
