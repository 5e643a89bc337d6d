//! The route at which provisioner daemons connect with their key.
//!
//! coderd stores a daemon before it finds out whether the connection is a websocket, and that is as far as this goes: the daemon
//! is in the lists of its key, and gets no jobs. A daemon that authenticates with a user's token is refused.

use crate::{
    answer::{Answer, Handled, not_found},
    call::Call,
    features,
    provisioner_keys::{Connection, KEY_HEADER, KEY_LENGTH, by_value, connect},
};

/// The route, which no client of ours uses.
pub(crate) const PATH: &str = "/api/v2/organizations/{organization}/provisionerdaemons/serve";

const FEATURE: &str = "external_provisioner_daemons";
/// The version of the protocol of a daemon that names none.
const FIRST_VERSION: &str = "1.0";
/// The newest version of the protocol that this Coder has.
const MAJOR: u32 = 1;
const MINOR: u32 = 18;

pub(crate) fn serve(call: &mut Call<'_>) -> Handled {
    features::keep_fresh(call.state, call.now);
    if !call.state.entitlements.features.get(FEATURE).is_some_and(|it| it.enabled) {
        let message = "External provisioner daemons is an Enterprise feature. Contact sales!";
        return Err(Answer::message(403, message));
    }
    let value = call.headers.get(KEY_HEADER).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
    if value.len() != KEY_LENGTH || by_value(call.state, &value).is_none() {
        let message = "API key or external provisioner authentication required, but none provided";
        return Err(Answer::message(401, message));
    }
    call.any_organization().ok_or_else(not_found)?;
    let provisioners = provisioners(call)?;
    let given = |name: &str| call.query(name).map(str::to_owned);
    let name = given("name").unwrap_or_else(|| "unnamed".to_owned());
    if given("tag").is_some() {
        let message = "You aren't allowed to create provisioner daemons with scope \"\"";
        return Err(Answer::message(403, message).detail("tags are not allowed when using a provisioner key"));
    }
    let api_version =
        given("version").filter(|it| !it.is_empty()).unwrap_or_else(|| FIRST_VERSION.to_owned());
    validate(&api_version).map_err(|detail| {
        Answer::message(400, "Incompatible or unparsable version").field("version", detail)
    })?;
    let version = call.headers.get("x-coder-build-version").and_then(|it| it.to_str().ok());
    let version = version.unwrap_or_default().to_owned();
    let id = call.ids().uuid();
    let daemon = Connection { value: &value, name: &name, version: &version, api_version, provisioners };
    connect(call.state, id, daemon, call.now);
    Ok(no_websocket(call))
}

/// The kinds of provisioners that a daemon has.
fn provisioners(call: &Call<'_>) -> Result<Vec<String>, Answer> {
    let given = |wanted: &'static str| {
        call.query.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| value.as_str())
    };
    if let Some(tag) = given("tag").find(|it| !it.contains('=')) {
        let message = format!("Invalid format for tag {tag:?}. Key and value must be separated with =.");
        return Err(Answer::message(400, message));
    }
    let mut provisioners: Vec<String> = given("provisioner").map(str::to_owned).collect();
    if provisioners.is_empty() {
        return Err(Answer::message(400, "The provisioner query parameter must be specified."));
    }
    if let Some(unknown) = provisioners.iter().find(|it| !["echo", "terraform"].contains(&it.as_str())) {
        return Err(Answer::message(400, format!("Unknown provisioner type {unknown:?}")));
    }
    provisioners.sort();
    provisioners.dedup();
    Ok(provisioners)
}

/// Checks the version of the protocol of a daemon.
fn validate(version: &str) -> Result<(), String> {
    let parts: Vec<&str> = version.split('.').collect();
    let [major, minor] = parts.as_slice() else { return Err(format!("invalid version string: {version}")) };
    let major: u32 = major.parse().map_err(|_| format!("invalid major version: {version}"))?;
    let minor: u32 = minor.parse().map_err(|_| format!("invalid minor version: {version}"))?;
    let behind = |part: &str| {
        Err(format!("server is at version {MAJOR}.{MINOR}, behind requested {part} version {version}"))
    };
    match major {
        MAJOR if minor > MINOR => behind("minor"),
        MAJOR => Ok(()),
        _ if major > MAJOR => behind("major"),
        _ => Err(format!("version {version} is no longer supported")),
    }
}

/// The answer to a connection that is no websocket: coderd writes two answers, one after the other.
fn no_websocket(call: &Call<'_>) -> Answer {
    let connection = call.headers.get("connection").and_then(|it| it.to_str().ok()).unwrap_or_default();
    let violation =
        format!("WebSocket protocol violation: Connection header {connection:?} does not contain Upgrade");
    let second = serde_json::json!({"message": "Internal error accepting websocket connection.",
        "detail": format!("failed to accept WebSocket connection: {violation}")});
    let second = format!("{{\"message\":{},\"detail\":{}}}", second["message"], second["detail"]);
    Answer::text(426, format!("{violation}\n{second}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_protocol_are_compared_as_numbers() {
        for good in ["1.0", "1.9", "1.18"] {
            assert_eq!(validate(good), Ok(()), "{good}");
        }
        for bad in ["1.19", "2.0", "0.9", "1", "1.2.3", "a.1", "1.b", ""] {
            assert!(validate(bad).is_err(), "{bad}");
        }
    }
}
