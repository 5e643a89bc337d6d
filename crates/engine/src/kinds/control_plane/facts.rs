//! What the objects of a managed control plane depend on, read from the cluster: Secrets and `ConfigMap`s that its pods read,
//! and the consent of namespaces to take workspaces.

use std::collections::{BTreeMap, BTreeSet};

use api::{CoderControlPlane, Reason};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::PolicyRule};
use kube::ResourceExt as _;
use secrecy::SecretSlice;

use super::{
    children::{Deployed, PlaneFacts, consents, sources_of_deployment},
    token_secret::{FingerprintKey, fingerprint_key, read_fingerprint_key},
};
use crate::{
    objects::references::{Source, SourceRef, references},
    pipeline::outcome::Blocked,
    ports::{Cluster, ClusterError, Reading, object::Live},
    secrets::{FingerprintKeys, fingerprints::fingerprint, referenced},
};

/// What the objects of control planes are made with.
#[derive(Debug, Clone, Copy)]
pub struct PlaneContext<'a> {
    pub cluster: &'a dyn Cluster,
    /// What `extraRules` may grant.
    pub allowed_rules: &'a [PolicyRule],
    /// The keys of fingerprints that were last in use. `None` for a preview, which makes no key.
    pub fingerprints: Option<&'a FingerprintKeys>,
}

impl PlaneContext<'_> {
    /// `None` for a preview where there is no key yet.
    async fn fingerprint_key(&self, plane: &CoderControlPlane) -> Result<Option<FingerprintKey>, Blocked> {
        if let Some(known) = self.fingerprints {
            return fingerprint_key(plane, known, self.cluster).await.map(Some);
        }
        let stored = read_fingerprint_key(plane, self.cluster).await?;
        Ok(stored.map(|key| FingerprintKey { key, is_stored: true }))
    }
}

/// Reads what the objects of a control plane depend on. `live` are the objects that are there.
pub async fn facts(
    plane: &CoderControlPlane,
    live: &[Live],
    gateway_api: bool,
    context: &PlaneContext<'_>,
) -> Result<PlaneFacts, Blocked> {
    let namespace = plane.namespace().unwrap_or_default();
    let deployed = live.iter().find(|it| it.key.kind == "Deployment" && it.key.name == plane.name_any());
    let mut wanted = references(&plane.spec);
    wanted.extend(deployed.iter().flat_map(|it| sources_of_deployment(&it.object)));
    let mut sources = BTreeMap::new();
    let (mut has_fingerprints, mut unstored_key) = (true, None);
    if !wanted.is_empty() {
        let key = context.fingerprint_key(plane).await?;
        has_fingerprints = key.is_some();
        unstored_key = key.as_ref().filter(|it| !it.is_stored).map(|it| it.key.clone());
        let key = key.map(|it| it.key);
        for reference in wanted {
            if let Some(values) = values(&reference, &namespace, context.cluster).await? {
                sources.insert(reference, source(&values, key.as_ref()));
            }
        }
    }
    let consent = consent(plane, context.cluster).await.map_err(|error| unreadable("a namespace", &error))?;
    Ok(PlaneFacts {
        deployed: deployed.map(|it| Deployed::of(&it.object, &sources)),
        sources,
        lacks_fingerprints: !has_fingerprints,
        unstored_key,
        gateway_api,
        consenting: consent.granted,
        unreadable: consent.unreadable,
        allowed_rules: context.allowed_rules.to_vec(),
        database_version: plane.status.as_ref().and_then(|it| it.database_version.clone()),
    })
}

fn unreadable(what: &str, error: &ClusterError) -> Blocked {
    Blocked { reason: Reason::SecretUnreadable, message: format!("{what} cannot be read: {error}") }
}

/// The values of a Secret or a `ConfigMap`. `None` where it does not exist.
async fn values(
    reference: &SourceRef,
    namespace: &str,
    cluster: &dyn Cluster,
) -> Result<Option<Vec<(String, Vec<u8>)>>, Blocked> {
    match reference {
        SourceRef::Secret(name) => {
            let found = referenced::find(cluster, namespace, name).await.map_err(|it| it.of_secret(name))?;
            Ok(found.map(|it| it.data.into_iter().flatten().map(|(key, it)| (key, it.0)).collect()))
        }
        SourceRef::ConfigMap(name) => {
            let found = cluster.read::<ConfigMap>(namespace, name, Reading::Now).await;
            let found = found.map_err(|error| unreadable(&reference.to_string(), &error))?;
            Ok(found
                .map(|it| it.data.into_iter().flatten().map(|(key, it)| (key, it.into_bytes())).collect()))
        }
    }
}

/// What a Secret or a `ConfigMap` holds, as far as pods care. The fingerprint is made with a key that only the operator has,
/// because it ends in an annotation that more people may read than the Secret. Without that key the fingerprint is empty.
fn source(values: &[(String, Vec<u8>)], key: Option<&SecretSlice<u8>>) -> Source {
    let sorted: BTreeMap<&String, &Vec<u8>> = values.iter().map(|(key, value)| (key, value)).collect();
    let parts = sorted.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_slice()]);
    let fingerprint = key.map(|key| fingerprint(parts, key)).unwrap_or_default();
    let is_blank = |value: &[u8]| value.iter().all(u8::is_ascii_whitespace);
    let blank = sorted.iter().filter(|(_, value)| is_blank(value)).map(|(key, _)| (*key).clone()).collect();
    Source { keys: sorted.into_keys().cloned().collect(), blank, fingerprint }
}

/// What is known of the declared namespaces.
#[derive(Debug, Default)]
struct Consent {
    /// Those that consent to take workspaces.
    granted: BTreeSet<String>,
    /// Those that the operator may not read, with the API server's answer.
    unreadable: BTreeMap<String, String>,
}

async fn consent(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<Consent, ClusterError> {
    let declared = plane.spec.rbac.iter().flat_map(|it| it.workspace_namespaces.iter().flatten());
    let mut consent = Consent::default();
    for name in declared {
        match cluster.namespace(name).await {
            Ok(found) => {
                let labels = found.map(|it| it.labels.unwrap_or_default());
                let granted = labels.filter(|it| consents(plane, it)).map(|_| name.clone());
                consent.granted.extend(granted);
            }
            // An operator with `--namespace` holds no rights elsewhere unless somebody grants them.
            Err(error) if error.code() == Some(403) => {
                consent.unreadable.insert(name.clone(), error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(consent)
}
