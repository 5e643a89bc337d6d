//! One manifest on its way through the stages, whatever its kind.
//!
//! [`Object::assess`] reads and decides and writes nothing; [`Object::carry_out`] does what was decided. The doors call these
//! two and have no logic of their own. [`Subject`] is the same for a set of manifests of different kinds.

mod assessment;
mod carry_out;
mod deletion;
mod drift;
mod leftovers;
mod subject;

use api::{AppState as _, ApprovedPlan, Reason};
use kube::ResourceExt as _;
use serde_json::{Map, Value};
use uuid::Uuid;

pub use self::subject::{Reference, Subject};
use crate::{
    coder::Coder,
    kind::{Aside, Kind, Round},
    pipeline::{
        approval::Approvals,
        attribution::Attribution,
        decide::{Contact, Decision, Door, Situation, decide},
        field_gate::Unsupported,
        ledger::Entry,
        masked::masked,
        outcome::{Blocked, Outcome, Trouble},
        plan::{Action, Impact, Plan, PlanView, Step},
    },
    secrets::SecretValues,
};

/// A manifest of a kind.
#[derive(Debug)]
pub struct Object<K: Kind> {
    pub manifest: K::Manifest,
    /// What the last assessment would do.
    plan: Option<Plan<K::Effect>>,
    /// What the last assessment has read.
    observed: Option<Box<K::Observed>>,
    /// How far the plan can be carried out now.
    round: Round,
    /// Why the manifest could not be compared, where the plan only takes leftovers back.
    stopped: Option<Outcome>,
    /// Whether a deletion leaves the remote object to another manifest that holds it too.
    is_left: bool,
    /// The approval to record before the plan is begun. `None` where one round does all of it, and where it is recorded already.
    approval: Option<ApprovedPlan>,
    /// Steps that are left to the next reconcile.
    put_off: Vec<String>,
    /// What the ledger names and is gone already.
    gone: Vec<Entry>,
}

/// What is known of an object, and what is to become of it.
#[derive(Debug)]
pub struct Assessment {
    /// How the object stood to us. Unknown when a stage did not come to its end.
    pub contact: Option<Contact>,
    /// The id of the remote object.
    pub id: Option<Uuid>,
    /// Where the object is made: the plan that is left after that step. While it stands in the status, an object that has come up with just this left to do is our own, though the answer to our call was lost.
    pub rest: Option<String>,
    /// The steps to the declared state; empty when nothing differs or nothing could be found out.
    pub plan: PlanView,
    /// The steps of it that are done although the plan waits, or is only observed.
    pub upkeep: PlanView,
    /// What only this kind tells.
    pub aside: Aside,
    /// The declared fields that the deployment does not support, or that it leaves to others: they are not applied.
    pub unsupported: Option<Blocked>,
    /// Why fields that refer to Secrets were not compared. `None` where all were.
    pub unknown: Option<Blocked>,
    /// Who made the object differ; empty where the manifest did.
    pub attributions: Vec<Attribution>,
    pub verdict: Verdict,
}

/// What plan and decision follow from.
struct Known<K: Kind> {
    desired: K::Desired,
    observed: K::Observed,
    unsupported: Option<Blocked>,
    unknown: Option<Blocked>,
}

/// What an assessment ends in.
#[derive(Debug)]
pub enum Verdict {
    /// The stages came to their end, and this is to be done.
    Decided(Decision),
    /// They did not.
    Stopped(Outcome),
}

/// What became of an object.
#[derive(Debug)]
pub struct Report {
    pub outcome: Outcome,
    /// The id to record: ours from now on, also where a later step failed. Nothing while we hold nothing.
    pub id: Option<Uuid>,
    /// How many steps were done.
    pub done: usize,
    /// Fields of the status that only this kind has, by the steps that were done.
    pub recorded: Map<String, Value>,
    /// Steps that were refused for good, and held up no other step.
    pub refused: Vec<Blocked>,
    /// Why steps of upkeep have to be tried again.
    pub retry: Option<Trouble>,
    /// The condition that the step which failed stands for, where the kind has one.
    pub condition: Option<&'static str>,
}

impl Report {
    /// The report of an object to which nothing was done.
    pub fn of(outcome: Outcome, id: Option<Uuid>) -> Self {
        Self { outcome, id, done: 0, recorded: Map::new(), refused: Vec::new(), retry: None, condition: None }
    }
}

impl<K: Kind> Object<K> {
    pub fn new(manifest: K::Manifest) -> Self {
        Self {
            manifest,
            plan: None,
            observed: None,
            round: Round::default(),
            stopped: None,
            is_left: false,
            approval: None,
            put_off: Vec::new(),
            gone: Vec::new(),
        }
    }

    pub fn parse(manifest: &Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(manifest.clone()).map(Self::new)
    }

    /// What the last assessment has read. `None` where it could not be read.
    pub fn observed(&self) -> Option<&K::Observed> {
        self.observed.as_deref()
    }

    /// The id that we recorded when we took the object.
    fn held(&self) -> Option<Uuid> {
        self.manifest.status()?.id.as_ref()?.parse().ok()
    }

    /// Forgets the last assessment.
    fn forget(&mut self) {
        self.plan = None;
        self.observed = None;
        self.round = Round::default();
        self.stopped = None;
        self.approval = None;
    }

    /// Everything up to the decision. Nothing is written.
    pub async fn assess(&mut self, coder: &Coder, door: Door) -> Assessment {
        let target = K::target(&self.manifest);
        self.forget();
        let desired = match K::desire(&self.manifest) {
            Ok(desired) => desired,
            Err(invalid) => return self.stop(Outcome::Invalid(invalid), coder, door).await,
        };
        let held = self.held();
        let Known { desired, observed, unsupported, unknown } = match self.known(desired, held, coder).await {
            Ok(known) => known,
            Err(outcome) => return self.stop(outcome, coder, door).await,
        };
        if let Some(waiting) = K::waits(&observed) {
            let aside = K::aside(&observed);
            let stopped = Assessment::stopped(&target, waiting);
            self.observed = Some(Box::new(observed));
            return Assessment { aside, unsupported, unknown, ..stopped };
        }
        let mut plan = K::plan(&desired, &observed);
        let repeated = self.take_put_off(&mut plan, &target);
        let view = plan.view(&target);
        let creating = self.manifest.status().and_then(|it| it.creating.as_ref());
        let contact = match K::contact(&observed, held) {
            Contact::Foreign if creating == Some(&view.hash) => Contact::Held,
            other => other,
        };
        let decision = decide(&Situation {
            policy: &self.manifest.policy(),
            door,
            contact,
            impact: plan.impact(),
            hash: &view.hash,
            approved: self.approvals().cover(&view, &target).then_some(view.hash.as_str()),
        });
        self.round = K::round(&desired, &observed);
        self.approval = self.approval_of(&view, &target);
        // What waits is not created in this round.
        let creates = self.round.steps != Some(0) && !K::HAS_RECORDS;
        let rest = plan.after_creation(&target).filter(|_| creates);
        let upkeep = plan.steps.iter().filter(|it| Self::is_kept_up(it)).map(Step::without_effect);
        let upkeep = Plan { steps: upkeep.collect() }.view(&target);
        self.plan = Some(plan);
        let verdict = match (decision, &self.round.waits) {
            // The plan is empty, and the object still waits for its next round.
            (Decision::Nothing, Some(waiting)) => Verdict::Stopped(Outcome::Blocked(waiting.clone())),
            (Decision::Nothing, None) if !repeated.is_empty() => Verdict::Stopped(not_seen()),
            _ => Verdict::Decided(decision),
        };
        let view = if view.is_empty() { repeated.view(&target) } else { view };
        let aside = K::aside(&observed);
        let mut attributions = if self.is_drift(contact, door) {
            self.attributions(&observed, &view, coder).await
        } else {
            Vec::new()
        };
        if door == Door::Controller {
            attributions.retain(|it| !aside.own_changes.contains(&it.field.as_str()));
        }
        let id = K::id(&observed);
        self.observed = Some(Box::new(observed));
        let [plan, upkeep] = [view, upkeep].map(|it| if K::OWNS_OBJECTS { masked(it) } else { it });
        Assessment {
            contact: Some(contact),
            id,
            rest,
            plan,
            upkeep,
            aside,
            unsupported,
            unknown,
            attributions,
            verdict,
        }
    }

    /// Takes out of a plan what is left to the next reconcile. Returns the steps that were done and have to be done again.
    fn take_put_off(&self, plan: &mut Plan<K::Effect>, target: &str) -> Plan<()> {
        let mut repeated = Vec::new();
        plan.steps.retain(|it| {
            let is_put_off = self.put_off.contains(&it.id(target));
            if is_put_off && it.action != Action::Delete && it.impact != Impact::Upkeep {
                repeated.push(it.without_effect());
            }
            !is_put_off
        });
        Plan { steps: repeated }
    }

    /// Passes the gates, reads the Secrets that the manifest refers to, and observes.
    async fn known(
        &self,
        desired: K::Desired,
        held: Option<Uuid>,
        coder: &Coder,
    ) -> Result<Known<K>, Outcome> {
        if K::IS_GATED {
            coder.pass(K::GATE).await?;
        }
        let unsupported = self.unsupported(coder).await?;
        let trimmed = self.without(&unsupported);
        let manifest = trimmed.as_ref().unwrap_or(&self.manifest);
        let desired = if trimmed.is_some() { K::desire(manifest)? } else { desired };
        let (desired, unknown) = Self::with_secrets(manifest, desired, coder).await?;
        let observed = K::observe(&desired, held, coder).await?;
        let unsupported = unsupported.blocked().or_else(|| K::unmanaged(&observed));
        Ok(Known { desired, observed, unsupported, unknown })
    }

    /// Reads the Secrets that the manifest refers to. Where one is missing and that is no obstacle, the fields are left out, and
    /// why is returned.
    async fn with_secrets(
        manifest: &K::Manifest,
        desired: K::Desired,
        coder: &Coder,
    ) -> Result<(K::Desired, Option<Blocked>), Outcome> {
        let places = K::secret_refs(manifest);
        if places.is_empty() {
            return Ok((desired, None));
        }
        let namespace = manifest.namespace().unwrap_or_default();
        let read = match coder.references() {
            Ok(references) => SecretValues::read(references, &namespace, &places).await,
            Err(blocked) => Err(blocked),
        };
        match read {
            Ok(values) => Ok((K::with_secrets(desired, &values)?, None)),
            Err(missing) => {
                let is_missing = [Reason::SecretNotFound, Reason::SecretMissing].contains(&missing.reason);
                let is_skipped = is_missing && coder.skips_missing_secrets();
                let rest = K::without_secrets(manifest).filter(|_| is_skipped);
                let rest = rest.ok_or_else(|| Outcome::Blocked(missing.clone()))?;
                Ok((K::desire(&rest)?, Some(missing)))
            }
        }
    }

    /// The declared fields that the deployment does not support.
    async fn unsupported(&self, coder: &Coder) -> Result<Unsupported, Trouble> {
        if K::FIELD_GATES.is_empty() {
            return Ok(Unsupported::default());
        }
        let manifest = serde_json::to_value(&self.manifest).unwrap_or_default();
        Ok(coder.unsupported(K::FIELD_GATES, &manifest).await?)
    }

    /// The manifest without these fields. `None` where there are none.
    fn without(&self, unsupported: &Unsupported) -> Option<K::Manifest> {
        if unsupported.is_empty() {
            return None;
        }
        let mut manifest = serde_json::to_value(&self.manifest).ok()?;
        unsupported.remove_from(&mut manifest);
        // Fields of a table of gates are optional: what is left can be read.
        serde_json::from_value(manifest).ok()
    }

    /// What a person has approved.
    fn approvals(&self) -> Approvals<'_> {
        Approvals::of(&self.manifest, self.manifest.status().and_then(|it| it.approved.as_ref()))
    }

    /// The approval to record before an approved plan is begun of which a part may be left.
    fn approval_of(&self, plan: &PlanView, target: &str) -> Option<ApprovedPlan> {
        let approved = plan.steps.iter().filter(|it| it.needs_approval()).count();
        let has_more = self.round.steps.is_some_and(|it| it < plan.steps.len());
        self.approvals().record(plan, target).filter(|_| has_more || K::OWNS_OBJECTS && approved > 1)
    }

    /// The approval to record before the plan is begun. `None` where one round does all of it, and where it is recorded already.
    pub fn approval(&self) -> Option<ApprovedPlan> {
        self.approval.clone()
    }

    /// The steps of the plan that can be done now.
    fn steps_now(&self) -> &[Step<K::Effect>] {
        let steps = self.plan.as_ref().map_or(&[][..], |it| &it.steps);
        &steps[..self.round.steps.unwrap_or(steps.len()).min(steps.len())]
    }

    /// The fields of the status that are to be written before the first step.
    pub fn intents(&self) -> Map<String, Value> {
        self.steps_now().iter().flat_map(|it| K::intends(&it.effect)).collect()
    }
}

/// The outcome where steps of this reconcile would have to be done again.
fn not_seen() -> Outcome {
    let message = "applied, but the object does not have the change: another client or a webhook may have reverted it (see \
                   metadata.managedFields); it is applied again at the next reconcile"
        .to_owned();
    Outcome::Blocked(Blocked { reason: Reason::Progressing, message })
}

impl From<Trouble> for Verdict {
    fn from(trouble: Trouble) -> Self {
        Self::Stopped(trouble.into())
    }
}
