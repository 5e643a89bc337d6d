//! Templates at a deployment in memory: publish, build, promote, and everything that may come between.

mod access;
mod archives;
mod counts;
mod drift;
mod exported;
mod life;
mod testing;
mod trouble;
mod values;

use std::sync::Arc;

use engine::{
    Blocked, Coder, Door, Outcome, Report,
    coder::{Beside, Promises},
};
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};
use sim::{ManualClock, MemoryCluster};

use crate::{
    memory,
    support::{secret, subject},
};

/// The value of a variable, which nothing may repeat.
const SECRET: &str = "registry-0123456789-abcdefghij";
const CHANGED: &str = "registry-9876543210-klmnopqrst";

/// A deployment and a cluster in memory, as a controller has them.
struct Scene {
    deployment: sim::Coder,
    cluster: Arc<MemoryCluster>,
    clock: ManualClock,
    coder: Coder,
}

impl Scene {
    /// With a licence and a daemon without tags.
    async fn new() -> Self {
        let scene = Self::with(memory::licensed());
        scene.connect(&json!({})).await;
        scene
    }

    fn with(state: sim::state::State) -> Self {
        let clock = ManualClock::new(memory::start());
        let cluster = Arc::new(MemoryCluster::new(clock.clock(), 1));
        cluster.set(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "spec": {"external": {"url": "https://coder.test", "credentialsSecretRef": {"name": "token"}}},
            "metadata": {"name": "main", "namespace": "platform", "uid": "u"}}));
        let deployment = memory::coder(clock.clock(), state);
        cluster.set(&secret("registry", &json!({"token": SECRET})));
        let coder = Coder::new(memory::owner(deployment.transport()), Promises::default());
        let mut scene = Self { deployment, cluster, clock, coder };
        scene.coder = scene.controller();
        scene
    }

    /// The deployment as a controller has it that was just started.
    fn controller(&self) -> Coder {
        let client = memory::owner(self.deployment.transport());
        Coder::new(client, Promises::default()).beside(Beside {
            cluster: Arc::clone(&self.cluster) as _,
            references: Arc::clone(&self.cluster) as _,
            memory: Arc::default(),
            writes_status: true,
            fingerprints: Some(Arc::default()),
            allowed_rules: None,
            tokens: Arc::default(),
        })
    }

    /// The deployment as the command line has it for an account.
    fn command_line(&self, username: &str) -> Coder {
        let token = self.deployment.sign_in(username, SignedDuration::from_hours(1)).unwrap();
        let client = memory::owner(self.deployment.transport()).with_token(token).unwrap();
        Coder::new(client, Promises::default()).beside(Beside {
            cluster: Arc::clone(&self.cluster) as _,
            references: Arc::clone(&self.cluster) as _,
            memory: Arc::default(),
            writes_status: false,
            fingerprints: None,
            allowed_rules: None,
            tokens: Arc::default(),
        })
    }

    /// Makes an account in the default organization.
    async fn person(&self, username: &str) -> Value {
        let email = format!("{username}@coder.test");
        let body = json!({"username": username, "email": email, "password": "Some-password-31!",
            "user_status": "active", "organization_ids": [uuid::Uuid::nil()]});
        self.by_hand(Method::POST, "/api/v2/users", &body).await["id"].clone()
    }

    fn edit_person(&self, username: &str, change: impl Fn(&mut sim::state::User)) {
        let is_it = |it: &&mut sim::state::User| it.username == username;
        self.deployment.edit(|it| it.users.values_mut().filter(is_it).for_each(change));
    }

    /// Connects a daemon with these tags.
    async fn connect(&self, tags: &Value) {
        let name = format!("key-{}", self.deployment.read(|it| it.provisioner_keys.len()));
        let path = "/api/v2/organizations/default/provisionerkeys";
        let key = self.by_hand(Method::POST, path, &json!({"name": name, "tags": tags})).await;
        self.deployment.connect_daemon(key["key"].as_str().unwrap(), &name, "v2.36.1").unwrap();
    }

    /// Lets every build end.
    fn build(&self) {
        self.clock.advance(SignedDuration::from_secs(10));
    }

    /// One reconcile; the manifest gets the status that a controller would write, and none of that shows a value.
    async fn reconcile(&self, manifest: &mut Value) -> Report {
        let coder = self.coder.anew();
        let mut subject = subject(manifest);
        let assessment = subject.assess(&coder, Door::Controller).await;
        let report = subject.carry_out(&assessment, &coder).await;
        let mut status = manifest["status"].as_object().cloned().unwrap_or_default();
        status.extend(assessment.aside.status.clone());
        status.extend(report.recorded.clone());
        status.retain(|_, it| !it.is_null());
        if let Some(id) = report.id {
            status.insert("id".to_owned(), json!(id));
        }
        manifest["status"] = status.into();
        let told = format!("{assessment:?} {report:?} {manifest}");
        for value in [SECRET, CHANGED] {
            assert!(!told.contains(value), "{told}");
        }
        report
    }

    async fn blocked(&self, manifest: &mut Value) -> Blocked {
        match self.reconcile(manifest).await.outcome {
            Outcome::Blocked(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    async fn applied(&self, manifest: &mut Value) {
        let report = self.reconcile(manifest).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
        self.equal(manifest).await;
    }

    async fn equal(&self, manifest: &mut Value) {
        let before = self.deployment.state().audit_log.len();
        let report = self.reconcile(manifest).await;
        assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
        assert_eq!(self.deployment.state().audit_log.len(), before, "what is equal is not written");
    }

    /// Publishes, builds and promotes.
    async fn published(&self, manifest: &mut Value) {
        let waiting = self.blocked(manifest).await;
        assert_eq!(waiting.reason, api::Reason::VersionBuilding, "{}", waiting.message);
        self.build();
        self.applied(manifest).await;
    }

    /// A person's request.
    async fn by_hand(&self, method: Method, path: &str, body: &Value) -> Value {
        self.send(method, path, "application/json", serde_json::to_vec(body).unwrap()).await
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Value {
        let request = http::Request::builder().method(method).uri(format!("https://coder.test{path}"));
        let request =
            request.header("coder-session-token", memory::owner_token()).header("content-type", kind);
        let answer = self.deployment.transport().send(request.body(body.into()).unwrap()).await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        serde_json::from_slice(answer.body()).unwrap_or_default()
    }

    /// Pushes a version as a person does, and returns its id once it is built.
    async fn push(&self, template: &Value, name: &str) -> Value {
        let file = self.send(Method::POST, "/api/v2/files", "application/x-tar", name.into()).await;
        let body = json!({"name": name, "template_id": template, "storage_method": "file",
            "file_id": file["hash"], "provisioner": "terraform", "tags": {}});
        let version =
            self.by_hand(Method::POST, "/api/v2/organizations/default/templateversions", &body).await;
        self.build();
        version["id"].clone()
    }

    /// The template of the suite, as Coder shows it.
    async fn remote(&self, manifest: &Value) -> Value {
        let path = format!("/api/v2/templates/{}", manifest["status"]["id"].as_str().unwrap());
        self.by_hand(Method::GET, &path, &json!(null)).await
    }

    fn versions(&self) -> usize {
        self.deployment.read(|it| it.versions.len())
    }
}

/// A template in the default organization.
fn template(more: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate",
        "metadata": {"name": "kubernetes", "namespace": "platform"}, "spec": {"controlPlaneRef": {"name": "main"},
        "source": {"files": {"main.tf": "resource \"terraform_data\" \"one\" {}"}}}});
    manifest["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    manifest
}

/// Variables of which one comes from a Secret.
fn variables() -> Value {
    let from = json!({"secretKeyRef": {"name": "registry", "key": "token"}});
    json!([{"name": "registry_token", "valueFrom": from}, {"name": "region", "value": "eu"}])
}

fn source(text: &str) -> Value {
    json!({"files": {"main.tf": text}})
}
