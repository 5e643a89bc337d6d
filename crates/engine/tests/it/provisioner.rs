//! Provisioners without Kubernetes: the reconcile of the controllers, and the comparison of the command line.

mod approval;
mod shown;

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use api::{AppState as _, CoderProvisioner, Reason};
use bytes::Bytes;
use engine::{
    Aside, Assessment, Cluster, Coder, Decision, Door, Kind as _, Object, Outcome, PlanView, Report, Trouble,
    Verdict,
    coder::{Beside, Promises},
    kinds::{
        Provisioner,
        provisioner::{reach::Unreached, unreached},
    },
    objects::Live,
    pipeline::{
        conditions::Truth,
        status::{self, StatusInput},
    },
    ports::{Answer, ClusterError, Write},
};
use http::{Method, Request};
use serde_json::{Map, Value, json};
use sim::{
    MemoryCluster,
    cluster::{ClusterCall, Interceptor},
};

use crate::{
    memory,
    support::subject,
    wire::{Fault, Wire, answer},
};

const WORKLOAD: &str = "provisioner-alpha";
const SECRET: &str = "alpha-provisioner-key";
const ACCOUNT: &str = "alpha-provisioner";

/// The reads that no watch answers: those of Secrets, and of objects that do not have our labels.
#[derive(Debug, Default)]
struct Reads(Mutex<Vec<String>>);

impl Reads {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Interceptor for Reads {
    fn before<'a>(&'a self, call: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        // These are read from the watch.
        let is_read = match call {
            ClusterCall::Get(key) => !["CoderControlPlane", "Deployment"].contains(&key.kind.as_str()),
            ClusterCall::Secret { .. } => true,
            _ => false,
        };
        if is_read {
            self.0.lock().unwrap().push(format!("{call:?}"));
        }
        Box::pin(async { Ok(()) })
    }

    fn after<'a>(&'a self, _: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// Does something before every write, and may refuse the write.
struct BeforeWrites<F>(F);

impl<F> fmt::Debug for BeforeWrites<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BeforeWrites")
    }
}

impl<F: Fn(Write<'_>) -> Result<(), ClusterError> + Send + Sync> Interceptor for BeforeWrites<F> {
    fn before<'a>(&'a self, call: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        let answer = if let ClusterCall::Write(write) = call { (self.0)(*write) } else { Ok(()) };
        Box::pin(std::future::ready(answer))
    }

    fn after<'a>(&'a self, _: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A coderd and a cluster in memory, and the manifest of a provisioner.
struct Scene {
    wire: Arc<Wire>,
    cluster: Arc<MemoryCluster>,
    reads: Arc<Reads>,
    manifest: Value,
}

impl Scene {
    fn new(spec: &Value) -> Self {
        let wire = Wire::to(memory::coder_of_version("v2.36.0", memory::licensed()));
        let reads = Arc::<Reads>::default();
        let cluster = MemoryCluster::new(Arc::new(memory::start), 1);
        let cluster = Arc::new(cluster.intercepted_by(Arc::clone(&reads) as _));
        let external = json!({"url": "https://coder.test", "credentialsSecretRef": {"name": "token"}});
        cluster.set(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main", "namespace": "platform"}, "spec": {"external": external}}));
        let mut whole = json!({"controlPlaneRef": {"name": "main"}, "replicas": 2,
            "extraEnv": [{"name": "TF_TOKEN", "value": "hunter2"}]});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": "alpha", "namespace": "platform", "generation": 1}, "spec": whole});
        Self { wire, cluster, reads, manifest }
    }

    /// The same with something that is done before every write.
    fn before_writes(
        &self,
        before: impl Fn(Write<'_>) -> Result<(), ClusterError> + Send + Sync + 'static,
    ) -> Self {
        let cluster = self.cluster.intercepted_by(Arc::new(BeforeWrites(before)));
        let (wire, reads, manifest) =
            (Arc::clone(&self.wire), Arc::clone(&self.reads), self.manifest.clone());
        Self { wire, cluster: Arc::new(cluster), reads, manifest }
    }

    /// The same with a deployment that answers some requests otherwise.
    fn answering(&self, faults: impl Fn(&Request<Bytes>) -> Option<Fault> + Send + Sync + 'static) -> Self {
        let wire = Wire::failing(self.wire.deployment.clone(), faults);
        let (cluster, reads) = (Arc::clone(&self.cluster), Arc::clone(&self.reads));
        Self { wire, cluster, reads, manifest: self.manifest.clone() }
    }

    fn beside(&self) -> Beside {
        Beside {
            cluster: Arc::clone(&self.cluster) as _,
            references: Arc::clone(&self.cluster) as _,
            memory: Arc::default(),
            writes_status: true,
            fingerprints: None,
            allowed_rules: None,
            tokens: Arc::default(),
        }
    }

    fn coder(&self) -> Coder {
        Coder::new(self.wire.client(), Promises::default()).beside(self.beside())
    }

    /// The deployment as a command sees it.
    fn command(&self) -> Coder {
        let beside = Beside { writes_status: false, ..self.beside() };
        Coder::new(self.wire.client(), Promises::default()).beside(beside)
    }

    /// The provisioner as the cluster has it.
    fn stored(&self) -> Value {
        if self.cluster.find("CoderProvisioner", "alpha").is_none() {
            self.cluster.set(&self.manifest);
        }
        self.cluster.find("CoderProvisioner", "alpha").unwrap()
    }

    /// One reconcile as the controllers make it, with its status written.
    async fn reconcile(&self) -> Done {
        Box::pin(self.try_reconcile()).await.unwrap()
    }

    async fn try_reconcile(&self) -> Result<Done, ClusterError> {
        self.stored();
        let coder = self.coder();
        let mut object = Object::<Provisioner>::new(self.read());
        let mut done = Box::pin(self.round(&mut object, &coder)).await;
        while done.report.done > 0 || done.report.retry.is_some() {
            let was_applied = matches!(done.assessment.verdict, Verdict::Decided(Decision::Apply));
            object.put_off(done.report.retry.is_some(), was_applied);
            if has_failed(&done.report.outcome) {
                done.assessment = Box::pin(object.assess(&coder, Door::Controller)).await;
                break;
            }
            let before = (done.is_changed, done.report.retry);
            done = Box::pin(self.round(&mut object, &coder)).await;
            let is_last = done.report.done == 0;
            (done.is_changed, done.report.retry) =
                (done.is_changed || before.0, done.report.retry.or(before.1));
            if is_last {
                break;
            }
        }
        self.conclude(&object, &done).await?;
        Ok(done)
    }

    /// Compares, writes what has to stand in the status, and does what is decided.
    async fn round(&self, object: &mut Object<Provisioner>, coder: &Coder) -> Done {
        let assessment = Box::pin(object.assess(coder, Door::Controller)).await;
        if matches!(assessment.verdict, Verdict::Decided(Decision::Apply)) {
            let mut fields = object.intents();
            fields.extend(object.approval().map(|it| ("approved".to_owned(), json!(it))));
            self.merge(&fields);
            object.manifest = self.read();
        }
        let report = object.carry_out(&assessment, coder).await;
        if report.done > 0 {
            object.manifest = self.read();
        }
        Done { is_changed: report.done > 0, assessment, report }
    }

    async fn conclude(&self, object: &Object<Provisioner>, done: &Done) -> Result<(), ClusterError> {
        let Done { assessment, report, .. } = done;
        let aside = object.conclude(Some(assessment.aside.clone()), report);
        if let Outcome::Failed(Trouble::Cluster(error)) = &report.outcome {
            self.merge(&aside.status);
            return Err(error.clone());
        }
        let next = status::next(
            object.manifest.status(),
            &StatusInput {
                generation: object.manifest.metadata.generation,
                contact: assessment.contact,
                plan: &assessment.plan,
                target: &Provisioner::target(&object.manifest),
                outcome: &report.outcome,
                unsupported: None,
                attributions: &[],
                own_changes: &[],
                facts: &aside.facts,
                stalls: false,
                ready: aside.ready.as_deref(),
                id: None,
                deployment: None,
                changed: done.is_changed,
                requested: None,
                now: self.cluster.now(),
            },
        );
        let mut fields = aside.status;
        let is_same = object.manifest.status() == Some(&next);
        if fields.is_empty() && is_same {
            return Ok(());
        }
        fields.extend(aside.along);
        let mut whole = serde_json::to_value(&object.manifest).unwrap();
        whole["status"]
            .as_object_mut()
            .into_iter()
            .for_each(|it| it.retain(|field, _| !COMMON.contains(&field.as_str())));
        let common = serde_json::to_value(next).unwrap();
        fields.extend(common.as_object().unwrap().clone());
        for (field, value) in fields {
            whole["status"][field] = value;
        }
        whole["status"].as_object_mut().unwrap().retain(|_, it| !it.is_null());
        let written: CoderProvisioner = serde_json::from_value(whole).unwrap();
        let cluster: &dyn Cluster = &*self.cluster;
        cluster.put_status(&written).await.map(drop)
    }

    fn read(&self) -> CoderProvisioner {
        serde_json::from_value(self.stored()).unwrap()
    }

    /// Merges fields into the status of the provisioner.
    fn merge(&self, fields: &Map<String, Value>) {
        if !fields.is_empty() {
            self.cluster.edit("CoderProvisioner", "alpha", |it| {
                for (field, value) in fields {
                    it["status"][field] = value.clone();
                }
                it["status"].as_object_mut().unwrap().retain(|_, it| !it.is_null());
            });
        }
    }

    /// What the command line shows of the manifest. Nothing is written by it.
    async fn assess(&self, coder: &Coder) -> Assessment {
        let mut subject = subject(&self.manifest);
        let stored = self.cluster.find("CoderProvisioner", "alpha").and_then(Live::new);
        subject.settle_in("platform", stored.as_ref());
        let before = (self.wire.writes().len(), self.cluster.writes());
        let assessment = subject.assess(coder, Door::CommandLine).await;
        assert_eq!((self.wire.writes().len(), self.cluster.writes()), before, "it only reads");
        assessment
    }

    /// The reason and the message for which an assessment stopped.
    async fn stopped(&self, coder: &Coder) -> (Reason, String) {
        match self.assess(coder).await.verdict {
            Verdict::Stopped(Outcome::Blocked(blocked)) => (blocked.reason, blocked.message),
            other => panic!("{other:?}"),
        }
    }
}

/// The fields of a status that every kind has.
const COMMON: [&str; 4] = ["plan", "approved", "drift", "creating"];

/// What became of a reconcile.
#[derive(Debug)]
struct Done {
    assessment: Assessment,
    report: Report,
    is_changed: bool,
}

impl Done {
    fn reason(&self) -> Reason {
        self.report.outcome.reason()
    }

    /// The plan that waits for a person.
    fn held_back(&self) -> Option<&PlanView> {
        matches!(self.report.outcome, Outcome::Refused(_)).then_some(&self.assessment.plan)
    }
}

fn has_failed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Failed(_) => true,
        Outcome::Blocked(blocked) => blocked.reason != Reason::Progressing,
        _ => false,
    }
}

fn decision(assessment: &Assessment) -> Decision {
    match &assessment.verdict {
        Verdict::Decided(decision) => *decision,
        Verdict::Stopped(outcome) => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn reconcile_creates_key_and_objects_and_the_second_one_writes_nothing() {
    let scene = Scene::new(&json!({}));
    let first = scene.reconcile().await;
    assert!(first.is_changed && first.report.retry.is_none(), "{first:?}");
    let secret = scene.cluster.find("Secret", SECRET).unwrap();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["name"], "alpha");
    let deployment = scene.cluster.find("Deployment", WORKLOAD).unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    let stored = scene.stored();
    assert_eq!(stored["status"]["provisionerKeyName"], "alpha");
    assert_eq!(first.reason(), Reason::NoReplicasReady, "no pod runs here");
    let before = (scene.wire.writes().len(), scene.cluster.writes());
    let second = scene.reconcile().await;
    assert!(!second.is_changed, "{second:?}");
    assert_eq!((scene.wire.writes().len(), scene.cluster.writes()), before);
}

#[tokio::test]
async fn creation_reads_its_secret_alone_and_a_restart_reads_nothing_that_has_not_changed() {
    let scene = Scene::new(&json!({}));
    scene.stored();
    scene.reconcile().await;
    let reads = scene.reads.take();
    assert!(reads.len() == 1 && reads[0].contains(SECRET), "{reads:?}");

    // Every reconcile here begins with an empty memory, as after a restart.
    let restarted = scene.reconcile().await;
    assert_eq!(restarted.reason(), Reason::NoReplicasReady, "{restarted:?}");
    assert_eq!(scene.reads.take(), [""; 0]);

    let another = json!("YW5vdGhlcg==");
    scene.cluster.edit("Secret", SECRET, |it| it["data"]["key"] = another.clone());
    scene.reconcile().await;
    assert_ne!(
        scene.cluster.find("Secret", SECRET).unwrap()["data"]["key"],
        another,
        "a value that Coder does not know"
    );
    assert!(scene.reads.take().iter().any(|it| it.contains(SECRET)));
}

#[tokio::test]
async fn daemons_connect_to_the_deployment_that_was_asked_whatever_is_declared_by_now() {
    let scene = Scene::new(&json!({}));
    scene.cluster.edit("CoderControlPlane", "main", |it| {
        it["spec"]["external"]["url"] = json!("https://another.test");
    });
    scene.reconcile().await;
    let deployment = scene.cluster.find("Deployment", WORKLOAD).unwrap().to_string();
    assert!(
        deployment.contains("https://coder.test") && !deployment.contains("another.test"),
        "{deployment}"
    );
}

#[tokio::test]
async fn control_plane_that_is_missing_is_reported() {
    let scene = Scene::new(&json!({}));
    let message = "there is no control plane main in this namespace: create it".to_owned();
    let blocked = engine::Blocked { reason: Reason::ControlPlaneUnavailable, message };
    let gone = || Unreached::ControlPlane(blocked.clone());
    let (aside, outcome) = unreached(&scene.read(), gone(), &*scene.cluster).await.unwrap();
    assert_eq!(outcome.reason(), Reason::ControlPlaneUnavailable);
    let truth = |aside: &Aside, condition: &str| {
        aside.facts.iter().find(|it| it.condition == condition).unwrap().truth
    };
    assert_eq!(truth(&aside, api::condition::CONTROL_PLANE_READY), Truth::False);
    for condition in [api::condition::PROVISIONER_KEY, api::condition::DEPLOYMENT] {
        assert_eq!(truth(&aside, condition), Truth::Unknown);
    }
    assert!(!aside.status.contains_key("replicas"));

    // The pods are there all the same, and their state is reported.
    scene.reconcile().await;
    scene.cluster.edit("Deployment", WORKLOAD, |it| {
        it["status"] = json!({"observedGeneration": it["metadata"]["generation"], "replicas": 2, "readyReplicas": 0});
    });
    let (aside, _) = unreached(&scene.read(), gone(), &*scene.cluster).await.unwrap();
    assert_eq!(truth(&aside, api::condition::DEPLOYMENT), Truth::False);
    assert_eq!(aside.status["replicas"], 2);
}

#[tokio::test]
async fn provisioner_whose_first_key_is_refused_has_not_drifted() {
    let scene = Scene::new(&json!({}));
    let scene = scene.answering(refused(Method::POST, "/provisionerkeys"));
    for _ in 0..2 {
        let done = scene.reconcile().await;
        assert!(!done.assessment.plan.is_empty(), "{done:?}");
        assert_eq!(says(&scene, "Drifted"), "False");
    }
}

#[tokio::test]
async fn accepted_deployment_is_used_before_the_status_of_its_control_plane_is_written() {
    let scene = Scene::new(&json!({}));
    scene.cluster.edit("CoderControlPlane", "main", |it| {
        it["status"]["deploymentID"] = json!("00000000-0000-0000-0000-000000000009");
    });
    let done = scene.reconcile().await;
    assert_ne!(done.reason(), Reason::DeploymentChanged, "{done:?}");
    assert!(scene.cluster.find("Deployment", WORKLOAD).is_some());
}

#[tokio::test]
async fn account_of_another_gets_no_rights_and_no_pods_and_is_left_alone() {
    let scene = Scene::new(&json!({}));
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": "platform"}, "secrets": [{"name": "theirs"}]});
    scene.cluster.set(&account);
    let theirs = scene.cluster.find("ServiceAccount", ACCOUNT);
    let first = scene.reconcile().await;
    assert_eq!(first.reason(), Reason::NotOurs, "{first:?}");
    assert_eq!(scene.cluster.find("ServiceAccount", ACCOUNT), theirs);
    for kind in ["RoleBinding", "Deployment"] {
        assert_eq!(scene.cluster.all(kind), [Value::Null; 0], "{kind}");
    }
    let objects = ["Role", "Secret"].map(|it| scene.cluster.all(it));
    let second = scene.reconcile().await;
    assert_eq!(second.reason(), Reason::NotOurs);
    assert_eq!(["Role", "Secret"].map(|it| scene.cluster.all(it)), objects);
    let before = scene.cluster.writes();
    assert_eq!(scene.reconcile().await.reason(), Reason::NotOurs);
    assert_eq!(scene.cluster.writes(), before, "what was found is looked at before anything is written");
}

#[tokio::test]
async fn account_of_another_gets_no_pods_where_a_policy_refuses_its_change() {
    let scene = Scene::new(&json!({}));
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": "platform"}});
    scene.cluster.set(&account);
    scene.cluster.refuse_writes(Some(|it| it["kind"] == "ServiceAccount"));
    for _ in 0..2 {
        let done = scene.reconcile().await;
        assert_eq!(done.reason(), Reason::NotOurs, "{done:?}");
        for kind in ["RoleBinding", "Deployment"] {
            assert_eq!(scene.cluster.all(kind), [Value::Null; 0], "{kind}");
        }
    }
}

#[tokio::test]
async fn own_object_that_lost_its_labels_gets_them_back() {
    let scene = Scene::new(&json!({}));
    scene.reconcile().await;
    let ours = scene.cluster.find("Role", WORKLOAD).unwrap();
    scene.cluster.edit("Role", WORKLOAD, |it| it["metadata"]["labels"] = json!({}));
    let done = scene.reconcile().await;
    assert!(done.is_changed && done.report.retry.is_none(), "{done:?}");
    let healed = scene.cluster.find("Role", WORKLOAD).unwrap();
    assert_eq!(healed["metadata"]["labels"], ours["metadata"]["labels"]);
    assert_eq!(healed["metadata"]["uid"], ours["metadata"]["uid"]);
}

#[tokio::test]
async fn object_that_another_creates_while_the_key_takes_its_time_is_left_alone() {
    let scene = Scene::new(&json!({}));
    let others = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": WORKLOAD, "namespace": "platform"}, "spec": {"replicas": 9}});
    let (cluster, deployment) = (Arc::clone(&scene.cluster), others.clone());
    let slow = scene.before_writes(move |write| {
        if let Write::Create(it) = write
            && it["kind"] == "Secret"
        {
            cluster.set(&deployment);
        }
        Ok(())
    });
    let done = slow.reconcile().await;
    assert_eq!(done.reason(), Reason::NotOurs, "{done:?}");
    let found = scene.cluster.find("Deployment", WORKLOAD).unwrap();
    assert_eq!(found["spec"], others["spec"]);
    assert!(found["metadata"]["ownerReferences"].is_null(), "{found}");
}

/// Refuses requests of a method that end like this.
fn refused(
    method: Method,
    end: &'static str,
) -> impl Fn(&Request<Bytes>) -> Option<Fault> + Send + Sync + 'static {
    move |request| {
        let is_it = *request.method() == method && request.uri().path().contains(end);
        is_it.then(|| Fault::Instead(Ok(answer(403, &json!({"message": "Forbidden"})))))
    }
}

/// What a condition says in the stored status.
fn says(scene: &Scene, condition: &str) -> String {
    let stored = scene.stored();
    let conditions = stored["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|it| it["type"] == condition).unwrap();
    found["status"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn key_that_may_not_be_minted_leaves_no_condition_true_that_needs_it() {
    let scene = Scene::new(&json!({}));
    let forbidden = scene.answering(refused(Method::POST, "/provisionerkeys"));
    for _ in 0..3 {
        let done = forbidden.reconcile().await;
        assert_eq!(done.reason(), Reason::Forbidden, "{done:?}");
        let condition = |it: &str| says(&scene, it);
        assert_eq!(condition(api::condition::PROVISIONER_KEY), "False");
        for unknown in [api::condition::PROVISIONER_KEY_SECRET, api::condition::DEPLOYMENT] {
            assert_eq!(condition(unknown), "Unknown", "{unknown}");
        }
    }
    let done = scene.reconcile().await;
    assert_eq!(done.reason(), Reason::NoReplicasReady, "{done:?}");
    assert_eq!(scene.stored()["status"]["provisionerKeyName"], "alpha");
}

#[tokio::test]
async fn key_that_cannot_be_revoked_is_tried_again_and_holds_up_nothing() {
    let scene = Scene::new(&json!({"replicas": 0}));
    scene.reconcile().await;
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["metadata"]["annotations"] = json!({api::annotation::ROTATE_REQUESTED_AT: "now"});
    });
    let rotated = scene.reconcile().await;
    let retiring = || scene.stored()["status"]["retiringKeys"].clone();
    assert_eq!(retiring()[0]["name"], "alpha", "{rotated:?}");
    let applied = scene.stored()["status"]["lastAppliedTime"].clone();
    let forbidden = scene.answering(refused(Method::DELETE, "/provisionerkeys"));
    for _ in 0..2 {
        let again = forbidden.reconcile().await;
        assert!(!again.is_changed && again.report.retry.is_some(), "{again:?}");
        assert_eq!(again.reason(), rotated.reason(), "{again:?}");
        assert_eq!(scene.stored()["status"]["lastAppliedTime"], applied);
    }

    let done = scene.reconcile().await;
    assert!(done.report.retry.is_none() && retiring().is_null(), "{done:?}");
}
