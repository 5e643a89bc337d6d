//! A role sync document as a manifest. Pure.

use api::{CoderRoleSync, CoderRoleSyncSpec};
use client::{idp_sync::RoleSync as Document, organizations::Organization, roles::AssignableRole};

use super::has_role;
use crate::{
    kinds::mapping,
    pipeline::export::{Draft, organization_word},
};

/// `None` for a document that was never written; why where its mapping cannot be declared.
pub(super) fn draft(
    document: &Document,
    roles: &[AssignableRole],
    home: &Organization,
) -> Result<Option<Draft<CoderRoleSync>>, String> {
    if *document == Document::default() {
        return Ok(None);
    }
    let name_of = |name: String| has_role(roles, &name).then_some(name);
    let mapping = mapping::exported(&document.mapping, "role", name_of)?;
    let spec = CoderRoleSyncSpec {
        organization: Some(organization_word(home)),
        field: Some(document.field.clone()),
        mapping: Some(mapping),
        ..CoderRoleSyncSpec::default()
    };
    let draft = Draft::new(&home.name, CoderRoleSync::new(&home.name, spec));
    Ok(Some(draft))
}
