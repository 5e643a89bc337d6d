//! Secrets that the operator writes for itself, and who may refer to them.
//!
//! They hold tokens and keys that were minted for one deployment. A manifest that could name one would send it wherever that
//! manifest says, so a reference to one is refused before anything is read from it. What Kubernetes itself gives to pods (a
//! service account with the right to read Secrets, an image that somebody else writes) is beyond this check: whoever may write a
//! kind that runs pods can use every Secret of the namespace, as a Pod's author can.

use std::collections::BTreeSet;

use api::{Reason, annotation, finalizer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use crate::{
    pipeline::outcome::Blocked,
    ports::{Cluster, ClusterError, finalizers},
    secrets::{Record, holders},
};

/// The API group of the kinds that own Secrets of ours.
const GROUP: &str = "coder.com/";

/// What a Secret of our own holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Own {
    /// A token or a password of the operator's account. No manifest refers to it: its control plane knows it by name.
    Access { owner: String },
    /// The provisioner key of the object with that uid, which owns the Secret.
    OwnedKey { owner: String, uid: String },
    /// The provisioner key of the object with that uid according to the record; empty in records of older versions.
    RecordedKey { holder: String },
    /// A provisioner key whose record cannot be read.
    UnreadableKey,
}

/// Says why a reference to a Secret is refused. `asker` is the uid of the object that refers to it, where that object may own
/// Secrets. `None` where the reference is allowed.
pub fn refusal(secret: &ObjectMeta, asker: Option<&str>) -> Option<String> {
    let name = secret.name.as_deref().unwrap_or_default();
    let held_by = |owner: &str| {
        format!(
            "Secret {name} holds the provisioner key of {owner}, and nothing else may refer to it: name a Secret of your own"
        )
    };
    match own(secret)? {
        Own::OwnedKey { uid, .. } if asker == Some(&uid) => None,
        Own::RecordedKey { holder } if asker.is_some_and(|it| holder.is_empty() || holder == it) => None,
        Own::OwnedKey { owner, .. } => Some(held_by(&owner)),
        Own::RecordedKey { .. } => Some(held_by("another object")),
        Own::UnreadableKey => Some(format!(
            "annotation {} of Secret {name} cannot be read, so it is unknown which object holds the provisioner key in it: \
             correct or remove the annotation, or name a Secret of your own",
            annotation::PROVISIONER_KEY
        )),
        Own::Access { owner } => Some(format!(
            "Secret {name} holds the operator's own access to {owner}, and no manifest may refer to it: name a Secret of your own"
        )),
    }
}

/// Returns why the object with that uid must not keep its provisioner key in a Secret. `None` where it may, and where a
/// record names the holder: whether that object still exists is not known from the Secret.
pub fn withheld(secret: &ObjectMeta, uid: &str) -> Option<Blocked> {
    if secret.owner_references.iter().flatten().any(|it| it.uid == uid) {
        return None;
    }
    let name = secret.name.as_deref().unwrap_or_default();
    match own(secret)? {
        Own::RecordedKey { .. } => None,
        Own::OwnedKey { owner, .. } => Some(Blocked {
            reason: Reason::HeldByOther,
            message: format!("{owner} keeps its own key in Secret {name}: choose another secretName"),
        }),
        Own::UnreadableKey | Own::Access { .. } => {
            let message = refusal(secret, Some(uid)).unwrap_or_default();
            Some(Blocked { reason: Reason::SecretNotAllowed, message })
        }
    }
}

/// The uid of the object that holds the provisioner key in a Secret according to the record alone. `None` where an owner
/// reference says it, or no record does.
pub fn recorded_holder(secret: &ObjectMeta) -> Option<String> {
    match own(secret)? {
        Own::RecordedKey { holder } => Some(holder).filter(|it| !it.is_empty()),
        Own::OwnedKey { .. } | Own::UnreadableKey | Own::Access { .. } => None,
    }
}

fn own(secret: &ObjectMeta) -> Option<Own> {
    let annotation = |name: &str| secret.annotations.as_ref().and_then(|it| it.get(name));
    let owners = secret.owner_references.as_deref().unwrap_or_default();
    let owner_of = |kind: &str| owners.iter().find(|it| it.api_version.starts_with(GROUP) && it.kind == kind);
    let is_held = finalizers::has(secret, finalizer::TOKEN);
    let plane = owner_of("CoderControlPlane");
    if is_held || plane.is_some() || annotation(annotation::OPERATOR_ACCESS).is_some() {
        let owner = plane.map_or_else(|| "a deployment".to_owned(), |it| format!("{} {}", it.kind, it.name));
        return Some(Own::Access { owner });
    }
    if let Some(it) = owner_of("CoderProvisioner").or_else(|| owner_of("CoderProvisionerKey")) {
        return Some(Own::OwnedKey { owner: format!("{} {}", it.kind, it.name), uid: it.uid.clone() });
    }
    let record = serde_json::from_str::<Record>(annotation(annotation::PROVISIONER_KEY)?);
    Some(record.map_or(Own::UnreadableKey, |it| Own::RecordedKey { holder: it.holder }))
}

/// A reference to a Secret that pods must not be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSecret {
    pub name: String,
    pub message: String,
}

/// The first of these Secrets that pods of the object with that uid must not be given. A Secret that does not exist is not
/// refused.
pub async fn refused(
    cluster: &dyn Cluster,
    namespace: &str,
    names: impl IntoIterator<Item = String>,
    uid: Option<&str>,
) -> Result<Option<RefusedSecret>, ClusterError> {
    for name in names {
        let Some(found) = cluster.secret_metadata(namespace, &name).await? else { continue };
        let Some(message) = refusal(&found, uid) else { continue };
        // A key that its holder left behind is used as every other Secret.
        if uid.is_some()
            && let Some(holder) = recorded_holder(&found)
            && holders::keeper(cluster, namespace, &name, &holder).await?.is_none()
        {
            continue;
        }
        return Ok(Some(RefusedSecret { name, message }));
    }
    Ok(None)
}

/// The names of all Secrets that pods of an object would be given, wherever in a pod's spec they stand.
pub fn referenced(object: &impl Serialize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    // Objects of Kubernetes are plain data: there is none that cannot be written.
    collect(&serde_json::to_value(object).unwrap_or_default(), &mut names);
    names
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|it| collect(it, names)),
        Value::Object(fields) => {
            for (field, value) in fields {
                // `secretName`; `secretRef`, `secretKeyRef`, `nodePublishSecretRef` and others; `secret` of a projected volume;
                // `imagePullSecrets`.
                let name = match field.as_str() {
                    "secretName" => value.as_str(),
                    "secret" => value.get("name").and_then(Value::as_str),
                    it if it.to_lowercase().contains("secret") && it.ends_with("Ref") => {
                        value.get("name").and_then(Value::as_str)
                    }
                    "imagePullSecrets" => {
                        let pulled = value.as_array().into_iter().flatten();
                        names.extend(pulled.filter_map(|it| Some(it.get("name")?.as_str()?.to_owned())));
                        None
                    }
                    _ => None,
                };
                names.extend(name.map(str::to_owned));
                collect(value, names);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(metadata: &Value) -> ObjectMeta {
        let mut whole = json!({"name": "s"});
        whole.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    fn owned_by(kind: &str) -> Value {
        json!({"ownerReferences": [{"apiVersion": "coder.com/v1alpha1", "kind": kind, "name": "main", "uid": "u"}]})
    }

    #[test]
    fn access_of_the_operator_is_refused_to_everybody_however_it_is_known() {
        let annotated = json!({"annotations": {annotation::OPERATOR_ACCESS: "{}"}});
        let held = json!({"finalizers": [finalizer::TOKEN]});
        for known in [annotated, held, owned_by("CoderControlPlane")] {
            let known = secret(&known);
            assert_eq!(withheld(&known, "v").unwrap().reason, api::Reason::SecretNotAllowed);
            for asker in [None, Some("u"), Some("v")] {
                let why = refusal(&known, asker).unwrap();
                assert!(why.starts_with("Secret s holds the operator's own access"), "{why}");
            }
        }
    }

    #[test]
    fn a_key_is_for_its_owner_alone() {
        let recorded = json!({"annotations": {annotation::PROVISIONER_KEY: r#"{"holder":"u"}"#}});
        for known in [recorded, owned_by("CoderProvisioner")] {
            let known = secret(&known);
            assert_eq!(withheld(&known, "u"), None);
            assert_eq!(refusal(&known, Some("u")), None);
            for asker in [None, Some("v")] {
                assert!(refusal(&known, asker).unwrap().contains("provisioner key"));
            }
        }
    }

    #[test]
    fn key_whose_holder_is_unknown_is_withheld() {
        let broken = secret(&json!({"annotations": {annotation::PROVISIONER_KEY: "?"}}));
        for asker in [None, Some("u")] {
            assert!(refusal(&broken, asker).unwrap().contains("annotation coder.com/provisioner-key"));
        }
        assert_eq!(withheld(&broken, "u").unwrap().reason, api::Reason::SecretNotAllowed);
        for kind in ["CoderProvisioner", "CoderProvisionerKey"] {
            let owned = secret(&owned_by(kind));
            let waiting = withheld(&owned, "v").unwrap();
            assert_eq!(waiting.reason, api::Reason::HeldByOther);
            assert!(waiting.message.starts_with(&format!("{kind} main keeps its own key")), "{waiting:?}");
        }
        let mut own = owned_by("CoderProvisioner");
        own["annotations"] = json!({annotation::PROVISIONER_KEY: "?"});
        assert_eq!(withheld(&secret(&own), "u"), None, "its owner knows the key from its status");
        let recorded = json!({"annotations": {annotation::PROVISIONER_KEY: r#"{"holder":"u"}"#}});
        assert_eq!(withheld(&secret(&recorded), "v"), None, "the holder is looked up");
    }

    #[test]
    fn secrets_of_people_are_for_everybody() {
        let foreign = json!({"ownerReferences": [{"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret",
            "name": "main", "uid": "u"}], "annotations": {"a": "b"}, "finalizers": ["c"]});
        for metadata in [json!({}), foreign] {
            assert_eq!(refusal(&secret(&metadata), None), None);
            assert_eq!(withheld(&secret(&metadata), "v"), None);
        }
    }

    #[test]
    fn every_secret_that_a_pod_can_be_given_is_found() {
        let pod = json!({"containers": [{"env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "k"}}}],
            "envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "map"}}]}],
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [{"name": "v", "secret": {"secretName": "file"}},
                {"name": "w", "projected": {"sources": [{"secret": {"name": "part"}}]}},
                {"name": "x", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
                {"name": "y", "azureFile": {"secretName": "azure", "shareName": "s"}},
                {"name": "z", "cephfs": {"monitors": [], "secretRef": {"name": "ceph"}}}]});
        let object = json!({"spec": {"template": {"spec": pod}}});
        let found: Vec<String> = referenced(&[object]).into_iter().collect();
        assert_eq!(found, ["all", "azure", "ceph", "csi", "env", "file", "part", "pull"]);
    }
}
