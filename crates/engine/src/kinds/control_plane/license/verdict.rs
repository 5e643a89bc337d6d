//! What the condition `LicenseApplied` says.

use api::Reason;
use client::{Class, licenses::License};
use jiff::Timestamp;

use super::{
    claims::{Claims, NotALicense, is_about_telemetry},
    declared::Declared,
    plan::Observed,
    term::{Phase, day},
};
use crate::{kinds::control_plane::entitlements::Summary, secrets::referenced::Unreadable};

/// The condition: status, reason, message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LicenseVerdict {
    /// Nothing is `Unknown`.
    pub status: Option<bool>,
    pub reason: Reason,
    pub message: String,
}

/// Why licences were not even looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The manifest declares none.
    NotDeclared,
    /// The deployment does not answer yet.
    NotReady,
    /// There is no credential yet, or it is switched off.
    NoAccess,
}

/// Whether trying again without a change of the manifest or a Secret is of any use. Where it is not, the next
/// periodic reconcile is soon enough.
pub(crate) fn is_retried(reason: Reason) -> bool {
    matches!(reason, Reason::Pending | Reason::SecretMissing | Reason::Forbidden | Reason::Error)
}

impl LicenseVerdict {
    fn no(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: Some(false), reason, message: message.into() }
    }

    /// Nothing was asked of coderd.
    pub fn obstacle(obstacle: &Obstacle) -> Self {
        match obstacle {
            Obstacle::NotDeclared => {
                let message = "the manifest names no licence; an installed licence is not changed";
                Self { status: None, reason: Reason::Pending, message: message.to_owned() }
            }
            Obstacle::NotReady => Self::no(Reason::Pending, "waits until the deployment answers"),
            Obstacle::NoAccess => {
                Self::no(Reason::Pending, "waits for a credential, see OperatorAccessReady")
            }
        }
    }

    /// Licences or entitlements could not be read. Without a declared licence that is no verdict on one.
    pub fn unread_licences(error: &client::Error, is_declared: bool) -> Self {
        if is_declared { Self::failed(error) } else { Self::obstacle(&Obstacle::NotDeclared) }
    }

    /// A Secret with a licence was not read.
    pub fn unread(unreadable: &Unreadable) -> Self {
        match unreadable {
            Unreadable::Unavailable(why) | Unreadable::Nowhere(why) => {
                Self::no(Reason::Error, format!("a Secret with a licence cannot be read: {why}"))
            }
            Unreadable::NotAllowed(why) => Self::no(Reason::SecretNotAllowed, why.clone()),
        }
    }

    /// coderd did not do as it was asked.
    pub fn failed(error: &client::Error) -> Self {
        let words = error.words();
        match error.class() {
            Class::Missing if error.route_missing() => {
                let message = "this build of Coder takes no licences: use the enterprise image";
                Self::no(Reason::NotSupported, message)
            }
            Class::Forbidden | Class::SignedOut => {
                let message = format!("the account may not manage licences, give it the role owner: {words}");
                Self::no(Reason::Forbidden, message)
            }
            _ => Self::no(Reason::Error, words),
        }
    }
}

/// Says how it stands after a pass. The gravest of several licences speaks; `in_effect` is what the deployment makes of
/// them, if that is known.
pub fn verdict(
    declared: &[Declared],
    observed: &Observed<'_>,
    in_effect: Option<&Summary>,
) -> LicenseVerdict {
    if declared.is_empty() {
        return LicenseVerdict::obstacle(&Obstacle::NotDeclared);
    }
    let each = declared.iter().map(|it| (it, stand(it, observed)));
    let worst = each.max_by_key(|(_, verdict)| rank(verdict.reason));
    let Some((one, mut verdict)) = worst else { return LicenseVerdict::obstacle(&Obstacle::NotDeclared) };
    if declared.len() > 1 && verdict.reason != Reason::Applied {
        verdict.message = format!("{}: {}", one.slot, verdict.message);
    }
    if verdict.status != Some(true) {
        return verdict;
    }
    if keeps_former(declared, observed) {
        verdict.message +=
            "; the one before it stays until this one counts and the deployment reports no errors";
    }
    not_in_effect(declared, observed, in_effect).unwrap_or(verdict)
}

/// Whether a licence that we uploaded is still there although another one has its place.
fn keeps_former(declared: &[Declared], observed: &Observed<'_>) -> bool {
    let is_declared = |identity: &str| declared.iter().any(|it| it.identity().as_deref() == Some(identity));
    let mut uploaded = observed.record.uploaded.iter();
    uploaded.any(|it| it.id.is_some() && !is_declared(&it.identity))
}

/// That coderd took a licence does not mean that it counts.
fn not_in_effect(
    declared: &[Declared],
    observed: &Observed<'_>,
    in_effect: Option<&Summary>,
) -> Option<LicenseVerdict> {
    let summary = in_effect?;
    let telemetry = summary.errors.iter().find(|it| is_about_telemetry(it));
    if let Some(words) = telemetry {
        let message = format!(
            "the licence is installed and has no effect: {words}. Switch telemetry on, or put another licence into the Secret"
        );
        return Some(LicenseVerdict::no(Reason::Error, message));
    }
    let counts = |it: &Claims| matches!(Phase::of(it, observed.now), Phase::Valid | Phase::Grace);
    let should_count = declared.iter().filter_map(Declared::claims).any(counts);
    (should_count && !summary.has_license)
        .then(|| LicenseVerdict::no(Reason::Pending, "the licence is installed and is not active yet"))
}

/// How one licence stands.
fn stand(one: &Declared, observed: &Observed<'_>) -> LicenseVerdict {
    let Some(jwt) = &one.jwt else {
        let message = "the Secret with the licence, or its key, is missing or empty: create it";
        return LicenseVerdict::no(Reason::SecretMissing, message);
    };
    let claims = match jwt.claims() {
        Ok(claims) => claims,
        Err(NotALicense(words)) => {
            let message = format!("the value in the Secret is no licence: {words}. Correct the Secret");
            return LicenseVerdict::no(Reason::Invalid, message);
        }
    };
    let phase = Phase::of(claims, observed.now);
    let day = |date: Option<Timestamp>| date.map(day).unwrap_or_default();
    if phase == Phase::Expired {
        let message =
            format!("the licence expired on {}: put a new one into the Secret", day(claims.grace_until()));
        return LicenseVerdict::no(Reason::Expired, message);
    }
    if let Some(words) = observed.record.refusal(jwt.hash()) {
        let message = format!("Coder does not accept the licence: {words}. Correct the Secret");
        return LicenseVerdict::no(Reason::Invalid, message);
    }
    let live: Option<&License> = one.find(observed.live);
    if live.is_none() {
        return LicenseVerdict::no(Reason::Pending, "the licence is about to be installed");
    }
    let yes = |reason, message: String| LicenseVerdict { status: Some(true), reason, message };
    let (expires, grace) = (day(claims.expires()), day(claims.grace_until()));
    match phase {
        Phase::Grace => yes(
            Reason::GracePeriod,
            format!(
                "the licence expired on {expires} and works until {grace}: put a new one into the Secret"
            ),
        ),
        Phase::Future => yes(
            Reason::Applied,
            format!("the licence is installed and counts from {}", day(claims.not_before())),
        ),
        Phase::Valid | Phase::Expired => {
            yes(Reason::Applied, format!("the licence is installed and lasts until {expires}"))
        }
    }
}

fn rank(reason: Reason) -> u8 {
    match reason {
        Reason::Applied => 0,
        Reason::GracePeriod => 1,
        Reason::Pending => 2,
        Reason::Error => 3,
        Reason::Forbidden => 4,
        Reason::NotSupported => 5,
        Reason::Expired => 6,
        Reason::Invalid => 7,
        Reason::SecretMissing => 8,
        _ => 9,
    }
}

#[cfg(test)]
mod tests;
