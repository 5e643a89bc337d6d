//! Works on objects of several kinds through the command line: users, groups, roles and templates.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

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
/// How many daemons build the templates.
const DAEMONS: usize = 2;
const STARTS_WITHIN: Duration = Duration::from_mins(1);
/// How many objects there are.
pub(super) const OBJECTS: u32 = USERS + GROUPS + ROLES + TEMPLATES;

/// Creates the objects through `apply`, and plans them again.
pub(super) async fn run(bench: &Bench<'_>, works: &[Work], outcome: &mut Outcome) -> Result<()> {
    let fixture = Fixture::licensed(bench).await?;
    fixture.post("/api/v2/organizations", &json!({"name": ORGANIZATION})).await?;
    start_daemons(&fixture).await?;
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

/// Starts the daemons that build the templates, and waits until coderd sees them.
async fn start_daemons(fixture: &Fixture<'_>) -> Result<()> {
    let organization = format!("/api/v2/organizations/{ORGANIZATION}");
    let made = fixture.post(&format!("{organization}/provisionerkeys"), &json!({"name": "daemons"})).await?;
    let key = made["key"].as_str().context("coderd gives the key that it made")?;
    fixture.write_secret("daemons", "key", key).await?;
    let from = json!({"secretKeyRef": {"name": "daemons", "key": "key"}});
    // Daemons of one name are one to coderd.
    let name = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    let environment = json!([{"name": "CODER_URL", "value": fixture.coderd.owner.url},
        {"name": "CODER_PROVISIONER_DAEMON_KEY", "valueFrom": from},
        {"name": "CODER_PROVISIONER_DAEMON_NAME", "valueFrom": name}]);
    let image = fixture.bench.bed.info().image("bed/coder");
    let container = json!({"name": "daemon", "image": image, "command": ["/opt/coder", "provisioner", "start"],
        "env": environment});
    let labels = json!({"app": "daemons"});
    let spec = json!({"replicas": DAEMONS, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}});
    let metadata = json!({"name": "daemons"});
    let deployment =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec});
    fixture.cluster.apply(&deployment).await?;
    let started = async {
        loop {
            let daemons = fixture.get(&format!("{organization}/provisionerdaemons")).await?;
            if daemons.as_array().is_some_and(|it| it.len() >= DAEMONS) {
                return Ok(());
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(STARTS_WITHIN, started).await.context("the daemons did not start")?
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
