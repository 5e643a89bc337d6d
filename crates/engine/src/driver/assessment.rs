//! Assessments of manifests of which little is known.

use uuid::Uuid;

use super::{Assessment, Report, Verdict};
use crate::{
    kind::Aside,
    pipeline::{
        decide::{Contact, Decision},
        outcome::Outcome,
        plan::{Plan, PlanView},
    },
};

impl Assessment {
    /// The id of the remote object, if we held it before.
    pub(super) fn held(&self) -> Option<Uuid> {
        self.id.filter(|_| self.contact == Some(Contact::Held))
    }

    pub(crate) fn nothing(target: &str, contact: Option<Contact>) -> Self {
        Self { contact, ..Self::without_plan(target, Verdict::Decided(Decision::Nothing)) }
    }

    /// The steps that are done: those of upkeep alone where the plan waits or is only observed.
    pub fn carried_out(&self) -> &PlanView {
        if self.is_to_apply() { &self.plan } else { &self.upkeep }
    }

    /// Whether the plan is to be carried out.
    pub fn is_to_apply(&self) -> bool {
        matches!(self.verdict, Verdict::Decided(Decision::Apply))
    }

    /// What is reported of a manifest that only the controllers apply.
    pub(crate) fn not_carried_out(&self) -> Report {
        let outcome = match &self.verdict {
            Verdict::Stopped(outcome) => outcome.clone(),
            Verdict::Decided(Decision::Nothing) => Outcome::Equal,
            Verdict::Decided(Decision::Apply | Decision::Observe) => Outcome::Observed,
            Verdict::Decided(Decision::Refuse(refusal)) => Outcome::Refused(*refusal),
        };
        Report::of(outcome, None)
    }

    /// The assessment of a manifest that ended before anything could be decided.
    pub fn stopped(target: &str, outcome: Outcome) -> Self {
        Self::without_plan(target, Verdict::Stopped(outcome))
    }

    fn without_plan(target: &str, verdict: Verdict) -> Self {
        let plan = Plan::<()>::empty().view(target);
        Self {
            contact: None,
            id: None,
            rest: None,
            upkeep: plan.clone(),
            plan,
            aside: Aside::default(),
            unsupported: None,
            unknown: None,
            attributions: Vec::new(),
            verdict,
        }
    }
}
