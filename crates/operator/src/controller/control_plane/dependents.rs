//! A control plane goes last: what belongs to it and is being deleted too still needs its address and its credentials.

use std::{sync::Arc, time::Duration};

use api::{AppState as _, CoderProvisioner, Manifest, finalizer};
use engine::{
    Cluster, Kind,
    kinds::{self, provisioner::patience::Patience},
    objects::Live,
    pipeline::cleanup::DEADLINE,
    ports::{ClusterError, List, Reading},
};
use futures::future::BoxFuture;
use kube::core::Selector;

use crate::{
    controller::{driver::SAFETY_NET, record::has_finalizer},
    planes::PlaneName,
};

/// Deletions of a set arrive one after the other: for this long it is not settled what else will be deleted.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);

/// Something that needs the control plane for its own deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dependent {
    pub(super) name: String,
    pub(super) is_leaving: bool,
    /// How long its own deletion may take.
    pub(super) patience: Duration,
}

/// Whether a control plane may go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// It waits for these.
    Wait(Vec<String>),
    /// It goes, and these have not been taken away.
    Go(Vec<String>),
}

/// Decides whether a control plane may go that has been leaving for a while.
pub(super) fn decide(dependents: &[Dependent], leaving_for: Duration, is_forced: bool) -> Departure {
    let named = |it: &Dependent| it.name.clone();
    let leaving: Vec<String> = dependents.iter().filter(|it| it.is_leaving).map(named).collect();
    let patience = dependents.iter().filter(|it| it.is_leaving).map(|it| it.patience).max();
    if is_forced || leaving_for >= patience.unwrap_or(DEADLINE).max(DEADLINE) {
        return Departure::Go(leaving);
    }
    if leaving_for < SETTLES_WITHIN && !dependents.is_empty() {
        return Departure::Wait(dependents.iter().map(named).collect());
    }
    if leaving.is_empty() { Departure::Go(Vec::new()) } else { Departure::Wait(leaving) }
}

/// How soon dependents are listed again that do not wake the control plane: once no further deletion of the same set is expected, and
/// by the safety net after that.
pub(super) fn again(leaving_for: Duration) -> Duration {
    SETTLES_WITHIN.checked_sub(leaving_for).filter(|it| !it.is_zero()).unwrap_or(SAFETY_NET)
}

/// Everything that belongs to a control plane and holds on to something in it, as the API server has it now.
pub(super) async fn dependents(
    cluster: &Arc<dyn Cluster>,
    plane: &PlaneName,
) -> Result<Vec<Dependent>, ClusterError> {
    let mut lists = Lists { cluster, plane: Arc::new(plane.clone()), found: Vec::new() };
    kinds::visit(&mut lists);
    lists.add(|it: &CoderProvisioner, plane| {
        let keys = it.status.iter().flat_map(|it| it.key.control_planes());
        let is_its = it.spec.control_plane_ref.name == plane || keys.into_iter().any(|it| it == plane);
        (is_its && has_finalizer(it, finalizer::PROVISIONER)).then(|| Patience::in_all(it))
    });
    Ok(futures::future::try_join_all(lists.found).await?.into_iter().flatten().collect())
}

/// Lists every kind that it is shown.
struct Lists<'a> {
    cluster: &'a Arc<dyn Cluster>,
    plane: Arc<PlaneName>,
    found: Vec<BoxFuture<'static, Result<Vec<Dependent>, ClusterError>>>,
}

impl kinds::Visitor for Lists<'_> {
    fn visit<K: Kind>(&mut self) {
        self.add(|it: &K::Manifest, plane| {
            (it.control_plane() == plane && has_finalizer(it, finalizer::FINALIZER)).then_some(DEADLINE)
        });
    }
}

impl Lists<'_> {
    /// Lists a kind, as far as it holds on to something in the control plane of that name, and how long it may do so.
    fn add<M: Manifest>(&mut self, holds: impl Fn(&M, &str) -> Option<Duration> + Send + 'static) {
        let (cluster, plane) = (Arc::clone(self.cluster), Arc::clone(&self.plane));
        self.found.push(Box::pin(async move {
            let (api_version, kind) = (M::api_version(&()), M::kind(&()));
            let labels = Selector::default();
            let list = List { api_version: &api_version, kind: &kind, namespace: Some(&plane.0), labels };
            let found = match cluster.list(&list, Reading::Now).await {
                Ok(found) => found,
                // The cluster does not know the kind, so there is none of it.
                Err(error) if error.is_missing() => Vec::new(),
                Err(error) => return Err(error),
            };
            let dependent = |it: Live| {
                let metadata = it.metadata();
                let patience = match serde_json::from_value::<M>(it.object.clone()) {
                    Ok(object) => holds(&object, &plane.1)?,
                    // Nobody can say to which control plane it belongs: it is waited for as if it were this one.
                    Err(_) => metadata.finalizers.iter().flatten().next().map(|_| DEADLINE)?,
                };
                let name = format!("{kind} {}", it.key.name);
                Some(Dependent { patience, name, is_leaving: metadata.deletion_timestamp.is_some() })
            };
            Ok(found.into_iter().filter_map(dependent).collect())
        }));
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        http::{StatusCode, Uri, header::CONTENT_TYPE},
    };
    use serde_json::json;

    use super::*;
    use crate::cluster::port::KubeCluster;

    const SOON: Duration = Duration::from_secs(1);
    const LATER: Duration = Duration::from_mins(1);

    fn dependent(is_leaving: bool) -> Dependent {
        Dependent { name: "CoderGroup alpha".to_owned(), is_leaving, patience: DEADLINE }
    }

    #[test]
    fn it_waits_for_daemons_that_may_take_longer() {
        let slow = Dependent { patience: DEADLINE * 2, ..dependent(true) };
        assert_eq!(decide(std::slice::from_ref(&slow), DEADLINE, false), Departure::Wait(alpha()));
        assert_eq!(decide(&[slow], DEADLINE * 2, false), Departure::Go(alpha()));
    }

    fn alpha() -> Vec<String> {
        vec!["CoderGroup alpha".to_owned()]
    }

    /// A cluster that has one organization, does not know of groups, and has nothing else.
    async fn cluster() -> Arc<dyn Cluster> {
        let answer = |uri: Uri| async move {
            let finalizers = [finalizer::FINALIZER];
            let alpha = json!({"metadata": {"name": "alpha", "namespace": "platform", "finalizers": finalizers},
                "spec": {"controlPlaneRef": {"name": "main"}}});
            let unknown = "the server could not find the requested resource";
            let (status, body) = match uri.path().rsplit('/').next() {
                Some("codergroups") => (
                    StatusCode::NOT_FOUND,
                    json!({"kind": "Status", "code": 404, "status": "Failure", "message": unknown}),
                ),
                Some("coderorganizations") => (StatusCode::OK, json!({"metadata": {}, "items": [alpha]})),
                _ => (StatusCode::OK, json!({"metadata": {}, "items": []})),
            };
            (status, [(CONTENT_TYPE, "application/json")], body.to_string())
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
        let client = kube::Client::try_from(kube::Config::new(url)).unwrap();
        Arc::new(KubeCluster::for_command(client, |_| {}))
    }

    #[tokio::test]
    async fn a_kind_that_the_cluster_does_not_know_holds_nobody_up() {
        let name = ("platform".to_owned(), "main".to_owned());
        let found = dependents(&cluster().await, &name).await.unwrap();
        let (name, patience) = ("CoderOrganization alpha".to_owned(), DEADLINE);
        let alpha = Dependent { name, is_leaving: false, patience };
        assert_eq!(found, [alpha]);
    }

    #[test]
    fn what_nothing_depends_on_goes_at_once() {
        assert_eq!(decide(&[], Duration::ZERO, false), Departure::Go(vec![]));
    }

    #[test]
    fn it_waits_for_what_is_being_deleted_too_until_the_deadline() {
        assert_eq!(decide(&[dependent(true)], LATER, false), Departure::Wait(alpha()));
        assert_eq!(decide(&[dependent(true)], DEADLINE, false), Departure::Go(alpha()));
        assert_eq!(decide(&[dependent(true)], SOON, true), Departure::Go(alpha()));
    }

    #[test]
    fn it_does_not_wait_for_what_stays_once_that_is_settled() {
        assert_eq!(decide(&[dependent(false)], SOON, false), Departure::Wait(alpha()));
        assert_eq!(decide(&[dependent(false)], LATER, false), Departure::Go(vec![]));
    }
}
