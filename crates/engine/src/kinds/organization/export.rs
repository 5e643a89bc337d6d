//! An organization as a manifest. Pure.

use api::{CoderOrganization, CoderOrganizationSpec, DEFAULT_ORGANIZATION, WorkspaceSharing};
use client::organizations::{Organization as Remote, WorkspaceSharingSettings};
use serde_json::json;

use super::Untouched as _;
use crate::pipeline::export::{Draft, organization_word, said};

/// The name of the default organization of a fresh installation.
const FIRST: &str = "coder";

/// `None` for the default organization as a fresh installation makes it.
pub(super) fn draft(
    found: &Remote,
    sharing: Option<&WorkspaceSharingSettings>,
) -> Option<Draft<CoderOrganization>> {
    // In a new organization everyone can share workspaces.
    let sharing = sharing.filter(|it| !it.sharing_globally_disabled).and_then(|it| {
        let sharing: Option<WorkspaceSharing> =
            serde_json::from_value(json!(it.shareable_workspace_owners)).ok();
        sharing.filter(|it| *it != WorkspaceSharing::Everyone)
    });
    if found.is_default && found.is_untouched() && sharing.is_none() {
        return None;
    }
    let spec = CoderOrganizationSpec {
        name: Some(organization_word(found)),
        display_name: said(&found.display_name),
        description: said(&found.description),
        icon: said(&found.icon),
        workspace_sharing: sharing,
        ..CoderOrganizationSpec::default()
    };
    let mut draft = Draft::new(&found.name, CoderOrganization::new(&found.name, spec));
    if found.is_default && found.name != FIRST {
        draft.notes.push(format!(
            "the default organization is called {}. The manifest says `{DEFAULT_ORGANIZATION}`, which is the default organization of \
             every deployment, and does not rename it",
            found.name
        ));
    }
    Some(draft)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn found(name: &str, is_default: bool) -> Remote {
        Remote {
            id: Uuid::from_u128(1),
            name: name.to_owned(),
            display_name: name.to_uppercase(),
            description: String::new(),
            icon: String::new(),
            is_default,
            default_org_member_roles: Vec::new(),
        }
    }

    #[test]
    fn default_organization_is_left_out_until_it_differs_from_a_fresh_one() {
        let fresh = Remote {
            display_name: "Coder".to_owned(),
            description: "Builtin default organization.".to_owned(),
            ..found("coder", true)
        };
        assert!(draft(&fresh, None).is_none());
        let renamed = draft(&Remote { name: "acme".to_owned(), ..fresh.clone() }, None).unwrap();
        assert_eq!(renamed.manifest.spec.name.as_deref(), Some("default"));
        assert!(renamed.notes[0].contains("called acme"), "{:?}", renamed.notes);
        let described = draft(&Remote { description: "Ours".to_owned(), ..fresh.clone() }, None).unwrap();
        assert_eq!(
            (described.manifest.spec.description.as_deref(), described.notes.len()),
            (Some("Ours"), 0)
        );
        let sharing = |owners: &str, is_disabled| WorkspaceSharingSettings {
            sharing_globally_disabled: is_disabled,
            shareable_workspace_owners: owners.to_owned(),
        };
        assert!(draft(&fresh, Some(&sharing("everyone", false))).is_none());
        assert!(draft(&fresh, Some(&sharing("none", true))).is_none());
        let closed = draft(&fresh, Some(&sharing("none", false))).unwrap();
        assert_eq!(closed.manifest.spec.workspace_sharing, Some(WorkspaceSharing::None));
    }

    #[test]
    fn organization_has_its_name_and_no_empty_field() {
        let draft = draft(&found("alpha", false), None).unwrap();
        let spec = &draft.manifest.spec;
        assert_eq!((spec.name.as_deref(), spec.display_name.as_deref()), (Some("alpha"), Some("ALPHA")));
        assert_eq!((&spec.description, &spec.icon), (&None, &None));
    }
}
