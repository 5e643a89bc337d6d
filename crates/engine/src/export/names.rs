//! Names of exported manifests. Pure.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::Exported;
use crate::pipeline::export::LONGEST_NAME;

/// Gives manifests of one kind that have the same name a suffix each, made of what they declare. Another export gives the same names,
/// in whichever order Coder lists the objects: a manifest in a cluster holds its object by id and must not come to mean another one.
pub(super) fn tell_apart(manifests: &mut [Exported]) {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for it in manifests.iter() {
        *counts.entry((it.kind.clone(), it.name.clone())).or_default() += 1;
    }
    for it in manifests {
        if counts.get(&(it.kind.clone(), it.name.clone())).is_some_and(|it| *it > 1) {
            it.name = with_suffix(&it.name, &it.target);
            it.manifest["metadata"]["name"] = it.name.clone().into();
        }
    }
}

fn with_suffix(name: &str, target: &str) -> String {
    let hash = Sha256::digest(target.as_bytes());
    let suffix = base16ct::lower::encode_string(hash.get(..4).unwrap_or_default());
    let head: String = name.chars().take(LONGEST_NAME - 1 - suffix.len()).collect();
    format!("{}-{suffix}", head.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exported(kind: &str, name: &str, target: &str) -> Exported {
        Exported {
            rank: 0,
            kind: kind.to_owned(),
            name: name.to_owned(),
            target: target.to_owned(),
            manifest: serde_json::json!({"metadata": {"name": name}}),
            notes: Vec::new(),
            secrets: Vec::new(),
        }
    }

    #[test]
    fn manifests_of_one_name_are_told_apart_in_any_order() {
        let long = "a".repeat(LONGEST_NAME);
        let mut manifests = vec![
            exported("CoderGroup", "a-b-c", "group a/b-c"),
            exported("CoderGroup", "a-b-c", "group a-b/c"),
            exported("CoderRole", "a-b-c", "role a/b-c"),
            exported("CoderGroup", &long, "group x"),
            exported("CoderGroup", &long, "group y"),
        ];
        let mut reversed: Vec<Exported> = manifests.iter().rev().cloned().collect();
        tell_apart(&mut manifests);
        tell_apart(&mut reversed);
        let names = |it: &[Exported]| -> BTreeMap<String, String> {
            it.iter().map(|it| (it.target.clone(), it.name.clone())).collect()
        };
        assert_eq!(names(&manifests), names(&reversed));
        let names = names(&manifests);
        assert_ne!(names["group a/b-c"], names["group a-b/c"]);
        assert_ne!(names["group x"], names["group y"]);
        assert_eq!(names["role a/b-c"], "a-b-c");
        assert!(
            manifests
                .iter()
                .all(|it| it.name.len() <= LONGEST_NAME && it.manifest["metadata"]["name"] == it.name)
        );
    }
}
