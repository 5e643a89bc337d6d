//! The way to the organization of a provisioner: control plane, credentials, licence, organization.

use api::{CoderControlPlane, CoderProvisioner, Reason};
use client::deployment::BuildInfo;
use kube::ResourceExt as _;
use url::Url;
use uuid::Uuid;

use super::{
    gate,
    status::{Findings, Stage},
};
use crate::{
    coder::{Beside, Coder, address},
    pipeline::outcome::{Blocked, Trouble},
    ports::Reading,
    secrets::referenced::Unreadable,
};

/// Why the control plane of a provisioner cannot be used.
#[derive(Debug)]
pub enum Unreached {
    /// The control plane does not exist, has no address yet, or cannot be read.
    ControlPlane(Blocked),
    /// No credentials are accepted.
    Access(Trouble),
}

/// The organization of a provisioner.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) declared: CoderControlPlane,
    pub(super) deployment_id: Uuid,
    /// The address that daemons connect to: the one by which the deployment answered, also where another one is declared by now.
    pub(super) url_for_daemons: String,
    /// Nil for an organization that another manifest of the same command creates first.
    pub(super) organization_id: Uuid,
}

impl Unreached {
    /// Enters the stage that failed, and returns why.
    pub(super) fn enter(self, findings: &mut Findings) -> Trouble {
        match self {
            Self::ControlPlane(blocked) => failed(blocked.into(), &mut findings.control_plane),
            Self::Access(trouble) => {
                findings.control_plane = Some(Ok(()));
                failed(trouble, &mut findings.access)
            }
        }
    }
}

/// Enters a stage that failed.
fn failed(trouble: Trouble, stage: &mut Stage) -> Trouble {
    *stage = Some(Err(trouble.clone().into_blocked()));
    trouble
}

/// Finds the organization of a provisioner. Each stage begins after the one before it succeeded.
pub(super) async fn find(
    provisioner: &CoderProvisioner,
    coder: &Coder,
    beside: &Beside,
    findings: &mut Findings,
) -> Result<Home, Trouble> {
    let (mut declared, build) =
        control_plane(provisioner, coder, beside).await.map_err(|it| it.enter(findings))?;
    findings.control_plane = Some(Ok(()));
    findings.access = Some(Ok(()));
    let entitled = gate::asked(coder.licensed().await.as_ref().map(|it| &it.1));
    findings.entitled = Some(entitled.clone());
    entitled?;
    let organization = coder.home(provisioner.spec.organization()).await;
    let organization = organization.inspect_err(|trouble| {
        findings.key = Some(Err(key_failed(trouble.clone().into_blocked())));
    })?;
    // What the status of a file does not say comes from the deployment.
    declared.status.get_or_insert_default().version.get_or_insert(build.version);
    place(provisioner, &mut declared);
    Ok(Home {
        url_for_daemons: url_for_daemons(&declared, coder, beside),
        declared,
        deployment_id: build.deployment_id,
        // Only a command has manifests that create one first, and a command creates no key for it.
        organization_id: organization.map_or(Uuid::nil(), |it| it.id),
    })
}

/// The control plane, from the cluster or from files, and the deployment that answers.
async fn control_plane(
    provisioner: &CoderProvisioner,
    coder: &Coder,
    beside: &Beside,
) -> Result<(CoderControlPlane, BuildInfo), Unreached> {
    let name = &provisioner.spec.control_plane_ref.name;
    let namespace = provisioner.namespace().unwrap_or_default();
    let unavailable = |message: String| {
        Unreached::ControlPlane(Blocked { reason: Reason::ControlPlaneUnavailable, message })
    };
    let found = beside.references.read::<CoderControlPlane>(&namespace, name, Reading::Known).await;
    let declared = match found {
        Ok(Some(declared)) => declared,
        Ok(None) => {
            let message = format!("control plane {name} is neither in the files nor in the cluster: add it");
            return Err(unavailable(message));
        }
        Err(error) => {
            let unreadable = Unreadable::from(error);
            return Err(unavailable(format!("control plane {name} cannot be read: {}", unreadable.words())));
        }
    };
    coder.same_deployment().await.map_err(Unreached::Access)?;
    let build = build(coder).await.map_err(Unreached::Access)?;
    let known = declared.status.as_ref().and_then(|it| it.deployment_id.clone());
    // A controller has checked it, and the status of its control plane may be older than what a person has accepted since.
    let known = known.filter(|_| !beside.writes_status);
    if let Some(known) = known.filter(|it| *it != build.deployment_id.to_string()) {
        // The value of the key is shown to no other deployment.
        let message = format!(
            "control plane {name} is deployment {known}, and {} answers: give the address of that deployment",
            build.deployment_id
        );
        return Err(Unreached::ControlPlane(Blocked { reason: Reason::DeploymentChanged, message }));
    }
    Ok((declared, build))
}

/// The deployment that answers. A build without licences has no entitlements to read with it.
async fn build(coder: &Coder) -> Result<BuildInfo, Trouble> {
    match coder.licensed().await {
        Ok(known) => Ok(known.0.clone()),
        Err(error) if error.route_missing() => Ok(coder.client().build_info().await?),
        Err(error) => Err(error.into()),
    }
}

/// Gives a managed control plane the namespace of the provisioner, where its manifest names none: the name of its Service has the
/// namespace in it.
fn place(provisioner: &CoderProvisioner, plane: &mut CoderControlPlane) {
    let has_none = plane.namespace().is_none_or(|it| it.is_empty());
    if has_none && plane.spec.external.is_none() {
        plane.metadata.namespace = provisioner.namespace();
    }
}

/// The address that daemons connect to. A command may reach a deployment by another one than its daemons do.
fn url_for_daemons(declared: &CoderControlPlane, coder: &Coder, beside: &Beside) -> String {
    let url = match &declared.spec.external {
        None => return address::for_daemons(declared),
        Some(_) if beside.writes_status => coder.client().url().to_string(),
        Some(external) => external.url.parse::<Url>().map_or_else(|_| external.url.clone(), String::from),
    };
    url.trim_end_matches('/').to_owned()
}

/// The condition for a key that could not be created. An answer of coderd without a reason of its own gets the key's reason.
pub(super) fn key_failed(blocked: Blocked) -> Blocked {
    let is_other = blocked.reason == Reason::RemoteError;
    Blocked { reason: if is_other { Reason::ProvisionerKeyFailed } else { blocked.reason }, ..blocked }
}
