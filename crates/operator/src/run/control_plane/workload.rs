//! A control plane that we run, as objects of the cluster: what it reads, what is there, what is applied, what became of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use api::{CoderControlPlane, Reason, annotation};
use engine::{
    Blocked, Plan, PlanView,
    control_plane::{
        Desired, Facts, KINDS,
        children::{Deployed, sources_of_deployment},
        consents, desire,
        references::{Reference, Source, references},
        report::{self, Workload},
        selector, version,
    },
    held_back::{self, Changes, HeldBack},
    objects::{self, ChildEffect, Comparison, Kept, Key, Live, Run, rollout::Rollout},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, ResourceExt as _};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use super::{vault::TokenSecret, workspace_roles};
use crate::{
    cluster::Cluster,
    run::{Shared, kube_cluster::error_of, labelled::labelled},
};

/// One more where the cluster has it.
const GATEWAY: (&str, &str, &str) = ("gateway.networking.k8s.io", "v1", "HTTPRoute");

/// Makes the objects what the manifest says, and tells what became of them.
pub(super) async fn keep(
    plane: &mut CoderControlPlane,
    changes: &mut Changes,
    shared: &Shared,
) -> Result<Workload, kube::Error> {
    let routes = routes(plane, shared).await?;
    let has_gateway = routes.is_some();
    let roles = workspace_roles::list(plane, shared).await?;
    let (unlisted, mut namespaces) = (roles.notices().collect::<Vec<_>>(), roles.namespaces(plane));
    let mut live = live(plane, roles.live, shared).await?;
    live.extend(routes.into_iter().flatten());
    let facts = match facts(plane, &live, has_gateway, shared).await {
        Ok(facts) => facts,
        Err(waiting) => return Ok(Workload::stopped(waiting)),
    };
    let desired = match desire(plane, &facts) {
        Ok(desired) => desired,
        Err(invalid) => {
            let message = format!("{}: {}", invalid.field, invalid.message);
            return Ok(Workload::stopped(Blocked { reason: Reason::Invalid, message }));
        }
    };
    let (name, pods, own) = (plane.name_any(), selector(plane), plane.namespace().unwrap_or_default());
    let declared = desired.children.iter().map(|it| &it.key.namespace).filter(|it| **it != own);
    namespaces.extend(declared.cloned());
    workspace_roles::record(plane, &namespaces, shared).await?;
    let compared = Comparison { deployment: &name, pods: &pods, children: &desired.children, live };
    let held_back = Mutex::new(None);
    let may = |plan: &Plan<ChildEffect>| {
        let checked = check(plane, &plan.view(&report::target(plane)));
        let is_ok = checked.is_ok();
        *held_back.lock().unwrap_or_else(PoisonError::into_inner) = checked.err();
        is_ok
    };
    let kept = objects::keep(&*plane, compared, &may, &*shared.cluster).await;
    let Kept { run: seen, mut refused, changed } = kept.map_err(error_of)?;
    changes.changed |= changed;
    changes.held_back = held_back.into_inner().unwrap_or_else(PoisonError::into_inner);
    refused.extend(unlisted);
    let workspace_namespaces = Some(namespaces.into_iter().collect());
    Ok(Workload { workspace_namespaces, ..outcome(plane, &desired, refused, &seen) })
}

/// Whether a plan of a control plane is carried out.
pub(super) fn check(plane: &CoderControlPlane, plan: &PlanView) -> Result<(), HeldBack> {
    let approved = plane.annotations().get(annotation::APPROVED_PLAN).map(String::as_str);
    held_back::check(&plane.spec.changes, plan, approved, None)
}

/// The objects of a control plane that was managed and runs elsewhere now: nobody keeps them any more, and they stay, since the
/// Coder elsewhere may still be the one that they are for.
pub(super) async fn unmanaged(
    plane: &CoderControlPlane,
    shared: &Shared,
) -> Result<Vec<String>, kube::Error> {
    let mut found = live(plane, workspace_roles::list(plane, shared).await?.live, shared).await?;
    found.extend(routes(plane, shared).await?.into_iter().flatten());
    let uid = plane.uid().unwrap_or_default();
    let is_owned = |it: &Live| {
        let owners = it.object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.into_iter().any(|owner| owner["uid"] == uid.as_str())
    };
    let elsewhere = workspace_roles::held(plane, &found);
    let owned = found.iter().filter(|it| is_owned(it)).map(|it| it.key.to_string());
    Ok(owned.chain(elsewhere.into_iter().map(|(key, _)| key.to_string())).collect())
}

/// How it stands after the writes.
fn outcome(plane: &CoderControlPlane, desired: &Desired, refused: Vec<Blocked>, seen: &Run) -> Workload {
    let known = plane.status.as_ref().and_then(|it| it.database_version.as_deref());
    let started: Vec<String> = seen.started().collect();
    let notices: Vec<Blocked> = refused.into_iter().chain(desired.notices.iter().cloned()).collect();
    let standing = match (notices.iter().find(|it| it.reason.blocks_rollout()).cloned(), seen.rollout()) {
        (Some(notice), _) => Err(notice),
        (None, Some(Rollout::Done)) => Ok(()),
        (None, Some(Rollout::Stuck(message))) => Err(Blocked { reason: Reason::RolloutStuck, message }),
        (None, Some(Rollout::Progressing(message))) => Err(Blocked { reason: Reason::Progressing, message }),
        (None, None) => {
            let message = "the Deployment is not there yet".to_owned();
            Err(Blocked { reason: Reason::Progressing, message })
        }
    };
    Workload {
        standing,
        ready_replicas: seen.ready(),
        database_version: version::newest(known, None, started.iter().map(String::as_str)),
        notices: Some(notices),
        workspace_namespaces: None,
    }
}

/// What is known of the cluster.
pub(super) async fn facts(
    plane: &CoderControlPlane,
    live: &[Live],
    gateway_api: bool,
    shared: &Shared,
) -> Result<Facts, Blocked> {
    let unreadable = |what: &str, error: &kube::Error| Blocked {
        reason: Reason::SecretUnreadable,
        message: format!("{what} cannot be read: {error}"),
    };
    let namespace = plane.namespace().unwrap_or_default();
    let deployed = live.iter().find(|it| it.key.kind == "Deployment" && it.key.name == plane.name_any());
    let mut wanted = references(&plane.spec);
    wanted.extend(deployed.iter().flat_map(|it| sources_of_deployment(&it.object)));
    let mut sources = BTreeMap::new();
    if !wanted.is_empty() {
        let key = TokenSecret::fingerprint_key(plane, shared).await?;
        for reference in wanted {
            let found = match &reference {
                Reference::Secret(name) => {
                    let found = Cluster(shared.client.clone()).read(&namespace, name).await;
                    let found = found.map_err(|it| it.of_secret(name))?;
                    found.map(|it| {
                        it.data.into_iter().flatten().map(|(key, it)| (key, it.0)).collect::<Vec<_>>()
                    })
                }
                Reference::ConfigMap(name) => {
                    let maps = Api::<ConfigMap>::namespaced(shared.client.clone(), &namespace);
                    let found = maps.get_opt(name).await.map_err(|it| unreadable(name, &it))?;
                    found.map(|it| {
                        it.data
                            .into_iter()
                            .flatten()
                            .map(|(key, it)| (key, it.into_bytes()))
                            .collect::<Vec<_>>()
                    })
                }
            };
            if let Some(values) = found {
                sources.insert(reference, source(&values, key.expose_secret()));
            }
        }
    }
    let consent = consent(plane, shared).await.map_err(|it| unreadable("a namespace", &it))?;
    Ok(Facts {
        deployed: deployed.map(|it| Deployed::of(&it.object, &sources)),
        sources,
        gateway_api,
        consenting: consent.given,
        unreadable: consent.unreadable,
        allowed_rules: shared.allowed_rules.clone(),
        database_version: plane.status.as_ref().and_then(|it| it.database_version.clone()),
    })
}

/// What a Secret or a ConfigMap holds, as far as pods care. The fingerprint is made with a key that only we have, because it
/// ends in an annotation that more people may read than the Secret.
fn source(values: &[(String, Vec<u8>)], key: &[u8]) -> Source {
    let mut hash = Sha256::new();
    let sorted: BTreeMap<&String, &Vec<u8>> = values.iter().map(|(key, value)| (key, value)).collect();
    hash.update(key);
    for (name, value) in &sorted {
        for part in [name.as_bytes(), value] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
    }
    let fingerprint = base16ct::lower::encode_string(&hash.finalize());
    let is_blank = |value: &[u8]| value.iter().all(u8::is_ascii_whitespace);
    let blank = sorted.iter().filter(|(_, value)| is_blank(value)).map(|(key, _)| (*key).clone()).collect();
    Source { keys: sorted.into_keys().cloned().collect(), blank, fingerprint }
}

/// What is known of the declared namespaces.
#[derive(Default)]
struct Consent {
    /// Those that consent to take workspaces.
    given: BTreeSet<String>,
    /// Those that the operator may not read, with the API server's answer.
    unreadable: BTreeMap<String, String>,
}

async fn consent(plane: &CoderControlPlane, shared: &Shared) -> Result<Consent, kube::Error> {
    let declared = plane.spec.rbac.iter().flat_map(|it| it.workspace_namespaces.iter().flatten());
    let (namespaces, mut consent) = (Api::<Namespace>::all(shared.client.clone()), Consent::default());
    for name in declared {
        match namespaces.get_metadata_opt(name).await {
            Ok(found) => {
                let given = found.filter(|it| consents(plane, it.labels())).map(|_| name.clone());
                consent.given.extend(given);
            }
            // An operator with `--namespace` holds no rights elsewhere unless somebody grants them.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                consent.unreadable.insert(name.clone(), status.message.clone());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(consent)
}

/// The routes that have our labels; nothing where the cluster does not know such objects. That may change at any time, so it is
/// asked each time, also when none is declared: one that no longer is has to go.
async fn routes(plane: &CoderControlPlane, shared: &Shared) -> Result<Option<Vec<Live>>, kube::Error> {
    let is_declared = plane.spec.expose.as_ref().is_some_and(|it| it.gateway.is_some());
    match labelled(&[GATEWAY], plane.namespace().as_deref(), &selector(plane), shared).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        // Who was never meant to make routes has none.
        Err(kube::Error::Api(status)) if status.code == 403 && !is_declared => Ok(None),
        Err(error) => Err(error),
    }
}

/// Every object that has our labels and is of a kind that every cluster knows, with the Roles for workspaces.
async fn live(
    plane: &CoderControlPlane,
    roles: Vec<Live>,
    shared: &Shared,
) -> Result<Vec<Live>, kube::Error> {
    let here = labelled(&KINDS, plane.namespace().as_deref(), &selector(plane), shared).await?;
    let found: BTreeMap<Key, Live> = here.into_iter().chain(roles).map(|it| (it.key.clone(), it)).collect();
    Ok(found.into_values().collect())
}
