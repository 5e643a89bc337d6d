//! The objects of a managed control plane, in a cluster: previewed, applied, compared.

use api::{CoderControlPlane, Reason, label};
use engine::{
    Action, Blocked,
    kinds::control_plane::{
        facts::PlaneContext,
        workload::{self, PlanePreview, Workload, preview},
    },
    pipeline::held_back::Changes,
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

fn plane(manifest: &Value) -> CoderControlPlane {
    serde_json::from_value(manifest.clone()).unwrap()
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

async fn previewed(manifest: &Value, cluster: &MemoryCluster) -> PlanePreview {
    let before = cluster.writes();
    let previewed = preview(&plane(manifest), cluster, &[]).await.unwrap();
    assert_eq!(cluster.writes(), before, "a preview writes nothing");
    assert!(!format!("{previewed:?}").contains("hunter"), "{previewed:?}");
    previewed
}

/// Keeps the objects of the control plane that is in the cluster.
async fn kept(cluster: &MemoryCluster) -> (Workload, Changes) {
    let mut plane = plane(&cluster.find("CoderControlPlane", "main").unwrap());
    let (fingerprints, mut changes) = (FingerprintKeys::default(), Changes::default());
    let context = PlaneContext { cluster, allowed_rules: &[], fingerprints: Some(&fingerprints) };
    let workload = workload::keep(&mut plane, &mut changes, &context).await.unwrap();
    (workload, changes)
}

fn fields(preview: &PlanePreview) -> Vec<&str> {
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
    assert_eq!(preview.notices, []);
}

#[tokio::test]
async fn preview_is_empty_once_the_objects_are_kept() {
    let cluster = cluster();
    cluster.set(&manifest());
    let (workload, changes) = kept(&cluster).await;
    assert!(changes.changed && changes.held_back.is_none());
    assert_eq!(workload.workspace_namespaces.as_deref(), Some(&["workspaces".to_owned()][..]));
    let stored = cluster.find("CoderControlPlane", "main").unwrap();
    assert_eq!(stored["status"]["workspaceNamespaces"], json!(["workspaces"]), "recorded before the Role");
    let preview = previewed(&manifest(), &cluster).await;
    assert!(preview.plan.is_empty(), "{preview:?}");
    let before = cluster.writes();
    assert!(!kept(&cluster).await.1.changed);
    assert_eq!(cluster.writes(), before, "a converged control plane is not written");
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
    let missing = preview.notices.iter().find(|it| it.reason == Reason::SecretNotFound).unwrap();
    assert!(missing.message.contains("Secret database"), "{missing:?}");
}

#[tokio::test]
async fn preview_needs_no_roles_of_all_namespaces() {
    let cluster = cluster();
    cluster.refuse_lists("Role", None, 403);
    assert_eq!(fields(&previewed(&manifest(), &cluster).await).len(), 7);
    cluster.refuse_lists("Service", Some("platform"), 403);
    let Blocked { reason, message } = preview(&plane(&manifest()), &cluster, &[]).await.unwrap_err();
    assert_eq!(reason, Reason::NotPermitted);
    assert!(
        message.contains("CoderControlPlane main") && message.contains("Service cannot be listed"),
        "{message}"
    );
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
    assert_eq!(unknown.notices.len(), 1, "{unknown:?}");
}

#[tokio::test]
async fn routes_that_may_not_be_listed_matter_only_where_one_is_declared() {
    let cluster = cluster();
    cluster.refuse_lists("HTTPRoute", Some("platform"), 403);
    assert_eq!(fields(&previewed(&manifest(), &cluster).await).len(), 7);
    let mut exposed = manifest();
    exposed["spec"]["expose"] =
        json!({"gateway": {"host": "coder.example.com", "parentRefs": [{"name": "public"}]}});
    let refused = preview(&plane(&exposed), &cluster, &[]).await.unwrap_err();
    assert_eq!(refused.reason, Reason::NotPermitted);
}

#[tokio::test]
async fn control_plane_that_runs_elsewhere_has_no_objects() {
    let mut external = manifest();
    external["spec"] =
        json!({"external": {"url": "https://coder.example.com", "credentialsSecretRef": {"name": "t"}}});
    assert!(previewed(&external, &cluster()).await.plan.is_empty());
}
