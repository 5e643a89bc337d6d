//! What a deployment's licences cover, in few words: for status, for metrics, and for those who wait for a feature.

use std::collections::BTreeMap;

use api::Reason;
use client::deployment::{Entitlements, Feature};
use jiff::{SignedDuration, Timestamp};

/// The feature that provisioners wait for.
pub const EXTERNAL_PROVISIONER_DAEMONS: &str = "external_provisioner_daemons";
/// A stamp moves when a value changes, and at least this often.
pub const STAMP_AGE: SignedDuration = SignedDuration::from_hours(6);

const USER_LIMIT: &str = "user_limit";
/// How many features are shown. Coder has about thirty.
const MOST_FEATURES: usize = 200;
/// The longest name of a feature that is shown.
const LONGEST_NAME: usize = 64;
/// Features that only the larger of the two sets has.
const PREMIUM: [&str; 2] = ["custom_roles", "multiple_organizations"];

/// Which licence a deployment has, as far as its features tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tier {
    None,
    Trial,
    Enterprise,
    Premium,
    /// Nobody has been able to ask.
    #[default]
    Unknown,
}

/// Whether a feature is covered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Entitlement {
    Entitled,
    GracePeriod,
    NotEntitled,
    /// A word that is not known here, or none.
    #[default]
    Unknown,
}

/// One feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureState {
    pub entitlement: Entitlement,
    /// What coderd's own gates look at.
    pub enabled: bool,
}

/// Everything that is worth knowing, comparable and small.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    pub has_license: bool,
    pub tier: Tier,
    pub external_provisioner_daemons: Entitlement,
    pub features: BTreeMap<String, FeatureState>,
    pub user_limit: Option<i64>,
    pub users: Option<i64>,
    pub warnings: Vec<String>,
    pub errors: Vec<String>,
}

/// The condition `Entitlements`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntitlementVerdict {
    pub status: bool,
    pub reason: Reason,
    pub message: String,
}

impl Tier {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Trial => "trial",
            Self::Enterprise => "enterprise",
            Self::Premium => "premium",
            Self::Unknown => "unknown",
        }
    }

    /// By what the licences cover: none, a trial, the larger set where one of its own features is covered, else the
    /// smaller one.
    pub fn of(entitlements: &Entitlements) -> Self {
        let covers =
            |name: &&str| entitlements.features.get(*name).is_some_and(|it| covered(it).is_covered());
        if !entitlements.has_license {
            Self::None
        } else if entitlements.trial {
            Self::Trial
        } else if PREMIUM.iter().any(covers) {
            Self::Premium
        } else {
            Self::Enterprise
        }
    }
}

impl Entitlement {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Entitled => "entitled",
            Self::GracePeriod => "grace_period",
            Self::NotEntitled => "not_entitled",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it is paid for, now or until the grace period ends.
    pub fn is_covered(self) -> bool {
        matches!(self, Self::Entitled | Self::GracePeriod)
    }

    pub(crate) fn of(word: &str) -> Self {
        let all = [Self::Entitled, Self::GracePeriod, Self::NotEntitled];
        all.into_iter().find(|it| it.as_str() == word).unwrap_or_default()
    }
}

impl Summary {
    pub fn of(entitlements: &Entitlements) -> Self {
        let state =
            |feature: &Feature| FeatureState { entitlement: covered(feature), enabled: feature.enabled };
        let sorted = |words: &[String]| {
            let mut words = words.to_vec();
            words.sort();
            words.dedup();
            words
        };
        let features = &entitlements.features;
        let daemons = features.get(EXTERNAL_PROVISIONER_DAEMONS);
        let limit = features.get(USER_LIMIT);
        Self {
            has_license: entitlements.has_license,
            tier: Tier::of(entitlements),
            external_provisioner_daemons: daemons.map(covered).unwrap_or_default(),
            features: features
                .iter()
                .filter(|(name, _)| is_feature_name(name))
                .take(MOST_FEATURES)
                .map(|(name, it)| (name.clone(), state(it)))
                .collect(),
            user_limit: limit.and_then(|it| it.limit),
            users: limit.and_then(|it| it.actual),
            warnings: sorted(&entitlements.warnings),
            errors: sorted(&entitlements.errors),
        }
    }

    /// Every feature in a few characters, in order: `audit_log=entitled,enabled`.
    pub fn compact(&self) -> Vec<String> {
        let line = |(name, it): (&String, &FeatureState)| {
            let enabled = if it.enabled { "enabled" } else { "disabled" };
            format!("{name}={},{enabled}", it.entitlement.as_str())
        };
        self.features.iter().map(line).collect()
    }

    /// What differs from `other` beyond the number of users, which moves by itself all the time.
    pub fn differs(&self, other: &Self) -> bool {
        Self { users: None, ..self.clone() } != Self { users: None, ..other.clone() }
    }

    pub fn verdict(&self) -> EntitlementVerdict {
        let in_grace = self.features.iter().filter(|(_, it)| it.entitlement == Entitlement::GracePeriod);
        let in_grace: Vec<&str> = in_grace.map(|(name, _)| name.as_str()).collect();
        let enabled = self.features.values().filter(|it| it.enabled).count();
        let what = format!("{}: {enabled} features enabled", self.tier.as_str());
        if !self.errors.is_empty() {
            let message = format!("the deployment reports: {}", self.errors.join(" "));
            EntitlementVerdict { status: false, reason: Reason::Errors, message }
        } else if let (Some(users), Some(limit)) = (self.users, self.user_limit.filter(|it| *it > 0))
            && users > limit
        {
            // How many they are is in the status; here it would change with every user who comes.
            let message = format!("more users are active than the {limit} that the licence is for");
            EntitlementVerdict { status: false, reason: Reason::UserLimitExceeded, message }
        } else if !in_grace.is_empty() {
            let message = format!("{what}; in the grace period: {}", in_grace.join(", "));
            EntitlementVerdict { status: true, reason: Reason::GracePeriod, message }
        } else if !self.has_license {
            let message = "the deployment has no licence that counts: features that need one are off";
            EntitlementVerdict { status: true, reason: Reason::Unlicensed, message: message.to_owned() }
        } else if !self.warnings.is_empty() {
            let message = format!("{what}; the deployment warns: {}", self.warnings.join(" "));
            EntitlementVerdict { status: true, reason: Reason::Warnings, message }
        } else {
            EntitlementVerdict { status: true, reason: Reason::Licensed, message: what }
        }
    }
}

/// The stamp to write: the one before stays while nothing has changed and it is neither old nor from the future.
pub fn stamp(before: Option<Timestamp>, changed: bool, now: Timestamp) -> Timestamp {
    let is_fresh = |it: &Timestamp| *it <= now && now.duration_since(*it) < STAMP_AGE;
    before.filter(|it| !changed && is_fresh(it)).unwrap_or(now)
}

/// Whether this may be a feature of Coder: the name becomes a label of a metric.
fn is_feature_name(name: &str) -> bool {
    let is_part = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_';
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_part)
}

fn covered(feature: &Feature) -> Entitlement {
    Entitlement::of(&feature.entitlement)
}

#[cfg(test)]
mod tests;
