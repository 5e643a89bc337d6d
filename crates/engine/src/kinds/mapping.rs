//! What the three sync documents have in common: claims that are mapped to names, and names that coderd keeps as ids.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::{
    coder::missing,
    pipeline::{gate::Gate, outcome::Blocked},
};

pub(super) const MULTIPLE_ORGANIZATIONS: Gate =
    Gate { feature: "multiple_organizations", license: "Premium" };
pub(super) const TEMPLATE_RBAC: Gate = Gate { feature: "template_rbac", license: "Premium or Enterprise" };
pub(super) const USER_ROLE_MANAGEMENT: Gate =
    Gate { feature: "user_role_management", license: "Premium or Enterprise" };
pub(super) const CUSTOM_ROLES: Gate = Gate { feature: "custom_roles", license: "Premium" };
pub(super) const APPEARANCE: Gate = Gate { feature: "appearance", license: "Premium or Enterprise" };

/// For each value of a claim, names. What order they stand in, and how often, means nothing.
pub(super) type Names = BTreeMap<String, BTreeSet<String>>;

/// What a document maps claims to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mapping<T> {
    /// What was found, for a manifest that does not speak of it.
    Kept(BTreeMap<String, Vec<T>>),
    /// What the manifest says.
    Declared(Names),
}

/// A declared mapping, for comparing.
pub(super) fn names(declared: &BTreeMap<String, Vec<String>>) -> Names {
    declared.iter().map(|(claim, names)| (claim.clone(), names.iter().cloned().collect())).collect()
}

/// A found mapping by name. What has no name any more is shown by its id: it differs from everything that is declared.
pub(super) fn named(found: &BTreeMap<String, Vec<Uuid>>, name_of: impl Fn(Uuid) -> Option<String>) -> Names {
    let name = |id: &Uuid| name_of(*id).unwrap_or_else(|| id.to_string());
    found.iter().map(|(claim, ids)| (claim.clone(), ids.iter().map(name).collect())).collect()
}

/// Refuses a mapping as soon as one of its names means nothing: a half mapping locks people out.
pub(super) fn check(names: &Names, what: &str, exists: impl Fn(&str) -> bool) -> Result<(), Blocked> {
    for (claim, names) in names {
        if let Some(name) = names.iter().find(|name| !exists(name)) {
            return Err(missing(format!(
                "spec.mapping[{claim}]: {what} {name} does not exist; nothing was written"
            )));
        }
    }
    Ok(())
}

/// The ids of a mapping that is about to be written.
pub(super) fn ids(
    mapping: &Mapping<Uuid>,
    what: &str,
    id_of: impl Fn(&str) -> Option<Uuid>,
) -> Result<BTreeMap<String, Vec<Uuid>>, Blocked> {
    let names = match mapping {
        Mapping::Kept(ids) => return Ok(ids.clone()),
        Mapping::Declared(names) => names,
    };
    check(names, what, |name| id_of(name).is_some())?;
    Ok(names
        .iter()
        .map(|(claim, names)| (claim.clone(), names.iter().filter_map(|it| id_of(it)).collect()))
        .collect())
}

/// A found mapping as a manifest declares it, or why it cannot. A document with half a mapping, or with none, locks people out of a
/// deployment that it is applied to: then no manifest is made of the document.
pub(super) fn exported<T: Clone + std::fmt::Display>(
    found: &BTreeMap<String, Vec<T>>,
    what: &str,
    name_of: impl Fn(T) -> Option<String>,
) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut mapping = BTreeMap::new();
    for (claim, items) in found {
        let mut names = BTreeSet::new();
        for item in items {
            let gone = || {
                format!(
                    "{claim:?} is mapped to the {what} {item}, which does not exist any more; remove it in Coder and export again"
                )
            };
            names.insert(name_of(item.clone()).ok_or_else(gone)?);
        }
        mapping.insert(claim.clone(), names.into_iter().collect());
    }
    Ok(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(name: &str) -> Names {
        BTreeMap::from([("/claim".to_owned(), BTreeSet::from([name.to_owned()]))])
    }

    #[test]
    fn one_name_that_means_nothing_refuses_the_whole_mapping_by_claim_and_name() {
        let refused = check(&mapping("ghost"), "group", |_| false).unwrap_err();
        assert_eq!(refused.message, "spec.mapping[/claim]: group ghost does not exist; nothing was written");
        assert!(ids(&Mapping::Declared(mapping("ghost")), "group", |_| None).is_err());
    }

    #[test]
    fn what_lost_its_name_is_shown_by_its_id() {
        let id = Uuid::from_u128(7);
        let found = BTreeMap::from([("/claim".to_owned(), vec![id])]);
        assert_eq!(named(&found, |_| None), mapping(&id.to_string()));
        assert_eq!(named(&found, |_| Some("developers".to_owned())), mapping("developers"));
    }

    #[test]
    fn exported_mapping_is_whole_or_absent() {
        let found = BTreeMap::from([("/claim".to_owned(), vec![Uuid::from_u128(7), Uuid::from_u128(8)])]);
        let whole = exported(&found, "group", |id| Some(format!("g{}", id.as_u128())));
        let names = BTreeMap::from([("/claim".to_owned(), vec!["g7".to_owned(), "g8".to_owned()])]);
        assert_eq!(whole, Ok(names));
        let half = exported(&found, "group", |id| (id.as_u128() == 7).then(|| "g7".to_owned()));
        assert!(half.unwrap_err().contains(&Uuid::from_u128(8).to_string()));
    }

    #[test]
    fn a_mapping_that_the_manifest_does_not_speak_of_is_kept_as_it_is() {
        let found = BTreeMap::from([("/claim".to_owned(), vec![Uuid::from_u128(7)])]);
        assert_eq!(ids(&Mapping::Kept(found.clone()), "group", |_| None).unwrap(), found);
    }
}
