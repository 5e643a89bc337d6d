//! Assessments of manifests of which little is known.

use uuid::Uuid;

use super::{Assessment, Report, Verdict};
use crate::{
    kind::Aside,
    pipeline::{
        decide::{Contact, Decision},
        outcome::Outcome,
        plan::Plan,
    },
};

impl Assessment {
    /// The id of the remote object, if we held it before.
    pub(super) fn held(&self) -> Option<Uuid> {
        self.id.filter(|_| self.contact == Some(Contact::Held))
    }

    pub(crate) fn nothing(target: &str, contact: Option<Contact>) -> Self {
        let plan = Plan::<()>::empty().view(target);
        let (aside, verdict) = (Aside::default(), Verdict::Decided(Decision::Nothing));
        let attributions = Vec::new();
        Self {
            contact,
            id: None,
            rest: None,
            plan,
            aside,
            unsupported: None,
            unknown: None,
            attributions,
            verdict,
        }
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

    pub(crate) fn stopped(target: &str, outcome: Outcome) -> Self {
        let plan = Plan::<()>::empty().view(target);
        let (aside, verdict) = (Aside::default(), Verdict::Stopped(outcome));
        let attributions = Vec::new();
        Self {
            contact: None,
            id: None,
            rest: None,
            plan,
            aside,
            unsupported: None,
            unknown: None,
            attributions,
            verdict,
        }
    }
}
