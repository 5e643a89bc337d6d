//! Whether a deployment may have daemons that run elsewhere: a licensed feature.
//!
//! What the control plane says of itself is enough while somebody keeps it up to date; otherwise coderd is asked, once for
//! everybody who wants to know.

use api::reason;
use client::{Class, deployment::Entitlements};

use crate::{control_plane::entitlements::Entitlement, outcome::Waiting};

/// Coder's name of the feature.
const FEATURE: &str = "external_provisioner_daemons";

/// What the control plane's status says. Nothing when it does not know, or when what it says may be old.
pub fn known(entitlement: Option<&str>, is_fresh: bool) -> Option<Result<(), Waiting>> {
    match entitlement.filter(|_| is_fresh)? {
        "entitled" | "grace_period" => Some(Ok(())),
        "not_entitled" => Some(Err(not_entitled())),
        _ => None,
    }
}

/// What coderd says when it is asked.
pub fn asked(answer: Result<&Entitlements, &client::Error>) -> Result<(), Waiting> {
    match answer {
        Ok(entitlements) => {
            let feature = entitlements.features.get(FEATURE);
            match feature.map(|it| Entitlement::of(&it.entitlement)) {
                Some(Entitlement::Entitled | Entitlement::GracePeriod) => Ok(()),
                _ => Err(not_entitled()),
            }
        }
        Err(error) if error.route_missing() => Err(Waiting {
            reason: reason::NOT_SUPPORTED,
            message: "this build of Coder takes no licences, and so has no daemons that run elsewhere"
                .to_owned(),
        }),
        Err(error) => {
            let reason = match error.class() {
                Class::Forbidden | Class::SignedOut => reason::FORBIDDEN,
                _ => reason::ENTITLEMENTS_QUERY_FAILED,
            };
            Err(Waiting { reason, message: format!("what is licensed cannot be read: {}", error.words()) })
        }
    }
}

fn not_entitled() -> Waiting {
    Waiting {
        reason: reason::NOT_ENTITLED,
        message: format!("the deployment has no licence for {FEATURE}: add one to its control plane"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_control_plane_says_is_enough_while_it_is_fresh_and_one_of_three_words() {
        assert_eq!(known(Some("entitled"), true), Some(Ok(())));
        assert_eq!(
            known(Some("grace_period"), true),
            Some(Ok(())),
            "daemons run until the licence has ended"
        );
        let refused = known(Some("not_entitled"), true).unwrap().unwrap_err();
        assert_eq!(refused.reason, reason::NOT_ENTITLED);
        for (word, is_fresh) in [
            (Some("unknown"), true),
            (Some("leased"), true),
            (None, true),
            (Some("entitled"), false),
            (Some("not_entitled"), false),
        ] {
            assert_eq!(known(word, is_fresh), None, "{word:?} {is_fresh}: coderd is asked");
        }
    }
}
