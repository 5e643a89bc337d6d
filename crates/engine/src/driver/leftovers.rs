//! What earlier reconciles made and left, where a manifest cannot be compared any more.

use api::Reason;
use client::Class;

use super::{Assessment, Object, Verdict};
use crate::{
    coder::Coder,
    kind::{Kind, Leftovers},
    pipeline::{
        decide::{Decision, Door},
        outcome::{Outcome, Trouble},
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
        let Leftovers { plan, aside } = match K::leftovers(&self.manifest, self.held(), coder).await {
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
}

/// Whether the same reconcile would end the same way soon after. What an answer of Coder that is late interrupts goes on.
fn is_lasting(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Failed(Trouble::Remote(error)) => matches!(
            error.class(),
            Class::Invalid | Class::Missing | Class::Conflict | Class::License | Class::Forbidden
        ),
        Outcome::Failed(Trouble::Stale) => false,
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
    use crate::pipeline::outcome::Blocked;

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
