//! Whose workspaces can be shared in an organization.

use serde_json::{Value, json};

use crate::{
    answer::{Answer, Handled, forbidden, not_found},
    call::Call,
    rights::Right,
    state::Organization,
};

const NONE: &str = "none";
const EVERYONE: &str = "everyone";
const VALUES: [&str; 3] = [NONE, EVERYONE, "service_accounts"];

pub(crate) fn sharing(call: &mut Call<'_>) -> Handled {
    let is_disabled = is_disabled(call);
    let organization = call.organization()?;
    let owners = if is_disabled { NONE } else { organization.sharing() };
    Ok(Answer::ok(shown(owners, is_disabled)))
}

pub(crate) fn update(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.clone();
    if !call.may(Right::ManageOrganizations) {
        return Err(forbidden());
    }
    let fields = call.fields("UpdateWorkspaceSharingSettingsRequest")?;
    let disables = fields.flag("sharing_disabled")?;
    let mut owners = fields.plain("shareable_workspace_owners")?;
    if owners.is_empty() {
        if disables { NONE } else { EVERYONE }.clone_into(&mut owners);
    }
    if !VALUES.contains(&owners.as_str()) {
        let why = format!("invalid value \"{owners}\", must be one of [{}]", VALUES.join(", "));
        let refused = Answer::message(400, "Invalid shareable workspace owners value.");
        return Err(refused.field("shareable_workspace_owners", &why));
    }
    let change = |owners: &str| json!({"shareable_workspace_owners": owners});
    let (before, after) = (change(organization.sharing()), change(&owners));
    let now = call.now;
    let changed = call.state.organizations.get_mut(&organization.id).ok_or_else(not_found)?;
    changed.workspace_sharing = Some(owners.clone());
    changed.updated_at = now;
    call.changed("organization", (organization.id, &organization.name), before, after);
    // The answer to a write says nothing of the whole deployment.
    Ok(Answer::ok(shown(&owners, false)))
}

fn shown(owners: &str, is_disabled: bool) -> Value {
    json!({"sharing_globally_disabled": is_disabled, "sharing_disabled": owners == NONE,
        "shareable_workspace_owners": owners})
}

/// Whether the deployment was started without sharing.
fn is_disabled(call: &Call<'_>) -> bool {
    let options = call.state.server_config.as_ref().and_then(|it| it["options"].as_array());
    let is_set = |it: &Value| it["env"] == "CODER_DISABLE_WORKSPACE_SHARING" && it["value_source"] == "env";
    options.into_iter().flatten().any(is_set)
}

impl Organization {
    /// Whose workspaces can be shared.
    fn sharing(&self) -> &str {
        self.workspace_sharing.as_deref().unwrap_or(EVERYONE)
    }
}
