//! The objects of a managed control plane on the command line: compared with the manifest, and never changed.

use api::{CoderControlPlane, Reason, annotation};
use futures::future::BoxFuture;
use kube::{Resource as _, ResourceExt as _};

use super::{
    plan,
    workload::{PlanePreview, preview},
};
use crate::{
    coder::Coder,
    driver::{Assessment, Reference, Runner, Subject, Verdict, settle_in},
    kind::Aside,
    pipeline::{
        decide::{Contact, Door, Situation, decide},
        outcome::Outcome,
    },
    ports::object::Live,
};

/// The objects of one managed control plane.
#[derive(Debug)]
pub struct PlaneObjects {
    plane: CoderControlPlane,
}

impl PlaneObjects {
    /// `None` for a control plane that runs elsewhere.
    pub fn of(plane: &CoderControlPlane) -> Option<Self> {
        plane.spec.external.is_none().then(|| Self { plane: plane.clone() })
    }

    async fn compare(&self, coder: &Coder, door: Door) -> Result<Assessment, Outcome> {
        let beside = coder.needed_cluster().map_err(Outcome::Blocked)?;
        // Which rules are allowed is known where the operator runs. Whatever is declared counts as allowed here.
        let declared = self.plane.spec.rbac.as_ref().and_then(|it| it.extra_rules.as_deref());
        let compared = preview(&self.plane, &*beside.cluster, declared.unwrap_or_default()).await;
        let PlanePreview { plan, notices } = compared.map_err(|blocked| match blocked.reason {
            Reason::ClusterError | Reason::NotPermitted => Outcome::Failed(blocked.into()),
            _ => Outcome::Blocked(blocked),
        })?;
        let decision = decide(&Situation {
            policy: &self.plane.spec.changes.policy(),
            door,
            contact: Contact::Held,
            impact: plan.steps.iter().map(|it| it.impact).max(),
            hash: &plan.hash,
            approved: self.plane.annotations().get(annotation::APPROVED_PLAN).map(String::as_str),
        });
        let verdict = match notices.into_iter().find(|it| it.reason.blocks_rollout()) {
            Some(blocked) => Verdict::Stopped(Outcome::Blocked(blocked)),
            None => Verdict::Decided(decision),
        };
        let (contact, aside) = (Some(Contact::Held), Aside::default());
        Ok(Assessment {
            contact,
            id: None,
            rest: None,
            plan,
            aside,
            unsupported: None,
            unknown: None,
            attributions: Vec::new(),
            verdict,
        })
    }
}

impl Subject for PlaneObjects {
    fn reference(&self) -> Reference {
        Reference {
            kind: CoderControlPlane::kind(&()).into_owned(),
            namespace: self.plane.namespace(),
            name: self.plane.name_any(),
        }
    }

    fn target(&self) -> String {
        plan::target(&self.plane)
    }

    fn control_plane(&self) -> &str {
        self.plane.metadata.name.as_deref().unwrap_or_default()
    }

    /// Before everything that the deployment is asked for.
    fn rank(&self) -> u8 {
        0
    }

    fn is_suspended(&self) -> bool {
        self.plane.spec.is_suspended()
    }

    fn runner(&self) -> Runner {
        Runner::Controller
    }

    fn needs_cluster(&self) -> bool {
        true
    }

    fn needs_deployment(&self) -> bool {
        false
    }

    fn settle_in(&mut self, namespace: &str, stored: Option<&Live>) {
        settle_in(&mut self.plane, namespace, stored);
    }

    fn assess<'a>(&'a mut self, coder: &'a Coder, door: Door) -> BoxFuture<'a, Assessment> {
        Box::pin(async move {
            let compared = Box::pin(self.compare(coder, door)).await;
            compared.unwrap_or_else(|outcome| Assessment::stopped(&Subject::target(self), outcome))
        })
    }
}
