//! One manifest on its way through the stages, whatever its kind.
//!
//! [`Object::assess`] reads and decides and writes nothing; [`Object::carry_out`] does what was decided. The doors call these
//! two and have no logic of their own. [`Subject`] is the same for a set of manifests of different kinds.

mod assessment;
mod drift;
mod leftovers;

use std::pin::Pin;

use api::{AppState, ApprovedPlan, Mode, Reason};
use kube::{Resource as _, ResourceExt as _};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    coder::{Coder, Promises},
    kind::{Aside, Kind, Round},
    pipeline::{
        approval::Approvals,
        attribution::Attribution,
        decide::{Contact, Decision, Door, Situation, decide},
        field_gate::Unsupported,
        ledger::{Entry, Leaves, Ledger},
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Impact, Plan, PlanView, Step},
        remote_name::RemoteName,
    },
    ports::object::Live,
    secrets::{Holder, KeyStore, SecretValues},
};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A manifest of a kind.
#[derive(Debug)]
pub struct Object<K: Kind> {
    pub manifest: K::Manifest,
    /// What the last assessment would do.
    plan: Option<Plan<K::Effect>>,
    /// How far the plan can be carried out now.
    round: Round,
    /// Why the manifest could not be compared, where the plan only takes leftovers back.
    stopped: Option<Outcome>,
    /// Whether a deletion leaves the remote object to another manifest that holds it too.
    is_left: bool,
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
}

impl Report {
    /// The report of an object to which nothing was done.
    pub fn of(outcome: Outcome, id: Option<Uuid>) -> Self {
        Self { outcome, id, done: 0, recorded: Map::new() }
    }
}

/// Who carries out the plan of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// `apply`, and the controllers.
    Any,
    /// Only the controllers: `plan` and `verify` show the plan, and `apply` skips the manifest.
    Controller,
}

/// A manifest of any kind.
pub trait Subject: Send + Sync {
    /// The kind, namespace and name of the manifest.
    fn reference(&self) -> Reference;
    /// The remote object in words.
    fn target(&self) -> String;
    fn control_plane(&self) -> &str;
    /// What only one manifest of the kind may declare in a deployment.
    fn exclusive(&self) -> Option<&'static str> {
        None
    }
    fn rank(&self) -> u8;
    fn is_suspended(&self) -> bool;
    fn runner(&self) -> Runner {
        Runner::Any
    }
    /// Whether the manifest keeps something in a cluster, so that one is needed.
    fn needs_cluster(&self) -> bool {
        false
    }
    /// Whether the manifest is compared with a deployment. Without that need it is assessed also while its control plane cannot be
    /// reached, with a [`Coder`] that has no credentials.
    fn needs_deployment(&self) -> bool {
        true
    }
    /// Makes the manifest of a file that of the object `stored` in a cluster, or of one that is in no cluster yet. `namespace`
    /// is that of manifests which name none.
    fn settle_in(&mut self, _namespace: &str, _stored: Option<&Live>) {}
    /// The object that other manifests may refer to once this one is applied.
    fn provides(&self) -> Option<RemoteName> {
        None
    }
    /// The objects of the deployment that the manifest refers to.
    fn refs(&self) -> Vec<RemoteName> {
        Vec::new()
    }
    fn promise(&self, promises: &mut Promises) {
        if let Some(name) = self.provides() {
            promises.add(&name);
        }
    }
    /// Finds every mistake that can be found without asking anybody.
    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }
    fn assess<'a>(&'a mut self, coder: &'a Coder, door: Door) -> BoxFuture<'a, Assessment>;
    /// Plans the deletion. Empty where only the controllers delete.
    fn assess_deletion<'a>(&'a mut self, _coder: &'a Coder) -> BoxFuture<'a, Assessment> {
        Box::pin(async { Assessment::nothing(&self.target(), None) })
    }
    /// Carries out the plan. Nothing is done where only the controllers do: see [`Runner::Controller`].
    fn carry_out<'a>(&'a self, assessment: &'a Assessment, _coder: &'a Coder) -> BoxFuture<'a, Report> {
        Box::pin(async { assessment.not_carried_out() })
    }
}

/// Which manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

impl std::fmt::Display for Reference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{} {namespace}/{}", self.kind, self.name),
            None => write!(formatter, "{} {}", self.kind, self.name),
        }
    }
}

impl<K: Kind> Object<K> {
    pub fn new(manifest: K::Manifest) -> Self {
        Self { manifest, plan: None, round: Round::default(), stopped: None, is_left: false }
    }

    pub fn parse(manifest: &Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(manifest.clone()).map(Self::new)
    }

    /// The id that we recorded when we took the object.
    fn held(&self) -> Option<Uuid> {
        self.manifest.status()?.id.as_ref()?.parse().ok()
    }

    /// Forgets the last assessment.
    fn forget(&mut self) {
        self.plan = None;
        self.round = Round::default();
        self.stopped = None;
    }

    /// Leaves the remote object to another manifest that holds it too. What else the ledger names is taken back.
    pub fn leave_to_another(&mut self) {
        self.is_left = true;
    }

    /// What a deletion leaves in place.
    pub fn leaves(&self) -> Leaves {
        let leaves = Leaves::of(self.manifest.policy());
        Leaves { object: leaves.object || self.is_left, ..leaves }
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
            let stopped = Assessment::stopped(&target, Outcome::Blocked(waiting));
            return Assessment { aside, unsupported, unknown, ..stopped };
        }
        let plan = K::plan(&desired, &observed);
        let view = plan.view(&target);
        let creating = self.manifest.status().and_then(|it| it.creating.as_ref());
        let contact = match K::contact(&observed, held) {
            Contact::Foreign if creating == Some(&view.hash) => Contact::Held,
            other => other,
        };
        let decision = decide(&Situation {
            policy: self.manifest.policy(),
            door,
            contact,
            impact: plan.impact(),
            hash: &view.hash,
            approved: self.approvals().cover(&view, &target).then_some(view.hash.as_str()),
        });
        self.round = K::round(&desired, &observed);
        // What waits is not created in this round.
        let creates = self.round.steps != Some(0);
        let rest = plan.after_creation(&target).filter(|_| creates);
        self.plan = Some(plan);
        let verdict = match (decision, &self.round.waits) {
            // The plan is empty, and the object still waits for its next round.
            (Decision::Nothing, Some(waiting)) => Verdict::Stopped(Outcome::Blocked(waiting.clone())),
            _ => Verdict::Decided(decision),
        };
        let aside = K::aside(&observed);
        let mut attributions = if self.is_drift(contact, door) {
            self.attributions(&observed, &view, coder).await
        } else {
            Vec::new()
        };
        if door == Door::Controller {
            attributions.retain(|it| !aside.own_changes.contains(&it.field.as_str()));
        }
        Assessment {
            contact: Some(contact),
            id: K::id(&observed),
            rest,
            plan: view,
            aside,
            unsupported,
            unknown,
            attributions,
            verdict,
        }
    }

    /// Passes the gates, reads the Secrets that the manifest refers to, and observes.
    async fn known(
        &self,
        desired: K::Desired,
        held: Option<Uuid>,
        coder: &Coder,
    ) -> Result<Known<K>, Outcome> {
        coder.pass(K::GATE).await?;
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

    /// The approval to record before the first round of an approved plan. `None` where no round follows, and where it is
    /// recorded already.
    pub fn approval(&self, assessment: &Assessment) -> Option<ApprovedPlan> {
        let plan = &assessment.plan;
        let has_more = self.round.steps.is_some_and(|it| it < plan.steps.len());
        self.approvals().record(plan, &K::target(&self.manifest)).filter(|_| has_more)
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
            Err(invalid) => return Assessment::stopped(&target, Outcome::Invalid(invalid)),
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
        Assessment {
            contact: Some(contact),
            id: K::id(&observed).filter(|_| contact == Contact::Held),
            rest: None,
            plan: view,
            aside: Aside::default(),
            unsupported: None,
            unknown: None,
            attributions: Vec::new(),
            verdict: Verdict::Decided(Decision::Apply),
        }
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
        let taken: Vec<Entry> = steps.flat_map(|it| K::taken_back(&it.effect)).collect();
        K::whole_ledger(&self.manifest, store).await.owed(self.leaves()).without(&taken)
    }

    /// Does what the assessment decided, step by step, and stops at the first that fails.
    pub async fn carry_out(&self, assessment: &Assessment, coder: &Coder) -> Report {
        let report = match &assessment.verdict {
            Verdict::Stopped(outcome) => Report::of(outcome.clone(), None),
            // Looking on takes nothing over, not even what is equal.
            Verdict::Decided(Decision::Nothing) if self.manifest.policy().mode() == Mode::Observe => {
                Report::of(Outcome::Equal, assessment.held())
            }
            Verdict::Decided(Decision::Nothing) => Report::of(Outcome::Equal, assessment.id),
            Verdict::Decided(Decision::Observe) => Report::of(Outcome::Observed, assessment.held()),
            Verdict::Decided(Decision::Refuse(refusal)) => {
                Report::of(Outcome::Refused(*refusal), assessment.held())
            }
            Verdict::Decided(Decision::Apply) => self.apply(assessment, coder).await,
        };
        Report { outcome: report.outcome.with_unsupported(assessment.unsupported.as_ref()), ..report }
    }

    async fn apply(&self, assessment: &Assessment, coder: &Coder) -> Report {
        // What was not held is ours once a step on it is done, and not before.
        let mut report = Report::of(Outcome::Applied, assessment.held());
        let steps = self.plan.as_ref().map_or(&[][..], |it| &it.steps);
        let round = self.steps_now().len();
        for step in self.steps_now() {
            report.recorded.extend(K::intends(&step.effect));
            match K::apply(&step.effect, coder).await {
                Ok(made) => report.id = made.or(report.id).or(assessment.id),
                Err(trouble) => {
                    report.outcome = trouble.into();
                    return report;
                }
            }
            report.recorded.extend(K::recorded(&step.effect));
            report.done += 1;
        }
        if let Some(stopped) = &self.stopped {
            report.outcome = stopped.clone();
        } else if let Some(waiting) = &self.round.waits {
            report.outcome = Outcome::Blocked(waiting.clone());
        } else if round < steps.len() {
            let message = format!("{round} of {} steps are done; the next ones follow", steps.len());
            report.outcome = Outcome::Blocked(Blocked { reason: Reason::Progressing, message });
        }
        report
    }
}

impl<K: Kind> Subject for Object<K> {
    fn reference(&self) -> Reference {
        Reference {
            kind: K::Manifest::kind(&()).into_owned(),
            namespace: self.manifest.namespace(),
            name: self.manifest.name_any(),
        }
    }

    fn target(&self) -> String {
        K::target(&self.manifest)
    }

    fn control_plane(&self) -> &str {
        self.manifest.control_plane()
    }

    fn exclusive(&self) -> Option<&'static str> {
        K::exclusive(&self.manifest)
    }

    fn rank(&self) -> u8 {
        K::RANK
    }

    fn is_suspended(&self) -> bool {
        self.manifest.policy().is_suspended()
    }

    fn needs_cluster(&self) -> bool {
        K::HAS_SECRETS
    }

    fn settle_in(&mut self, namespace: &str, stored: Option<&Live>) {
        settle_in(&mut self.manifest, namespace, stored);
    }

    fn provides(&self) -> Option<RemoteName> {
        K::provides(&self.manifest)
    }

    fn refs(&self) -> Vec<RemoteName> {
        K::refs(&self.manifest)
    }

    fn check(&self) -> Result<(), Invalid> {
        K::desire(&self.manifest).map(drop)
    }

    fn assess<'a>(&'a mut self, coder: &'a Coder, door: Door) -> BoxFuture<'a, Assessment> {
        Box::pin(Self::assess(self, coder, door))
    }

    fn assess_deletion<'a>(&'a mut self, coder: &'a Coder) -> BoxFuture<'a, Assessment> {
        Box::pin(Self::assess_deletion(self, coder))
    }

    fn carry_out<'a>(&'a self, assessment: &'a Assessment, coder: &'a Coder) -> BoxFuture<'a, Report> {
        Box::pin(Self::carry_out(self, assessment, coder))
    }
}

/// Gives a manifest of a file the namespace, the uid and the status of the object `stored` in a cluster, or those of an object that
/// is in no cluster yet.
pub(crate) fn settle_in<M>(manifest: &mut M, namespace: &str, stored: Option<&Live>)
where
    M: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let name = manifest.name_any();
    let meta = manifest.meta_mut();
    let namespace = meta.namespace.get_or_insert_with(|| namespace.to_owned());
    let uid = stored.and_then(|it| it.metadata().uid.clone());
    meta.uid = Some(uid.unwrap_or_else(|| Holder::uid_of_file(&M::kind(&()), namespace, &name)));
    let Ok(mut json) = serde_json::to_value(&*manifest) else { return };
    json["status"] = stored.map_or(Value::Null, |it| it.object["status"].clone());
    if let Ok(settled) = serde_json::from_value(json) {
        *manifest = settled;
    }
}

impl From<Trouble> for Verdict {
    fn from(trouble: Trouble) -> Self {
        Self::Stopped(trouble.into())
    }
}
