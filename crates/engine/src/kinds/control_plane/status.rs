//! The status of a control plane after a reconcile. Pure: the same findings twice are the same status.

use api::{
    AppState as _, CoderControlPlane, CoderControlPlaneStatus, CredentialStatus, FeatureStatus,
    LicenseStatus, Reason, SecretKeyRef, Status, UserLimit,
    condition::{COMPLETE, DATABASE_CONFIGURED, ENTITLEMENTS, LICENSE_APPLIED, OPERATOR_ACCESS},
};
use client::deployment::BuildInfo;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use uuid::Uuid;

use super::{
    access::Lifetime,
    entitlements::{Entitlement, Summary, stamp},
    license::{self, LicenseRecord, LicenseView, Licensing, Obstacle, is_retried},
    names::TOKEN_KEY,
    version,
    workload::Workload,
};
use crate::{
    driver::{Assessment, Report},
    pipeline::{
        conditions::{Fact, Truth},
        decide::Contact,
        outcome::{Blocked, Outcome},
        plan::PlanView,
        status::{self, StatusInput, message},
    },
};

/// How many licences statuses and metrics show.
pub const MOST_LICENSES: usize = 50;
const WORKS: &str = "answers, and takes the credentials";
/// Reasons of a manifest that names no database.
const WITHOUT_DATABASE: [Reason; 2] = [Reason::DatabaseRemovalRefused, Reason::NoDatabase];

/// What a reconcile found out.
#[derive(Debug)]
pub struct PlaneFindings<'a> {
    /// Who answered and took our credentials, or why nobody did.
    pub access: Result<&'a BuildInfo, &'a Blocked>,
    /// A supplied token. `None` where the token is one of our own.
    pub supplied_token: Option<&'a SuppliedToken>,
    /// The Secret into which the operator writes its own token; `None` where the token is a supplied one.
    pub token_secret: Option<&'a str>,
    /// The account that we made for ourselves, where it is us who run it.
    pub account: Option<Uuid>,
    /// The objects of the cluster, where it is us who run it.
    pub workload: Option<&'a Workload>,
    /// Where the deployment is reached.
    pub url: Option<String>,
    /// `None` when there was no access.
    pub licensing: Option<&'a Licensing>,
    /// The first plan, for objects or for licences, that is not carried out.
    pub held_back: Option<HeldBack<'a>>,
    /// The plan for objects that was carried out, with its target, where another client has reverted it.
    pub reverted: Option<(&'a PlanView, &'a str)>,
    /// Whether nothing of the plan for objects is left.
    pub is_applied: bool,
    /// Whether something was changed.
    pub changed: bool,
    /// The value of the annotation that asked for this reconcile.
    pub requested: Option<String>,
    pub now: Timestamp,
}

/// How long a supplied token lives.
#[derive(Debug)]
pub struct SuppliedToken {
    pub lifetime: Lifetime,
    /// What is kept of that.
    pub credential: Option<CredentialStatus>,
}

/// A plan that is not carried out.
#[derive(Debug, Clone, Copy)]
pub struct HeldBack<'a> {
    pub plan: &'a PlanView,
    /// What the plan is about.
    pub target: &'a str,
    /// [`Outcome::Observed`], or why the plan is refused.
    pub outcome: &'a Outcome,
}

impl<'a> HeldBack<'a> {
    /// The plan of an assessment, where it is held back.
    pub fn of(assessment: &'a Assessment, report: &'a Report, target: &'a str) -> Option<Self> {
        let is_held = matches!(report.outcome, Outcome::Observed | Outcome::Refused(_));
        is_held.then_some(Self { plan: &assessment.plan, target, outcome: &report.outcome })
    }
}

/// How a reconcile ended.
#[derive(Debug)]
pub struct PlaneReadiness {
    pub outcome: Outcome,
    /// Whether only a person can bring it forward.
    pub is_stalled: bool,
    /// Whether another reconcile before the interval is over may find something new.
    pub is_retried_soon: bool,
}

impl PlaneFindings<'_> {
    fn works(&self) -> String {
        let notices = self.workload.and_then(|it| it.notices.as_deref()).unwrap_or_default();
        if notices.is_empty() { WORKS.to_owned() } else { format!("{WORKS}. But {}", joined(notices)) }
    }

    /// Whether entitlements are still to be read, by a later reconcile.
    fn awaits_entitlements(&self) -> bool {
        self.licensing.and_then(|it| it.unread.as_ref()).is_some_and(|it| it.is_transient)
    }

    /// Ready is who can be used, and has the licence that is declared.
    pub fn readiness(&self) -> PlaneReadiness {
        if let Some(held) = &self.held_back {
            let (outcome, is_stalled) = (held.outcome.clone(), held.outcome.is_stalled());
            return PlaneReadiness { outcome, is_stalled, is_retried_soon: false };
        }
        let workload = self.workload.and_then(|it| it.standing.as_ref().err());
        if let Some(waiting) = workload.or_else(|| self.access.err()) {
            let is_stalled = waiting.reason.stalls();
            // What another client keeps reverting is not applied more often than the interval says.
            return PlaneReadiness {
                outcome: Outcome::Blocked(waiting.clone()),
                is_stalled,
                is_retried_soon: self.reverted.is_none(),
            };
        }
        match self.licensing.map(|it| &it.verdict).filter(|it| it.status == Some(false)) {
            Some(verdict) => {
                let (reason, message) = (Reason::LicenseNotApplied, verdict.message.clone());
                let is_retried_soon = is_retried(verdict.reason);
                let outcome = Outcome::Blocked(Blocked { reason, message });
                PlaneReadiness { outcome, is_stalled: !is_retried_soon, is_retried_soon }
            }
            None => PlaneReadiness {
                outcome: Outcome::Equal,
                is_stalled: false,
                is_retried_soon: self.awaits_entitlements(),
            },
        }
    }

    /// How the reconcile ended, in the words of the condition `Ready`.
    pub fn message(&self) -> String {
        match self.readiness().outcome {
            outcome if outcome.is_ready() => self.works(),
            outcome => {
                let none = PlanView::empty();
                message(&outcome, self.held_back.map_or(&none, |it| it.plan))
            }
        }
    }
}

/// The status after a reconcile.
pub fn status(plane: &CoderControlPlane, findings: &PlaneFindings<'_>) -> CoderControlPlaneStatus {
    let PlaneFindings {
        access, supplied_token, token_secret, account, workload, url, licensing, now, ..
    } = findings;
    let in_secret = |name: String| SecretKeyRef { name, key: Some(TOKEN_KEY.to_owned()) };
    let before = plane.status.clone().unwrap_or_default();
    let mut next = CoderControlPlaneStatus {
        common: common(plane, findings),
        phase: Some(if findings.readiness().outcome.is_ready() { "Ready" } else { "Pending" }.to_owned()),
        url: url.clone().or_else(|| before.url.clone()),
        version: access.ok().map(|it| it.version.clone()).or_else(|| before.version.clone()),
        deployment_id: access
            .ok()
            .map(|it| it.deployment_id.to_string())
            .or_else(|| before.deployment_id.clone()),
        operator_access_ready: Some(access.is_ok()),
        credential: match access {
            Ok(_) => supplied_token.and_then(|it| it.credential.clone()),
            Err(_) => before.credential.clone(),
        },
        operator_token_secret_ref: match access {
            Ok(_) => token_secret.map(str::to_owned).map(in_secret),
            Err(why) if why.reason == Reason::AccessDisabled => None,
            Err(_) => before.operator_token_secret_ref.clone(),
        },
        operator_account_id: match access {
            Err(why) if why.reason == Reason::AccessDisabled => None,
            _ => account.map(|it| it.to_string()).or_else(|| before.operator_account_id.clone()),
        },
        ..before
    };
    if let Some(workload) = workload {
        next.ready_replicas = workload.ready_replicas;
        if let Some(namespaces) = &workload.workspace_namespaces {
            next.workspace_namespaces.clone_from(namespaces);
        }
        let answers = access.ok().map(|it| it.version.as_str());
        let started = workload.database_version.as_deref();
        // An image that was started counts even while an older one answers.
        let known = version::newest(next.database_version.as_deref(), started, []);
        next.database_version = version::newest(known.as_deref(), answers, []);
    }
    if let Some(licensing) = licensing {
        report_licenses(&mut next, licensing);
        if let Some(summary) = &licensing.entitlements {
            report_entitlements(&mut next, summary, *now);
        }
    }
    next
}

/// The part that the status of every kind has.
fn common(plane: &CoderControlPlane, findings: &PlaneFindings<'_>) -> Status {
    let PlaneReadiness { outcome, is_stalled, .. } = findings.readiness();
    let (none, works) = (PlanView::empty(), findings.works());
    let reverted = findings.reverted.unwrap_or((&none, ""));
    let (plan, target) = findings.held_back.map_or(reverted, |it| (it.plan, it.target));
    // Objects and licences are compared before anybody is asked for more.
    let is_compared = findings.held_back.is_some() || findings.reverted.is_some() || findings.access.is_ok();
    // A reconcile request asks for entitlements too: it is handled once they are read.
    let requested = findings.requested.as_deref().filter(|_| !findings.awaits_entitlements());
    let next = status::next(
        plane.status(),
        &StatusInput {
            generation: plane.metadata.generation,
            contact: is_compared.then_some(Contact::Held),
            plan,
            target,
            outcome: &outcome,
            unsupported: None,
            attributions: &[],
            own_changes: &[],
            facts: &facts(plane, findings),
            stalls: is_stalled,
            ready: Some(&works),
            id: None,
            deployment: None,
            changed: findings.changed,
            requested,
            now: findings.now,
        },
    );
    // An approval ends with its plan, whatever else the control plane waits for.
    Status { approved: next.approved.filter(|_| !findings.is_applied), ..next }
}

/// That the credential is not taken because its time is over, as far as we knew it.
fn ended(waiting: &Blocked, credential: Option<&CredentialStatus>, now: Timestamp) -> String {
    let end = credential.map(|it| it.expires_at.0).filter(|it| *it <= now);
    end.filter(|_| waiting.reason == Reason::Unauthorized).map_or_else(String::new, |it| {
        format!("; the token expired on {}: put a new one into its Secret", license::day(it))
    })
}

fn joined<'a>(notices: impl IntoIterator<Item = &'a Blocked>) -> String {
    notices.into_iter().map(|it| it.message.as_str()).collect::<Vec<_>>().join("; ")
}

fn fact(condition: &'static str, truth: Truth, reason: Reason, message: impl Into<String>) -> Fact {
    Fact { condition, truth, reason, message: message.into() }
}

/// Says what is declared beside the pods and is not there. It holds up nothing, so `Ready` may be true meanwhile.
fn completeness(workload: &Workload) -> Fact {
    let Some(notices) = &workload.notices else {
        return fact(COMPLETE, Truth::Unknown, Reason::NotObserved, "");
    };
    let left_out: Vec<&Blocked> = notices.iter().filter(|it| it.reason.is_omission()).collect();
    match left_out.first() {
        Some(first) => fact(COMPLETE, Truth::False, first.reason, joined(left_out.iter().copied())),
        None => fact(COMPLETE, Truth::True, Reason::UpToDate, "everything that is declared is there"),
    }
}

/// Reports a missing database in a condition of its own, which is there also while pods are rolled out or do not come up.
fn database(workload: &Workload) -> Fact {
    let Some(notices) = &workload.notices else {
        return fact(DATABASE_CONFIGURED, Truth::Unknown, Reason::NotObserved, "");
    };
    match WITHOUT_DATABASE.iter().find_map(|reason| notices.iter().find(|it| it.reason == *reason)) {
        Some(notice) => fact(DATABASE_CONFIGURED, Truth::False, notice.reason, &notice.message),
        None => fact(DATABASE_CONFIGURED, Truth::True, Reason::UpToDate, "a database is declared"),
    }
}

/// Whether the operator has working credentials.
fn access(plane: &CoderControlPlane, findings: &PlaneFindings<'_>) -> Fact {
    match findings.access {
        Ok(_) => {
            let lifetime = findings.supplied_token.map(|it| format!("; {}", it.lifetime.words()));
            let message = format!("{WORKS}{}", lifetime.unwrap_or_default());
            fact(OPERATOR_ACCESS, Truth::True, Reason::UpToDate, message)
        }
        Err(waiting) => {
            let credential = plane.status.as_ref().and_then(|it| it.credential.as_ref());
            let message = format!("{}{}", waiting.message, ended(waiting, credential, findings.now));
            fact(OPERATOR_ACCESS, Truth::False, waiting.reason, message)
        }
    }
}

/// Whether the declared licences are installed, and what they cover.
fn licenses(plane: &CoderControlPlane, licensing: Option<&Licensing>) -> [Fact; 2] {
    let is_declared = plane.spec.licenses().next().is_some();
    let without = || {
        let obstacle = if is_declared { Obstacle::NoAccess } else { Obstacle::NotDeclared };
        license::LicenseVerdict::obstacle(&obstacle)
    };
    let verdict = licensing.map_or_else(without, |it| it.verdict.clone());
    let truth = verdict.status.map_or(Truth::Unknown, Truth::from);
    let covered = licensing.and_then(|it| it.entitlements.as_ref()).map(Summary::verdict);
    let entitlements = if let Some(verdict) = covered {
        fact(ENTITLEMENTS, verdict.status.into(), verdict.reason, verdict.message)
    } else {
        let unread = licensing.and_then(|it| it.unread.as_ref());
        let why = unread.map(|it| it.message.as_str()).unwrap_or_default();
        fact(ENTITLEMENTS, Truth::Unknown, Reason::NotObserved, why)
    };
    [fact(LICENSE_APPLIED, truth, verdict.reason, verdict.message), entitlements]
}

/// The conditions that only a control plane has.
fn facts(plane: &CoderControlPlane, findings: &PlaneFindings<'_>) -> Vec<Fact> {
    let mut facts = vec![access(plane, findings)];
    facts.extend(findings.workload.iter().flat_map(|it| [completeness(it), database(it)]));
    facts.extend(licenses(plane, findings.licensing));
    facts
}

fn report_licenses(next: &mut CoderControlPlaneStatus, licensing: &Licensing) {
    let Licensing { licenses, record, applied, .. } = licensing;
    if let Some(license::Applied { at, hash }) = applied {
        next.license_last_applied = Some(Time(*at));
        next.license_last_applied_hash = Some(hash.clone());
    }
    let slot = |id: i32| record.uploaded.iter().find(|it| it.id == Some(id)).map(|it| it.slot.clone());
    let shown = |it: &LicenseView| LicenseStatus {
        uuid: it.uuid.clone(),
        id: Some(it.id),
        secret_name: slot(it.id),
        feature_set: Some(it.feature_set.clone()).filter(|it| !it.is_empty()),
        trial: it.trial.then_some(true),
        expires_at: it.expires.map(Time),
        grace_ends_at: it.grace_until.map(Time),
    };
    if let Some(licenses) = licenses {
        next.licenses = licenses.iter().take(MOST_LICENSES).map(shown).collect();
    }
    let before = next.license_record.as_deref().and_then(|it| serde_json::from_str::<LicenseRecord>(it).ok());
    // A record of before steps were begun does not replace the one that names them.
    if before.is_none_or(|it| it.epoch <= record.epoch) {
        next.license_record = serde_json::to_string(record).ok();
    }
}

fn report_entitlements(next: &mut CoderControlPlaneStatus, summary: &Summary, now: Timestamp) {
    let before = next.clone();
    next.license_tier = Some(summary.tier.as_str().to_owned());
    next.external_provisioner_daemons_entitlement =
        Some(summary.external_provisioner_daemons.as_str().to_owned());
    next.features = summary
        .features
        .iter()
        .filter(|(_, it)| it.entitlement != Entitlement::NotEntitled)
        .map(|(name, it)| FeatureStatus {
            name: name.clone(),
            entitlement: it.entitlement.as_str().to_owned(),
            enabled: it.enabled,
        })
        .collect();
    next.license_warnings.clone_from(&summary.warnings);
    next.license_errors.clone_from(&summary.errors);
    let limit = |it: &CoderControlPlaneStatus| it.users.as_ref().and_then(|it| it.limit);
    let is_changed = *next != before || limit(&before) != summary.user_limit;
    let last = before.entitlements_last_checked.as_ref().map(|it| it.0);
    let checked = stamp(last, is_changed, now);
    if Some(checked) != last {
        next.entitlements_last_checked = Some(Time(checked));
        // The number of users moves by itself all the time: it is written with the stamp.
        next.users = Some(UserLimit { limit: summary.user_limit, actual: summary.users });
    }
}

#[cfg(test)]
mod tests;
