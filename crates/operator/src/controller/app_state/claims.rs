//! Which manifest keeps a remote object that several manifests declare, through whichever control planes.

use api::{AppState as _, Reason};
use engine::{
    Blocked, Kind, Report,
    pipeline::ownership::{Claim, keeper_by_age, keeper_by_id, keeper_by_name},
};
use kube::{Resource as _, ResourceExt as _};
use uuid::Uuid;

use super::{plane_of, waits};
use crate::controller::driver::{Driven, Driver};

/// The claim of a manifest, and those of the other manifests for its deployment.
pub(super) struct Claims {
    mine: Claim,
    /// Manifests that name the remote object with the same words.
    same_words: Vec<Claim>,
    others: Vec<Claim>,
    /// What only one manifest may declare, and the staying manifests that declare it, too.
    exclusive: Option<(&'static str, Vec<Claim>)>,
    /// The others that are not being deleted.
    staying: Vec<Claim>,
}

impl Claims {
    /// The claims on objects in `deployment`. `None` where that is not known: then on objects of the recorded deployment and
    /// of the one behind the control plane.
    pub(super) fn new<K: Kind, D: Driven<Manifest = K::Manifest>>(
        manifest: &K::Manifest,
        deployment: Option<Uuid>,
        driver: &Driver<D>,
    ) -> Self {
        let mut mine = claim::<K, D>(manifest, driver);
        if let Some(deployment) = deployment {
            mine.deployments = vec![deployment];
        }
        let words = K::target(manifest).to_lowercase();
        let (mut same_words, mut others, mut staying) = (Vec::new(), Vec::new(), Vec::new());
        let mut exclusive = K::exclusive(manifest).map(|it| (it, Vec::new()));
        for manifest in driver.manifests.state() {
            let other = claim::<K, D>(&manifest, driver);
            if other.uid == mine.uid || !other.shares_deployment_with(&mine) {
                continue;
            }
            if K::target(&manifest).to_lowercase() == words {
                same_words.push(other.clone());
            }
            if manifest.meta().deletion_timestamp.is_none() {
                staying.push(other.clone());
                if let Some((what, rivals)) = &mut exclusive
                    && K::exclusive(&manifest) == Some(*what)
                {
                    rivals.push(other.clone());
                }
            }
            others.push(other);
        }
        Self { mine, same_words, others, exclusive, staying }
    }

    /// Reports the manifest that keeps the object by its words, before anything was read.
    pub(super) fn kept_by_name(&self) -> Option<Report> {
        let kept = keeper_by_name(&self.mine, &self.same_words).map(|it| self.kept_by(it));
        kept.or_else(|| self.kept_exclusively())
    }

    /// Reports the older manifest that declares what only one may declare.
    fn kept_exclusively(&self) -> Option<Report> {
        let (what, rivals) = self.exclusive.as_ref()?;
        let name = keeper_by_age(&self.mine, rivals)?.name_in(&self.mine.control_plane.0);
        let message = format!(
            "{name} also sets {what}, which only one manifest of a deployment can, and keeps it: remove it from one of the two"
        );
        Some(waits(Blocked { reason: Reason::HeldByOther, message }))
    }

    /// Reports the manifest that keeps the object of this id.
    pub(super) fn kept_by_id(&self, id: &str) -> Option<Report> {
        keeper_by_id(id, &self.mine, &self.others).map(|it| self.kept_by(it))
    }

    /// Whether a deletion leaves the object of this id to another manifest: to one that stays, or of those that are being
    /// deleted too to the one that deletes it.
    pub(super) fn is_left_to_another(&self, id: &str) -> bool {
        self.staying.iter().any(|it| it.held.as_deref() == Some(id)) || self.kept_by_id(id).is_some()
    }

    fn kept_by(&self, keeper: &Claim) -> Report {
        let name = keeper.name_in(&self.mine.control_plane.0);
        let message = format!("{name} declares the same object and keeps it: delete one of the two");
        waits(Blocked { reason: Reason::HeldByOther, message })
    }
}

fn claim<K: Kind, D: Driven<Manifest = K::Manifest>>(manifest: &K::Manifest, driver: &Driver<D>) -> Claim {
    let status = manifest.status();
    let control_plane = plane_of::<K>(manifest);
    let recorded = status.and_then(|it| it.remote_deployment_id.as_ref()?.parse().ok());
    let of_plane = driver.shared.planes.deployment(&control_plane);
    Claim {
        name: manifest.name_any(),
        uid: manifest.uid().unwrap_or_default(),
        created: manifest.creation_timestamp().map_or(0, |it| it.0.as_second()),
        held: status.and_then(|it| it.id.clone()),
        deployments: recorded.into_iter().chain(of_plane).collect(),
        url: driver.shared.known_url(&control_plane),
        control_plane,
    }
}
