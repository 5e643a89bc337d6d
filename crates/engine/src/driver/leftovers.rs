//! What earlier reconciles made and left, where a manifest cannot be compared any more.

use api::Reason;
use client::Class;

use super::{Assessment, Object, Verdict};
use crate::{
    coder::Coder,
    kind::{Kind, Leftovers},
    pipeline::{
        decide::{Decision, Door},
        ledger::Ledger,
        outcome::{Blocked, Outcome, Trouble},
    },
};

impl<K: Kind> Object<K> {
    /// The assessment of a manifest that cannot be compared. Leftovers of earlier reconciles are taken back all the same, and
    /// the outcome is reported after that.
    pub(super) async fn stop(&mut self, outcome: Outcome, coder: &Coder, door: Door) -> Assessment {
        let target = K::target(&self.manifest);
        // The command line has no ledger, and its user sees the outcome.
        if door == Door::CommandLine || !is_lasting(&outcome) {
            return Assessment::stopped(&target, outcome);
        }
        let Leftovers { plan, aside, .. } = match K::leftovers(&self.manifest, self.held(), coder).await {
            Ok(Some(leftovers)) => leftovers,
            Ok(None) => return Assessment::stopped(&target, outcome),
            Err(trouble) => return Assessment::stopped(&target, trouble.into()),
        };
        if plan.is_empty() {
            return Assessment { aside, ..Assessment::stopped(&target, outcome) };
        }
        let view = plan.view(&target);
        self.plan = Some(plan);
        let stopped = Assessment::stopped(&target, outcome.clone());
        self.stopped = Some(outcome);
        Assessment { plan: view, aside, verdict: Verdict::Decided(Decision::Apply), ..stopped }
    }

    /// The assessment of the deletion of an invalid manifest: only leftovers of earlier reconciles are taken back. `owed` is what the
    /// deletion has to take back.
    pub(super) async fn stop_deletion(
        &mut self,
        outcome: Outcome,
        owed: &Ledger,
        coder: &Coder,
    ) -> Assessment {
        let target = K::target(&self.manifest);
        let Leftovers { plan, taken_back, .. } = match K::leftovers(&self.manifest, self.held(), coder).await
        {
            Ok(Some(leftovers)) => leftovers,
            Ok(None) => return Assessment::stopped(&target, outcome),
            Err(trouble) => return Assessment::stopped(&target, trouble.into()),
        };
        if owed.without(&taken_back).is_empty() {
            return Assessment::nothing(&target, None);
        }
        if !taken_back.is_empty() {
            self.gone = taken_back;
            return Assessment::stopped(&target, outcome);
        }
        let message = "what earlier reconciles made is deleted first".to_owned();
        let deleting = Outcome::Blocked(Blocked { reason: Reason::Deleting, message });
        let view = plan.view(&target);
        let stopped = Assessment::stopped(&target, deleting.clone());
        self.plan = Some(plan);
        self.stopped = Some(deleting);
        Assessment { plan: view, verdict: Verdict::Decided(Decision::Apply), ..stopped }
    }
}

/// Whether the same reconcile would end the same way soon after. What an answer of Coder that is late interrupts goes on.
fn is_lasting(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Failed(Trouble::Remote(error)) => matches!(
            error.class(),
            Class::Invalid | Class::Missing | Class::Conflict | Class::License | Class::Forbidden
        ),
        Outcome::Failed(Trouble::Stale | Trouble::Cluster(_)) => false,
        Outcome::Blocked(waiting) => {
            let is_passing = [Reason::ClusterError, Reason::Progressing, Reason::SecretUnreadable];
            waiting.reason.polled_every().is_none() && !is_passing.contains(&waiting.reason)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_ends_nothing() {
        let lasts = |reason| is_lasting(&Outcome::Blocked(Blocked { reason, message: String::new() }));
        for reason in [Reason::ReferenceNotFound, Reason::SecretNotFound, Reason::SourceNotUsable] {
            assert!(lasts(reason), "{reason}");
        }
        for reason in [Reason::ClusterError, Reason::Progressing, Reason::SecretUnreadable] {
            assert!(!lasts(reason), "{reason}");
        }
        assert!(!is_lasting(&Outcome::Failed(Trouble::Stale)));
    }
}
