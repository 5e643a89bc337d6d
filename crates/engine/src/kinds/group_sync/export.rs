//! A group sync document as a manifest. Pure.

use api::{CoderGroupSync, CoderGroupSyncSpec};
use client::{groups::Group, idp_sync::GroupSync as Document, organizations::Organization};

use crate::{
    kinds::mapping,
    pipeline::export::{Draft, organization_word},
};

/// `None` for a document that was never written; why where its mapping cannot be declared.
pub(super) fn draft(
    document: &Document,
    groups: &[Group],
    home: &Organization,
) -> Result<Option<Draft<CoderGroupSync>>, String> {
    if *document == Document::default() {
        return Ok(None);
    }
    let name_of = |id| groups.iter().find(|it| it.id == id).map(|it| it.name.clone());
    let mapping = mapping::exported(&document.mapping, "group", name_of)?;
    let spec = CoderGroupSyncSpec {
        organization: Some(organization_word(home)),
        field: Some(document.field.clone()),
        regex_filter: document.regex_filter.clone(),
        auto_create_missing_groups: Some(document.auto_create_missing_groups),
        mapping: Some(mapping),
        ..CoderGroupSyncSpec::default()
    };
    let mut draft = Draft::new(&home.name, CoderGroupSync::new(&home.name, spec));
    if !document.legacy_group_name_mapping.is_empty() {
        draft.notes.push(
            "the legacy group name mapping of coderd's environment cannot be declared; the first write of the document drops it"
                .to_owned(),
        );
    }
    Ok(Some(draft))
}
