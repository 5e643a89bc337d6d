//! The key of a provisioner: what is wanted of it, what is recorded, and what the pods carry.

use std::collections::BTreeSet;

use api::{CoderProvisioner, annotation};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::{names, reach::Home, secret};
use crate::{
    coder::Coder,
    keys::Drive,
    objects,
    ports::{Cluster, ClusterError, Reading},
    secrets::{
        Around, KeySecrets, Names, Place, Pods, Policy, Record, SecretPlace, Wanted, mirror::of_status,
    },
};

/// The time beyond the grace period of the pods after which an old key is revoked in any case.
const BEYOND_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// The keys of a provisioner in one reconcile.
pub(super) struct Keys<'a> {
    pub(super) coder: &'a Coder,
    pub(super) secrets: &'a KeySecrets<'a>,
    pub(super) around: &'a Around<'a>,
    pub(super) recorded: Record,
    pub(super) pods: Pods,
}

impl<'a> Keys<'a> {
    pub(super) fn drive<'b>(&self, wanted: &'b Wanted) -> Drive<'b, 'a>
    where
        'a: 'b,
    {
        Drive {
            wanted,
            coder: self.coder,
            secret: self.secrets,
            around: self.around,
            mirror: self.recorded.clone(),
            remembered: self.around.remembered(),
            pods: Some(self.pods.clone()),
            now: self.around.now(),
        }
    }
}

/// The key that the manifest declares.
pub(super) fn wanted(provisioner: &CoderProvisioner, home: &Home) -> Wanted {
    let spec = &provisioner.spec;
    Wanted {
        policy: Policy::Recreate,
        names: Names::new(provisioner.key_name(), &provisioner.uid().unwrap_or_default()),
        organization_id: home.organization_id,
        organization_name: spec.organization().to_owned(),
        tags: spec.tags.clone().unwrap_or_default(),
        place: Place {
            control_plane: spec.control_plane_ref.name.clone(),
            url: home.url_for_daemons.clone(),
            deployment_id: Some(home.deployment_id),
        },
        secret: secret(provisioner),
        rotate_every: spec.rotates_every().and_then(|it| SignedDuration::try_from(it).ok()),
        rotate_request: provisioner.annotations().get(annotation::ROTATE_REQUESTED_AT).cloned(),
        grace: SignedDuration::from_secs(spec.termination_grace_period()) + BEYOND_GRACE,
        held_back: None,
        leaves_begun: false,
    }
}

/// The record of the keys in the status.
pub fn recorded(provisioner: &CoderProvisioner) -> Record {
    let state = provisioner.status.clone().unwrap_or_default().key;
    of_status(&state, &provisioner.uid().unwrap_or_default())
}

/// The pods of a provisioner, those that are being deleted included.
pub async fn pods(
    provisioner: &CoderProvisioner,
    reading: Reading,
    cluster: &dyn Cluster,
) -> Result<Vec<Pod>, ClusterError> {
    let namespace = provisioner.namespace().unwrap_or_default();
    cluster.find(&namespace, &names::wide_selector(provisioner), reading).await
}

/// The pods of a provisioner, and the keys that they carry. An old key is revoked, and an old Secret removed, only if no pod has it:
/// then the pods are listed, because the watch may be behind.
pub(super) async fn carried(
    provisioner: &CoderProvisioner,
    recorded: &Record,
    wanted: &Wanted,
    cluster: &dyn Cluster,
) -> Result<(Vec<Pod>, Pods), ClusterError> {
    let given = given(provisioner, recorded, cluster).await?;
    let is_moving = recorded.secret.as_ref().is_some_and(|it| *it != wanted.secret);
    let is_settled = recorded.retiring.is_empty() && recorded.former.is_empty() && !is_moving;
    let found = pods(provisioner, if is_settled { Reading::Known } else { Reading::Now }, cluster).await?;
    let carried =
        found.iter().filter_map(|it| it.annotations().get(annotation::PROVISIONER_KEY_CHECKSUM).cloned());
    let variables = found.iter().flat_map(|it| it.spec.iter().flat_map(|it| &it.containers));
    let variables = variables.flat_map(|it| it.env.iter().flatten());
    let read = variables.filter_map(|it| it.value_from.as_ref()?.secret_key_ref.as_ref());
    let longest = found.iter().filter_map(|it| it.spec.as_ref()?.termination_grace_period_seconds).max();
    let pods = Pods {
        carried: carried.collect(),
        given,
        secrets: read.map(|it| SecretPlace { name: it.name.clone(), key: it.key.clone() }).collect(),
        are_wanted: provisioner.spec.replicas() > 0,
        grace: SignedDuration::from_secs(longest.unwrap_or_default()).saturating_add(BEYOND_GRACE),
    };
    Ok((found, pods))
}

/// The key that new pods get. `None` where no old key is left, and so nothing depends on it.
async fn given(
    provisioner: &CoderProvisioner,
    recorded: &Record,
    cluster: &dyn Cluster,
) -> Result<Option<BTreeSet<String>>, ClusterError> {
    if recorded.retiring.is_empty() {
        return Ok(None);
    }
    let seen = objects::deployment(provisioner, &names::workload(provisioner), cluster).await?;
    let template = seen.and_then(|it| it.spec?.template.metadata?.annotations);
    let checksum = template.and_then(|mut it| it.remove(annotation::PROVISIONER_KEY_CHECKSUM));
    Ok(Some(checksum.into_iter().collect()))
}
