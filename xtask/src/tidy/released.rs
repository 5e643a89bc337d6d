//! Definitions only grow within a version: `deploy/crds` is compared with the last release.
//!
//! A release is a file under `xtask/released`: a definition a line, as JSON without descriptions. `cargo xtask crdgen
//! --release VERSION` writes it.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    schema::{Break, compare},
    tree::{Complaint, Tree},
};
use crate::generated::File;

const FOLDER: &str = "xtask/released/";
const ENDING: &str = ".jsonl";

/// A change that is not additive and is allowed.
struct Exception {
    /// The definition and the field, as a complaint names them.
    place: &'static str,
    /// What the change says, or a part of it.
    change: &'static str,
    /// Why no existing object can fail.
    why: &'static str,
}

/// Every allowed change since the last release. One that no longer occurs is a complaint.
const EXCEPTIONS: [Exception; 3] = [
    Exception {
        place: "codercontrolplanes.coder.com .spec",
        change: "rule added: !has(self.database) ||",
        why: "the rule is about spec.database, which no released object has",
    },
    Exception {
        place: "codercontrolplanes.coder.com .spec",
        change: "rule added: !has(self.external) || !(has(self.image)",
        why: "the released rule with two more fields, which no released object has",
    },
    Exception {
        place: "coderprovisioners.coder.com .spec.key.name",
        change: "rule added: self.matches('^[ -~]*$')",
        why: "no key with another name was ever held: its reconcile repeated without an end. The API server checks an \
              unchanged value of an existing object no more",
    },
];

pub(super) fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let releases = tree.with_ending(ENDING).filter(|(path, _)| path.starts_with(FOLDER));
    let Some((path, text)) = releases.max_by_key(|(path, _)| version(path)) else {
        return Ok(vec![Complaint::new(FOLDER, 1, "has no release to compare deploy/crds with")]);
    };
    let released = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
    let released = released.with_context(|| format!("read {path}"))?;
    let current = api::crds().iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
    Ok(complaints(path, &released, &current, &EXCEPTIONS))
}

/// The definitions of now as a release.
pub(crate) fn release(version: &str) -> Result<File> {
    let mut lines = Vec::new();
    for crd in api::crds() {
        let crd = serde_json::to_value(crd).context("write a definition as JSON")?;
        let name = crd.pointer("/metadata/name");
        let mut compact = json!({"metadata": {"name": name}, "spec": crd.get("spec")});
        strip(&mut compact, false);
        lines.push(compact.to_string() + "\n");
    }
    let path = format!("{FOLDER}v{}{ENDING}", version.trim_start_matches('v'));
    Ok(File { path, text: lines.concat() })
}

/// Removes what no manifest depends on. In `properties` the keys are names of fields.
fn strip(value: &mut Value, are_fields: bool) {
    match value {
        Value::Object(map) => {
            let is_needed =
                |key: &str| are_fields || !["description", "additionalPrinterColumns"].contains(&key);
            map.retain(|key, _| is_needed(key));
            for (key, value) in map {
                strip(value, key == "properties" && !are_fields);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|it| strip(it, false)),
        _ => {}
    }
}

fn complaints(path: &str, released: &[Value], current: &[Value], exceptions: &[Exception]) -> Vec<Complaint> {
    let name = |it: &Value| it.pointer("/metadata/name").cloned();
    let breaks = released.iter().flat_map(|before| {
        let now = current.iter().find(|it| name(it) == name(before));
        now.map_or_else(
            || {
                let place = name(before).and_then(|it| Some(it.as_str()?.to_owned())).unwrap_or_default();
                vec![Break { place, change: "definition removed".to_owned() }]
            },
            |now| compare(before, now),
        )
    });
    let breaks: Vec<Break> = breaks.collect();
    let allows = |exception: &Exception, it: &Break| {
        exception.place == it.place && it.change.contains(exception.change)
    };
    let refused = breaks.iter().filter(|it| !exceptions.iter().any(|exception| allows(exception, it)));
    let refused = refused.map(|it| {
        format!(
            "is not compatible with the release: {}: {}. Undo it, or add an exception with its reason",
            it.place, it.change
        )
    });
    let stale = exceptions.iter().filter(|exception| !breaks.iter().any(|it| allows(exception, it)));
    let stale = stale.map(|Exception { place, change, why }| {
        format!("has an exception that is not needed: {place}: {change} ({why}). Remove it")
    });
    refused.chain(stale).map(|what| Complaint::new(path, 1, what)).collect()
}

/// The version in the name of a file, in an order of versions.
fn version(path: &str) -> Vec<u64> {
    let name = path.trim_start_matches(FOLDER).trim_start_matches('v').trim_end_matches(ENDING);
    name.split('.').map(|it| it.parse().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(fields: &Value) -> Value {
        json!({"metadata": {"name": "things.example.com"}, "spec": {"versions": [{"name": "v1", "served": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}}}]}})
    }

    fn found(released: &[Value], current: &[Value], exceptions: &[Exception]) -> Vec<String> {
        complaints("r", released, current, exceptions).into_iter().map(|it| it.what).collect()
    }

    #[test]
    fn breaks_are_refused_unless_an_exception_gives_a_reason() {
        let (before, now) = (thing(&json!({"a": {"type": "string"}})), thing(&json!({})));
        let exception = || Exception { place: "things.example.com .a", change: "field removed", why: "w" };
        let refused = found(std::slice::from_ref(&before), std::slice::from_ref(&now), &[]);
        assert!(refused.len() == 1 && refused[0].contains(".a: field removed"), "{refused:?}");
        assert_eq!(found(std::slice::from_ref(&before), &[now], &[exception()]), [""; 0]);
        let stale = found(std::slice::from_ref(&before), std::slice::from_ref(&before), &[exception()]);
        assert!(stale.len() == 1 && stale[0].contains("not needed"), "{stale:?}");
        let gone = found(&[before], &[], &[]);
        assert!(gone.len() == 1 && gone[0].contains("definition removed"), "{gone:?}");
    }

    #[test]
    fn newest_release_counts() {
        let mut paths =
            ["xtask/released/v0.10.0.jsonl", "xtask/released/v0.9.1.jsonl", "xtask/released/v0.2.0.jsonl"];
        paths.sort_by_key(|it| version(it));
        assert_eq!(paths.last(), Some(&"xtask/released/v0.10.0.jsonl"));
    }

    #[test]
    fn release_is_compact_and_compatible_with_itself() {
        let File { path, text } = release("v9.9.9").unwrap();
        assert_eq!(path, "xtask/released/v9.9.9.jsonl");
        let released: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        assert_eq!(released.len(), api::crds().len());
        let current: Vec<Value> = api::crds().iter().map(|it| serde_json::to_value(it).unwrap()).collect();
        assert_eq!(found(&released, &current, &[]), [""; 0]);
        let described = |it: &Value| it.get("description").is_some_and(Value::is_string);
        let spec = &released[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert!(!described(spec), "{spec}");
    }
}
