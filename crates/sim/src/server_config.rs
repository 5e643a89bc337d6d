//! What coderd was started with, as far as the client reads it.

use serde_json::json;

use crate::{
    answer::{Answer, Handled, forbidden},
    call::Call,
    rights::Right,
};

pub(crate) fn server_config(call: &mut Call<'_>) -> Handled {
    if !call.may(Right::ReadDeploymentConfig) {
        return Err(forbidden());
    }
    let nothing = || json!({"config": {"ai": {"bridge": {}}}, "options": []});
    Ok(Answer::ok(call.state.server_config.clone().unwrap_or_else(nothing)))
}
