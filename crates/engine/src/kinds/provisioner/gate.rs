//! Whether a deployment may have daemons that run elsewhere: a licensed feature.
//!
//! coderd is asked, once for everybody who needs no later answer. What the status of the control plane says is for people.

use api::Reason;
use client::{Class, deployment::Entitlements};

use crate::{kinds::control_plane::entitlements::Entitlement, pipeline::outcome::Blocked};

/// Coder's name of the feature.
const FEATURE: &str = "external_provisioner_daemons";

/// What coderd says when it is asked.
pub fn asked(answer: Result<&Entitlements, &client::Error>) -> Result<(), Blocked> {
    match answer {
        Ok(entitlements) => {
            let feature = entitlements.features.get(FEATURE);
            match feature.map(|it| Entitlement::of(&it.entitlement)) {
                Some(Entitlement::Entitled | Entitlement::GracePeriod) => Ok(()),
                _ => Err(not_entitled()),
            }
        }
        Err(error) if error.route_missing() => Err(Blocked {
            reason: Reason::NotSupported,
            message: "this build of Coder takes no licences, and so has no external provisioner daemons"
                .to_owned(),
        }),
        Err(error) => {
            let reason = match error.class() {
                Class::Forbidden | Class::SignedOut => Reason::Forbidden,
                _ => Reason::EntitlementsQueryFailed,
            };
            Err(Blocked { reason, message: format!("cannot read the entitlements: {}", error.words()) })
        }
    }
}

fn not_entitled() -> Blocked {
    Blocked {
        reason: Reason::NotEntitled,
        message: format!("the deployment has no licence for {FEATURE}: add one to its control plane"),
    }
}
