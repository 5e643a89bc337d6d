//! The way to the organization of a provisioner: control plane, credentials, licence, organization.

use api::{CoderControlPlane, CoderProvisioner, Reason};
use uuid::Uuid;

use super::gate;
use crate::{
    coder::{Coder, address},
    kinds::provisioner::status::{Findings, Stage},
    pipeline::outcome::{Blocked, Trouble},
};

/// The control plane of a provisioner, with credentials.
#[derive(Debug, Clone)]
pub struct Reached {
    pub declared: CoderControlPlane,
    /// The deployment, read as recently as the reconcile needs it.
    pub coder: Coder,
    pub deployment_id: Uuid,
    /// The address that daemons connect to: that of the deployment which was asked, and not one that nobody has tried yet.
    pub url_for_daemons: String,
}

/// Why the control plane of a provisioner cannot be used.
#[derive(Debug)]
pub enum Unreached {
    /// The control plane does not exist, has no address yet, or cannot be read.
    ControlPlane(Blocked),
    /// No credentials are accepted.
    Access(Trouble),
}

/// The organization of a provisioner.
pub(super) struct Home {
    pub(super) reached: Reached,
    /// Nil for an organization that another manifest of the same command creates first.
    pub(super) organization_id: Uuid,
}

/// The result of [`find`].
#[derive(Default)]
pub(super) struct Search {
    pub(super) findings: Findings,
    pub(super) trouble: Option<Trouble>,
    /// `None` where a stage failed; the findings and the trouble say why.
    pub(super) home: Option<Home>,
}

impl Reached {
    /// `asked` is the address by which the deployment was reached.
    pub fn new(declared: CoderControlPlane, asked: &str, coder: Coder, deployment_id: Uuid) -> Self {
        let url_for_daemons = match &declared.spec.external {
            Some(_) => asked.trim_end_matches('/').to_owned(),
            None => address::for_daemons(&declared),
        };
        Self { declared, coder, deployment_id, url_for_daemons }
    }
}

impl Search {
    fn failed(mut self, trouble: Trouble, stage: impl FnOnce(&mut Findings) -> &mut Stage) -> Self {
        self.trouble = Some(trouble.clone()).filter(|it| matches!(it, Trouble::Remote(_)));
        *stage(&mut self.findings) = Some(Err(trouble.into_blocked()));
        self
    }
}

/// Finds the organization of a provisioner. Each stage begins after the one before it succeeded.
pub(super) async fn find(
    provisioner: &CoderProvisioner,
    reaching: impl Future<Output = Result<Reached, Unreached>>,
) -> Search {
    let mut search = Search::default();
    let reached = match reaching.await {
        Ok(reached) => reached,
        Err(Unreached::ControlPlane(blocked)) => {
            search.findings.control_plane = Some(Err(blocked));
            return search;
        }
        Err(Unreached::Access(trouble)) => {
            search.findings.control_plane = Some(Ok(()));
            return search.failed(trouble, |it| &mut it.access);
        }
    };
    search.findings.control_plane = Some(Ok(()));
    if let Err(trouble) = reached.coder.same_deployment().await {
        return search.failed(trouble, |it| &mut it.access);
    }
    search.findings.access = Some(Ok(()));
    let entitled = gate::asked(reached.coder.licensed().await.as_ref().map(|it| &it.1));
    let is_entitled = entitled.is_ok();
    search.findings.entitled = Some(entitled);
    if !is_entitled {
        return search;
    }
    match reached.coder.home(provisioner.spec.organization()).await {
        Ok(organization) => {
            // Only a command has manifests that create one first, and a command creates no key for it.
            let organization_id = organization.map_or(Uuid::nil(), |it| it.id);
            search.home = Some(Home { reached, organization_id });
            search
        }
        Err(trouble) => {
            let mut search = search.failed(trouble, |it| &mut it.key);
            search.findings.key = search.findings.key.map(|it| it.map_err(key_failed));
            search
        }
    }
}

/// The condition for a key that could not be created. An answer of coderd without a reason of its own gets the key's reason.
pub(super) fn key_failed(blocked: Blocked) -> Blocked {
    let is_other = blocked.reason == Reason::RemoteError;
    Blocked { reason: if is_other { Reason::ProvisionerKeyFailed } else { blocked.reason }, ..blocked }
}
