//! Who made drift, at a deployment in memory: by its audit log, which is read once for everything that drifted.

use std::sync::Arc;

use engine::{Assessment, Door};
use http::Request;
use jiff::SignedDuration;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use sim::state::State;

use crate::{
    memory,
    support::{holding, subject},
    wire::Wire,
};

/// A deployment that people change.
#[derive(Debug)]
struct Scene(Arc<Wire>);

impl Scene {
    fn with(state: State) -> Self {
        Self(Wire::new(state))
    }

    /// A manifest that is applied, as a controller keeps it.
    async fn applied(&self, manifest: &Value) -> Value {
        let coder = self.0.coder();
        let mut subject = subject(manifest);
        let assessment = subject.assess(&coder, Door::Controller).await;
        let report = subject.carry_out(&assessment, &coder).await;
        let mut held = holding(manifest, report.id.unwrap());
        held["metadata"]["generation"] = json!(1);
        held["status"]["observedGeneration"] = json!(1);
        held
    }

    /// What a person does in a browser.
    async fn by_hand(&self, username: &str, method: &str, path: &str, body: &Value) -> Value {
        let token = self.0.deployment.sign_in(username, SignedDuration::from_hours(1)).unwrap();
        let request = Request::builder().method(method).uri(format!("https://coder.test{path}"));
        let request = request.header("coder-session-token", token.expose_secret());
        let request = request.header("user-agent", "Mozilla/5.0").body(body.to_string().into()).unwrap();
        let answer = self.0.deployment.transport().send(request).await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        serde_json::from_slice(answer.body()).unwrap_or_default()
    }

    /// Makes alice, who may change groups.
    async fn with_alice(&self) {
        let alice = json!({"username": "alice", "email": "alice@coder.test", "password": "Some-password-31!",
            "user_status": "active", "roles": ["user-admin"], "organization_ids": [uuid::Uuid::nil()]});
        self.by_hand("owner", "POST", "/api/v2/users", &alice).await;
    }
}

fn group(name: &str) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup",
        "metadata": {"name": name, "namespace": "platform"},
        "spec": {"controlPlaneRef": {"name": "main"}, "quotaAllowance": 20, "displayName": "Team"}})
}

fn who(assessment: &Assessment) -> Vec<(String, String)> {
    assessment.attributions.iter().map(|it| (it.field.clone(), it.by.clone())).collect()
}

fn log_reads(asked: &[String]) -> usize {
    asked.iter().filter(|it| *it == "GET /api/v2/audit").count()
}

#[tokio::test]
async fn one_read_of_the_log_serves_everything_that_drifted() {
    let mut costs = Vec::new();
    for count in [5, 10] {
        let scene = Scene::with(memory::licensed());
        scene.with_alice().await;
        let mut groups = Vec::new();
        for number in 0..count {
            groups.push(scene.applied(&group(&format!("team-{number}"))).await);
        }
        // Equal objects need no log.
        scene.0.asked();
        let coder = scene.0.coder();
        for held in &groups {
            let assessment = subject(held).assess(&coder, Door::Controller).await;
            assert_eq!(who(&assessment), []);
        }
        assert_eq!(log_reads(&scene.0.asked()), 0);

        for held in &groups {
            let path = format!("/api/v2/groups/{}", held["status"]["id"].as_str().unwrap());
            scene.by_hand("alice", "PATCH", &path, &json!({"name": "", "quota_allowance": 3})).await;
        }
        let coder = scene.0.coder();
        for held in &groups {
            let assessment = subject(held).assess(&coder, Door::Controller).await;
            assert_eq!(who(&assessment), [("quotaAllowance".to_owned(), "alice".to_owned())]);
            assert_eq!(assessment.attributions[0].at, Some(memory::start()));
        }
        let asked = scene.0.asked();
        assert_eq!(log_reads(&asked), 1, "{asked:?}");
        costs.push(asked.len());

        // A status that names alice is enough, and so is a manifest that has changed.
        let coder = scene.0.coder();
        let mut known = groups[0].clone();
        known["status"]["drift"] = json!([{"field": "quotaAllowance", "expected": "20", "found": "3",
            "changedBy": "alice", "changedAt": "2026-11-17T12:04:33Z"}]);
        let assessment = subject(&known).assess(&coder, Door::Controller).await;
        assert_eq!(who(&assessment), [("quotaAllowance".to_owned(), "alice".to_owned())]);
        let mut edited = groups[0].clone();
        edited["metadata"]["generation"] = json!(2);
        let assessment = subject(&edited).assess(&coder, Door::Controller).await;
        assert_eq!(who(&assessment), []);
        assert_eq!(log_reads(&scene.0.asked()), 0);
    }
    assert_eq!(costs[0], costs[1]);
}

#[tokio::test]
async fn own_writes_are_not_attributed() {
    let scene = Scene::with(memory::licensed());
    scene.with_alice().await;
    let held = scene.applied(&group("team")).await;
    let path = format!("/api/v2/groups/{}", held["status"]["id"].as_str().unwrap());
    scene.by_hand("alice", "PATCH", &path, &json!({"name": "", "quota_allowance": 3})).await;
    let mut edited = held.clone();
    edited["spec"]["quotaAllowance"] = json!(30);
    scene.applied(&edited).await;
    // The command line has no status: the log says that this program wrote last, so the manifest is what differs.
    let mut file = held.clone();
    file["spec"]["adoptionPolicy"] = json!("Adopt");
    file.as_object_mut().unwrap().remove("status");
    let assessment = subject(&file).assess(&scene.0.coder(), Door::CommandLine).await;
    assert!(!assessment.plan.steps.is_empty());
    assert_eq!(who(&assessment), []);
    // The same account by hand is a person.
    scene.by_hand("owner", "PATCH", &path, &json!({"name": "", "display_name": "Mine"})).await;
    let assessment = subject(&file).assess(&scene.0.coder(), Door::CommandLine).await;
    assert_eq!(who(&assessment), [("displayName".to_owned(), "owner".to_owned())]);
}

#[tokio::test]
async fn unlogged_drift_is_by_unknown_without_a_request() {
    let scene = Scene::with(memory::licensed());
    let appearance = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderAppearance",
        "metadata": {"name": "appearance", "namespace": "platform"},
        "spec": {"controlPlaneRef": {"name": "main"}, "applicationName": "Mission Cloud"}});
    let held = scene.applied(&appearance).await;
    let by_hand = json!({"application_name": "by hand", "announcement_banners": []});
    scene.by_hand("owner", "PUT", "/api/v2/appearance", &by_hand).await;
    scene.0.asked();
    let assessment = subject(&held).assess(&scene.0.coder(), Door::Controller).await;
    assert_eq!(who(&assessment), [("applicationName".to_owned(), "unknown".to_owned())]);
    assert_eq!(log_reads(&scene.0.asked()), 0);
}

#[tokio::test]
async fn without_the_entitlement_the_log_is_not_asked() {
    let mut state = memory::licensed();
    state.entitlements.features.remove("audit_log").unwrap();
    let owner = state.users.values().next().unwrap().clone();
    let robin = sim::state::User {
        id: uuid::Uuid::from_u128(7),
        username: "robin".to_owned(),
        email: "robin@coder.test".to_owned(),
        roles: vec!["auditor".to_owned()],
        ..owner
    };
    let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderUser",
        "metadata": {"name": "robin", "namespace": "platform", "generation": 1},
        "spec": {"controlPlaneRef": {"name": "main"}, "email": "robin@coder.test", "roles": []},
        "status": {"id": robin.id, "observedGeneration": 1}});
    state.users.insert(robin.id, robin);
    let scene = Scene::with(state);
    let assessment = subject(&manifest).assess(&scene.0.coder(), Door::Controller).await;
    assert_eq!(who(&assessment), [("roles".to_owned(), "unknown".to_owned())]);
    assert_eq!(log_reads(&scene.0.asked()), 0);
}
