//! The organization sync document as a manifest. Pure.

use api::{CoderOrganizationSync, CoderOrganizationSyncSpec};
use client::{idp_sync::OrganizationSync as Document, organizations::Organization};

use crate::{
    kinds::mapping,
    pipeline::export::{Draft, organization_word},
};

const NAME: &str = "organization-sync";

/// `None` for a document that was never written; why where its mapping cannot be declared.
pub(super) fn draft(
    document: &Document,
    organizations: &[Organization],
) -> Result<Option<Draft<CoderOrganizationSync>>, String> {
    if *document == Document::default() {
        return Ok(None);
    }
    let name_of = |id| organizations.iter().find(|it| it.id == id).map(organization_word);
    let mapping = mapping::exported(&document.mapping, "organization", name_of)?;
    let spec = CoderOrganizationSyncSpec {
        field: Some(document.field.clone()),
        assign_default: Some(document.organization_assign_default),
        mapping: Some(mapping),
        ..CoderOrganizationSyncSpec::default()
    };
    let draft = Draft::new(NAME, CoderOrganizationSync::new(NAME, spec));
    Ok(Some(draft))
}
