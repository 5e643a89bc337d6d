//! The status of a control plane after a reconcile. Pure: the same findings twice are the same status.

use api::{
    CoderControlPlane, CoderControlPlaneStatus, CredentialStatus, FeatureStatus, LicenseStatus, Reason,
    SecretKeyRef, UserLimit,
    condition::{
        COMPLETE, DATABASE_CONFIGURED, DRIFTED, ENTITLEMENTS, LICENSE_APPLIED, OPERATOR_ACCESS, READY,
        RECONCILING, STALLED,
    },
};
use client::deployment::BuildInfo;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use uuid::Uuid;

use super::{
    access::Lifetime,
    entitlements::{Entitlement, Summary, stamp},
    license::{self, LicenseView, Licensing, Obstacle, is_retried},
    names::TOKEN_KEY,
    plan::target,
    version,
    workload::Workload,
};
use crate::pipeline::{
    conditions::{Conditions, Truth},
    held_back::Changes,
    outcome::Blocked,
    status::{drift, shown},
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
    /// What became of the plans for objects and licences.
    pub changes: &'a Changes,
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

/// How a reconcile ended in the words of its condition `Ready`.
#[derive(Debug, PartialEq, Eq)]
pub struct PlaneReadiness {
    pub is_ready: bool,
    pub reason: Reason,
    pub message: String,
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
        if let Some(held) = &self.changes.held_back {
            let Blocked { reason, message } = held.blocked();
            let is_stalled = held.outcome.is_stalled();
            return PlaneReadiness { is_ready: false, reason, message, is_stalled, is_retried_soon: false };
        }
        let workload = self.workload.and_then(|it| it.standing.as_ref().err());
        if let Some(waiting) = workload.or_else(|| self.access.err()) {
            return PlaneReadiness {
                is_ready: false,
                reason: waiting.reason,
                message: waiting.message.clone(),
                is_stalled: waiting.reason.stalls(),
                is_retried_soon: true,
            };
        }
        match self.licensing.map(|it| &it.verdict).filter(|it| it.status == Some(false)) {
            Some(verdict) => PlaneReadiness {
                is_ready: false,
                reason: Reason::LicenseNotApplied,
                message: verdict.message.clone(),
                is_stalled: !is_retried(verdict.reason),
                is_retried_soon: is_retried(verdict.reason),
            },
            None => PlaneReadiness {
                is_ready: true,
                reason: Reason::UpToDate,
                message: self.works(),
                is_stalled: false,
                is_retried_soon: self.awaits_entitlements(),
            },
        }
    }
}

/// The status after a reconcile.
pub fn status(plane: &CoderControlPlane, findings: &PlaneFindings<'_>) -> CoderControlPlaneStatus {
    let PlaneFindings {
        access,
        supplied_token,
        token_secret,
        account,
        workload,
        url,
        licensing,
        changes,
        requested,
        now,
    } = findings;
    let in_secret = |name: String| SecretKeyRef { name, key: Some(TOKEN_KEY.to_owned()) };
    let before = plane.status.clone().unwrap_or_default();
    let mut next = CoderControlPlaneStatus {
        observed_generation: plane.metadata.generation,
        conditions: conditions(plane, &before, findings),
        phase: Some(if findings.readiness().is_ready { "Ready" } else { "Pending" }.to_owned()),
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
        plan: changes.held_back.as_ref().map(|it| shown(&it.plan, &target(plane))),
        drift: changes.held_back.as_ref().map(|it| drift(&it.plan)).unwrap_or_default(),
        last_applied_time: if changes.changed { Some(Time(*now)) } else { before.last_applied_time.clone() },
        // A reconcile request asks for entitlements too: it is handled once they are read.
        last_handled_reconcile_at: requested
            .clone()
            .filter(|_| !findings.awaits_entitlements())
            .or_else(|| before.last_handled_reconcile_at.clone()),
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

/// Whether the status says anything yet. An empty one would look healthy to those who read it.
pub fn is_begun(plane: &CoderControlPlane) -> bool {
    plane.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.type_ == READY))
}

/// The status of one that is not looked at: everything but the conditions stays.
pub fn unlooked(
    plane: &CoderControlPlane,
    truth: Truth,
    because: &Blocked,
    now: Timestamp,
) -> CoderControlPlaneStatus {
    let before = plane.status.clone().unwrap_or_default();
    let Blocked { reason, message } = because;
    let conditions = Conditions::new(&before.conditions, plane.metadata.generation, now)
        .with(READY, truth, *reason, message)
        .with(OPERATOR_ACCESS, truth, *reason, message);
    CoderControlPlaneStatus {
        observed_generation: plane.metadata.generation,
        conditions: conditions.made(),
        phase: Some("Pending".to_owned()),
        operator_access_ready: Some(false),
        ..before
    }
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

/// Says what is declared beside the pods and is not there. It holds up nothing, so `Ready` may be true meanwhile.
fn completeness<'a>(made: Conditions<'a>, workload: &Workload) -> Conditions<'a> {
    let Some(notices) = &workload.notices else {
        return made.with(COMPLETE, Truth::Unknown, Reason::NotObserved, "");
    };
    let left_out: Vec<&Blocked> = notices.iter().filter(|it| it.reason.is_omission()).collect();
    match left_out.first() {
        Some(first) => made.with(COMPLETE, Truth::False, first.reason, &joined(left_out.iter().copied())),
        None => made.with(COMPLETE, Truth::True, Reason::UpToDate, "everything that is declared is there"),
    }
}

/// Reports a missing database in a condition of its own, which is there also while pods are rolled out or do not come up.
fn database<'a>(made: Conditions<'a>, workload: &Workload) -> Conditions<'a> {
    let Some(notices) = &workload.notices else {
        return made.with(DATABASE_CONFIGURED, Truth::Unknown, Reason::NotObserved, "");
    };
    match WITHOUT_DATABASE.iter().find_map(|reason| notices.iter().find(|it| it.reason == *reason)) {
        Some(notice) => made.with(DATABASE_CONFIGURED, Truth::False, notice.reason, &notice.message),
        None => made.with(DATABASE_CONFIGURED, Truth::True, Reason::UpToDate, "a database is declared"),
    }
}

fn conditions(
    plane: &CoderControlPlane,
    before: &CoderControlPlaneStatus,
    findings: &PlaneFindings<'_>,
) -> Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    let PlaneReadiness { is_ready, reason, message, is_stalled, .. } = findings.readiness();
    let made = Conditions::new(&before.conditions, plane.metadata.generation, findings.now);
    let made = made.with(READY, is_ready.into(), reason, &message);
    let made = match findings.access {
        Ok(_) => {
            let lifetime =
                findings.supplied_token.map(|it| format!("; {}", it.lifetime.words())).unwrap_or_default();
            made.with(OPERATOR_ACCESS, Truth::True, Reason::UpToDate, &format!("{WORKS}{lifetime}"))
        }
        Err(waiting) => {
            let ended = ended(waiting, before.credential.as_ref(), findings.now);
            let message = format!("{}{ended}", waiting.message);
            made.with(OPERATOR_ACCESS, Truth::False, waiting.reason, &message)
        }
    };
    let made = match findings.workload {
        Some(workload) => database(completeness(made, workload), workload),
        None => made,
    };
    let is_declared = plane.spec.licenses().next().is_some();
    let without = || {
        let obstacle = if is_declared { Obstacle::NoAccess } else { Obstacle::NotDeclared };
        license::LicenseVerdict::obstacle(&obstacle)
    };
    let verdict = findings.licensing.map_or_else(without, |it| it.verdict.clone());
    let truth = verdict.status.map_or(Truth::Unknown, Truth::from);
    let made = made.with(LICENSE_APPLIED, truth, verdict.reason, &verdict.message);
    let covered = findings.licensing.and_then(|it| it.entitlements.as_ref()).map(Summary::verdict);
    let made = if let Some(verdict) = covered {
        made.with(ENTITLEMENTS, verdict.status.into(), verdict.reason, &verdict.message)
    } else {
        let unread = findings.licensing.and_then(|it| it.unread.as_ref());
        let why = unread.map(|it| it.message.as_str()).unwrap_or_default();
        made.with(ENTITLEMENTS, Truth::Unknown, Reason::NotObserved, why)
    };
    let made = match &findings.changes.held_back {
        Some(held) => made.with(DRIFTED, Truth::True, Reason::DriftFound, &held.plan.summary),
        None if findings.access.is_ok() => made.with(DRIFTED, Truth::False, Reason::NoDrift, ""),
        None => made.with(DRIFTED, Truth::Unknown, Reason::NotObserved, ""),
    };
    let made = match (is_ready || reason == Reason::Observed, is_stalled) {
        (true, _) => made,
        (false, true) => made.with(STALLED, Truth::True, reason, &message),
        (false, false) => made.with(RECONCILING, Truth::True, reason, &message),
    };
    made.made()
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
    next.license_record = serde_json::to_string(record).ok();
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
    let changed = *next != before || limit(&before) != summary.user_limit;
    let last = before.entitlements_last_checked.as_ref().map(|it| it.0);
    let checked = stamp(last, changed, now);
    if Some(checked) != last {
        next.entitlements_last_checked = Some(Time(checked));
        // The number of users moves by itself all the time: it is written with the stamp.
        next.users = Some(UserLimit { limit: summary.user_limit, actual: summary.users });
    }
}

#[cfg(test)]
mod tests;
