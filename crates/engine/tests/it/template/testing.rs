//! Versions that are tested by a throwaway workspace before they are promoted.

mod cleanup;
mod leftovers;
mod owner;
mod trace;

use std::sync::Arc;

use api::Reason;
use engine::{Coder, Door, Outcome, coder::Promises};
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Scene,
    counts::{Counting, round},
    source, template,
};
use crate::{memory, support::subject};

const OWNER: &str = "tests";
const AGENT: &str = "resource \"coder_agent\" \"main\" {}";
const SILENT: &str = "locals { agent = \"never-connects\" }";
const SCRIPT_FAILS: &str = "locals { agent = \"script-fails\" }";
const START_FAILS: &str = "locals { agent = \"start-fails\" }";

impl Scene {
    /// With a service account that owns test workspaces.
    async fn tested() -> Self {
        let scene = Self::new().await;
        scene.service_account(OWNER).await;
        scene
    }

    async fn service_account(&self, username: &str) {
        let body = json!({"username": username, "service_account": true, "user_status": "active",
            "organization_ids": [Uuid::nil()]});
        self.by_hand(Method::POST, "/api/v2/users", &body).await;
    }

    /// The names of the workspaces that are not deleted.
    async fn workspaces(&self) -> Vec<String> {
        let listed = self.by_hand(Method::GET, "/api/v2/workspaces", &json!(null)).await;
        listed["workspaces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// How many workspaces there ever were.
    fn made(&self) -> usize {
        self.deployment.read(|it| it.workspaces.len())
    }

    fn archived(&self) -> usize {
        self.deployment.read(|it| it.versions.values().filter(|it| it.archived).count())
    }

    /// Reconciles until there is nothing to wait for, and returns what it ended in, with the messages before.
    async fn until_the_end(&self, manifest: &mut Value) -> (Outcome, Vec<String>) {
        let mut messages = Vec::new();
        for _ in 0..30 {
            let report = self.reconcile(manifest).await;
            match report.outcome {
                Outcome::Blocked(waiting) if waiting.reason.polled_every().is_some() => {
                    messages.push(format!("{}: {}", waiting.reason, waiting.message));
                }
                other => return (other, messages),
            }
            self.clock.advance(SignedDuration::from_secs(3));
        }
        panic!("{messages:#?}");
    }

    async fn passes(&self, manifest: &mut Value) -> Vec<String> {
        let (outcome, messages) = self.until_the_end(manifest).await;
        assert!(outcome.is_ready(), "{outcome:?} {messages:#?}");
        assert_eq!(self.workspaces().await, Vec::<String>::new());
        self.equal(manifest).await;
        messages
    }

    /// The message of a version that failed.
    async fn fails(&self, manifest: &mut Value) -> String {
        let (outcome, _) = self.until_the_end(manifest).await;
        let Outcome::Blocked(failed) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failed.reason, Reason::VersionFailed, "{}", failed.message);
        assert_eq!(self.workspaces().await, Vec::<String>::new());
        failed.message
    }

    /// Takes everything back that a deleted manifest owes, and returns how often that had to wait.
    async fn deleted(&self, manifest: &Value) -> usize {
        for count in 0..20 {
            let coder = self.coder.anew();
            let mut subject = subject(manifest);
            let assessment = subject.assess_deletion(&coder).await;
            let report = subject.carry_out(&assessment, &coder).await;
            match report.outcome {
                Outcome::Blocked(waiting) => {
                    assert_eq!(waiting.reason, Reason::VersionTesting, "{waiting:?}");
                }
                outcome => {
                    assert!(outcome.is_ready(), "{outcome:?}");
                    return count;
                }
            }
            self.clock.advance(SignedDuration::from_secs(3));
        }
        panic!("the deletion does not end");
    }
}

fn tested(text: &str, more: &Value) -> Value {
    let mut test = json!({"owner": OWNER});
    test.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    template(&json!({"source": source(text), "version": {"test": test}}))
}

fn index(messages: &[String], part: &str) -> usize {
    messages.iter().position(|it| it.contains(part)).unwrap_or_else(|| panic!("{part}: {messages:#?}"))
}

#[tokio::test]
async fn version_is_promoted_after_its_workspace_came_up_and_is_gone() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({"parameters": {"region": "eu"}}));
    let messages = scene.passes(&mut manifest).await;
    let starting = index(&messages, "VersionTesting: test workspace of version");
    let agent = index(&messages, "agent main is connecting and created");
    let deleted = index(&messages, "is deleted: every agent");
    assert!(starting < agent && agent < deleted, "{messages:#?}");
    let status = &manifest["status"]["test"];
    assert_eq!(
        (&status["result"], &status["deleted"], &status["owner"]),
        (&json!("passed"), &json!(true), &json!(OWNER))
    );
    let parameters = scene.deployment.read(|it| it.workspaces.values().next().unwrap().parameters.clone());
    assert_eq!(parameters.get("region").map(String::as_str), Some("eu"));

    // The next version: until it passed, the first one stays active.
    let first = scene.remote(&manifest).await["active_version_id"].clone();
    manifest["spec"]["source"] = source(&format!("{AGENT}\nlocals {{}}"));
    while scene.made() < 2 {
        scene.reconcile(&mut manifest).await;
        scene.clock.advance(SignedDuration::from_secs(3));
    }
    assert_eq!(scene.remote(&manifest).await["active_version_id"], first);
    scene.passes(&mut manifest).await;
    assert_ne!(scene.remote(&manifest).await["active_version_id"], first);
    assert_eq!((scene.made(), scene.versions()), (2, 2));
}

#[tokio::test]
async fn plan_shows_every_step_and_its_approval_holds_to_the_end() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    scene.passes(&mut manifest).await;
    manifest["spec"]["source"] = source("locals {}");
    let assessment = subject(&manifest).assess(&scene.coder, Door::Controller).await;
    let fields: Vec<&str> = assessment.plan.changes().map(|it| it.field.as_str()).collect();
    assert_eq!(
        fields,
        ["source", "version", "version.test.workspace", "version.test.workspace", "activeVersion"]
    );
    let target = subject(&manifest).target();
    let ids = assessment.plan.step_ids(&target);
    for _ in 0..12 {
        let assessment = subject(&manifest).assess(&scene.coder.anew(), Door::Controller).await;
        assert!(assessment.plan.is_part_of(&ids, &target), "{:#?}", assessment.plan);
        scene.reconcile(&mut manifest).await;
        scene.clock.advance(SignedDuration::from_secs(3));
    }
    scene.equal(&mut manifest).await;
    // Another test is another plan.
    manifest["spec"]["source"] = source("locals { b = 1 }");
    let one = subject(&manifest).assess(&scene.coder.anew(), Door::Controller).await.plan.hash;
    manifest["spec"]["version"]["test"]["owner"] = json!("others");
    assert_ne!(subject(&manifest).assess(&scene.coder.anew(), Door::Controller).await.plan.hash, one);
}

#[tokio::test]
async fn version_that_fails_its_test_is_archived_and_not_tested_again() {
    for (text, why) in [
        (SCRIPT_FAILS, "agent main is start_error: its startup script failed"),
        (START_FAILS, "Error: quota of the cloud is used up"),
    ] {
        let scene = Scene::tested().await;
        let mut manifest = tested(AGENT, &json!({}));
        scene.passes(&mut manifest).await;
        let active = scene.remote(&manifest).await["active_version_id"].clone();
        manifest["spec"]["source"] = source(text);
        for _ in 0..3 {
            let message = scene.fails(&mut manifest).await;
            assert!(message.contains(why) && message.contains("is not promoted"), "{message}");
        }
        assert_eq!((scene.made(), scene.archived()), (2, 1));
        assert_eq!(manifest["status"]["test"]["result"], "failed");
        assert_eq!(scene.remote(&manifest).await["active_version_id"], active);
        // The process of a command line knows only what Coder has.
        let fresh = scene.command_line("owner");
        let mut without = manifest.clone();
        without["status"] = json!({});
        let assessment = subject(&without).assess(&fresh, Door::CommandLine).await;
        assert!(assessment.plan.is_empty(), "{:#?}", assessment.plan);

        // Another test of the same version, and another version.
        manifest["spec"]["version"]["test"]["timeout"] = json!("1h");
        scene.fails(&mut manifest).await;
        assert_eq!((scene.made(), scene.versions(), scene.archived()), (3, 2, 1));
        manifest["spec"]["source"] = source("locals {}");
        scene.passes(&mut manifest).await;
        assert_eq!((scene.made(), scene.versions()), (4, 3));
    }
}

#[tokio::test]
async fn first_version_is_tested_before_the_template_is_shared() {
    let scene = Scene::tested().await;
    let mut manifest = tested(SCRIPT_FAILS, &json!({}));
    manifest["spec"]["acl"] = json!({"groups": {}, "users": {"owner": "use"}});
    let message = scene.fails(&mut manifest).await;
    assert!(message.contains("It is the active version"), "{message}");
    let id = manifest["status"]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v2/templates/{id}/acl");
    let access = scene.by_hand(Method::GET, &path, &json!(null)).await;
    assert_eq!((&access["users"], &access["group"]), (&json!([]), &json!([])));
    manifest["spec"]["source"] = source(AGENT);
    scene.passes(&mut manifest).await;
    let access = scene.by_hand(Method::GET, &path, &json!(null)).await;
    assert_eq!(access["users"].as_array().map(Vec::len), Some(1));
    assert_eq!(manifest["status"]["id"], json!(id), "the template stays");
}

#[tokio::test]
async fn workspace_that_does_not_come_up_in_time_fails() {
    let scene = Scene::tested().await;
    let mut manifest = tested(SILENT, &json!({"timeout": "10m"}));
    for _ in 0..8 {
        scene.reconcile(&mut manifest).await;
        scene.build();
    }
    assert_eq!(scene.workspaces().await.len(), 1);
    scene.clock.advance(SignedDuration::from_mins(10));
    let message = scene.fails(&mut manifest).await;
    assert!(
        message.contains("did not come up within 10m: agent main is connecting and created"),
        "{message}"
    );
}

#[tokio::test]
async fn workspace_that_no_daemon_takes_is_waited_for_and_forgotten() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    scene.blocked(&mut manifest).await;
    scene.build();
    let daemons = scene.deployment.read(|it| it.daemons.clone());
    // The version is built; then its daemon goes.
    while scene.made() == 0 {
        scene.reconcile(&mut manifest).await;
    }
    scene.deployment.edit(|it| it.daemons.clear());
    // A version that was built stays so.
    scene.deployment.edit(|it| it.versions.values_mut().for_each(|it| it.is_built = true));
    let waiting = scene.blocked(&mut manifest).await;
    assert_eq!(waiting.reason, Reason::NoProvisioner, "{}", waiting.message);
    scene.clock.advance(SignedDuration::from_mins(16));
    let message = scene.fails(&mut manifest).await;
    assert!(message.contains("no provisioner daemon"), "{message}");
    let orphans = scene
        .deployment
        .read(|it| it.workspaces.values().flat_map(|it| &it.builds).filter(|it| it.is_orphan).count());
    assert_eq!((orphans, daemons.len()), (1, 1), "what was never provisioned needs no daemon to go");
}

/// Reconciles until a workspace was made.
async fn begun(scene: &Scene, manifest: &mut Value) {
    for _ in 0..20 {
        if scene.made() > 0 {
            return;
        }
        scene.reconcile(manifest).await;
        scene.clock.advance(SignedDuration::from_secs(1));
    }
    panic!("no workspace is made");
}

#[tokio::test]
async fn workspace_of_a_crash_is_found_again() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    begun(&scene, &mut manifest).await;
    // The status was not written any more.
    manifest["status"].as_object_mut().unwrap().remove("test");
    scene.passes(&mut manifest).await;
    assert_eq!(scene.made(), 1);

    // The intent was written, and the workspace was not made.
    manifest["spec"]["source"] = source("locals {}");
    while scene.made() == 1 {
        scene.reconcile(&mut manifest).await;
        scene.clock.advance(SignedDuration::from_secs(1));
    }
    let intent = manifest["status"]["test"].clone();
    assert_eq!((&intent["result"], &intent["deleted"]), (&json!(null), &json!(null)));
    let name = intent["workspace"].as_str().unwrap();
    assert_eq!(scene.workspaces().await, [name]);
    scene.deployment.edit(|it| it.workspaces.retain(|_, it| it.name != name));
    scene.passes(&mut manifest).await;
    assert_eq!(manifest["status"]["test"]["workspace"], intent["workspace"], "the name is the same");
}

#[tokio::test]
async fn command_line_goes_on_where_an_earlier_one_ended() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    let mut ended = false;
    for _ in 0..30 {
        // Each run is a process of its own, and has no status.
        manifest["status"] = json!({});
        let coder = scene.command_line("owner");
        let mut subject = subject(&manifest);
        let assessment = subject.assess(&coder, Door::CommandLine).await;
        let report = subject.carry_out(&assessment, &coder).await;
        ended = matches!(report.outcome, Outcome::Equal);
        if ended {
            break;
        }
        scene.clock.advance(SignedDuration::from_secs(3));
    }
    assert!(ended, "it is equal in the end");
    assert_eq!((scene.made(), scene.versions(), scene.workspaces().await.len()), (1, 1, 0));
}

#[tokio::test]
async fn workspace_of_another_version_is_deleted_first() {
    let scene = Scene::tested().await;
    let mut manifest = tested(SILENT, &json!({}));
    begun(&scene, &mut manifest).await;
    scene.build();
    let before = scene.workspaces().await;
    manifest["spec"]["source"] = source(AGENT);
    let waiting = scene.blocked(&mut manifest).await;
    assert!(waiting.message.contains("of an earlier test is deleted first"), "{}", waiting.message);
    scene.passes(&mut manifest).await;
    assert_eq!((scene.made(), before.len()), (2, 1));

    // A test that is not declared any more leaves no workspace either, and neither does an observed template.
    manifest["spec"]["source"] = source(SILENT);
    while scene.made() == 2 {
        scene.reconcile(&mut manifest).await;
        scene.clock.advance(SignedDuration::from_secs(1));
    }
    scene.build();
    let spec = manifest["spec"].as_object_mut().unwrap();
    spec.remove("version");
    spec.insert("mode".to_owned(), json!("Observe"));
    for _ in 0..4 {
        scene.reconcile(&mut manifest).await;
        scene.build();
    }
    assert_eq!(scene.workspaces().await, Vec::<String>::new());
    assert_eq!(manifest["status"]["test"]["deleted"], true);
}

#[tokio::test]
async fn deletion_of_the_manifest_takes_the_workspace_back() {
    for policy in ["Retain", "Delete"] {
        let scene = Scene::tested().await;
        let mut manifest = tested(SILENT, &json!({}));
        manifest["spec"]["deletionPolicy"] = json!(policy);
        manifest["spec"]["allowDestructive"] = json!(true);
        begun(&scene, &mut manifest).await;
        scene.build();
        assert!(scene.deleted(&manifest).await > 0, "the workspace is waited for");
        assert_eq!(scene.workspaces().await, Vec::<String>::new());
        let is_there = scene.deployment.read(|it| it.templates.values().any(|it| !it.deleted));
        assert_eq!(is_there, policy == "Retain");
    }
}

#[tokio::test]
async fn workspaces_of_people_are_never_taken_for_tests() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    scene.passes(&mut manifest).await;
    let tested = scene.deployment.read(|it| it.workspaces.values().next().unwrap().name.clone());
    // The name that a person may give a workspace to examine a failed test.
    let copied = format!("{}debug", &tested[..tested.len() - 8]);
    let version = scene.remote(&manifest).await["active_version_id"].clone();
    for name in [&copied, "test-mine"] {
        let body = json!({"name": name, "template_version_id": version});
        let path = format!("/api/v2/organizations/default/members/{OWNER}/workspaces");
        scene.by_hand(Method::POST, &path, &body).await;
    }
    scene.build();
    manifest["spec"]["source"] = source("locals {}");
    let (outcome, _) = scene.until_the_end(&mut manifest).await;
    assert!(outcome.is_ready(), "{outcome:?}");
    let mut left = scene.workspaces().await;
    left.sort();
    assert_eq!(left, [copied.as_str(), "test-mine"]);
}

#[tokio::test]
async fn test_that_does_not_go_on_leaves_no_workspace() {
    for why in ["observed", "owner", "activate"] {
        let scene = Scene::tested().await;
        let mut manifest = tested(AGENT, &json!({}));
        scene.passes(&mut manifest).await;
        manifest["spec"]["source"] = source(SILENT);
        while scene.made() == 1 {
            scene.reconcile(&mut manifest).await;
            scene.clock.advance(SignedDuration::from_secs(1));
        }
        scene.build();
        match why {
            "observed" => manifest["spec"]["mode"] = json!("Observe"),
            "owner" => scene.edit_person(OWNER, |it| it.roles = vec!["auditor".to_owned()]),
            _ => manifest["spec"]["version"]["activate"] = json!(false),
        }
        for _ in 0..4 {
            scene.reconcile(&mut manifest).await;
            scene.build();
        }
        assert_eq!(scene.workspaces().await, Vec::<String>::new(), "{why}");
        assert_eq!((scene.made(), &manifest["status"]["test"]["deleted"]), (2, &json!(true)), "{why}");
    }
}

#[tokio::test]
async fn version_that_another_tool_published_is_tested_once() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    scene.passes(&mut manifest).await;
    // The active version has the same content, and neither the mark nor the status tells of its test.
    scene.deployment.edit(|it| it.versions.values_mut().for_each(|it| it.message = "by hand".to_owned()));
    manifest["status"].as_object_mut().unwrap().retain(|key, _| key == "id");
    scene.passes(&mut manifest).await;
    assert_eq!((scene.made(), scene.versions()), (2, 1));
    manifest["status"].as_object_mut().unwrap().retain(|key, _| key == "id");
    scene.passes(&mut manifest).await;
    assert_eq!(scene.made(), 2, "the mark has the result");
}

#[tokio::test]
async fn unchanged_tested_template_costs_the_command_line_two_reads() {
    let mut others = Vec::new();
    for count in [2, 4] {
        let scene = Scene::tested().await;
        let mut manifests = Vec::new();
        for number in 0..count {
            let mut manifest = tested(AGENT, &json!({}));
            manifest["metadata"]["name"] = json!(format!("template-{number}"));
            scene.passes(&mut manifest).await;
            manifest.as_object_mut().unwrap().remove("status");
            manifest["spec"]["adoptionPolicy"] = json!("Adopt");
            manifests.push(manifest);
        }
        let counting = Counting::new(scene.deployment.transport());
        let client = memory::owner(Arc::clone(&counting) as _);
        let command_line = Coder::new(client, Promises::default()).reading(Arc::clone(&scene.cluster) as _);
        let asked = round(&command_line, &counting, &manifests).await;
        let of = |path: &str| asked.iter().filter(|it| it.ends_with(path)).count();
        assert_eq!((of("/templateversions/ID"), of("/workspaces")), (count, count), "{asked:?}");
        others.push(asked.len() - 2 * count);
    }
    assert_eq!(others[0], others[1]);
}
