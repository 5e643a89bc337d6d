//! What the licences cover, as callers see it.

use jiff::SignedDuration;
use serde_json::json;

use crate::{
    answer::{Answer, Handled, forbidden},
    call::Call,
    features,
    rights::Right,
};

/// A caller may ask for it once in this time.
const FORCED: SignedDuration = SignedDuration::from_mins(1);

pub(crate) fn entitlements(call: &mut Call<'_>) -> Handled {
    features::keep_fresh(call.state, call.now);
    Ok(Answer::ok(json!(call.state.entitlements)))
}

pub(crate) fn refresh(call: &mut Call<'_>) -> Handled {
    if !call.may(Right::ManageLicenses) {
        return Err(forbidden());
    }
    let age = call.now.duration_since(call.state.entitlements.refreshed_at);
    if age < FORCED {
        let wait = (FORCED - age).as_secs();
        let message = format!(
            "Entitlements already recently refreshed, please wait {wait} seconds to force a new refresh"
        );
        return Err(Answer::message(400, message).retry_after(wait));
    }
    features::recompute(call.state, call.now);
    Ok(Answer::message(200, "Entitlements updated"))
}
