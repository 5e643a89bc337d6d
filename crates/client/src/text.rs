//! Strings of successful answers that statuses, metrics and logs show: one line, without secrets, not long and not many.

use serde::{Deserialize, Deserializer};

use crate::scrub::clean;

/// How many strings of a list are kept.
const MOST: usize = 50;

/// Reads a string that is shown.
pub(crate) fn shown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(clean(&String::deserialize(deserializer)?, &[]))
}

/// Reads a list of strings that are shown, without those beyond the first 50. `null` is the empty list.
pub(crate) fn shown_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let list: Option<Vec<String>> = Option::deserialize(deserializer)?;
    Ok(list.into_iter().flatten().take(MOST).map(|it| clean(&it, &[])).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        deployment::{BuildInfo, Entitlements},
        scrub::REDACTED,
    };

    #[test]
    fn strings_that_are_shown_are_short_and_without_secrets() {
        let token = ["A1b2C3d4E5", "k6L7m8N9o0P1q2R3s4T5u6"].join("-");
        let long = format!("the session {token} is broken \u{1b}[31m{}", "x ".repeat(1_000_000));
        let build: BuildInfo = serde_json::from_value(json!({"version": long,
            "deployment_id": "8f9b1a4e-6a3f-4c53-9f6f-0d3b2e6f1a01"}))
        .unwrap();
        let entitlements: Entitlements = serde_json::from_value(json!({"warnings": vec![&long; 60],
            "errors": null, "has_license": true, "refreshed_at": "2026-01-01T00:00:00Z"}))
        .unwrap();
        assert_eq!(entitlements.warnings.len(), 50);
        assert!(entitlements.errors.is_empty());
        for text in entitlements.warnings.iter().chain([&build.version]) {
            assert!(text.starts_with(&format!("the session {REDACTED} is broken [31mx")), "{text}");
            assert_eq!(text.chars().count(), 300);
        }
    }
}
