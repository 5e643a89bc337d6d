//! What a control plane that we run has beside its pods: rights and ways in. None of it needs a Coder that answers.

use api::CoderControlPlane;
use k8s_openapi::{
    api::{
        networking::v1::Ingress,
        rbac::v1::{PolicyRule, Role},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    operator::Operator,
    service_account::{Account, Bound, OTHERS},
    stage::{self, LIMIT, Stage, image, says},
};
use crate::support::Folder;

/// An operator with these arguments in a namespace of its own.
async fn stage(args: &[&str]) -> Stage {
    let bed = testbed::shared().unwrap();
    let client = bed.client().await.unwrap();
    stage::install(&client).await;
    let namespace = bed.namespace("beside").await.unwrap();
    let operator = Operator::start(&namespace, args);
    // The coderd of the stage is not used.
    let coderd = bed.coderd(testbed::Flavour::Shipped).await.unwrap();
    Stage { client, namespace, coderd, operator }
}

/// A control plane whose pods sleep.
fn plane(spec: &Value) -> Value {
    let mut whole = json!({"image": image("bed/host"), "replicas": 0, "interval": "10s"});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"}, "spec": whole})
}

fn complete(status: &'static str, reason: &'static str) -> impl Fn(&Value) -> bool {
    move |it| {
        says(it, "Complete", status, reason)
            && it["status"]["observedGeneration"] == it["metadata"]["generation"]
    }
}

/// Whether the name of an object is another's.
fn is_taken(plane: &Value) -> bool {
    let conditions = plane["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["reason"] == "NotOurs")
        && plane["status"]["observedGeneration"] == plane["metadata"]["generation"]
}

fn words(plane: &Value, kind: &str) -> String {
    let conditions = plane["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|it| it["type"] == kind).unwrap()["message"].as_str().unwrap().to_owned()
}

async fn rules(stage: &Stage) -> Vec<PolicyRule> {
    let roles = stage.api::<Role>().list(&ListParams::default().labels(OTHERS)).await.unwrap().items;
    assert_eq!(roles.len(), 1);
    roles.into_iter().next().unwrap().rules.unwrap()
}

#[tokio::test]
async fn further_rules_are_granted_as_far_as_the_operator_was_started_to_allow_them() {
    let folder = Folder::new("allowed");
    let file = folder.write(
        "rules.yaml",
        "- {apiGroups: [batch], resources: [jobs], verbs: [\"*\"]}\n- {apiGroups: [\"\"], resources: [secrets], resourceNames: [registry], verbs: [get]}\n",
    );
    let stage = stage(&["--allow-rules", &file]).await;
    // Whoever lets the operator grant rules lets it hold them.
    let allowed = json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}]);
    let account = Account::of_operator(&stage.namespace, Bound::Role);
    account.add_rules(&stage.client, &stage.namespace, &allowed).await;
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let mut registry = rule("", "secrets", &["get"]);
    registry["resourceNames"] = json!(["registry"]);
    let wanted = [
        rule("batch", "jobs", &["get", "create"]),
        registry,
        rule("", "secrets", &["get"]),
        rule("batch", "jobs", &["escalate"]),
        json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
        json!({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": []}),
    ];
    stage.apply(&plane(&json!({"rbac": {"extraRules": wanted}}))).await;
    let told =
        stage.wait::<CoderControlPlane>("main", "incomplete", complete("False", "RulesNotAllowed")).await;
    let said = words(&told, "Complete");
    for (index, why) in [
        (2, "get of secrets (core), see --allow-rules"),
        (3, "the verb escalate"),
        (4, "nonResourceURLs"),
        (5, "names no verbs"),
    ] {
        assert!(
            said.contains(&format!("extraRules[{index}] is not granted: ")) && said.contains(why),
            "{said}"
        );
    }
    let granted: Vec<Value> =
        rules(&stage).await.iter().map(|it| serde_json::to_value(it).unwrap()).collect();
    assert_eq!(granted.len(), 5, "pods, claims, deployments, and two more: {granted:#?}");
    assert_eq!(granted[3..], wanted[..2]);
    stage.apply(&plane(&json!({"rbac": {"extraRules": wanted[..2]}}))).await;
    stage.wait::<CoderControlPlane>("main", "complete", complete("True", "UpToDate")).await;
    assert_eq!(rules(&stage).await.len(), 5);
}

#[tokio::test]
async fn without_a_word_to_the_operator_no_further_rule_is_granted() {
    let stage = stage(&[]).await;
    let jobs = json!({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]});
    stage.apply(&plane(&json!({"rbac": {"extraRules": [jobs]}}))).await;
    stage.wait::<CoderControlPlane>("main", "incomplete", complete("False", "RulesNotAllowed")).await;
    assert_eq!(rules(&stage).await.len(), 3);
}

const HTTP_ROUTES: &str = "httproutes.gateway.networking.k8s.io";

/// The cluster as it was, also for whoever runs this again on the same bed.
async fn uninstall(crds: &Api<CustomResourceDefinition>) {
    crds.delete(HTTP_ROUTES, &DeleteParams::default()).await.ok();
    let is_gone = |it: Option<&CustomResourceDefinition>| it.is_none();
    timeout(LIMIT, await_condition(crds.clone(), HTTP_ROUTES, is_gone)).await.unwrap().unwrap();
}

/// The least of a definition that takes our routes: what they hold is not its business.
fn http_routes() -> CustomResourceDefinition {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": HTTP_ROUTES,
            // The API server asks for that in this group.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": "gateway.networking.k8s.io", "scope": "Namespaced", "versions": [version],
            "names": {"kind": "HTTPRoute", "plural": "httproutes", "singular": "httproute"}},
    }))
    .unwrap()
}

fn routes(stage: &Stage) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "HTTPRoute");
    Api::namespaced_with(stage.client.clone(), &stage.namespace, &ApiResource::from_gvk(&kind))
}

#[tokio::test]
async fn a_route_is_made_once_the_gateway_api_is_there_and_goes_when_it_is_no_longer_declared() {
    let stage = stage(&[]).await;
    let crds = Api::<CustomResourceDefinition>::all(stage.client.clone());
    uninstall(&crds).await;
    let exposed = json!({"expose": {"gateway": {"host": "coder.example.com",
        "parentRefs": [{"name": "edge", "namespace": "gateways", "sectionName": "https"}]}}});
    stage.apply(&plane(&exposed)).await;
    let missing = stage
        .wait::<CoderControlPlane>("main", "without routes", complete("False", "GatewayAPIMissing"))
        .await;
    assert!(words(&missing, "Complete").contains("gateway.networking.k8s.io/v1"), "{missing:#}");

    // Nobody starts the operator again, and nobody asks it to look.
    let apply = PatchParams::apply("test").force();
    crds.patch(HTTP_ROUTES, &apply, &Patch::Apply(http_routes())).await.unwrap();
    let served = await_condition(crds.clone(), HTTP_ROUTES, is_crd_established());
    timeout(LIMIT, served).await.unwrap().unwrap();
    stage.wait::<CoderControlPlane>("main", "complete", complete("True", "UpToDate")).await;
    let route = serde_json::to_value(routes(&stage).get("main").await.unwrap()).unwrap();
    assert_eq!(route["spec"]["hostnames"], json!(["coder.example.com"]));
    assert_eq!(route["spec"]["parentRefs"][0]["sectionName"], "https");
    assert_eq!(route["spec"]["rules"][0]["backendRefs"][0]["name"], "main");
    assert_eq!(route["metadata"]["ownerReferences"][0]["uid"], missing["metadata"]["uid"]);
    stage.look_again("CoderControlPlane", "main").await;
    let again = routes(&stage).get("main").await.unwrap();
    assert_eq!(
        json!(again.metadata.resource_version),
        route["metadata"]["resourceVersion"],
        "it is written once"
    );

    // Another way in takes its place, and goes in its turn. An Ingress of another client under the name is left alone.
    let ingresses = stage.api::<Ingress>();
    let others = json!({"metadata": {"name": "main"},
        "spec": {"defaultBackend": {"service": {"name": "theirs", "port": {"number": 80}}}}});
    let others: Ingress = serde_json::from_value(others).unwrap();
    let others = ingresses.create(&PostParams::default(), &others).await.unwrap();
    stage.apply(&plane(&json!({"expose": {"ingress": {"host": "coder.example.com"}}}))).await;
    stage.wait::<CoderControlPlane>("main", "in the way", is_taken).await;
    assert_eq!(
        ingresses.get("main").await.unwrap().metadata.resource_version,
        others.metadata.resource_version
    );
    ingresses.delete("main", &DeleteParams::default()).await.unwrap();
    stage.wait::<CoderControlPlane>("main", "complete", complete("True", "UpToDate")).await;
    assert!(routes(&stage).get_opt("main").await.unwrap().is_none(), "the route is no longer declared");
    let rules = ingresses.get("main").await.unwrap().spec.unwrap().rules.unwrap();
    assert_eq!(rules[0].host.as_deref(), Some("coder.example.com"));
    let others = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "main"}});
    let others: DynamicObject = serde_json::from_value(others).unwrap();
    let others = routes(&stage).create(&PostParams::default(), &others).await.unwrap();
    stage.apply(&plane(&exposed)).await;
    stage.wait::<CoderControlPlane>("main", "in the way", is_taken).await;
    assert_eq!(
        routes(&stage).get("main").await.unwrap().metadata.resource_version,
        others.metadata.resource_version
    );
    stage.apply(&plane(&json!({}))).await;
    stage.wait::<CoderControlPlane>("main", "complete", complete("True", "UpToDate")).await;
    assert!(ingresses.get_opt("main").await.unwrap().is_none(), "nothing is declared any more");
    assert!(routes(&stage).get_opt("main").await.unwrap().is_some(), "it is not ours to delete");
    uninstall(&crds).await;
}
