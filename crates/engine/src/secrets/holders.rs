//! Who else in the cluster has keys, of whichever kind: two objects may have set out for the same name, or the same Secret.
//!
//! Nothing here is from a cache: the other one may have written it down just now.

use api::{CoderProvisioner, CoderProvisionerKey, ProvisionerKeyState, Reason};
use kube::{Resource, core::Selector};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    holder::Holder,
    mirror::of_status,
    record::{Held, Record},
};
use crate::{
    pipeline::outcome::{Blocked, Trouble},
    ports::{Cluster, ClusterError, List, Reading, object::Live},
};

/// A kind whose objects have keys.
pub(crate) trait KeyHolder: Resource<DynamicType = ()> + DeserializeOwned {
    /// What its status says of them.
    fn keys(&self) -> Option<&ProvisionerKeyState>;

    /// Whether its key is in that Secret, or should be.
    fn is_in(&self, secret: &str) -> bool;
}

/// Whether an object other than the one with the uid `own` has, or is about to have, a key of that name there.
pub async fn is_of_another(cluster: &dyn Cluster, own: &str, held: &Held) -> Result<bool, Trouble> {
    let found = async {
        let has = any::<CoderProvisioner>(cluster, own, held).await?;
        Ok(has || any::<CoderProvisionerKey>(cluster, own, held).await?)
    };
    found.await.map_err(|error: ClusterError| {
        let message =
            format!("cannot determine which object owns provisioner key {}: {error}; retrying", held.name);
        Blocked { reason: Reason::Progressing, message }.into()
    })
}

/// The object with that uid, as `CoderProvisioner NAME`, if it keeps its key in that Secret of its namespace.
pub async fn keeper(
    cluster: &dyn Cluster,
    namespace: &str,
    secret: &str,
    uid: &str,
) -> Result<Option<String>, ClusterError> {
    match keeps::<CoderProvisioner>(cluster, namespace, secret, uid).await? {
        Some(keeper) => Ok(Some(keeper)),
        None => keeps::<CoderProvisionerKey>(cluster, namespace, secret, uid).await,
    }
}

async fn any<K: KeyHolder>(cluster: &dyn Cluster, own: &str, held: &Held) -> Result<bool, ClusterError> {
    let all = list::<K>(cluster, None).await?;
    Ok(all.iter().filter(|it| it.metadata().uid.as_deref() != Some(own)).any(|it| has::<K>(it, held)))
}

async fn keeps<K: KeyHolder>(
    cluster: &dyn Cluster,
    namespace: &str,
    secret: &str,
    uid: &str,
) -> Result<Option<String>, ClusterError> {
    let all = list::<K>(cluster, Some(namespace)).await?;
    // The question is asked of the object that the record in the Secret names, so an object that cannot be decoded is taken to
    // keep it.
    let keeps = |it: &Live| decoded::<K>(it).is_none_or(|it| it.is_in(secret));
    // A key that was minted from a file is that of the object of the same name.
    let is_holder = |it: &Live| {
        it.metadata().uid.as_deref() == Some(uid)
            || uid == Holder::uid_of_file(&K::kind(&()), &it.key.namespace, &it.key.name)
    };
    let keeper = all.iter().find(|it| is_holder(it) && keeps(it));
    Ok(keeper.map(|it| format!("{} {}", K::kind(&()), it.key.name)))
}

/// An object of the list, where this build can decode it.
fn decoded<K: DeserializeOwned>(live: &Live) -> Option<K> {
    serde_json::from_value(live.object.clone()).ok()
}

/// Whether an object has that key or is about to have it. A status that cannot be decoded counts if it has the name anywhere.
fn has<K: KeyHolder>(live: &Live, held: &Held) -> bool {
    if let Some(object) = decoded::<K>(live) {
        return has_key(object.keys(), held);
    }
    let status = live.object.get("status").unwrap_or(&Value::Null);
    let state = serde_json::from_value::<ProvisionerKeyState>(status.clone());
    state.map_or_else(|_| mentions(status, &held.name), |it| has_key(Some(&it), held))
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

async fn list<K: KeyHolder>(
    cluster: &dyn Cluster,
    namespace: Option<&str>,
) -> Result<Vec<Live>, ClusterError> {
    let (api_version, kind) = (K::api_version(&()), K::kind(&()));
    let list = List { api_version: &api_version, kind: &kind, namespace, labels: Selector::default() };
    match cluster.list(&list, Reading::Now).await {
        // The cluster does not know the kind, so there is none of it.
        Err(error) if error.is_missing() => Ok(Vec::new()),
        listed => listed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(uid: &str, spec: &Value, status: &Value) -> Live {
        Live::new(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": uid, "namespace": "n", "uid": uid}, "spec": spec, "status": status}))
        .unwrap()
    }

    #[test]
    fn undecodable_objects_are_asked_for_their_keys_too() {
        let key = json!({"provisionerKeyName": "alpha", "controlPlaneRefName": "main", "isOurs": true});
        let good = json!({"controlPlaneRef": {"name": "main"}});
        let bad = json!({"replicas": "many"});
        let mut undecodable = key.clone();
        undecodable["retiringKeys"] = json!("none");
        let held = of_status(&serde_json::from_value(key.clone()).unwrap(), "").current.unwrap();
        for (spec, status, expected) in [
            (&good, &key, true),
            (&good, &json!({}), false),
            (&bad, &key, true),
            (&bad, &undecodable, true),
            (&bad, &json!({}), false),
        ] {
            let object = live("a", spec, status);
            assert_eq!(has::<CoderProvisioner>(&object, &held), expected, "{spec} {status}");
        }
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
