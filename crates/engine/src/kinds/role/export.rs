//! A custom role as a manifest. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::{CoderRole, CoderRoleSpec, Permission as Declared};
use client::{organizations::Organization, roles::AssignableRole};

use crate::pipeline::export::{Draft, organization_word, said, title_in};

/// `None` for a role that comes with Coder.
pub(super) fn draft(found: &AssignableRole, home: &Organization) -> Option<Draft<CoderRole>> {
    if found.built_in {
        return None;
    }
    let forbids = found.organization_permissions.iter().any(|it| it.negate);
    let spec = CoderRoleSpec {
        organization: Some(organization_word(home)),
        name: Some(found.name.clone()),
        display_name: said(&found.display_name),
        permissions: (!forbids).then(|| permissions(found)),
        ..CoderRoleSpec::default()
    };
    let title = title_in(home, &found.name);
    let mut draft = Draft::new(&title, CoderRole::new(&title, spec));
    if forbids {
        let note = "permissions is left out: the role forbids some, which a manifest cannot declare";
        draft.notes.push(note.to_owned());
    }
    Some(draft)
}

/// The actions of each type of resource.
fn permissions(found: &AssignableRole) -> Vec<Declared> {
    let mut actions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for permission in &found.organization_permissions {
        actions.entry(&permission.resource_type).or_default().insert(permission.action.clone());
    }
    let declared = actions.into_iter().map(|(resource, actions)| Declared {
        resource: resource.to_owned(),
        actions: actions.into_iter().collect(),
    });
    declared.collect()
}

#[cfg(test)]
mod tests {
    use client::roles::Permission;
    use uuid::Uuid;

    use super::*;

    fn role(negate: bool) -> AssignableRole {
        let permission = |resource: &str, action: &str, negate| Permission {
            negate,
            resource_type: resource.to_owned(),
            action: action.to_owned(),
        };
        AssignableRole {
            name: "auditors".to_owned(),
            display_name: String::new(),
            built_in: false,
            assignable: true,
            organization_permissions: vec![
                permission("template", "view_insights", false),
                permission("group", "read", false),
                permission("template", "read", negate),
            ],
        }
    }

    #[test]
    fn permissions_are_grouped_by_resource_and_left_out_where_one_forbids() {
        let home = serde_json::json!({"id": Uuid::from_u128(1), "name": "alpha"});
        let home: Organization = serde_json::from_value(home).unwrap();
        let spec = draft(&role(false), &home).unwrap().manifest.spec;
        let permissions: Vec<(String, usize)> =
            spec.permissions.unwrap().into_iter().map(|it| (it.resource, it.actions.len())).collect();
        assert_eq!(permissions, [("group".to_owned(), 1), ("template".to_owned(), 2)]);
        let forbids = draft(&role(true), &home).unwrap();
        assert_eq!(forbids.manifest.spec.permissions, None);
        assert!(forbids.notes[0].contains("forbids"));
        assert!(draft(&AssignableRole { built_in: true, ..role(false) }, &home).is_none());
    }
}
