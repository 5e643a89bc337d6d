//! The deployment of a sandbox: new or from a file, with an owner and a licence.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::http::Method;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use sim::{Coder, LicenseCheck, Options, state::State};
use uuid::Uuid;

use super::{caller::Caller, state_file::StateFile};
use crate::{args::SandboxLicense, cli::exit::Failure};

/// The end of the version. Version gates read what is before it.
pub(super) const BUILD: &str = "+sandbox";
/// The version of Coder that the sandbox behaves like.
const LIKE: &str = "v2.36.1";
/// The account that is created where there is none.
const OWNER: &str = "sandbox";
/// The name under which the sandbox calls its deployment at the start.
pub(super) const START: &str = "sandbox-start";
/// How long a token of the sandbox is valid: longer than any sandbox runs.
const LIFETIME: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// How long the licence of a sandbox is valid, in seconds: almost five years, the longest term that Coder accepts.
const LICENSED_FOR: i64 = (5 * 365 - 3) * 24 * 3600;

/// Opens the deployment. Without a file it is new; `license` changes the licences of one that is not.
pub(super) async fn open(
    license: Option<SandboxLicense>,
    file: Option<&StateFile>,
    url: &str,
) -> Result<Coder, Failure> {
    let state = file.map(StateFile::load).transpose()?.flatten();
    let is_new = state.is_none();
    let options = options(url);
    let coder = match state {
        Some(state) => Coder::with_state(options, state),
        None => Coder::new(options),
    };
    if coder.read(owner).is_none() {
        create_owner(&coder).await.context("create the owner of the sandbox")?;
    }
    match license.or_else(|| is_new.then_some(SandboxLicense::Premium)) {
        Some(SandboxLicense::Premium) => ensure_license(&coder).await.context("add a licence")?,
        Some(SandboxLicense::None) => remove_licenses(&coder).await.context("remove the licences")?,
        None => {}
    }
    Ok(coder)
}

fn options(url: &str) -> Options {
    // Ids and secrets of two sandboxes differ, also when they go on from the same file.
    let (seed, _) = Uuid::new_v4().as_u64_pair();
    Options {
        seed,
        url: url.to_owned(),
        version: format!("{LIKE}{BUILD}"),
        license_check: LicenseCheck::ClaimsOnly,
        ..Options::new(Arc::new(Timestamp::now))
    }
}

/// A new token of an owner.
pub(super) fn token(coder: &Coder) -> Result<SecretString> {
    let owner = coder.read(owner).context("find an active account with the role owner in the state")?;
    coder.sign_in(&owner, LIFETIME).with_context(|| format!("sign in as {owner}"))
}

/// The name of an account that may change everything.
fn owner(state: &State) -> Option<String> {
    let is_owner = |it: &&sim::state::User| {
        !it.deleted && it.status == "active" && it.roles.iter().any(|role| role == "owner")
    };
    state.users.values().find(is_owner).map(|it| it.username.clone())
}

async fn create_owner(coder: &Coder) -> Result<()> {
    // Nobody signs in with it: the sandbox prints a token.
    let password = Uuid::new_v4().to_string();
    let user = json!({"email": format!("{OWNER}@example.com"), "username": OWNER, "password": password});
    let caller = Caller { coder, token: None, user_agent: START };
    caller.send(Method::POST, "/api/v2/users/first", &user).await?;
    Ok(())
}

async fn ensure_license(coder: &Coder) -> Result<()> {
    let caller = Caller { coder, token: Some(token(coder)?), user_agent: START };
    let entitlements = caller.send(Method::GET, "/api/v2/entitlements", &Value::Null).await?;
    if entitlements["features"]["multiple_organizations"]["enabled"] != true {
        let license = json!({"license": coder.sign_license(&lasting(Timestamp::now()))});
        caller.send(Method::POST, "/api/v2/licenses", &license).await?;
    }
    Ok(())
}

/// Claims of a licence for as long as Coder accepts: a saved state is used for years.
fn lasting(now: Timestamp) -> Map<String, Value> {
    let (expires, ends) = (now.as_second() + LICENSED_FOR, now.as_second() + LICENSED_FOR + 24 * 3600);
    Map::from_iter([("license_expires".to_owned(), expires.into()), ("exp".to_owned(), ends.into())])
}

async fn remove_licenses(coder: &Coder) -> Result<()> {
    let caller = Caller { coder, token: Some(token(coder)?), user_agent: START };
    let ids: Vec<i32> = coder.read(|state| state.licenses.keys().copied().collect());
    for id in ids {
        caller.send(Method::DELETE, &format!("/api/v2/licenses/{id}"), &Value::Null).await?;
    }
    Ok(())
}
