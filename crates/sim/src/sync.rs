//! The three documents of identity provider sync. A write replaces the whole document.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, forbidden},
    body::{Fields, not_json},
    call::Call,
    regex,
    rights::Right,
};

/// Refuses callers without the right. An organization of the path is looked up first.
fn allowed(call: &Call<'_>) -> Result<(), Answer> {
    if call.may(Right::ManageSync) { Ok(()) } else { Err(forbidden()) }
}

fn organization(call: &Call<'_>) -> Result<Uuid, Answer> {
    let id = call.organization()?.id;
    allowed(call)?;
    Ok(id)
}

pub(crate) fn organization_sync(call: &mut Call<'_>) -> Handled {
    allowed(call)?;
    let unset = || json!({"field": "", "mapping": {}, "organization_assign_default": true});
    Ok(Answer::ok(call.state.organization_sync.clone().unwrap_or_else(unset)))
}

pub(crate) fn put_organization_sync(call: &mut Call<'_>) -> Handled {
    allowed(call)?;
    let fields = call.fields("OrganizationSyncSettings")?;
    let document = json!({
        "field": fields.plain("field")?,
        "mapping": fields.mapping("mapping", "uuid.UUID")?,
        "organization_assign_default": fields.flag("organization_assign_default")?,
    });
    let before = call.state.organization_sync.replace(document.clone()).unwrap_or_default();
    call.changed("idp_sync_settings_organization", (Uuid::nil(), ""), before, document.clone());
    Ok(Answer::ok(document))
}

pub(crate) fn group_sync(call: &mut Call<'_>) -> Handled {
    let organization = organization(call)?;
    let unset =
        || json!({"field": "", "mapping": {}, "regex_filter": null, "auto_create_missing_groups": false});
    Ok(Answer::ok(call.state.group_sync.get(&organization).cloned().unwrap_or_else(unset)))
}

pub(crate) fn put_group_sync(call: &mut Call<'_>) -> Handled {
    let organization = organization(call)?;
    let fields = call.fields("GroupSyncSettings")?;
    let document = json!({
        "field": fields.plain("field")?,
        "mapping": fields.mapping("mapping", "uuid.UUID")?,
        "regex_filter": regex_filter(&fields)?,
        "auto_create_missing_groups": fields.flag("auto_create_missing_groups")?,
    });
    if !fields.text_map("legacy_group_name_mapping")?.is_empty() {
        let field = "legacy_group_name_mapping";
        let message = format!("Unexpected field '{field}'. Field not allowed, set to null or remove it.");
        return Err(Answer::message(400, message)
            .detail(format!("{field} is deprecated, use mapping instead"))
            .field(field, "field is not allowed"));
    }
    let before = call.state.group_sync.insert(organization, document.clone()).unwrap_or_default();
    call.changed("idp_sync_settings_group", (organization, ""), before, document.clone());
    Ok(Answer::ok(document))
}

/// A filter as it was sent. An empty one matches everything and is not the same as none.
fn regex_filter(fields: &Fields) -> Result<Option<String>, Answer> {
    let filter = fields.text("regex_filter")?;
    match filter.as_deref().and_then(regex::mistake) {
        Some(mistake) => Err(not_json(&format!("error parsing regexp: {mistake}"))),
        None => Ok(filter),
    }
}

pub(crate) fn role_sync(call: &mut Call<'_>) -> Handled {
    let organization = organization(call)?;
    let unset = || json!({"field": "", "mapping": {}});
    Ok(Answer::ok(call.state.role_sync.get(&organization).cloned().unwrap_or_else(unset)))
}

pub(crate) fn put_role_sync(call: &mut Call<'_>) -> Handled {
    let organization = organization(call)?;
    let fields = call.fields("RoleSyncSettings")?;
    let document = json!({
        "field": fields.plain("field")?,
        "mapping": fields.mapping("mapping", "string")?,
    });
    let before: Value = call.state.role_sync.insert(organization, document.clone()).unwrap_or_default();
    call.changed("idp_sync_settings_role", (organization, ""), before, document.clone());
    Ok(Answer::ok(document))
}
