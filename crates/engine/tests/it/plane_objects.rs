//! The objects of a managed control plane, in a cluster: previewed, applied, compared.

use std::sync::Arc;

use api::{Reason, label};
use engine::{
    Action, Assessment, Coder, Door, Object, Outcome, Subject, Trouble, Verdict,
    coder::Beside,
    kinds::{
        control_plane::{PlaneObjects, Workload},
        fingerprint,
    },
    ports::object::Live,
    secrets::FingerprintKeys,
};
use serde_json::{Value, json};
use sim::MemoryCluster;

use crate::support;

fn manifest() -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main", "namespace": "platform"},
        "spec": {"image": "mirror.example.com/coder:v2.36.0",
            "database": {"connectionSecretRef": {"name": "database", "key": "url"}},
            "extraEnv": [{"name": "CODER_PASSWORD", "value": "hunter2"}],
            "rbac": {"workspacePerms": true, "workspaceNamespaces": ["workspaces"]}}})
}

/// A cluster that has what the manifest refers to, and no control plane.
fn cluster() -> MemoryCluster {
    let cluster = support::cluster();
    cluster.set(&json!({"apiVersion": "v1", "kind": "Secret", "data": {"url": "cG9zdGdyZXM6Ly9h"},
        "metadata": {"name": "database", "namespace": "platform"}}));
    for (name, labels) in
        [("platform", json!({})), ("workspaces", json!({label::WORKSPACES_FROM: "platform"}))]
    {
        cluster.set(&json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "namespace": "", "labels": labels}}));
    }
    cluster
}

fn coder(cluster: &MemoryCluster, writes_status: bool) -> Coder {
    let cluster: Arc<MemoryCluster> = Arc::new(cluster.clone());
    let beside = Beside {
        cluster: Arc::clone(&cluster) as _,
        references: cluster,
        memory: Arc::default(),
        writes_status,
        fingerprints: writes_status.then(Arc::<FingerprintKeys>::default),
        allowed_rules: writes_status.then(|| Arc::from([])),
        tokens: Arc::default(),
    };
    Coder::unreached(beside).unwrap()
}

/// Compares a manifest of a file, as `plan` does.
async fn compared(manifest: &Value, cluster: &MemoryCluster) -> (Assessment, Option<Workload>) {
    let mut object = Object::<PlaneObjects>::parse(manifest).unwrap();
    let stored = cluster.find("CoderControlPlane", "main").and_then(Live::new);
    object.settle_in("platform", stored.as_ref());
    let before = cluster.writes();
    let assessment = Box::pin(object.assess(&coder(cluster, false), Door::CommandLine)).await;
    assert_eq!(cluster.writes(), before, "a plan writes nothing");
    assert!(!format!("{assessment:?}").contains("hunter"), "{assessment:?}");
    (assessment, object.observed().map(|it| it.workload.clone()))
}

async fn previewed(manifest: &Value, cluster: &MemoryCluster) -> Assessment {
    let (assessment, _) = compared(manifest, cluster).await;
    assert!(matches!(assessment.verdict, Verdict::Decided(_)), "{assessment:?}");
    assessment
}

/// Reconciles the objects of the control plane that is in the cluster. Returns how many steps were done, and what was recorded before.
async fn kept(cluster: &MemoryCluster) -> (usize, Value) {
    let mut object =
        Object::<PlaneObjects>::parse(&cluster.find("CoderControlPlane", "main").unwrap()).unwrap();
    let coder = coder(cluster, true);
    let before = cluster.writes();
    let assessment = Box::pin(object.assess(&coder, Door::Controller)).await;
    assert_eq!(cluster.writes(), before, "observing writes nothing");
    fingerprint::store_key(&coder).await.unwrap();
    let recorded = Value::Object(object.intents());
    cluster.edit("CoderControlPlane", "main", |it| {
        for (field, value) in recorded.as_object().unwrap() {
            it["status"][field] = value.clone();
        }
    });
    (Box::pin(object.carry_out(&assessment, &coder)).await.done, recorded)
}

fn fields(preview: &Assessment) -> Vec<&str> {
    preview.plan.changes().map(|it| it.field.as_str()).collect()
}

#[tokio::test]
async fn preview_of_a_new_control_plane_creates_every_object() {
    let preview = previewed(&manifest(), &cluster()).await;
    assert!(preview.plan.steps.iter().all(|it| it.action == Action::Create), "{preview:?}");
    let created = fields(&preview);
    for kind in ["ServiceAccount", "Service", "Deployment"] {
        assert!(created.contains(&format!("{kind} platform/main").as_str()), "{created:?}");
    }
    for place in ["Role platform/", "RoleBinding platform/", "Role workspaces/", "RoleBinding workspaces/"] {
        assert!(created.iter().any(|it| it.starts_with(place)), "{place}: {created:?}");
    }
    assert_eq!(created.len(), 7, "{created:?}");
    assert_eq!(preview.unsupported, None);
}

#[tokio::test]
async fn preview_is_empty_once_the_objects_are_kept() {
    let cluster = cluster();
    cluster.set(&manifest());
    let (done, recorded) = kept(&cluster).await;
    assert_eq!(done, 7);
    assert_eq!(recorded, json!({"workspaceNamespaces": ["workspaces"]}), "before the Role");
    let preview = previewed(&manifest(), &cluster).await;
    assert!(preview.plan.is_empty(), "{preview:?}");
    let before = cluster.writes();
    assert_eq!(kept(&cluster).await, (0, json!({})));
    assert_eq!(cluster.writes(), before, "a converged control plane is not written");
}

#[tokio::test]
async fn object_that_another_writer_changes_back_at_once_is_not_as_declared() {
    let cluster = cluster();
    cluster.set(&manifest());
    kept(&cluster).await;
    cluster.edit("Service", "main", |it| it["spec"]["type"] = "NodePort".into());
    let stored = cluster.find("CoderControlPlane", "main").unwrap();
    let (mut object, coder) = (Object::<PlaneObjects>::parse(&stored).unwrap(), coder(&cluster, true));
    let assessment = Box::pin(object.assess(&coder, Door::Controller)).await;
    assert_eq!(Box::pin(object.carry_out(&assessment, &coder)).await.done, 1);
    cluster.edit("Service", "main", |it| it["spec"]["type"] = "NodePort".into());
    object.put_off(false, true);
    let again = Box::pin(object.assess(&coder, Door::Controller)).await;
    let Verdict::Stopped(Outcome::Blocked(_)) = &again.verdict else { panic!("{again:?}") };
    assert_eq!(fields(&again), ["Service platform/main: spec.type"], "it is shown");
    let written = cluster.writes();
    Box::pin(object.carry_out(&again, &coder)).await;
    assert_eq!(cluster.writes(), written, "and is left to the next reconcile");
}

#[tokio::test]
async fn preview_shows_the_field_that_another_client_changed() {
    let cluster = cluster();
    cluster.set(&manifest());
    kept(&cluster).await;
    cluster.edit("Service", "main", |it| it["spec"]["type"] = "NodePort".into());
    let edited = previewed(&manifest(), &cluster).await;
    assert_eq!(fields(&edited), ["Service platform/main: spec.type"]);
    let mut declared = manifest();
    declared["spec"]["extraEnv"][0]["value"] = "hunter3".into();
    cluster.edit("Service", "main", |it| it["spec"]["type"] = "ClusterIP".into());
    let declared = previewed(&declared, &cluster).await;
    let [field] = fields(&declared)[..] else { panic!("{declared:?}") };
    assert!(
        field.starts_with("Deployment platform/main") && field.contains("env[CODER_PASSWORD]"),
        "{field}"
    );
    assert_eq!(declared.plan.summary, "1 to update");
}

#[tokio::test]
async fn preview_without_the_key_of_fingerprints_says_nothing_of_values() {
    let cluster = cluster();
    cluster.set(&manifest());
    kept(&cluster).await;
    // Another Secret for the token has no key yet, and a digest without one would tell of the database's password.
    let mut moved = manifest();
    moved["spec"]["operatorAccess"] = json!({"generatedTokenSecretName": "elsewhere"});
    let preview = previewed(&moved, &cluster).await;
    assert!(preview.plan.is_empty(), "{preview:?}");
}

#[tokio::test]
async fn preview_reports_a_secret_that_pods_wait_for() {
    let cluster = cluster();
    cluster.remove("Secret", "database");
    let preview = previewed(&manifest(), &cluster).await;
    assert!(!fields(&preview).iter().any(|it| it.starts_with("Deployment")), "{preview:?}");
    let missing = preview.unsupported.filter(|it| it.reason == Reason::SecretNotFound).unwrap();
    assert!(missing.message.contains("Secret database"), "{missing:?}");
}

/// Why the API server does not let the objects be compared.
async fn refused(manifest: &Value, cluster: &MemoryCluster) -> String {
    let (assessment, _) = compared(manifest, cluster).await;
    let Verdict::Stopped(Outcome::Failed(Trouble::Cluster(error))) = assessment.verdict else {
        panic!("{assessment:?}")
    };
    assert_eq!(error.code(), Some(403));
    error.to_string()
}

#[tokio::test]
async fn preview_needs_no_roles_of_all_namespaces() {
    let cluster = cluster();
    cluster.refuse_lists("Role", None, 403);
    assert_eq!(fields(&previewed(&manifest(), &cluster).await).len(), 7);
    cluster.refuse_lists("Service", Some("platform"), 403);
    let refused = refused(&manifest(), &cluster).await;
    assert!(refused.contains("Service cannot be listed"), "{refused}");
}

#[tokio::test]
async fn routes_are_left_out_where_the_cluster_does_not_know_them() {
    let mut exposed = manifest();
    exposed["spec"]["expose"] =
        json!({"gateway": {"host": "coder.example.com", "parentRefs": [{"name": "public"}]}});
    let cluster = cluster();
    let known = previewed(&exposed, &cluster).await;
    assert!(fields(&known).contains(&"HTTPRoute platform/main"), "{known:?}");
    cluster.refuse_lists("HTTPRoute", Some("platform"), 404);
    let unknown = previewed(&exposed, &cluster).await;
    assert_eq!(fields(&unknown).len(), 7, "{unknown:?}");
    let notices = compared(&exposed, &cluster).await.1.unwrap().notices.unwrap();
    assert_eq!(notices.iter().map(|it| it.reason).collect::<Vec<_>>(), [Reason::GatewayAPIMissing]);
}

#[tokio::test]
async fn routes_that_may_not_be_listed_matter_only_where_one_is_declared() {
    let cluster = cluster();
    cluster.refuse_lists("HTTPRoute", Some("platform"), 403);
    assert_eq!(fields(&previewed(&manifest(), &cluster).await).len(), 7);
    let mut exposed = manifest();
    exposed["spec"]["expose"] =
        json!({"gateway": {"host": "coder.example.com", "parentRefs": [{"name": "public"}]}});
    let refused = refused(&exposed, &cluster).await;
    assert!(refused.contains("HTTPRoute cannot be listed"), "{refused}");
}
