use serde_json::json;

use super::{super::desire, *};

fn plane(spec: &Value) -> CoderControlPlane {
    serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main", "namespace": "platform", "uid": "1"}, "spec": spec}))
    .unwrap()
}

fn secret_with(name: &str, keys: &[&str], blank: &[&str]) -> BTreeMap<SourceRef, Source> {
    let owned = |keys: &[&str]| keys.iter().map(|it| (*it).to_owned()).collect();
    let fingerprint = format!("{keys:?} {blank:?}");
    let source = Source { keys: owned(keys), blank: owned(blank), fingerprint };
    [(SourceRef::Secret(name.to_owned()), source)].into()
}

fn deployment(container: &Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "sidecar"}, container]}}}})
}

fn by_secret() -> Value {
    json!({"connectionSecretRef": {"name": "db", "key": "url"}})
}

/// The reason and the message with which the pods are left as they are; `None` where there is a Deployment.
fn refusal(
    spec: &Value,
    live: &Value,
    sources: BTreeMap<SourceRef, Source>,
) -> Option<(&'static str, String)> {
    let deployed = Some(Deployed::of(live, &sources));
    let desired = desire(&plane(spec), &PlaneFacts { sources, deployed, ..PlaneFacts::default() }).unwrap();
    let has_deployment = desired.children.iter().any(|it| it.key.kind == "Deployment");
    let reasons = [Reason::DatabaseRemovalRefused, Reason::SecretNotFound];
    let refused = desired.notices.into_iter().find(|it| reasons.contains(&it.reason));
    assert_eq!(has_deployment, refused.is_none());
    refused.map(|it| (it.reason.as_str(), it.message))
}

#[test]
fn deployment_with_a_database_is_not_rolled_onto_none() {
    let selector = json!({"secretKeyRef": {"name": "coder-db", "key": "url"}});
    let from = json!({"name": "coder", "envFrom": [{"prefix": "CODER_", "secretRef": {"name": "more"}}]});
    let more = || secret_with("more", &["PG_CONNECTION_URL"], &[]);
    for (container, sources, place) in [
        (
            json!({"name": "coder", "env": [{"name": DATABASE_URL, "valueFrom": selector}]}),
            BTreeMap::new(),
            "Secret coder-db, key url",
        ),
        (
            json!({"name": "coder", "env": [{"name": DATABASE_URL, "value": "postgres://x"}]}),
            BTreeMap::new(),
            "the variable CODER_PG_CONNECTION_URL",
        ),
        (from.clone(), more(), "Secret more"),
        (json!({"name": "coder", "args": ["--postgres-url=x"]}), BTreeMap::new(), "the argument"),
        (
            json!({"name": "coder", "command": ["coder", "--postgres-url", "x"]}),
            BTreeMap::new(),
            "the argument",
        ),
    ] {
        let live = deployment(&container);
        let (reason, message) = refusal(&json!({}), &live, sources.clone()).unwrap();
        assert_eq!(reason, "DatabaseRemovalRefused");
        assert!(message.contains(place) && message.contains("set spec.database"), "{message}");
        let unused =
            json!({"extraEnv": [{"name": DATABASE_URL, "value": " "}], "extraArgs": ["--postgres-url="]});
        assert!(refusal(&unused, &live, sources.clone()).is_some(), "an empty text is no database");
        let argument = json!({"extraArgs": ["--postgres-url", "x"]});
        assert_eq!(refusal(&argument, &live, sources), None, "another database is a person's decision");
    }
    let same = json!({"envFrom": [{"prefix": "CODER_", "secretRef": {"name": "more"}}]});
    assert_eq!(refusal(&same, &deployment(&from), more()), None);
    let emptied = secret_with("more", &["PG_CONNECTION_URL"], &["PG_CONNECTION_URL"]);
    let selected = json!({"name": "coder", "env": [{"name": DATABASE_URL, "valueFrom": selector}]});
    assert!(refusal(&same, &deployment(&selected), emptied).is_some());
}

/// The Deployment that is applied for a manifest.
fn applied(spec: &Value, sources: BTreeMap<SourceRef, Source>) -> Value {
    let children = desire(&plane(spec), &PlaneFacts { sources, ..PlaneFacts::default() }).unwrap().children;
    children.into_iter().find(|it| it.key.kind == "Deployment").unwrap().object
}

fn by_source(optional: bool) -> Value {
    json!({"envFrom": [{"secretRef": {"name": "coder-env", "optional": optional}}]})
}

#[test]
fn database_of_a_source_is_kept_when_the_source_changes() {
    let filled = || secret_with("coder-env", &[DATABASE_URL], &[]);
    for optional in [false, true] {
        let live = applied(&by_source(optional), filled());
        for (spec, sources) in [
            (by_source(optional), secret_with("coder-env", &["RENAMED"], &[])),
            (by_source(optional), secret_with("coder-env", &[DATABASE_URL], &[DATABASE_URL])),
            (by_source(true), BTreeMap::new()),
            (json!({}), BTreeMap::new()),
        ] {
            let (reason, message) = refusal(&spec, &live, sources).unwrap();
            assert_eq!(reason, "DatabaseRemovalRefused", "{spec}");
            assert!(message.contains("takes its database from Secret coder-env"), "{message}");
        }
        assert_eq!(refusal(&by_source(optional), &live, filled()), None);
    }
    let hidden =
        json!({"envFrom": by_source(false)["envFrom"], "extraEnv": [{"name": DATABASE_URL, "value": ""}]});
    assert!(refusal(&hidden, &applied(&by_source(false), filled()), filled()).is_some());
}

#[test]
fn record_of_the_database_is_beside_the_pods() {
    let template = |it: &Value| it["spec"]["template"].clone();
    let live = applied(&by_source(false), secret_with("coder-env", &[DATABASE_URL], &[]));
    assert_eq!(live["metadata"]["annotations"], json!({"coder.com/database": "Secret coder-env"}));
    assert_eq!(template(&live)["metadata"]["annotations"].as_object().unwrap().len(), 1);
    let bare = applied(&json!({}), BTreeMap::new());
    assert_eq!(bare["metadata"]["annotations"], json!({"coder.com/database": "none"}));
}

#[test]
fn missing_source_may_have_held_the_database() {
    let unrecorded = |mut live: Value| {
        live["metadata"]["annotations"].as_object_mut().unwrap().remove("coder.com/database").unwrap();
        live
    };
    let live = unrecorded(applied(&by_source(true), secret_with("coder-env", &[DATABASE_URL], &[])));
    for spec in [by_source(true), json!({})] {
        let (reason, message) = refusal(&spec, &live, BTreeMap::new()).unwrap();
        assert_eq!(reason, "DatabaseRemovalRefused");
        assert!(message.contains("may have taken its database from Secret coder-env"), "{message}");
    }
    let never_there = applied(&by_source(true), BTreeMap::new());
    assert_eq!(refusal(&by_source(true), &never_there, BTreeMap::new()), None);
    assert_eq!(refusal(&json!({}), &never_there, BTreeMap::new()), None, "recorded as none");
    let upgraded = unrecorded(never_there);
    assert_eq!(refusal(&by_source(true), &upgraded, BTreeMap::new()), None, "read by the pods as it is now");
}

#[test]
fn optional_reference_to_the_database_must_be_there() {
    let from = json!({"secretKeyRef": {"name": "db", "key": "url", "optional": true}});
    let spec = json!({"extraEnv": [{"name": DATABASE_URL, "valueFrom": from}]});
    let live = applied(&spec, secret_with("db", &["url"], &[]));
    for sources in
        [BTreeMap::new(), secret_with("db", &["other"], &[]), secret_with("db", &["url"], &["url"])]
    {
        let (reason, message) = refusal(&spec, &live, sources).unwrap();
        assert_eq!(reason, "SecretNotFound");
        assert!(message.contains("missing Secret db"), "{message}");
    }
}

#[test]
fn deployment_without_a_database_is_rolled_as_before() {
    for container in [
        json!({"name": "coder"}),
        json!({"name": "coder", "env": [{"name": DATABASE_URL, "value": ""}]}),
        json!({"name": "coder", "args": ["--postgres-url", ""]}),
    ] {
        assert_eq!(refusal(&json!({}), &deployment(&container), BTreeMap::new()), None, "{container}");
    }
    assert_eq!(refusal(&json!({}), &json!({}), BTreeMap::new()), None);
}

#[test]
fn declared_secret_becomes_the_variable_and_must_have_a_value() {
    let spec = json!({"database": by_secret()});
    let there = secret_with("db", &["url"], &[]);
    let facts = PlaneFacts { sources: there.clone(), ..PlaneFacts::default() };
    let children = desire(&plane(&spec), &facts).unwrap().children;
    let deployment = children.into_iter().find(|it| it.key.kind == "Deployment").unwrap().object;
    let variables =
        deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let found: Vec<&Value> = variables.iter().filter(|it| it["name"] == DATABASE_URL).collect();
    let variable = json!({"name": DATABASE_URL, "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}});
    assert_eq!(found, [&variable]);
    assert_eq!(of_deployment(&deployment, &there).as_deref(), Some("Secret db, key url"));
    for (sources, words) in [
        (BTreeMap::new(), "missing Secret db"),
        (secret_with("db", &["other"], &[]), "Secret db (its key url)"),
        (secret_with("db", &["url"], &["url"]), "Secret db (its key url, which is empty)"),
    ] {
        let (reason, message) = refusal(&spec, &deployment, sources).unwrap();
        assert_eq!(reason, "SecretNotFound");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn database_that_is_declared_twice_is_invalid() {
    let spec =
        json!({"database": by_secret(), "extraEnv": [{"name": DATABASE_URL, "value": "postgres://x"}]});
    let invalid = desire(&plane(&spec), &PlaneFacts::default()).unwrap_err();
    assert_eq!(invalid.field, "spec.database");
    assert!(invalid.message.contains("remove one of them"), "{}", invalid.message);
}

#[test]
fn absence_of_a_database_is_reported() {
    let is_absent = |spec: Value, sources: BTreeMap<SourceRef, Source>| {
        let facts = PlaneFacts { sources, ..PlaneFacts::default() };
        desire(&plane(&spec), &facts).unwrap().notices.iter().any(|it| it.reason == api::Reason::NoDatabase)
    };
    let none = BTreeMap::new;
    assert!(is_absent(json!({}), none()));
    let from = json!({"secretKeyRef": {"name": "db", "key": "url"}});
    assert!(!is_absent(json!({"extraEnv": [{"name": DATABASE_URL, "valueFrom": from}]}), none()));
    assert!(is_absent(json!({"extraEnv": [{"name": DATABASE_URL, "value": ""}]}), none()));
    assert!(!is_absent(json!({"extraArgs": ["--postgres-url=x"]}), none()));
    assert!(!is_absent(json!({"database": by_secret()}), none()));
    let source = secret_with("s", &[DATABASE_URL], &[]);
    assert!(!is_absent(json!({"envFrom": [{"secretRef": {"name": "s"}}]}), source));
}
