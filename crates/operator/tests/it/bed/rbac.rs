//! The shipped Roles on a real API server: they hold what the table says, and suffice.

use std::collections::BTreeSet;

use api::CoderControlPlane;
use engine::rbac::{Form, rules};
use k8s_openapi::api::{
    authorization::v1::SelfSubjectRulesReview,
    core::v1::Namespace,
    events::v1::Event,
    rbac::v1::{PolicyRule, Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testbed::{Bed, Options};

use super::{
    licensed,
    operator::Operator,
    service_account::{Account, Bound, OTHERS, apply, documents, is_allowed, wait_until_allowed},
    stage::{self, Stage, eventually, group, install, is_held_up, is_ready, says},
};

/// Single rights: group, resource, name of the object, verb.
type Rights = BTreeSet<(String, String, String, String)>;

fn rights<'a>(rules: impl IntoIterator<Item = &'a PolicyRule>) -> Rights {
    let mut found = Rights::new();
    for rule in rules {
        let names = rule.resource_names.clone().filter(|it| !it.is_empty());
        let names = names.unwrap_or_else(|| vec![String::new()]);
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for name in &names {
                    let right = |verb: &String| (group.clone(), resource.clone(), name.clone(), verb.clone());
                    found.extend(rule.verbs.iter().map(right));
                }
            }
        }
    }
    found
}

/// What `kubectl auth can-i --list` shows to whoever owns the client.
async fn held(client: &Client, namespace: &str) -> Rights {
    let review = json!({"metadata": {}, "spec": {"namespace": namespace}});
    let review: SelfSubjectRulesReview = serde_json::from_value(review).unwrap();
    let reviews = Api::<SelfSubjectRulesReview>::all(client.clone());
    let found = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
    let rules = found.resource_rules.iter().map(|it| PolicyRule {
        api_groups: it.api_groups.clone(),
        resources: it.resources.clone(),
        resource_names: it.resource_names.clone(),
        verbs: it.verbs.clone(),
        non_resource_urls: None,
    });
    rights(&rules.collect::<Vec<_>>())
}

async fn client_of(account: &Account, client: &Client) -> Client {
    let kubeconfig = account.kubeconfig(testbed::shared().unwrap(), client).await;
    testbed::kubernetes::client(&kubeconfig).await.unwrap()
}

/// The rights of an account, without those that every account has.
async fn beyond_everybody(account: &Account, client: &Client, namespace: &str) -> Rights {
    let nobody = Account::named(namespace, "bystander");
    nobody.create(client).await;
    let everybody = held(&client_of(&nobody, client).await, namespace).await;
    let account = held(&client_of(account, client).await, namespace).await;
    account.difference(&everybody).cloned().collect()
}

fn table(forms: &[Form]) -> Rights {
    let rules: Vec<PolicyRule> = forms.iter().flat_map(|it| rules(*it)).map(|it| it.policy()).collect();
    rights(&rules)
}

async fn namespace(word: &str) -> (Client, String) {
    let bed = testbed::shared().unwrap();
    let client = bed.client().await.unwrap();
    install(&client).await;
    (client, bed.namespace(word).await.unwrap())
}

#[tokio::test]
async fn shipped_account_holds_exactly_the_table_in_one_namespace() {
    let (client, namespace) = namespace("rights").await;
    let account = Account::of_operator(&namespace, Bound::Role);
    account.clone().kubeconfig_for(&namespace);
    let found = beyond_everybody(&account, &client, &namespace).await;
    assert_eq!(found, table(&[Form::Watched, Form::Own]));
    let elsewhere = beyond_everybody(&account, &client, "default").await;
    assert_eq!(elsewhere, Rights::new(), "a Role is for its namespace");
}

#[tokio::test]
async fn shipped_account_holds_exactly_the_table_in_all_namespaces() {
    let (client, namespace) = namespace("rights").await;
    let account = Account::of_operator(&namespace, Bound::ClusterRole);
    account.clone().kubeconfig_for(&namespace);
    let found = beyond_everybody(&account, &client, &namespace).await;
    assert_eq!(found, table(&[Form::Watched, Form::Own]));
    let elsewhere = beyond_everybody(&account, &client, "default").await;
    assert_eq!(elsewhere, table(&[Form::Watched]), "its Lease is in one namespace");
}

#[tokio::test]
async fn kubernetes_own_edit_role_writes_only_kinds_without_secrets() {
    let (client, namespace) = namespace("people").await;
    for file in ["people/view.yaml", "people/edit.yaml"] {
        for role in documents(file) {
            apply(&client, &role).await;
        }
    }
    for (role, verb) in [("view", "get"), ("edit", "create")] {
        let account = Account::named(&namespace, role);
        account.create(&client).await;
        account.bind(&client, &namespace, ("ClusterRole", role)).await;
        let person = client_of(&account, &client).await;
        // The controller that adds labelled roles to Kubernetes' own takes a moment.
        wait_until_allowed(&person, &namespace, ("coder.com", "codergroups", verb)).await;
        for kind in engine::rbac::kinds() {
            let reads = is_allowed(&person, &namespace, ("coder.com", &kind.plural, "list")).await;
            assert!(reads, "{role} reads {}", kind.kind);
            let writes = is_allowed(&person, &namespace, ("coder.com", &kind.plural, "update")).await;
            let should = role == "edit" && kind.secret_fields.is_empty();
            assert_eq!(writes, should, "{role} writes {}", kind.kind);
        }
    }
}

/// A control plane without pods, whose templates may make workspaces in another namespace too.
fn plane(workspaces: &str) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "own"},
        "spec": {"image": super::stage::image("bed/host"), "replicas": 0, "interval": "10s",
            "rbac": {"workspaceNamespaces": [workspaces]}}})
}

async fn consent(client: &Client, workspaces: &str, to: &str) {
    let label = json!({"metadata": {"labels": {api::label::WORKSPACES_FROM: to}}});
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch(workspaces, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
}

async fn workspace_roles(client: &Client, namespace: &str) -> Vec<Role> {
    let ours = ListParams::default().labels(OTHERS);
    Api::<Role>::namespaced(client.clone(), namespace).list(&ours).await.unwrap().items
}

#[tokio::test]
async fn operator_of_one_namespace_reports_rights_it_lacks_in_another() {
    let (client, namespace) = namespace("here").await;
    let workspaces = testbed::shared().unwrap().namespace("there").await.unwrap();
    consent(&client, &workspaces, &namespace).await;
    // The name makes its requests count as an operator's: they show that the Role for workspaces is used.
    let account = Account::named(&namespace, "limited-coder-operator");
    let kubeconfig = account.clone().kubeconfig_for(&namespace);
    let operator = Operator::start_as(&kubeconfig, &["--namespace", &namespace], Vec::new());
    let stage = Stage { client, namespace, coderd: (), operator };
    stage.apply(&plane(&workspaces)).await;
    let told = stage
        .wait::<CoderControlPlane>("own", "incomplete", |it| says(it, "Complete", "False", "NotPermitted"))
        .await;
    for words in [workspaces.as_str(), "forbidden", "deploy/rbac/workspaces.yaml"] {
        assert!(told["status"]["conditions"].to_string().contains(words), "{words}: {told:#}");
    }
    assert_eq!(workspace_roles(&stage.client, &workspaces).await, []);
    assert_eq!(workspace_roles(&stage.client, &stage.namespace).await.len(), 1, "everything else is done");

    account.serve_workspaces(&stage.client, &workspaces).await;
    stage.wait::<CoderControlPlane>("own", "complete", |it| says(it, "Complete", "True", "UpToDate")).await;
    let granted = workspace_roles(&stage.client, &workspaces).await;
    assert_eq!(granted.len(), 1);
    assert!(rights(granted[0].rules.iter().flatten()).iter().any(|it| it.1 == "pods" && it.3 == "create"));

    // A namespace that is no longer declared loses them, and so does one whose control plane is deleted.
    let mut manifest = plane(&workspaces);
    manifest["spec"].as_object_mut().unwrap().remove("rbac");
    stage.apply(&manifest).await;
    let is_forgotten = |it: &Value| it["status"]["workspaceNamespaces"].is_null();
    stage.wait::<CoderControlPlane>("own", "without workspaces elsewhere", is_forgotten).await;
    assert_eq!(workspace_roles(&stage.client, &workspaces).await, []);
    stage.apply(&plane(&workspaces)).await;
    eventually("granted", || workspace_roles(&stage.client, &workspaces), |it| it.len() == 1).await;
    let own = stage.wait::<CoderControlPlane>("own", "there", |_| true).await;
    assert_eq!(own["status"]["workspaceNamespaces"], json!([workspaces]));
    stage.delete("CoderControlPlane", "own").await;
    stage.gone(&own).await;
    assert_eq!(workspace_roles(&stage.client, &workspaces).await, []);
    let bindings = Api::<RoleBinding>::namespaced(stage.client.clone(), &workspaces);
    assert_eq!(bindings.list(&ListParams::default().labels(OTHERS)).await.unwrap().items, []);
    assert_eq!(stage.left_behind().await, [""; 0]);
}

#[tokio::test]
async fn roles_of_a_control_plane_that_becomes_external_are_named_and_go_with_it() {
    let stage = Stage::bare(licensed().await).await;
    let workspaces = testbed::shared().unwrap().namespace("there").await.unwrap();
    consent(&stage.client, &workspaces, &stage.namespace).await;
    Account::of_operator(&stage.namespace, Bound::Role).serve_workspaces(&stage.client, &workspaces).await;
    stage.apply(&plane(&workspaces)).await;
    stage.wait::<CoderControlPlane>("own", "complete", |it| says(it, "Complete", "True", "UpToDate")).await;

    stage.write_token(&stage.coderd.owner.token).await;
    stage.apply(&stage::plane("own", &stage.coderd.owner.url)).await;
    let external = stage.wait::<CoderControlPlane>("own", "external", is_ready).await;
    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let named = events.iter().filter(|it| it.reason.as_deref() == Some("NoLongerManaged"));
    let notes: Vec<&str> = named.filter_map(|it| it.note.as_deref()).collect();
    assert_eq!(notes.len(), 1, "{notes:#?}");
    for object in [format!("Deployment {}/own", stage.namespace), format!("Role {workspaces}/")] {
        assert!(notes[0].contains(&object), "{object}: {notes:#?}");
    }
    assert_eq!(workspace_roles(&stage.client, &workspaces).await.len(), 1, "coderd may still use it");

    stage.delete("CoderControlPlane", "own").await;
    stage.gone(&external).await;
    assert_eq!(workspace_roles(&stage.client, &workspaces).await, []);
}

#[tokio::test]
async fn role_that_cannot_be_deleted_is_reported_and_named() {
    let stage = Stage::bare(licensed().await).await;
    let workspaces = testbed::shared().unwrap().namespace("there").await.unwrap();
    consent(&stage.client, &workspaces, &stage.namespace).await;
    let account = Account::of_operator(&stage.namespace, Bound::Role);
    account.serve_workspaces(&stage.client, &workspaces).await;
    stage.apply(&plane(&workspaces)).await;
    stage.wait::<CoderControlPlane>("own", "complete", |it| says(it, "Complete", "True", "UpToDate")).await;
    let bindings = Api::<RoleBinding>::namespaced(stage.client.clone(), &workspaces);
    // The operator's own rights there, and not those of the workspaces.
    let of_operator = ListParams::default().labels(&format!("!{}", api::label::CONTROL_PLANE));
    bindings.delete_collection(&DeleteParams::default(), &of_operator).await.unwrap();
    let as_operator = client_of(&account, &stage.client).await;
    let list = ("rbac.authorization.k8s.io", "roles", "list");
    eventually("forbidden", || is_allowed(&as_operator, &workspaces, list), |it| !it).await;

    stage.delete("CoderControlPlane", "own").await;
    let told = stage.wait::<CoderControlPlane>("own", "refused", is_held_up("NotPermitted")).await;
    for part in [workspaces.as_str(), "deploy/rbac/workspaces.yaml", "coder.com/force-finalize"] {
        assert!(stage::words(&told).contains(part), "{part}: {}", stage::words(&told));
    }
    stage.annotate("CoderControlPlane", "own", api::annotation::FORCE_FINALIZE, Some("true")).await;
    stage.gone(&told).await;
    let left = stage.left_behind().await;
    assert!(left.iter().any(|it| it.contains(&workspaces)), "{left:#?}");
}

/// Requests of an account that the API server refused.
fn refused(audit_log: &std::path::Path, user: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(audit_log).unwrap();
    let entries = log.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    let is_refused = |it: &Value| {
        it["user"]["username"] == user && it["annotations"]["authorization.k8s.io/decision"] == "forbid"
    };
    entries.filter(is_refused).collect()
}

/// It reconciles all namespaces of its cluster, so the cluster is one that no other test uses.
#[tokio::test(flavor = "multi_thread")]
async fn operator_for_all_namespaces_needs_nothing_but_the_cluster_role() {
    let bed = Bed::start(testbed::shared::parts().unwrap(), Options { coderds: false }).await.unwrap();
    let client = bed.info().client().await.unwrap();
    install(&client).await;
    let team = || bed.info().namespace("team");
    let (one, two, workspaces) = tokio::try_join!(team(), team(), team()).unwrap();
    let account = Account::of_operator("all", Bound::ClusterRole);
    account.bind_shipped(&client, &account.namespace).await;
    let kubeconfig = account.kubeconfig(bed.info(), &client).await;
    let as_operator = testbed::kubernetes::client(&kubeconfig).await.unwrap();
    wait_until_allowed(&as_operator, &two, ("coder.com", "codercontrolplanes", "watch")).await;
    wait_until_allowed(&as_operator, &account.namespace, ("coordination.k8s.io", "leases", "create")).await;
    let args = ["--leader-elect", "--lease-namespace", &account.namespace];
    let operator = Operator::start_as(&kubeconfig, &args, Vec::new());

    let coderd = licensed().await;
    let url = coderd.owner.url.clone();
    let mut stage = Stage { client, namespace: one.clone(), coderd, operator };
    stage.write_token(&stage.coderd.owner.token).await;
    stage.apply(&stage::plane("main", &url)).await;
    stage.apply(&group(&json!({"deletionPolicy": "Delete"}))).await;
    stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;

    stage.namespace.clone_from(&two);
    consent(&stage.client, &workspaces, &two).await;
    stage.apply(&plane(&workspaces)).await;
    stage.wait::<CoderControlPlane>("own", "complete", |it| says(it, "Complete", "True", "UpToDate")).await;
    assert_eq!(workspace_roles(&stage.client, &workspaces).await.len(), 1);
    for namespace in [one, two] {
        stage.namespace = namespace;
        stage.delete_namespace().await;
    }
    assert_eq!(workspace_roles(&stage.client, &workspaces).await, []);
    assert_eq!(refused(&bed.info().audit_log, &account.user()), Vec::<Value>::new());
}
