//! What was decided about a manifest, carried out.

use api::{AppState as _, Mode, Reason};

use super::{Assessment, Object, Report, Verdict};
use crate::{
    coder::Coder,
    kind::{Aside, Carried, Kind},
    pipeline::{
        decide::Decision,
        outcome::{Blocked, Outcome, Trouble},
        plan::{Action, Impact, Step},
    },
};

impl<K: Kind> Object<K> {
    /// Does what the assessment decided, step by step, and stops at the first that fails.
    pub async fn carry_out(&self, assessment: &Assessment, coder: &Coder) -> Report {
        let report = match &assessment.verdict {
            Verdict::Stopped(outcome) => Report::of(outcome.clone(), None),
            // Mode Observe adopts no object, also where it is equal.
            Verdict::Decided(Decision::Nothing) if self.manifest.policy().mode() == Mode::Observe => {
                Report::of(Outcome::Equal, assessment.held())
            }
            Verdict::Decided(Decision::Nothing) => Report::of(Outcome::Equal, assessment.id),
            Verdict::Decided(Decision::Observe) => self.keep_up(Outcome::Observed, assessment, coder).await,
            Verdict::Decided(Decision::Refuse(refusal)) => {
                self.keep_up(Outcome::Refused(*refusal), assessment, coder).await
            }
            Verdict::Decided(Decision::Apply) => self.apply(assessment, coder).await,
        };
        Report { outcome: report.outcome.with_unsupported(assessment.unsupported.as_ref()), ..report }
    }

    async fn apply(&self, assessment: &Assessment, coder: &Coder) -> Report {
        let steps = self.plan.as_ref().map_or(&[][..], |it| &it.steps);
        let now: Vec<_> = self.steps_now().iter().collect();
        let round = now.len();
        let mut report = self.carry(&now, Outcome::Applied, assessment, coder).await;
        if report.done < round {
            if report.outcome.is_ready() {
                let message = format!("{} of {round} steps are done; reconciling again", report.done);
                report.outcome = Outcome::Blocked(Blocked { reason: Reason::Progressing, message });
            }
            return report;
        }
        if let Some(stopped) = &self.stopped {
            report.outcome = stopped.clone();
        } else if K::OWNS_OBJECTS {
            // What they waited for before is not what they wait for now.
            let message = "the steps are done; waiting for their effect".to_owned();
            report.outcome = Outcome::Blocked(Blocked { reason: Reason::Progressing, message });
        } else if let Some(waiting) = &self.round.waits {
            report.outcome = Outcome::Blocked(waiting.clone());
        } else if round < steps.len() {
            let message = format!("{round} of {} steps are done; the next ones follow", steps.len());
            report.outcome = Outcome::Blocked(Blocked { reason: Reason::Progressing, message });
        }
        report
    }

    /// Does the steps of upkeep, which need no approval, of a plan that is not carried out.
    async fn keep_up(&self, why: Outcome, assessment: &Assessment, coder: &Coder) -> Report {
        let upkeep: Vec<_> = self.steps_now().iter().filter(|it| Self::is_kept_up(it)).collect();
        if upkeep.is_empty() {
            return Report::of(why, assessment.held());
        }
        let mut report = self.carry(&upkeep, why.clone(), assessment, coder).await;
        // What is not held is not ours by that.
        report.id = assessment.held();
        let failed = match &report.outcome {
            Outcome::Failed(trouble) if !matches!(trouble, Trouble::Stale) => Some(trouble.clone()),
            Outcome::Blocked(blocked) => Some(Trouble::Blocked(blocked.clone())),
            _ => None,
        };
        match failed {
            // It is tried again, and the plan waits for the same.
            Some(trouble) if !K::OWNS_OBJECTS => Report { outcome: why, retry: Some(trouble), ..report },
            _ => report,
        }
    }

    /// Whether a step is done although the rest of the plan waits.
    pub(super) fn is_kept_up(step: &Step<K::Effect>) -> bool {
        step.impact == Impact::Upkeep && K::is_kept_up(&step.effect)
    }

    /// Does steps of a round. `outcome` is what comes of all of them.
    async fn carry(
        &self,
        steps: &[&Step<K::Effect>],
        outcome: Outcome,
        assessment: &Assessment,
        coder: &Coder,
    ) -> Report {
        let Carried { id, done, recorded, failed, refused, condition, retry } =
            K::carry_out(steps, coder).await;
        // What was not held is ours once a step on it is done, and not before.
        let known = if done > 0 { assessment.id } else { assessment.held() };
        let id = id.or_else(|| assessment.held()).or(known);
        Report { outcome: failed.unwrap_or(outcome), id, done, recorded, refused, retry, condition }
    }

    /// Leaves steps of the last plan to the next reconcile: those that were done, which a watch may show later or another writer undo,
    /// records, and upkeep that failed. `was_applied` is whether more than upkeep was done.
    pub fn put_off(&mut self, has_failed: bool, was_applied: bool) {
        let target = K::target(&self.manifest);
        let is_left = |it: &&Step<K::Effect>| {
            let is_upkeep = it.impact == Impact::Upkeep;
            let is_done = was_applied || is_upkeep && (it.action == Action::Delete || it.changes.is_empty());
            is_done || has_failed && is_upkeep
        };
        let steps = self.plan.iter().flat_map(|it| &it.steps).filter(is_left);
        self.put_off.extend(steps.map(|it| it.id(&target)));
    }

    /// What the kind tells at the end of a reconcile.
    pub fn conclude(&self, aside: Option<Aside>, report: &Report) -> Aside {
        K::conclude(&self.manifest, aside, report.condition, &report.outcome)
    }
}
