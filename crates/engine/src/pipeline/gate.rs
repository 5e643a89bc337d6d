//! What a deployment must have before a kind can be kept there: a licensed feature, a version.

use api::Reason;
use client::deployment::{BuildInfo, Entitlements};

use crate::pipeline::{outcome::Blocked, version::Version};

/// The oldest Coder that we know how to talk to.
const OLDEST: (u64, u64) = (2, 34);

/// The licensed feature that a kind needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    /// Coder's name of the feature.
    pub feature: &'static str,
    /// The licence that has it.
    pub license: &'static str,
}

/// Whether a kind can be kept on this deployment now; a kind without a gate needs no licence. Looked at before anything else is
/// read: without its feature a surface answers with refusals or with defaults, and neither says what is stored.
pub fn check(gate: Option<Gate>, build: &BuildInfo, entitlements: &Entitlements) -> Result<(), Blocked> {
    check_version(build)?;
    match gate {
        Some(Gate { feature, license }) if !entitlements.is_enabled(feature) => Err(Blocked {
            reason: Reason::NotEntitled,
            message: format!("needs a {license} licence: {feature}"),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Whether the deployment is recent enough for any kind.
pub fn check_version(build: &BuildInfo) -> Result<(), Blocked> {
    // A development build has no version that means anything, and is let through.
    if Version::parse(&build.version).is_some_and(|found| found.minor() < OLDEST) {
        let (major, minor) = OLDEST;
        let message = format!("needs Coder >= {major}.{minor}, and this is {}", build.version);
        return Err(Blocked { reason: Reason::VersionTooOld, message });
    }
    Ok(())
}

/// What a build says that knows no licences at all: the open-source one.
pub fn without_licences(gate: Gate) -> Blocked {
    let Gate { feature, license } = gate;
    Blocked {
        reason: Reason::NotEntitled,
        message: format!("needs a {license} licence: {feature}; this build of Coder takes none"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GATE: Gate = Gate { feature: "multiple_organizations", license: "Premium" };

    fn ask(version: &str, enabled: bool) -> Option<String> {
        let build = json!({"version": version, "deployment_id": uuid::Uuid::nil()});
        let feature = json!({"entitlement": "entitled", "enabled": enabled});
        let entitlements = json!({"features": {"multiple_organizations": feature}, "has_license": enabled,
            "refreshed_at": "2026-01-01T00:00:00Z"});
        let build = serde_json::from_value(build).unwrap();
        check(Some(GATE), &build, &serde_json::from_value(entitlements).unwrap()).err().map(|it| it.message)
    }

    #[test]
    fn a_missing_feature_is_named_with_the_licence_that_has_it() {
        assert_eq!(ask("v2.36.0", true), None);
        assert_eq!(ask("v2.36.0", false).unwrap(), "needs a Premium licence: multiple_organizations");
    }

    #[test]
    fn an_old_coder_is_told_before_its_licence_is_looked_at() {
        assert_eq!(ask("v2.33.11+abc", false).unwrap(), "needs Coder >= 2.34, and this is v2.33.11+abc");
        assert_eq!(ask("v3.0.0", true), None);
        assert_eq!(ask("v0.0.0-devel", true), None);
    }
}
