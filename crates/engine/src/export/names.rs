//! Names of exported manifests. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
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

/// Gives manifests that ask for the same Secret one each, in the same way: their values are different ones.
pub(super) fn tell_secrets_apart(manifests: &mut [Exported]) {
    let mut users: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for it in manifests.iter() {
        for secret in &it.secrets {
            users.entry(secret.name.clone()).or_default().insert((it.kind.clone(), it.target.clone()));
        }
    }
    for it in manifests {
        let shared = |name: &String| users.get(name).is_some_and(|it| it.len() > 1);
        let names: BTreeSet<String> = it.secrets.iter().map(|it| it.name.clone()).filter(shared).collect();
        for name in names {
            let own = with_suffix(&name, &format!("{} {}", it.kind, it.target));
            for secret in it.secrets.iter_mut().filter(|it| it.name == name) {
                secret.name.clone_from(&own);
            }
            if let Some(spec) = it.manifest["spec"].as_object_mut() {
                for (field, value) in spec {
                    if field == "secretName" || value.is_object() || value.is_array() {
                        rename(value, field, &name, &own);
                    }
                }
            }
        }
    }
}

/// Changes references to a Secret: `name` of an object, and `secretName`.
fn rename(value: &mut Value, field: &str, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from && ["name", "secretName"].contains(&field) => *value = to.into(),
        Value::Array(items) => items.iter_mut().for_each(|it| rename(it, field, from, to)),
        Value::Object(fields) => fields.iter_mut().for_each(|(field, it)| rename(it, field, from, to)),
        _ => {}
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
            files: BTreeMap::new(),
        }
    }

    #[test]
    fn manifests_that_ask_for_the_same_secret_get_one_each() {
        let mut manifests = vec![
            exported("CoderProvisionerKey", "a-b-c", "key a/b-c"),
            exported("CoderProvisionerKey", "x", "key a-b/c"),
        ];
        for it in &mut manifests {
            let secret = crate::pipeline::export::NeededSecret {
                name: "a-b-c".to_owned(),
                key: "key".to_owned(),
                what: String::new(),
            };
            it.secrets.push(secret);
            it.manifest["spec"] = serde_json::json!({"name": "a-b-c", "secretName": "a-b-c",
                "refs": [{"name": "a-b-c", "key": "a-b-c"}, {"name": "other"}]});
        }
        tell_secrets_apart(&mut manifests);
        let names: Vec<&str> = manifests.iter().map(|it| it.secrets[0].name.as_str()).collect();
        assert!(names[0] != names[1] && names[0].starts_with("a-b-c-"), "{names:?}");
        for it in &manifests {
            let (spec, name) = (&it.manifest["spec"], it.secrets[0].name.as_str());
            assert_eq!((&spec["secretName"], &spec["refs"][0]["name"]), (&name.into(), &name.into()));
            assert_eq!((&spec["name"], &spec["refs"][0]["key"]), (&"a-b-c".into(), &"a-b-c".into()));
        }
        // A Secret of one manifest keeps its name.
        manifests.truncate(1);
        let before = manifests[0].secrets[0].name.clone();
        tell_secrets_apart(&mut manifests);
        assert_eq!(manifests[0].secrets[0].name, before);
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
