//! The deletion of a manifest: what it takes back, and what it leaves.

use api::{AppState as _, Mode, Reason};

use super::{Assessment, Object, Verdict};
use crate::{
    coder::Coder,
    kind::Kind,
    pipeline::{
        decide::{Contact, Decision},
        ledger::{Entry, Leaves, Ledger},
        outcome::{Outcome, Trouble},
        plan::Impact,
    },
    secrets::KeyStore,
};

impl<K: Kind> Object<K> {
    /// Leaves the remote object to another manifest that holds it too. What else the ledger names is taken back.
    pub fn leave_to_another(&mut self) {
        self.is_left = true;
    }

    /// What a deletion leaves in place.
    pub fn leaves(&self) -> Leaves {
        let leaves = Leaves::of(&self.manifest.policy());
        Leaves { object: leaves.object || self.is_left, ..leaves }
    }

    /// What is to become of the remote object when the manifest is deleted. Nothing is written. Only what we hold is
    /// taken away, and only where the manifest says so; its deletion is the approval.
    pub async fn assess_deletion(&mut self, coder: &Coder) -> Assessment {
        let target = K::target(&self.manifest);
        self.forget();
        let policy = self.manifest.policy();
        let held = self.held();
        // A creation whose answer was lost cannot be found again.
        let is_known = |it: &Entry| !matches!(it, Entry::Creating(_));
        let owed = K::ledger(&self.manifest).owed(self.leaves());
        if policy.mode() == Mode::Observe || !owed.entries().iter().any(is_known) {
            return Assessment::nothing(&target, None);
        }
        let desired = match K::desire(&self.manifest) {
            Ok(desired) => desired,
            Err(invalid) => return self.stop_deletion(Outcome::Invalid(invalid), &owed, coder).await,
        };
        let observed = async {
            coder.pass(K::GATE).await?;
            let home = match held {
                Some(id) => K::home(id, coder).await?,
                None => None,
            };
            // An object that another manifest holds is not this one's: only what this status records is taken back.
            K::observe(&K::for_deletion(desired, home), held.filter(|_| !self.is_left), coder).await
        };
        let observed = match observed.await {
            Ok(observed) => observed,
            // The only reference left is what the object belongs to, and with that it is gone too.
            Err(Trouble::Blocked(waiting)) if waiting.reason == Reason::ReferenceNotFound => {
                return Assessment::nothing(&target, Some(Contact::Absent));
            }
            Err(trouble) => return Assessment::stopped(&target, trouble.into()),
        };
        let contact = K::contact(&observed, held);
        let mut plan = K::plan_deletion(&observed);
        if contact != Contact::Held || self.is_left {
            plan.steps.retain(|it| it.impact == Impact::Upkeep);
        }
        if plan.is_empty() {
            return Assessment::nothing(&target, Some(contact));
        }
        let view = plan.view(&target);
        let is_allowed = policy.allows_destructive() || self.approvals().names(&view);
        if let Some(kept) = K::keeps(&observed, is_allowed, &view.hash) {
            let stopped = Assessment::stopped(&target, Outcome::Blocked(kept));
            return Assessment { contact: Some(contact), plan: view, ..stopped };
        }
        self.plan = Some(plan);
        let id = K::id(&observed).filter(|_| contact == Contact::Held);
        let verdict = Verdict::Decided(Decision::Apply);
        Assessment { id, plan: view, verdict, ..Assessment::nothing(&target, Some(contact)) }
    }

    /// What a deletion has to take back once what was assessed has begun.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = K::ledger(&self.manifest);
        let steps = self.plan.iter().flat_map(|it| &it.steps);
        steps.filter_map(|it| K::begins(&it.effect)).for_each(|it| ledger.add(it));
        ledger
    }

    /// What a deletion has to take back, by every record, without what the last attempt has taken back.
    pub async fn owed(&self, store: KeyStore<'_>) -> Ledger {
        let steps = self.plan.iter().flat_map(|it| &it.steps);
        let taken = steps.flat_map(|it| K::taken_back(&it.effect));
        let taken: Vec<Entry> = taken.chain(self.gone.iter().cloned()).collect();
        K::whole_ledger(&self.manifest, store).await.owed(self.leaves()).without(&taken)
    }
}
