//! With whose credentials the work on keys is done: the operator's own, or those that a provisioner brings.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use api::{CoderControlPlane, CoderProvisioner, Reason};
use engine::{
    Blocked, Trouble,
    coder::endpoint::{DeclaredOrigin, declared_place},
    kinds::provisioner::reach::Unreached,
    secrets::referenced,
};
use kube::{ResourceExt as _, runtime::reflector::Store};
use secrecy::ExposeSecret as _;

use super::{Provisioners, plane_of};
use crate::{
    controller::{Shared, driver::Driver, reach::proof::check_address},
    planes::{Origin, Plane, PlaneName, Sources, Standing},
};

/// Deployments with the credentials that provisioners bring, by the Secret that holds them: one at a time of each.
#[derive(Default)]
pub(super) struct Bootstraps(Mutex<HashMap<(PlaneName, String), Arc<Plane>>>);

impl Bootstraps {
    /// The deployment that is known with a Secret, if its whole origin is what is declared now. Any other client is revoked.
    fn known(&self, name: &PlaneName, secret: &str, now: &DeclaredOrigin) -> Option<Arc<Plane>> {
        let key = (name.clone(), secret.to_owned());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(&key)?.is_declared_as(now) {
            return known.get(&key).cloned();
        }
        if let Some(changed) = known.remove(&key) {
            changed.revoke();
        }
        None
    }

    /// Forgets deployments that no provisioner brings credentials for any more.
    pub(super) fn retain(&self, provisioners: &Store<CoderProvisioner>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return;
        }
        let key = |it: &CoderProvisioner| {
            let (secret, _) = it.spec.bootstrap.as_ref()?.token();
            Some((plane_of(it), secret.to_owned()))
        };
        let used: HashSet<_> = provisioners.state().iter().filter_map(|it| key(it)).collect();
        known.retain(|it, _| used.contains(it));
    }

    fn put(&self, name: &PlaneName, secret: &str, plane: &Arc<Plane>) {
        let key = (name.clone(), secret.to_owned());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(plane));
    }
}

/// The control plane of a provisioner, if it is there and has an address.
pub(super) async fn control_plane(
    provisioner: &CoderProvisioner,
    shared: &Shared,
) -> Result<CoderControlPlane, Blocked> {
    let plane = plane_of(provisioner);
    let name = &plane.1;
    let unavailable = |message: String| Blocked { reason: Reason::ControlPlaneUnavailable, message };
    match shared.control_plane(&plane).await {
        Ok(Some(plane)) if plane.status.as_ref().is_some_and(|it| it.url.is_some()) => Ok(plane),
        Ok(Some(_)) => Err(unavailable(format!("control plane {name} has no address yet"))),
        Ok(None) => {
            Err(unavailable(format!("there is no control plane {name} in this namespace: create it")))
        }
        Err(unreadable) => {
            Err(unavailable(format!("control plane {name} cannot be read: {}", unreadable.words())))
        }
    }
}

/// Finds the control plane of a provisioner and a deployment that takes our credentials.
pub(super) async fn reach(
    provisioner: &CoderProvisioner,
    driver: &Driver<Provisioners>,
) -> Result<Arc<Plane>, Unreached> {
    let declared = control_plane(provisioner, &driver.shared).await.map_err(Unreached::ControlPlane)?;
    access(provisioner, &declared, driver).await.map_err(Unreached::Access)
}

/// Whether the control plane is declared, and nobody has looked at it since we started.
pub(super) async fn is_early(provisioner: &CoderProvisioner, shared: &Shared) -> bool {
    let name = plane_of(provisioner);
    let is_reconciled = shared.planes.standing(&name).is_some();
    let is_waited_for = provisioner.spec.bootstrap.is_none() && !is_reconciled;
    is_waited_for && matches!(shared.control_plane(&name).await, Ok(Some(_)))
}

/// A deployment that takes our credentials.
pub(super) async fn access(
    provisioner: &CoderProvisioner,
    plane: &CoderControlPlane,
    driver: &Driver<Provisioners>,
) -> Result<Arc<Plane>, Trouble> {
    let (shared, name) = (&driver.shared, plane_of(provisioner));
    if provisioner.spec.bootstrap.is_some() {
        return bootstrap(provisioner, plane, driver).await;
    }
    let not_ready =
        |message: String| Trouble::from(Blocked { reason: Reason::OperatorAccessNotReady, message });
    match shared.planes.standing(&name) {
        Some(Standing::Usable(plane)) => Ok(plane),
        Some(Standing::Blocked(why)) => {
            Err(not_ready(format!("control plane {} cannot be used: {why}; see its status", name.1)))
        }
        None => Err(not_ready(format!("control plane {} has not been reconciled yet", name.1))),
    }
}

/// The deployment with the token that the provisioner brings. It goes to the declared address, and only if the deployment
/// there is the one that the control plane knows.
async fn bootstrap(
    provisioner: &CoderProvisioner,
    plane: &CoderControlPlane,
    driver: &Driver<Provisioners>,
) -> Result<Arc<Plane>, Trouble> {
    let (shared, name) = (&driver.shared, plane_of(provisioner));
    let Some((secret, key)) = provisioner.spec.bootstrap.as_ref().map(api::Bootstrap::token) else {
        return Err(referenced::no_value("", "").into());
    };
    // Without credentials of its own a control plane may still be used; one that a person has stopped may not.
    if let Some(Standing::Blocked(why)) = shared.planes.standing(&name)
        && why.stops_dependents()
    {
        let message = format!("control plane {} cannot be used: {why}; see its status", name.1);
        return Err(Blocked { reason: Reason::ControlPlaneNotReady, message }.into());
    }
    let cluster = &*shared.cluster;
    let values = referenced::required(cluster, &plane.namespace().unwrap_or_default(), secret).await?;
    let token = values.text(key).ok_or_else(|| referenced::no_value(secret, key))?;
    let declared = declared_place(plane, cluster).await;
    let origin_now = declared.origin().with_token(&token);
    let known = driver.kind.bootstraps.known(&name, secret, &origin_now);
    let endpoint = declared.endpoint()?;
    check_address(&endpoint.url, shared)?;
    let place = Origin::new(&[endpoint.url.as_str().as_bytes(), endpoint.authority()]);
    let origin = place.with(token.expose_secret().as_bytes());
    let expected = plane.status.as_ref().and_then(|it| it.deployment_id.as_ref()?.parse().ok());
    let is_same = |it: &Arc<Plane>| it.is_of(&origin) && Some(it.deployment()) == expected;
    if let Some(known) = known.filter(is_same) {
        return Ok(known);
    }
    let anonymous = match shared.planes.client(&name, &place) {
        Some(client) => client,
        None => shared.reach(&endpoint)?.observed_by(shared.metrics.observer(&name)),
    };
    let anonymous = anonymous.guarded_by(Arc::new(shared.fence.clone()));
    let build = anonymous.build_info().await?;
    if expected.is_some_and(|it| it != build.deployment_id) {
        let message = format!("another deployment answers at {}: see its control plane", endpoint.url);
        return Err(Blocked { reason: Reason::DeploymentChanged, message }.into());
    }
    let client = anonymous
        .with_token(token)
        .map_err(|error| Blocked { reason: Reason::Unauthorized, message: error.to_string() })?;
    let user = client.current_user().await?;
    let client = client.with_rate_limiter(shared.planes.rate_limiter(build.deployment_id, user.id));
    let made_from = Sources { declared: origin_now, place, origin };
    let made = Arc::new(Plane::new(made_from, &client, build.deployment_id, shared.around()));
    driver.kind.bootstraps.put(&name, secret, &made);
    Ok(made)
}

/// The deployment that a provisioner's own token was last good for, whether its Secret is still there or not: what is deleted
/// together must not lose the key. A token goes to the declared address only.
pub(super) async fn remembered(
    provisioner: &CoderProvisioner,
    plane: &CoderControlPlane,
    driver: &Driver<Provisioners>,
) -> Option<Arc<Plane>> {
    let (secret, key) = provisioner.spec.bootstrap.as_ref()?.token();
    let cluster = &*driver.shared.cluster;
    let now = declared_place(plane, cluster).await.origin();
    let values = referenced::values(cluster, &plane.namespace().unwrap_or_default(), secret).await;
    let values = values.ok().flatten();
    // A Secret that is gone is no other token.
    let now = match values.and_then(|it| it.text(key)) {
        Some(token) => now.with_token(&token),
        None => now.without_credentials(),
    };
    driver.kind.bootstraps.known(&plane_of(provisioner), secret, &now)
}
