//! Provisioners without Kubernetes: the reconcile of the controllers, and the comparison of the command line.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use api::{CoderProvisioner, Reason};
use engine::{
    Action, Assessment, Coder, Decision, Door, Outcome, Trouble, Verdict,
    coder::{Beside, Promises},
    kinds::provisioner::{
        reach::{Reached, Unreached},
        reconcile::{Reconciled, reconcile, write_status},
        status,
    },
    objects::{Key, Live},
    ports::{Answer, ClusterError, Write},
    secrets::{Retiring, Revoked},
};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use sim::{
    MemoryCluster,
    cluster::{ClusterCall, Interceptor},
};

use crate::{
    sheet::{DEPLOYMENT, Sheet},
    support::{self, subject},
};

const HOME: &str = "00000000-0000-4000-8000-0000000000a0";
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
        // The Deployment is read from the watch.
        let is_read = match call {
            ClusterCall::Get(key) => key.kind != "Deployment",
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
    sheet: Arc<Sheet>,
    cluster: Arc<MemoryCluster>,
    reads: Arc<Reads>,
    manifest: Value,
}

impl Scene {
    fn new(spec: &Value) -> Self {
        let home = json!([{"id": HOME, "name": "coder", "display_name": "Coder", "is_default": true}]);
        let sheet = Sheet::new(&json!({"organizations": home}));
        let reads = Arc::<Reads>::default();
        let cluster = Arc::new(support::cluster().intercepted_by(Arc::clone(&reads) as _));
        let external = json!({"url": "https://coder.test", "credentialsSecretRef": {"name": "token"}});
        cluster.set(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main", "namespace": "platform"}, "spec": {"external": external}}));
        let mut whole = json!({"controlPlaneRef": {"name": "main"}, "replicas": 2,
            "extraEnv": [{"name": "TF_TOKEN", "value": "hunter2"}]});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": "alpha", "namespace": "platform", "generation": 1}, "spec": whole});
        Self { sheet, cluster, reads, manifest }
    }

    /// The same with something that is done before every write.
    fn before_writes(
        &self,
        before: impl Fn(Write<'_>) -> Result<(), ClusterError> + Send + Sync + 'static,
    ) -> Self {
        let cluster = self.cluster.intercepted_by(Arc::new(BeforeWrites(before)));
        let (sheet, reads, manifest) =
            (Arc::clone(&self.sheet), Arc::clone(&self.reads), self.manifest.clone());
        Self { sheet, cluster: Arc::new(cluster), reads, manifest }
    }

    fn beside(&self) -> Beside {
        Beside {
            cluster: Arc::clone(&self.cluster) as _,
            references: Arc::clone(&self.cluster) as _,
            memory: Arc::default(),
            writes_status: true,
            fingerprints: None,
        }
    }

    fn coder(&self) -> Coder {
        Coder::new(self.sheet.client(), Promises::default()).beside(self.beside())
    }

    /// The provisioner as the cluster has it.
    fn stored(&self) -> Value {
        if self.cluster.find("CoderProvisioner", "alpha").is_none() {
            self.cluster.set(&self.manifest);
        }
        self.cluster.find("CoderProvisioner", "alpha").unwrap()
    }

    /// One reconcile of the controllers, with its status written.
    async fn reconcile(&self, reached: Result<Reached, Unreached>) -> Reconciled {
        Box::pin(self.try_reconcile(reached)).await.unwrap()
    }

    async fn try_reconcile(&self, reached: Result<Reached, Unreached>) -> Result<Reconciled, ClusterError> {
        let stored: CoderProvisioner = serde_json::from_value(self.stored()).unwrap();
        let elsewhere = |_: Retiring| -> BoxFuture<'_, Result<Revoked, Trouble>> {
            Box::pin(async { Ok(Revoked::OutOfReach) })
        };
        let beside = self.beside();
        let reaching = std::future::ready(reached);
        let done = Box::pin(reconcile(stored, reaching, &elsewhere, &beside)).await?;
        let known = done.provisioner.status.clone().unwrap_or_default();
        let next = status::status(&done.provisioner, known, &done.findings, beside.cluster.now());
        write_status(&done.provisioner, done.written.as_ref(), next, &*beside.cluster).await?;
        Ok(done)
    }

    fn reached(&self) -> Reached {
        let mut declared = self.cluster.find("CoderControlPlane", "main").unwrap();
        declared["status"] = json!({"version": "v2.36.0"});
        let declared = serde_json::from_value(declared).unwrap();
        Reached::new(declared, "https://coder.test/", self.coder(), DEPLOYMENT.parse().unwrap())
    }

    /// What the command line shows of the manifest. Nothing is written by it.
    async fn assess(&self, coder: &Coder) -> Assessment {
        let mut subject = subject(&self.manifest);
        let stored = self.cluster.find("CoderProvisioner", "alpha").and_then(Live::new);
        subject.settle_in("platform", stored.as_ref());
        let before = (self.sheet.writes().len(), self.cluster.writes());
        let assessment = subject.assess(coder, Door::CommandLine).await;
        assert_eq!((self.sheet.writes().len(), self.cluster.writes()), before, "it only reads");
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

fn decision(assessment: &Assessment) -> Decision {
    match &assessment.verdict {
        Verdict::Decided(decision) => *decision,
        Verdict::Stopped(outcome) => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn reconcile_creates_key_and_objects_and_the_second_one_writes_nothing() {
    let scene = Scene::new(&json!({}));
    let first = scene.reconcile(Ok(scene.reached())).await;
    assert!(first.findings.changed && first.trouble.is_none(), "{:?}", first.findings);
    let secret = scene.cluster.find("Secret", SECRET).unwrap();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["name"], "alpha");
    let deployment = scene.cluster.find("Deployment", WORKLOAD).unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    let stored = scene.stored();
    assert_eq!(stored["status"]["provisionerKeyName"], "alpha");
    assert_eq!(first.findings.readiness().reason, Reason::NoReplicasReady, "no pod runs here");
    let before = (scene.sheet.writes().len(), scene.cluster.writes());
    let second = scene.reconcile(Ok(scene.reached())).await;
    assert!(!second.findings.changed, "{:?}", second.findings);
    assert_eq!((scene.sheet.writes().len(), scene.cluster.writes()), before);
}

#[tokio::test]
async fn creation_reads_its_secret_alone_and_a_restart_reads_nothing_that_has_not_changed() {
    let scene = Scene::new(&json!({}));
    scene.stored();
    scene.reconcile(Ok(scene.reached())).await;
    let reads = scene.reads.take();
    assert!(reads.len() == 1 && reads[0].contains(SECRET), "{reads:?}");

    // Every reconcile here begins with an empty memory, as after a restart.
    let restarted = scene.reconcile(Ok(scene.reached())).await;
    assert_eq!(restarted.findings.readiness().reason, Reason::NoReplicasReady, "{:?}", restarted.findings);
    assert_eq!(scene.reads.take(), [""; 0]);

    let another = json!("YW5vdGhlcg==");
    scene.cluster.edit("Secret", SECRET, |it| it["data"]["key"] = another.clone());
    scene.reconcile(Ok(scene.reached())).await;
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
    scene.reconcile(Ok(scene.reached())).await;
    let deployment = scene.cluster.find("Deployment", WORKLOAD).unwrap().to_string();
    assert!(
        deployment.contains("https://coder.test") && !deployment.contains("another.test"),
        "{deployment}"
    );
}

#[tokio::test]
async fn control_plane_that_is_missing_is_reported_and_nothing_is_created() {
    let scene = Scene::new(&json!({}));
    let message = "there is no control plane main in this namespace: create it".to_owned();
    let blocked = engine::Blocked { reason: Reason::ControlPlaneUnavailable, message };
    let done = scene.reconcile(Err(Unreached::ControlPlane(blocked))).await;
    assert_eq!(done.findings.readiness().reason, Reason::ControlPlaneUnavailable);
    assert_eq!(scene.sheet.asked(), [""; 0]);
    assert!(scene.cluster.find("Secret", SECRET).is_none());
}

#[tokio::test]
async fn plan_of_a_new_provisioner_shows_key_and_objects() {
    let scene = Scene::new(&json!({}));
    let assessment = scene.assess(&scene.coder()).await;
    assert_eq!(decision(&assessment), Decision::Apply);
    let steps = &assessment.plan.steps;
    assert!(steps.iter().all(|it| it.action == Action::Create), "{steps:?}");
    let reasons: Vec<&str> = steps.iter().map(|it| it.reason.as_str()).collect();
    let expected = ["a key named alpha", "ServiceAccount ", "Role ", "RoleBinding ", "Deployment "];
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    for (reason, begins) in reasons.iter().zip(expected) {
        assert!(reason.starts_with(begins), "{reasons:?}");
    }
}

#[tokio::test]
async fn plan_is_empty_once_reconciled_and_names_a_field_that_was_changed_by_hand() {
    let scene = Scene::new(&json!({}));
    scene.reconcile(Ok(scene.reached())).await;
    let assessment = scene.assess(&scene.coder()).await;
    assert_eq!(decision(&assessment), Decision::Nothing, "{:?}", assessment.plan);

    scene.cluster.edit("Deployment", WORKLOAD, |it| it["spec"]["replicas"] = json!(7));
    let containers = "/spec/template/spec/containers/0/env";
    scene.cluster.edit("Deployment", WORKLOAD, |it| {
        let variables = it.pointer_mut(containers).unwrap().as_array_mut().unwrap();
        variables
            .iter_mut()
            .filter(|it| it["name"] == "TF_TOKEN")
            .for_each(|it| it["value"] = json!("hunter3"));
    });
    let assessment = scene.assess(&scene.coder()).await;
    assert_eq!(decision(&assessment), Decision::Apply);
    let changes: Vec<_> = assessment.plan.changes().collect();
    let replicas = changes.iter().find(|it| it.field.ends_with(": spec.replicas")).unwrap();
    assert_eq!((&replicas.before, &replicas.after), (&json!(7), &json!(2)));
    assert!(changes.iter().any(|it| it.field.contains("containers")), "{changes:?}");
    assert!(!format!("{:?}", assessment.plan).contains("hunter"), "values of variables are masked");

    let observed = Scene { manifest: Scene::new(&json!({"mode": "Observe"})).manifest, ..scene };
    assert_eq!(decision(&observed.assess(&observed.coder()).await), Decision::Observe);
}

#[tokio::test]
async fn replicas_that_the_manifest_does_not_name_are_those_of_the_stored_one() {
    let scene = Scene::new(&json!({"replicas": 5}));
    scene.reconcile(Ok(scene.reached())).await;
    let mut manifest = scene.manifest.clone();
    manifest["spec"].as_object_mut().unwrap().remove("replicas");
    let unnamed = Scene { manifest, ..scene };
    assert_eq!(decision(&unnamed.assess(&unnamed.coder()).await), Decision::Nothing);
}

#[tokio::test]
async fn plan_reports_a_missing_cluster_control_plane_or_licence() {
    let scene = Scene::new(&json!({}));
    let apart = Coder::new(scene.sheet.client(), Promises::default());
    assert_eq!(scene.stopped(&apart).await.0, Reason::NeedsCluster);

    let other = "00000000-0000-4000-8000-00000000eeee";
    scene.cluster.edit("CoderControlPlane", "main", |it| it["status"] = json!({"deploymentID": other}));
    let (reason, message) = scene.stopped(&scene.coder()).await;
    assert_eq!(reason, Reason::DeploymentChanged);
    assert!(message.contains(other) && message.contains(DEPLOYMENT), "{message}");
    scene.cluster.edit("CoderControlPlane", "main", |it| it["status"] = json!({}));

    scene.sheet.set("features", json!([]));
    let (reason, message) = scene.stopped(&scene.coder()).await;
    assert_eq!(reason, Reason::NotEntitled);
    assert!(message.contains("external_provisioner_daemons"), "{message}");

    scene.cluster.remove("CoderControlPlane", "main");
    let (reason, message) = scene.stopped(&scene.coder()).await;
    assert_eq!(reason, Reason::ControlPlaneUnavailable);
    assert!(message.contains("main is neither in the files nor in the cluster"), "{message}");
}

#[tokio::test]
async fn object_of_another_owner_stops_the_plan_and_is_named() {
    let scene = Scene::new(&json!({}));
    let key = Key::new("apps/v1", "Deployment", "platform", WORKLOAD);
    scene.cluster.set(&json!({"apiVersion": key.api_version, "kind": key.kind,
        "metadata": {"name": key.name, "namespace": key.namespace}, "spec": {}}));
    let (reason, message) = scene.stopped(&scene.coder()).await;
    assert_eq!(reason, Reason::NotOurs);
    assert!(message.contains(WORKLOAD), "{message}");
}

#[tokio::test]
async fn account_of_another_gets_no_rights_and_no_pods_and_is_left_alone() {
    let scene = Scene::new(&json!({}));
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": "platform"}, "secrets": [{"name": "theirs"}]});
    scene.cluster.set(&account);
    let theirs = scene.cluster.find("ServiceAccount", ACCOUNT);
    let first = scene.reconcile(Ok(scene.reached())).await;
    assert_eq!(first.findings.readiness().reason, Reason::NotOurs, "{:?}", first.findings);
    assert_eq!(scene.cluster.find("ServiceAccount", ACCOUNT), theirs);
    for kind in ["RoleBinding", "Deployment"] {
        assert_eq!(scene.cluster.all(kind), [Value::Null; 0], "{kind}");
    }
    let before = scene.cluster.writes();
    let second = scene.reconcile(Ok(scene.reached())).await;
    assert_eq!(second.findings.readiness().reason, Reason::NotOurs);
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
        let done = scene.reconcile(Ok(scene.reached())).await;
        assert_eq!(done.findings.readiness().reason, Reason::NotOurs, "{:?}", done.findings);
        for kind in ["RoleBinding", "Deployment"] {
            assert_eq!(scene.cluster.all(kind), [Value::Null; 0], "{kind}");
        }
    }
}

#[tokio::test]
async fn own_object_that_lost_its_labels_gets_them_back() {
    let scene = Scene::new(&json!({}));
    scene.reconcile(Ok(scene.reached())).await;
    let ours = scene.cluster.find("Role", WORKLOAD).unwrap();
    scene.cluster.edit("Role", WORKLOAD, |it| it["metadata"]["labels"] = json!({}));
    let done = scene.reconcile(Ok(scene.reached())).await;
    assert!(done.findings.changed && done.trouble.is_none(), "{:?}", done.findings);
    let healed = scene.cluster.find("Role", WORKLOAD).unwrap();
    assert_eq!(healed["metadata"]["labels"], ours["metadata"]["labels"]);
    assert_eq!(healed["metadata"]["uid"], ours["metadata"]["uid"]);
}

/// A provisioner that is as declared, and then gets other tags and another number of daemons, which a person has to approve.
async fn to_be_approved() -> Scene {
    let scene = Scene::new(&json!({}));
    scene.reconcile(Ok(scene.reached())).await;
    let changed = Scene::new(&json!({"approval": "Manual", "tags": {"site": "b"}, "replicas": 3})).manifest;
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"] = changed["spec"].clone();
        it["metadata"]["generation"] = json!(2);
    });
    Scene { manifest: changed, ..scene }
}

fn approve(scene: &Scene, hash: &str) {
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["metadata"]["annotations"] = json!({api::annotation::APPROVED_PLAN: hash});
    });
}

#[tokio::test]
async fn status_holds_the_plan_that_the_command_line_shows_and_one_approval_does_all_of_it() {
    let scene = to_be_approved().await;
    let held = scene.reconcile(Ok(scene.reached())).await.findings.held_back.unwrap();
    assert_eq!(held.plan, scene.assess(&scene.coder()).await.plan);
    let changed: Vec<&str> = held.plan.changes().map(|it| it.field.as_str()).collect();
    assert!(changed.contains(&"tags") && changed.iter().any(|it| it.ends_with("replicas")), "{changed:?}");
    assert_eq!(scene.stored()["status"]["plan"]["hash"], held.plan.hash.as_str());

    approve(&scene, &held.plan.hash);
    let done = scene.reconcile(Ok(scene.reached())).await;
    assert!(done.findings.held_back.is_none(), "{:?}", done.findings.held_back);
    let name = scene.stored()["status"]["provisionerKeyName"].clone();
    assert!(name.as_str().unwrap().starts_with("alpha-"), "{name}");
    let deployment = scene.cluster.find("Deployment", WORKLOAD).unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);
}

#[tokio::test]
async fn approval_fits_although_an_old_key_was_revoked_meanwhile() {
    let scene = Scene::new(&json!({"replicas": 0}));
    scene.reconcile(Ok(scene.reached())).await;
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["metadata"]["annotations"] = json!({api::annotation::ROTATE_REQUESTED_AT: "now"});
    });
    scene.reconcile(Ok(scene.reached())).await;
    let retiring = |scene: &Scene| scene.stored()["status"]["retiringKeys"].clone();
    assert_eq!(retiring(&scene)[0]["name"], "alpha");
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"]["approval"] = json!("Manual");
        it["spec"]["tags"] = json!({"site": "b"});
        it["metadata"]["generation"] = json!(2);
    });
    let held = scene.reconcile(Ok(scene.reached())).await.findings.held_back.unwrap();
    let upkeep = held.plan.steps.iter().filter(|it| !it.needs_approval()).count();
    assert_eq!(upkeep, 1, "the old key is due: {:?}", held.plan);
    assert!(retiring(&scene).is_null(), "the old key is revoked without an approval");

    approve(&scene, &held.plan.hash);
    let done = scene.reconcile(Ok(scene.reached())).await;
    assert!(done.findings.held_back.is_none(), "{:?}", done.findings.held_back);
}

#[tokio::test]
async fn rest_of_an_approved_plan_needs_no_other_approval() {
    let scene = to_be_approved().await;
    let held = scene.reconcile(Ok(scene.reached())).await.findings.held_back.unwrap();
    approve(&scene, &held.plan.hash);
    scene.cluster.refuse_writes(Some(|it| it["kind"] == "Deployment"));
    let stopped = scene.reconcile(Ok(scene.reached())).await;
    assert_eq!(stopped.findings.readiness().reason, Reason::NotApplied, "{:?}", stopped.findings);
    let stored = scene.stored();
    assert_eq!(stored["status"]["approved"]["hash"], held.plan.hash.as_str());
    assert!(stored["status"]["provisionerKeyName"].as_str().unwrap().starts_with("alpha-"));

    scene.cluster.refuse_writes(None);
    let done = scene.reconcile(Ok(scene.reached())).await;
    assert!(done.findings.held_back.is_none(), "{:?}", done.findings.held_back);
    assert_eq!(scene.cluster.find("Deployment", WORKLOAD).unwrap()["spec"]["replicas"], 3);

    // The approval is for that generation.
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"]["replicas"] = json!(5);
        it["metadata"]["generation"] = json!(3);
    });
    let held = scene.reconcile(Ok(scene.reached())).await.findings.held_back;
    assert!(held.is_some());
}

#[tokio::test]
async fn approved_move_of_a_secret_is_not_asked_for_again_after_a_failure() {
    let scene = Scene::new(&json!({}));
    scene.reconcile(Ok(scene.reached())).await;
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"]["approval"] = json!("Manual");
        it["spec"]["key"] = json!({"secretName": "moved"});
        it["metadata"]["generation"] = json!(2);
    });
    let held = scene.reconcile(Ok(scene.reached())).await.findings.held_back.unwrap();
    approve(&scene, &held.plan.hash);
    let failing = scene.before_writes(|write| match write {
        Write::Apply(it) if it["kind"] == "Deployment" => {
            Err(ClusterError::refusal(503, "ServiceUnavailable", "later"))
        }
        _ => Ok(()),
    });
    Box::pin(failing.try_reconcile(Ok(failing.reached()))).await.unwrap_err();
    assert!(scene.cluster.find("Secret", "moved").is_some(), "the value was moved");
    assert_eq!(scene.stored()["status"]["approved"]["hash"], held.plan.hash.as_str());

    let done = scene.reconcile(Ok(scene.reached())).await;
    assert!(done.findings.held_back.is_none(), "{:?}", done.findings.held_back);
    let deployment = scene.cluster.find("Deployment", WORKLOAD).unwrap().to_string();
    assert!(deployment.contains("\"moved\""), "{deployment}");
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
    let done = slow.reconcile(Ok(slow.reached())).await;
    assert_eq!(done.findings.readiness().reason, Reason::NotOurs, "{:?}", done.findings);
    let found = scene.cluster.find("Deployment", WORKLOAD).unwrap();
    assert_eq!(found["spec"], others["spec"]);
    assert!(found["metadata"]["ownerReferences"].is_null(), "{found}");
}
