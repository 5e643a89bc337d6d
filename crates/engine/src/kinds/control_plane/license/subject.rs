//! The licences of a control plane on the command line: compared, planned and uploaded like every other declared state.
//!
//! Nothing is recorded, so nothing is ever deleted: which licence a control plane has uploaded is known to the controllers alone.

use std::sync::Arc;

use api::{CoderControlPlane, annotation};
use client::{Client, licenses::License};
use futures::future::BoxFuture;
use kube::{Resource as _, ResourceExt as _};
use uuid::Uuid;

use super::{
    Declared, Done, Jwt, LicenseEffect, LicenseRecord, Observed, apply,
    plan::plan,
    verdict::{is_retried, verdict},
};
use crate::{
    coder::Coder,
    driver::{Assessment, Reference, Report, Subject, Verdict},
    kind::Aside,
    kinds::control_plane::entitlements::Summary,
    pipeline::{
        decide::{Contact, Decision, Door, Situation, decide},
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::Plan,
    },
    ports::Cluster,
    secrets::referenced::{self, Unreadable},
};

const TARGET: &str = "licences";
const FIELD: &str = "spec.licenseSecretRef";

/// The licences that the manifest names. The error is that one of their Secrets was not read.
pub async fn declared(
    plane: &CoderControlPlane,
    references: &dyn Cluster,
) -> Result<Vec<Declared>, Unreadable> {
    let namespace = plane.namespace().unwrap_or_default();
    let has_first = plane.spec.license_secret_ref.is_some();
    let mut declared = Vec::new();
    for (position, (name, key)) in plane.spec.licenses().enumerate() {
        let values = referenced::values(references, &namespace, name).await?;
        let slot =
            if has_first && position == 0 { "licenseSecretRef".to_owned() } else { format!("{name}/{key}") };
        let text = values.and_then(|it| it.text(key));
        declared.push(Declared { slot, jwt: text.as_ref().and_then(Jwt::new) });
    }
    Ok(declared)
}

/// The licences of one control plane.
pub struct Licenses {
    plane: CoderControlPlane,
    /// Where the Secrets that the manifest refers to are read.
    references: Arc<dyn Cluster>,
    /// What the last assessment would do, and with what.
    planned: Option<(Plan<LicenseEffect>, Vec<Declared>)>,
}

impl std::fmt::Debug for Licenses {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the licences of CoderControlPlane {}", self.plane.name_any())
    }
}

/// What a deployment has.
struct Read {
    deployment: Uuid,
    live: Vec<License>,
    summary: Summary,
}

impl Licenses {
    /// `None` for a control plane that names no licence.
    pub fn of(plane: &CoderControlPlane, references: Arc<dyn Cluster>) -> Option<Self> {
        plane.spec.licenses().next()?;
        Some(Self { plane: plane.clone(), references, planned: None })
    }

    async fn assess(&mut self, coder: &Coder, door: Door) -> Assessment {
        self.planned = None;
        match self.compare(coder, door).await {
            Ok(assessment) => assessment,
            Err(outcome) => stopped(outcome),
        }
    }

    async fn compare(&mut self, coder: &Coder, door: Door) -> Result<Assessment, Outcome> {
        let declared = declared(&self.plane, &*self.references).await.map_err(|unreadable| {
            let message = format!("a Secret with a licence cannot be read: {}", unreadable.words());
            Outcome::Blocked(Blocked { reason: unreadable.reason(), message })
        })?;
        coder.same_deployment().await.map_err(Outcome::from)?;
        let Read { deployment, live, summary } = read(coder.client()).await.map_err(Outcome::from)?;
        let record = LicenseRecord::default();
        let now = self.references.now();
        let observed = Observed { deployment, live: &live, record: &record, errors: &summary.errors, now };
        let plan = plan(&declared, &observed, false);
        if plan.is_empty() {
            let verdict = verdict(&declared, &observed, Some(&summary));
            return match verdict.status {
                Some(false) if is_retried(verdict.reason) => {
                    let blocked = Blocked { reason: verdict.reason, message: verdict.message };
                    Err(Outcome::Blocked(blocked))
                }
                Some(false) => Err(Outcome::Invalid(Invalid::new(FIELD, verdict.message))),
                Some(true) | None => Ok(decided(&plan, Decision::Nothing)),
            };
        }
        let view = plan.view(TARGET);
        let decision = decide(&Situation {
            policy: &self.plane.spec.changes.policy(),
            door,
            contact: Contact::Absent,
            impact: view.impact(),
            hash: &view.hash,
            approved: self.plane.annotations().get(annotation::APPROVED_PLAN).map(String::as_str),
        });
        let assessment = decided(&plan, decision);
        self.planned = Some((plan, declared));
        Ok(assessment)
    }

    async fn carry_out(&self, assessment: &Assessment, coder: &Coder) -> Report {
        let report = |outcome, done| Report { done, ..Report::of(outcome, None) };
        match &assessment.verdict {
            Verdict::Stopped(outcome) => return report(outcome.clone(), 0),
            Verdict::Decided(Decision::Apply) => {}
            Verdict::Decided(Decision::Nothing) => return report(Outcome::Equal, 0),
            Verdict::Decided(Decision::Observe) => return report(Outcome::Observed, 0),
            Verdict::Decided(Decision::Refuse(refusal)) => return report(Outcome::Refused(*refusal), 0),
        }
        let (mut record, mut done) = (LicenseRecord::default(), 0);
        let Some((plan, declared)) = &self.planned else { return report(Outcome::Equal, 0) };
        for step in &plan.steps {
            match apply(&step.effect, declared, coder.client(), &mut record).await {
                Ok(Done::Refused) => {
                    let words = record.refused.first().map(|it| it.words.clone()).unwrap_or_default();
                    return report(Outcome::Invalid(Invalid::new(FIELD, words)), done);
                }
                Ok(Done::Uploaded | Done::Deleted) => done += 1,
                Err(trouble) => return report(trouble.into(), done),
            }
        }
        report(Outcome::Applied, done)
    }
}

async fn read(client: &Client) -> Result<Read, Trouble> {
    let deployment = client.build_info().await?.deployment_id;
    let summary = Summary::of(&client.entitlements().await?);
    Ok(Read { deployment, live: client.list_licenses().await?, summary })
}

fn decided(plan: &Plan<LicenseEffect>, decision: Decision) -> Assessment {
    Assessment {
        contact: Some(if plan.is_empty() { Contact::Held } else { Contact::Absent }),
        id: None,
        rest: None,
        plan: plan.view(TARGET),
        aside: Aside::default(),
        unsupported: None,
        unknown: None,
        attributions: Vec::new(),
        verdict: Verdict::Decided(decision),
    }
}

fn stopped(outcome: Outcome) -> Assessment {
    Assessment {
        contact: None,
        verdict: Verdict::Stopped(outcome),
        ..decided(&Plan::empty(), Decision::Nothing)
    }
}

impl Subject for Licenses {
    fn reference(&self) -> Reference {
        Reference {
            kind: CoderControlPlane::kind(&()).into_owned(),
            namespace: self.plane.namespace(),
            name: self.plane.name_any(),
        }
    }

    fn target(&self) -> String {
        TARGET.to_owned()
    }

    fn control_plane(&self) -> &str {
        self.plane.metadata.name.as_deref().unwrap_or_default()
    }

    /// Before everything that a licence covers.
    fn rank(&self) -> u8 {
        0
    }

    fn is_suspended(&self) -> bool {
        self.plane.spec.is_suspended()
    }

    fn assess<'a>(&'a mut self, coder: &'a Coder, door: Door) -> BoxFuture<'a, Assessment> {
        Box::pin(Self::assess(self, coder, door))
    }

    fn carry_out<'a>(&'a self, assessment: &'a Assessment, coder: &'a Coder) -> BoxFuture<'a, Report> {
        Box::pin(Self::carry_out(self, assessment, coder))
    }
}
