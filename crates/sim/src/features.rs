//! What the licences cover: features, warnings and errors, as coderd computes them.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use crate::state::{Entitlement, Entitlements, Feature, State, UsagePeriod};

/// Entitlements are computed again when they are as old as this.
const REFRESH: SignedDuration = SignedDuration::from_mins(10);

const AI_BRIDGE: &str = "aibridge";
const AI_SEATS: &str = "ai_governance_user_limit";
const AI_GOVERNANCE: &str = "ai_governance";
const AGENTS: &str = "managed_agent_limit";
const USERS: &str = "user_limit";
/// 2025-07-01 and a century later.
const AGENT_PERIOD: (i64, i64) = (1_751_328_000, 4_907_001_600);
const AGENT_LIMIT: i64 = 1000;

/// When a feature is enabled, as far as no licence decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    /// By the server's defaults.
    On,
    /// By settings that this deployment does not have.
    Off,
    /// By being covered.
    Covered,
    /// It is a number.
    Limit,
}

/// Every feature, in coderd's order.
const FEATURES: [(&str, Switch); 27] = [
    (USERS, Switch::Limit),
    ("audit_log", Switch::On),
    ("connection_log", Switch::On),
    ("browser_only", Switch::Off),
    ("scim", Switch::Off),
    ("template_rbac", Switch::On),
    ("high_availability", Switch::Covered),
    ("multiple_external_auth", Switch::Covered),
    ("external_provisioner_daemons", Switch::On),
    ("appearance", Switch::Covered),
    ("advanced_template_scheduling", Switch::On),
    ("workspace_proxy", Switch::On),
    ("user_role_management", Switch::On),
    ("external_token_encryption", Switch::Off),
    ("workspace_batch_actions", Switch::Covered),
    ("task_batch_actions", Switch::Covered),
    ("access_control", Switch::On),
    ("control_shared_ports", Switch::On),
    ("custom_roles", Switch::Covered),
    ("multiple_organizations", Switch::Covered),
    ("workspace_prebuilds", Switch::Covered),
    (AGENTS, Switch::Limit),
    ("workspace_external_agent", Switch::Covered),
    (AI_BRIDGE, Switch::On),
    ("boundary", Switch::Covered),
    ("service_accounts", Switch::Covered),
    (AI_SEATS, Switch::Limit),
];
/// Features that the premium set has and the enterprise set has not.
const PREMIUM_ONLY: [&str; 3] = ["multiple_organizations", "custom_roles", "service_accounts"];
/// Features whose warnings depend on their use, which is not simulated.
const WITHOUT_WARNING: [&str; 5] = [USERS, AI_SEATS, "high_availability", "multiple_external_auth", AGENTS];

/// The name of a feature that people see.
pub(crate) fn title(feature: &str) -> String {
    match feature {
        "template_rbac" => "Template RBAC".to_owned(),
        "scim" => "SCIM".to_owned(),
        AI_BRIDGE => "AI Gateway".to_owned(),
        AI_SEATS => "AI Governance User Limit".to_owned(),
        other => {
            let capital = |word: &str| {
                word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default()
            };
            other.split('_').map(capital).collect::<Vec<_>>().join(" ")
        }
    }
}

/// Computes the entitlements again when they are old.
pub(crate) fn keep_fresh(state: &mut State, now: Timestamp) {
    if now.duration_since(state.entitlements.refreshed_at) >= REFRESH {
        recompute(state, now);
    }
}

/// Computes the entitlements from the licences.
pub(crate) fn recompute(state: &mut State, now: Timestamp) {
    let users =
        state.users.values().filter(|it| !it.deleted && it.status == "active" && !it.is_service_account);
    let users = i64::try_from(users.count()).unwrap_or(i64::MAX);
    let mut computed = uncovered(users, now);
    let mut has_addon = false;
    for license in state.licenses.values() {
        let claims = &license.claims;
        let is_current =
            date(claims, "nbf").is_some_and(|it| it <= now) && date(claims, "exp").is_some_and(|it| it > now);
        if is_current {
            has_addon |= addons(claims).any(|it| it == AI_GOVERNANCE);
            cover(&mut computed, claims, users, now);
        }
    }
    if computed.require_telemetry {
        // coderd keeps what it computed before.
        state.entitlements.errors = vec!["License requires telemetry but telemetry is disabled".to_owned()];
        return;
    }
    let terms = state.licenses.values().filter(|it| date(&it.claims, "exp").is_some_and(|exp| exp > now));
    let terms = terms.filter_map(|it| Some((date(&it.claims, "nbf")?, date(&it.claims, "license_expires")?)));
    computed.warnings.extend(expiry_warning(terms.collect(), computed.trial, now));
    warn(&mut computed, users, has_addon);
    for feature in computed.features.values_mut() {
        feature.enabled &= feature.entitlement != Entitlement::NotEntitled;
    }
    state.entitlements = computed;
}

/// The entitlements without any licence. Features that are on by default are not switched off yet.
fn uncovered(users: i64, now: Timestamp) -> Entitlements {
    let feature = |(name, switch): &(&str, Switch)| {
        let actual = (*name == USERS).then_some(users);
        let enabled = *switch == Switch::On;
        let feature = Feature {
            entitlement: Entitlement::NotEntitled,
            enabled,
            limit: None,
            actual,
            usage_period: None,
        };
        ((*name).to_owned(), feature)
    };
    Entitlements {
        features: FEATURES.iter().map(feature).collect(),
        refreshed_at: now,
        ..Entitlements::default()
    }
}

fn addons(claims: &Map<String, Value>) -> impl Iterator<Item = &str> {
    claims.get("addons").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Adds what one valid licence covers.
fn cover(computed: &mut Entitlements, claims: &Map<String, Value>, users: i64, now: Timestamp) {
    let flag = |name: &str| claims.get(name).and_then(Value::as_bool).unwrap_or_default();
    computed.has_license = true;
    computed.trial = flag("trial");
    computed.require_telemetry |= flag("require_telemetry");
    let is_in_grace = date(claims, "license_expires").is_some_and(|it| it < now);
    let entitlement = if is_in_grace { Entitlement::GracePeriod } else { Entitlement::Entitled };
    let set = claims.get("feature_set").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    let is_premium = set == "premium";
    let has_set = is_premium || set == "enterprise" || (set.is_empty() && flag("all_features"));
    let covered = |switch: Switch| Feature {
        entitlement,
        enabled: matches!(switch, Switch::On | Switch::Covered),
        limit: None,
        actual: None,
        usage_period: None,
    };
    for (name, switch) in FEATURES {
        let is_in_set = has_set && (is_premium || !PREMIUM_ONLY.contains(&name));
        if is_in_set && switch != Switch::Limit {
            add(computed, name, covered(switch));
        }
    }
    if is_premium {
        let moment = |second| Timestamp::from_second(second).unwrap_or_default();
        let start = moment(AGENT_PERIOD.0);
        let end = moment(AGENT_PERIOD.1);
        let usage_period = Some(UsagePeriod { issued_at: start, start, end });
        let limit = Some(AGENT_LIMIT);
        let actual = Some(0);
        add(computed, AGENTS, Feature { entitlement, enabled: true, limit, actual, usage_period });
    }
    for (name, value) in claims.get("features").and_then(Value::as_object).into_iter().flatten() {
        let value = value.as_i64().unwrap_or_default();
        let Some((name, switch)) = FEATURES.iter().find(|(it, _)| *it == name).filter(|_| value > 0) else {
            continue;
        };
        let feature = match *name {
            AGENTS => agents(claims, entitlement, value),
            USERS => Feature { limit: Some(value), actual: Some(users), enabled: true, ..covered(*switch) },
            AI_SEATS => Feature { limit: Some(value), actual: Some(0), enabled: true, ..covered(*switch) },
            _ => covered(*switch),
        };
        add(computed, name, feature);
    }
    if addons(claims).any(|it| it == AI_GOVERNANCE) {
        if computed.features.get(AI_SEATS).is_none_or(|it| it.limit.is_none()) {
            let title = title(AI_SEATS);
            computed.errors.push(format!("Feature {title} must be set when using the AI Governance addon."));
        } else {
            add(computed, AI_BRIDGE, covered(Switch::On));
            add(computed, "boundary", covered(Switch::Covered));
        }
    }
}

/// The limit of agents that a licence names itself.
fn agents(claims: &Map<String, Value>, entitlement: Entitlement, limit: i64) -> Feature {
    let moment = |name| date(claims, name).unwrap_or_default();
    let usage_period =
        Some(UsagePeriod { issued_at: moment("iat"), start: moment("nbf"), end: moment("exp") });
    Feature { entitlement, enabled: true, limit: Some(limit), actual: Some(0), usage_period }
}

/// Keeps the better one of two: by usage period, by a limit that is not exceeded, by entitlement and by limit.
fn add(computed: &mut Entitlements, name: &str, feature: Feature) {
    let is_kept = |it: &Feature| it.limit.zip(it.actual).is_some_and(|(limit, actual)| actual <= limit);
    let rank = |it: &Feature| (it.usage_period, is_kept(it), it.entitlement, it.limit, it.enabled);
    match computed.features.get(name) {
        Some(known) if rank(known) >= rank(&feature) => {}
        _ => drop(computed.features.insert(name.to_owned(), feature)),
    }
}

/// Warns in the last 30 days of the time that is covered without a gap, of a trial in the last 7.
fn expiry_warning(mut terms: Vec<(Timestamp, Timestamp)>, is_trial: bool, now: Timestamp) -> Option<String> {
    terms.sort_unstable();
    let mut end = terms.first()?.1;
    for (start, later) in terms {
        if start <= end {
            end = end.max(later);
        }
    }
    let seconds = end.duration_since(now).as_secs();
    let days = seconds.div_euclid(24 * 3600) + i64::from(seconds.rem_euclid(24 * 3600) > 0);
    let soon = if is_trial { 7 } else { 30 };
    let unit = if days > 1 { "days" } else { "day" };
    (days > 0 && days < soon).then(|| format!("Your license expires in {days} {unit}."))
}

fn warn(computed: &mut Entitlements, users: i64, has_addon: bool) {
    if !computed.has_license {
        return;
    }
    if let Some(Feature { limit: Some(limit), entitlement, .. }) = computed.features.get(USERS) {
        if users > *limit {
            let warning =
                format!("Your deployment has {users} active users but is only licensed for {limit}.");
            computed.warnings.push(warning);
        } else if *entitlement == Entitlement::GracePeriod {
            let warning = format!(
                "Your deployment has {users} active users but the license with the limit {limit} is expired."
            );
            computed.warnings.push(warning);
        }
    }
    let names = FEATURES.iter().map(|(name, _)| *name).filter(|it| !WITHOUT_WARNING.contains(it));
    for (name, feature) in names.filter_map(|it| Some((it, computed.features.get(it)?))) {
        let why = match feature.entitlement {
            Entitlement::NotEntitled => "your license is not entitled to this feature",
            Entitlement::GracePeriod => "your license for this feature is expired",
            Entitlement::Entitled => continue,
        };
        if feature.enabled {
            computed.warnings.push(format!("{} is enabled but {why}.", title(name)));
        }
    }
    let gateway = computed.features.get(AI_BRIDGE);
    let is_covered = gateway.is_some_and(|it| it.enabled && it.entitlement != Entitlement::NotEntitled);
    if is_covered && !has_addon {
        let warning = "The AI Governance add-on is required to use AI Gateway. Please reach out to your account \
                       team or sales@coder.com to learn more.";
        computed.warnings.push(warning.to_owned());
    }
}

/// A date of a licence.
pub(crate) fn date(claims: &Map<String, Value>, name: &str) -> Option<Timestamp> {
    // A fraction of a second is cut off.
    let seconds = claims.get(name).filter(|it| it.is_number())?.to_string();
    let whole = seconds.split('.').next().unwrap_or_default();
    Timestamp::from_second(whole.parse().ok()?).ok()
}
