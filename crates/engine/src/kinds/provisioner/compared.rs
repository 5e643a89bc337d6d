//! The objects of a provisioner: what is declared, compared with what is there. Nothing is written.

use api::{CoderControlPlane, CoderProvisioner};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{ResourceExt as _, core::Selector};

use super::{
    KINDS,
    children::{self, Authority, DaemonFacts},
    image, names, secret,
};
use crate::{
    coder::{Beside, endpoint::place},
    objects::{self, Compared, Comparison},
    pipeline::outcome::{Blocked, Invalid},
    ports::{Cluster, ClusterError, List, Reading, object::Live},
    secrets::SecretPlace,
};

/// The objects of a provisioner, compared with what they should be.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) compared: Compared,
    /// Why the daemons keep the image that they have, where that is not the declared one.
    pub(super) keeps_image: Option<Blocked>,
}

/// Why objects cannot be compared.
#[derive(Debug)]
pub(super) enum Unplanned {
    /// There is no image that the daemons may have.
    Image(Blocked),
    /// The certificates that daemons trust are not there.
    Authority(Blocked),
    Invalid(Invalid),
    Cluster(ClusterError),
}

impl From<ClusterError> for Unplanned {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(error)
    }
}

/// Compares the objects that are declared for pods which are `given` this with those that are there. `reads_names` is that of
/// [`Comparison`]. Where the control plane does
/// not let the daemons have their image yet, they keep the one that they have.
pub(super) async fn compare(
    provisioner: &CoderProvisioner,
    given: (&str, &str),
    reads_names: bool,
    declared: &CoderControlPlane,
    beside: &Beside,
) -> Result<Objects, Unplanned> {
    let cluster = &*beside.cluster;
    let (workload, selector) = selected(provisioner);
    let (image, keeps_image) = match image(provisioner, declared) {
        Ok(image) => (image, None),
        Err(blocked) => {
            let deployed = objects::deployment(provisioner, &workload, cluster).await?;
            let Some(image) = deployed.as_ref().and_then(deployed_image) else {
                return Err(Unplanned::Image(blocked));
            };
            (image, Some(blocked))
        }
    };
    let authority = authority(declared, &*beside.references).await.map_err(Unplanned::Authority)?;
    let facts = facts(provisioner, given, image, authority);
    let children = children::desire(provisioner, &facts).map_err(Unplanned::Invalid)?;
    let live = live(provisioner, cluster).await?;
    let comparison =
        Comparison { deployment: &workload, pods: &selector, children: &children, live, reads_names };
    let compared = objects::compare(provisioner, comparison, cluster).await?;
    Ok(Objects { compared, keeps_image })
}

fn deployed_image(deployment: &Deployment) -> Option<String> {
    deployment.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone()
}

/// The objects that have the labels of a provisioner.
async fn live(provisioner: &CoderProvisioner, cluster: &dyn Cluster) -> Result<Vec<Live>, ClusterError> {
    let namespace = provisioner.namespace().unwrap_or_default();
    let lists = KINDS.map(async |(group, version, kind)| {
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let labels = names::wide_selector(provisioner);
        let list = List { api_version: &api_version, kind, namespace: Some(&namespace), labels };
        cluster.list(&list, Reading::Known).await
    });
    Ok(try_join_all(lists).await?.into_iter().flatten().collect())
}

/// The certificates that the daemons trust beyond the usual ones.
async fn authority(
    declared: &CoderControlPlane,
    references: &dyn Cluster,
) -> Result<Option<Authority>, Blocked> {
    let Some((name, key)) = declared.spec.external.as_ref().and_then(|it| it.ca()) else { return Ok(None) };
    let endpoint = place(declared, references).await?;
    Ok(Some(Authority {
        secret: name.to_owned(),
        key: key.to_owned(),
        fingerprint: children::fingerprint(endpoint.authority()),
    }))
}

/// What the daemons of a key with that checksum get.
fn facts(
    provisioner: &CoderProvisioner,
    (url, checksum): (&str, &str),
    image: String,
    authority: Option<Authority>,
) -> DaemonFacts {
    let SecretPlace { name, key } = secret(provisioner);
    DaemonFacts {
        url: url.to_owned(),
        image,
        secret: (name, key),
        checksum: checksum.to_owned(),
        replicas: provisioner.spec.replicas(),
        authority,
    }
}

/// Whether the names of missing objects are looked up before a plan is made: where it waits for a person, and where one of them
/// was another's the last time.
pub(super) fn reads_names(provisioner: &CoderProvisioner) -> bool {
    let conditions = provisioner.status.iter().flat_map(|it| &it.common.conditions);
    !provisioner.spec.changes.is_automatic() || objects::was_taken(conditions)
}

/// The Deployment of a provisioner, and the labels of its pods.
pub(super) fn selected(provisioner: &CoderProvisioner) -> (String, Selector) {
    (names::workload(provisioner), names::wide_selector(provisioner))
}
