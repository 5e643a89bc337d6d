//! The chart with names, accounts and roles that differ from the defaults.

use serde_json::{Value, json};

use super::chart::{find, render, render_release};

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
