//! A group as a manifest. Pure.

use api::{CoderGroup, CoderGroupSpec};
use client::{groups::Group as Remote, organizations::Organization};

use super::{is_everyone, is_untouched};
use crate::pipeline::export::{Draft, organization_word, said, title_in};

/// The source of a group that the identity provider made.
const FROM_PROVIDER: &str = "oidc";

/// `None` for `Everyone` as a new organization has it. `is_synced` is whether group sync of the organization is on.
pub(super) fn draft(found: &Remote, home: &Organization, is_synced: bool) -> Option<Draft<CoderGroup>> {
    let is_everyone = is_everyone(found);
    if is_everyone && is_untouched(found) {
        return None;
    }
    let is_provided = is_synced || found.source == FROM_PROVIDER;
    let has_members = !is_everyone && !found.members.is_empty();
    // A declared list is complete: members that the account does not see would be removed.
    let is_partial = found.members.len() < usize::try_from(found.total_member_count).unwrap_or_default();
    let spec = CoderGroupSpec {
        organization: Some(organization_word(home)),
        name: Some(found.name.clone()),
        display_name: said(&found.display_name).filter(|_| !is_everyone),
        avatar_url: said(&found.avatar_url),
        quota_allowance: i32::try_from(found.quota_allowance).ok(),
        members: (has_members && !is_provided && !is_partial).then(|| members(found)),
        ..CoderGroupSpec::default()
    };
    let title = title_in(home, &found.name);
    let mut draft = Draft::new(&title, CoderGroup::new(&title, spec));
    if has_members && is_provided {
        draft.notes.push("members is left out: the identity provider manages the members".to_owned());
    }
    if has_members && is_partial && !is_provided {
        draft.notes.push(format!(
            "members is left out: the account sees {} of {} members; export with the token of an owner",
            found.members.len(),
            found.total_member_count
        ));
    }
    Some(draft)
}

fn members(found: &Remote) -> Vec<String> {
    let mut names: Vec<String> = found.members.iter().map(|it| it.username.clone()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use client::groups::GroupMember;
    use uuid::Uuid;

    use super::*;

    fn home() -> Organization {
        let organization = serde_json::json!({"id": Uuid::from_u128(1), "name": "alpha"});
        serde_json::from_value(organization).unwrap()
    }

    fn group(name: &str, members: &[&str]) -> Remote {
        let member = |it: &&str| GroupMember {
            id: Uuid::from_u128(9),
            username: (*it).to_owned(),
            email: String::new(),
        };
        Remote {
            id: Uuid::from_u128(2),
            organization_id: Uuid::from_u128(1),
            name: name.to_owned(),
            display_name: String::new(),
            avatar_url: String::new(),
            quota_allowance: 20,
            source: "user".to_owned(),
            members: members.iter().map(member).collect(),
            total_member_count: 0,
        }
    }

    #[test]
    fn members_are_exported_unless_the_identity_provider_has_them() {
        let members =
            |found: &Remote, is_synced| draft(found, &home(), is_synced).unwrap().manifest.spec.members;
        let found = group("developers", &["bob", "alice"]);
        assert_eq!(members(&found, false), Some(vec!["alice".to_owned(), "bob".to_owned()]));
        assert_eq!(members(&found, true), None);
        assert_eq!(members(&Remote { source: "oidc".to_owned(), ..found.clone() }, false), None);
        assert_eq!(members(&group("empty", &[]), false), None);
        let partial = draft(&Remote { total_member_count: 3, ..found.clone() }, &home(), false).unwrap();
        assert_eq!(partial.manifest.spec.members, None);
        assert!(partial.notes[0].contains("2 of 3 members"), "{:?}", partial.notes);
        let noted = draft(&found, &home(), true).unwrap();
        assert!(noted.notes[0].contains("identity provider"), "{:?}", noted.notes);
    }

    #[test]
    fn everyone_is_exported_once_it_differs_and_only_with_what_can_be_set() {
        let everyone = Remote {
            id: Uuid::from_u128(1),
            display_name: "All".to_owned(),
            quota_allowance: 0,
            ..group("Everyone", &["alice"])
        };
        assert!(draft(&everyone, &home(), false).is_none());
        let spec = draft(&Remote { quota_allowance: 5, ..everyone }, &home(), false).unwrap().manifest.spec;
        assert_eq!((spec.quota_allowance, spec.display_name, spec.members), (Some(5), None, None));
    }
}
