//! What the identity provider manages of people who sign in with OIDC: their roles and their organizations.

use api::Reason;
use client::{Class, Error, server_config::ServerConfig, users::User};

use super::{Desired, roles_of};
use crate::{
    coder::Coder,
    pipeline::outcome::{Blocked, Trouble},
};

/// The option of coderd that turns the sync of site roles on.
const USER_ROLE_FIELD: &str = "CODER_OIDC_USER_ROLE_FIELD";
const OIDC: &str = "oidc";

/// Why declared roles that differ are left as they are. Options of coderd are read only where it depends on them.
pub(super) async fn of_roles(
    desired: &Desired,
    found: &User,
    coder: &Coder,
) -> Result<Option<Blocked>, Trouble> {
    let differs = desired.roles.as_ref().is_some_and(|it| *it != roles_of(found));
    if !differs || found.login_type != OIDC {
        return Ok(None);
    }
    match coder.server_config().await {
        Ok(config) => Ok(syncs_roles(&config).then(managed_roles)),
        // Without the right to read the options, the answer to the write tells.
        Err(error) if error.class() == Class::Forbidden => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Why declared organizations that differ are left as they are. Coder refuses to add members beside the identity provider and would
/// remove them. The settings are read only where it depends on them.
pub(super) async fn of_membership(
    differs: bool,
    found: &User,
    coder: &Coder,
) -> Result<Option<Blocked>, Trouble> {
    if !differs || found.login_type != OIDC {
        return Ok(None);
    }
    match coder.client().organization_sync().await {
        Ok(sync) => Ok((!sync.field.is_empty()).then(managed_membership)),
        // Without the licence there is no sync; without the right to read the settings, the answer to the write tells.
        Err(error) if [Class::Forbidden, Class::Missing].contains(&error.class()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn managed_membership() -> Blocked {
    managed("organizations", "organization sync")
}

fn syncs_roles(config: &ServerConfig) -> bool {
    config.options.iter().any(|it| it.env == USER_ROLE_FIELD && it.is_set())
}

/// What Coder answers where the identity provider manages roles or membership, in words that say what to do.
pub(super) fn refusal(error: Error) -> Trouble {
    if error.begins_with("Cannot modify roles for OIDC users") {
        managed_roles().into()
    } else if error.begins_with("Organization sync is enabled for OIDC users") {
        managed_membership().into()
    } else {
        error.into()
    }
}

fn managed_roles() -> Blocked {
    managed("roles", &format!("site role sync ({USER_ROLE_FIELD})"))
}

fn managed(field: &str, sync: &str) -> Blocked {
    Blocked {
        reason: Reason::ManagedByProvider,
        message: format!(
            "spec.{field}: the identity provider manages it for users who sign in with OIDC, by {sync}: remove spec.{field} from \
             the manifest"
        ),
    }
}
