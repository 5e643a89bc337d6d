//! The chart with names, accounts and roles that differ from the defaults.

use engine::rbac::{Form, rules};
use serde_json::{Value, json};

use super::{
    chart::{find, helm, render, render_release},
    site::{CHART, output_of},
};

/// The object of a kind with that name.
fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_meant = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
    let names = || objects.iter().map(|it| format!("{} {}", it["kind"], it["metadata"]["name"]));
    objects.iter().find(is_meant).unwrap_or_else(|| {
        unreachable!("no {kind} {name} among {:#?}", names().collect::<Vec<_>>());
    })
}

/// The arguments of the operator's container.
fn args(objects: &[Value]) -> Vec<String> {
    let container = &find(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    serde_json::from_value(container["args"].clone()).unwrap()
}

/// The names of the Lease in the Role for leader election.
fn lease_names(objects: &[Value], release: &str) -> Value {
    let role = named(objects, "Role", &format!("{release}-leader-election"));
    let rules = role["rules"].as_array().unwrap();
    let with_names: Vec<&Value> =
        rules.iter().map(|it| &it["resourceNames"]).filter(|it| !it.is_null()).collect();
    assert_eq!(with_names.len(), 1, "{role:#}");
    with_names[0].clone()
}

#[tokio::test]
async fn releases_in_one_namespace_have_a_lease_each() {
    for release in ["team-a", "team-b"] {
        let scope = format!("watchNamespace={release}");
        let objects = render_release(release, &["--namespace", "operators", "--set", &scope]).await;
        let name = format!("{release}-coder-operator");
        assert!(args(&objects).contains(&format!("--lease-name={name}")), "{:?}", args(&objects));
        assert_eq!(lease_names(&objects, &name), json!([name]));
    }
    let objects = render(&[]).await;
    assert!(args(&objects).contains(&"--lease-name=coder-operator".to_owned()));
    assert_eq!(lease_names(&objects, "coder-operator"), json!(["coder-operator"]));
}

/// Every label of an object and of its pod template.
fn labels(object: &Value) -> Vec<(&String, &str)> {
    let paths = ["/metadata/labels", "/spec/template/metadata/labels", "/spec/selector/matchLabels"];
    let maps = paths.iter().filter_map(|it| object.pointer(it)?.as_object());
    maps.flatten().map(|(key, value)| (key, value.as_str().unwrap())).collect()
}

#[tokio::test]
async fn longest_names_fit_into_labels() {
    let longest = "n".repeat(63);
    for value in ["nameOverride", "fullnameOverride"] {
        let objects = render(&["--set", &format!("{value}={longest}")]).await;
        for object in &objects {
            let long = labels(object).into_iter().find(|(_, value)| value.len() > 63);
            assert_eq!(long, None, "{} {}", object["kind"], object["metadata"]["name"]);
        }
        let job = find(&objects, "Job")["metadata"]["name"].as_str().unwrap();
        assert!(job.len() <= 63 && job.ends_with("-uninstall-check"), "{job}");
    }
}

#[tokio::test]
async fn overridden_names_are_those_of_objects_labels_and_lease() {
    let objects = render(&["--set", "nameOverride=coder-sync"]).await;
    let deployment = named(&objects, "Deployment", "coder-operator-coder-sync");
    assert_eq!(deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"], "coder-sync");
    let objects = render(&["--set", "fullnameOverride=sync"]).await;
    let deployment = named(&objects, "Deployment", "sync");
    assert_eq!(deployment["metadata"]["labels"]["app.kubernetes.io/name"], "coder-operator");
    assert_eq!(deployment["spec"]["template"]["spec"]["serviceAccountName"], "sync");
    named(&objects, "ServiceAccount", "sync");
    assert_eq!(named(&objects, "ClusterRoleBinding", "sync")["roleRef"]["name"], "sync");
    assert!(args(&objects).contains(&"--lease-name=sync".to_owned()));
    assert_eq!(lease_names(&objects, "sync"), json!(["sync"]));
}

#[tokio::test]
async fn existing_account_is_used_and_not_created() {
    for (values, name) in [
        ("serviceAccount.create=false,serviceAccount.name=shared", "shared"),
        ("serviceAccount.create=false", "default"),
    ] {
        let objects = render(&["--set", values]).await;
        assert!(objects.iter().all(|it| it["kind"] != "ServiceAccount"), "{values}");
        let pods = objects.iter().filter_map(|it| it.pointer("/spec/template/spec/serviceAccountName"));
        assert_eq!(pods.collect::<Vec<_>>(), [name, name], "of the operator and of the uninstall check");
        let subjects: Vec<&Value> = objects.iter().filter_map(|it| it.pointer("/subjects/0/name")).collect();
        assert_eq!(subjects, [name, name], "{values}");
    }
    let objects = render(&["--set", "serviceAccount.name=own"]).await;
    named(&objects, "ServiceAccount", "own");
}

#[tokio::test]
async fn roles_for_people_are_aggregated_only_where_wanted() {
    let aggregation = |it: &Value| {
        let labels = it["metadata"]["labels"].as_object().unwrap();
        labels.keys().filter(|it| it.starts_with("rbac.authorization.k8s.io/aggregate-to-")).count()
    };
    let objects = render(&[]).await;
    assert_eq!(aggregation(named(&objects, "ClusterRole", "coder-operator-view")), 3);
    assert_eq!(aggregation(named(&objects, "ClusterRole", "coder-operator-edit")), 2);
    let off = "rbac.aggregateToView=false,rbac.aggregateToEdit=false";
    let objects = render(&["--set", off]).await;
    for name in ["coder-operator-view", "coder-operator-edit"] {
        assert_eq!(aggregation(named(&objects, "ClusterRole", name)), 0, "{name}");
    }
    // Whoever installs into one namespace may not create roles of the cluster.
    let objects = render(&["--set", &format!("{off},watchNamespace=platform")]).await;
    let of_the_cluster = objects.iter().filter(|it| it["kind"] != "CustomResourceDefinition");
    assert!(
        of_the_cluster.clone().all(|it| it["kind"] != "ClusterRole" && it["kind"] != "ClusterRoleBinding")
    );
}

#[tokio::test]
async fn rendered_roles_hold_exactly_the_rules_of_the_table() {
    let table = |form: Form| -> Value {
        rules(form).iter().map(|it| serde_json::to_value(it.policy()).unwrap()).collect()
    };
    let objects = render(&[]).await;
    assert_eq!(named(&objects, "ClusterRole", "coder-operator")["rules"], table(Form::Watched));
    assert_eq!(named(&objects, "Role", "coder-operator-leader-election")["rules"], table(Form::Own));
    let objects = render(&["--set", "watchNamespace=platform"]).await;
    let role = named(&objects, "Role", "coder-operator");
    assert_eq!(role["rules"], table(Form::Watched));
    assert_eq!(role["metadata"]["namespace"], "platform");
}

#[tokio::test]
async fn labels_of_pods_do_not_replace_those_of_the_selector() {
    let added = r#"podLabels={"app.kubernetes.io/name": "other", "example.com/team": "platform"}"#;
    let objects = render(&["--set-json", added]).await;
    let deployment = find(&objects, "Deployment");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let expected = json!({"app.kubernetes.io/name": "coder-operator",
        "app.kubernetes.io/instance": "coder-operator", "example.com/team": "platform"});
    assert_eq!(labels, &expected);
}

#[tokio::test]
async fn notes_warn_of_definitions_only_where_the_chart_owns_them() {
    // Other tests install the definitions on the same bed, without Helm.
    for (values, expected) in
        [("crds.keep=false", true), ("crds.keep=false,crds.enabled=false", false), ("crds.keep=true", false)]
    {
        let install =
            ["install", "coder-operator", CHART, "--dry-run=client", "--take-ownership", "--set", values];
        let shown = output_of(&helm(&install).await);
        assert_eq!(shown.contains("crds.keep is false"), expected, "{values}");
    }
}
