//! Which manifest keeps a remote object that several manifests declare, through whichever control planes.

use api::{AppState, Reason};
use engine::{
    Blocked, Kind, Report,
    pipeline::ownership::{Claim, keeper_by_age, keeper_by_id, keeper_by_name},
};
use kube::{Resource as _, ResourceExt as _};
use uuid::Uuid;

use super::{plane_of, waits};
use crate::controller::driver::{Driven, Driver};

/// The claim of a manifest, and those of the other manifests for its deployment. With thousands of manifests of a kind, claims are made
/// of those alone that may want the same object.
pub(super) struct Claims {
    mine: Claim,
    /// Manifests that name the remote object with the same words. Empty where the manifest has an object: then ids tell.
    same_words: Vec<Claim>,
    /// What only one manifest may declare, and the staying manifests that declare it, too.
    exclusive: Option<(&'static str, Vec<Claim>)>,
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
        let same_words = if mine.held.is_none() {
            let words = K::target(manifest).to_lowercase();
            others::<K, D>(&mine, driver, |it| K::target(it).to_lowercase() == words)
        } else {
            Vec::new()
        };
        let exclusive = K::exclusive(manifest).map(|what| {
            let is_rival = |it: &K::Manifest| is_staying(it) && K::exclusive(it) == Some(what);
            (what, others::<K, D>(&mine, driver, is_rival))
        });
        Self { mine, same_words, exclusive }
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
    pub(super) fn kept_by_id<K: Kind, D: Driven<Manifest = K::Manifest>>(
        &self,
        id: &str,
        driver: &Driver<D>,
    ) -> Option<Report> {
        let holders = others::<K, D>(&self.mine, driver, |it| has::<K>(it, id));
        keeper_by_id(id, &self.mine, &holders).map(|it| self.kept_by(it))
    }

    /// Whether a deletion leaves the object of this id to another manifest: to one that stays, or of those that are being
    /// deleted too to the one that deletes it.
    pub(super) fn is_left_to_another<K: Kind, D: Driven<Manifest = K::Manifest>>(
        &self,
        id: &str,
        driver: &Driver<D>,
    ) -> bool {
        let staying = others::<K, D>(&self.mine, driver, |it| is_staying(it) && has::<K>(it, id));
        !staying.is_empty() || self.kept_by_id::<K, D>(id, driver).is_some()
    }

    fn kept_by(&self, keeper: &Claim) -> Report {
        let name = keeper.name_in(&self.mine.control_plane.0);
        let message = format!("{name} declares the same object and keeps it: delete one of the two");
        waits(Blocked { reason: Reason::HeldByOther, message })
    }
}

/// The claims of other manifests for which that is true, as far as they are for the same deployment.
fn others<K: Kind, D: Driven<Manifest = K::Manifest>>(
    mine: &Claim,
    driver: &Driver<D>,
    is: impl Fn(&K::Manifest) -> bool,
) -> Vec<Claim> {
    let manifests = driver.manifests.state();
    let others = manifests.iter().filter(|it| it.meta().uid.as_deref() != Some(&mine.uid) && is(it));
    others.map(|it| claim::<K, D>(it, driver)).filter(|it| it.shares_deployment_with(mine)).collect()
}

fn is_staying(manifest: &impl AppState) -> bool {
    manifest.meta().deletion_timestamp.is_none()
}

/// Whether the status of a manifest has this id.
fn has<K: Kind>(manifest: &K::Manifest, id: &str) -> bool {
    manifest.status().is_some_and(|it| it.id.as_deref() == Some(id))
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
