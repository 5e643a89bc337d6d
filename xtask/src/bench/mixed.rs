//! Works on objects of several kinds through the command line: users, groups, roles and templates.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    Outcome,
    fixture::{Bench, Fixture},
    groups::command,
    works::Work,
};
use crate::terminal::say;

const ORGANIZATION: &str = "bench";
const USERS: u32 = 300;
const GROUPS: u32 = 300;
const ROLES: u32 = 60;
const TEMPLATES: u32 = 40;
/// How many objects there are.
pub(super) const OBJECTS: u32 = USERS + GROUPS + ROLES + TEMPLATES;

/// Creates the objects through `apply`, and plans them again.
pub(super) async fn run(bench: &Bench<'_>, works: &[Work], outcome: &mut Outcome) -> Result<()> {
    let fixture = Fixture::licensed(bench).await?;
    fixture.post("/api/v2/organizations", &json!({"name": ORGANIZATION})).await?;
    let file = bench.bed.folder().join(format!("{}.yaml", fixture.cluster.namespace));
    let documents: Vec<String> = manifests().iter().map(ToString::to_string).collect();
    fs::write(&file, documents.join("\n---\n")).with_context(|| format!("write {}", file.display()))?;
    for work in works {
        say(&format!("measuring {}", work.name()));
        let verb: &[&str] =
            if *work == Work::PlanMixed { &["plan", "--exit-code"] } else { &["apply", "--yes", "--wait"] };
        outcome.add(*work, command(&fixture, verb, &file).await?);
    }
    fixture.end().await
}

fn manifests() -> Vec<Value> {
    let of = |kind: &'static str, count: u32, spec: fn(u32) -> Value| {
        (0..count).map(move |number| {
            let mut spec = spec(number);
            spec["controlPlaneRef"] = json!({"name": "main"});
            let name = format!("{}-{number:03}", kind.trim_start_matches("Coder").to_lowercase());
            json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        })
    };
    let users = of(
        "CoderUser",
        USERS,
        |_| json!({"serviceAccount": true, "roles": [], "organizations": [ORGANIZATION]}),
    );
    let groups = of(
        "CoderGroup",
        GROUPS,
        |number| json!({"organization": ORGANIZATION, "quotaAllowance": 5, "members": [format!("user-{number:03}")]}),
    );
    let roles = of(
        "CoderRole",
        ROLES,
        |_| json!({"organization": ORGANIZATION, "permissions": [{"resource": "template", "actions": ["read"]}]}),
    );
    let templates = of("CoderTemplate", TEMPLATES, |number| {
        json!({"organization": ORGANIZATION, "displayName": format!("Template {number}"),
            "source": {"files": {"main.tf": "resource \"terraform_data\" \"x\" {}\n"}}})
    });
    users.chain(groups).chain(roles).chain(templates).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_counted() {
        assert_eq!(manifests().len(), OBJECTS as usize);
    }
}
