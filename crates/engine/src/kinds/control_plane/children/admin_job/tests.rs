use serde_json::{Value, json};

use super::*;
use crate::objects::references::{Source, SourceRef};

const DATABASE: &str = "CODER_PG_CONNECTION_URL";

fn plane(spec: &Value) -> CoderControlPlane {
    serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main", "namespace": "platform", "uid": "1"}, "spec": spec}))
    .unwrap()
}

fn job(spec: &Value) -> Value {
    serde_json::to_value(desire(&plane(spec), &PlaneFacts::default()).unwrap().unwrap()).unwrap()
}

fn with_database(more: &Value) -> Value {
    let from = json!({"secretKeyRef": {"name": "coder-db", "key": "url"}});
    let mut spec = json!({"image": "coder:v2.36.0", "extraEnv": [{"name": DATABASE, "valueFrom": from}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

#[test]
fn the_job_is_the_deployments_pod_with_another_command() {
    let more = json!({"envFrom": [{"configMapRef": {"name": "more"}}], "imagePullSecrets": [{"name": "pull"}],
        "serviceAccount": {"name": "coder"}, "certs": {"secrets": [{"name": "ca", "key": "ca.crt"}]},
        "podLabels": {"team": "platform"}, "nodeSelector": {"disk": "fast"},
        "affinity": {"podAntiAffinity": {}, "nodeAffinity": {}}});
    let job = job(&with_database(&more));
    let pod = &job["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!((&container["image"], &container["command"]), (&json!("coder:v2.36.0"), &Value::Null));
    assert_eq!(container["args"], json!(["create-admin-user"]));
    assert_eq!(container["envFrom"][0]["configMapRef"]["name"], "more");
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!((&pod["serviceAccountName"], &pod["restartPolicy"]), (&json!("coder"), &json!("Never")));
    assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
    assert_eq!(
        (&pod["nodeSelector"]["disk"], &pod["affinity"]),
        (&json!("fast"), &json!({"nodeAffinity": {}}))
    );
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/ssl/certs/ca.crt");
    for server in ["ports", "readinessProbe", "livenessProbe"] {
        assert_eq!(container[server], Value::Null, "{server}");
    }
    let spec = &job["spec"];
    assert_eq!((&spec["backoffLimit"], &spec["activeDeadlineSeconds"]), (&json!(0), &json!(600)));
}

#[test]
fn no_server_is_looked_for_in_its_pod_and_it_goes_with_the_control_plane() {
    let job = job(&with_database(&json!({})));
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_ne!(labels["app.kubernetes.io/name"], "coder-control-plane", "the Service would find it");
    assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], "1");
}

#[test]
fn its_variables_come_from_the_secret_whatever_a_person_sets() {
    let mut spec = with_database(&json!({}));
    spec["extraEnv"].as_array_mut().unwrap().push(json!({"name": "CODER_USERNAME", "value": "root"}));
    let job = job(&spec);
    let variables = job["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    for (name, key) in VARIABLES {
        let found: Vec<_> = variables.iter().filter(|it| it["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(
            found[0]["valueFrom"]["secretKeyRef"],
            json!({"name": "main-create-admin-user", "key": key})
        );
    }
    assert!(variables.iter().any(|it| it["name"] == DATABASE));
}

#[test]
fn a_database_that_is_named_in_an_argument_is_named_to_the_command() {
    let args =
        json!(["--verbose", "--postgres-url", "postgres://a", "--postgres-connection-auth=awsiamrds", "-x"]);
    let job = job(&json!({"image": "coder:v2.36.0", "extraArgs": args}));
    let expected =
        ["create-admin-user", "--postgres-url", "postgres://a", "--postgres-connection-auth=awsiamrds"];
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["args"], json!(expected));
}

#[test]
fn without_a_database_there_is_none_and_an_older_image_is_not_run() {
    assert_eq!(desire(&plane(&json!({"image": "coder:v2.36.0"})), &PlaneFacts::default()).unwrap(), None);
    let newer = PlaneFacts { database_version: Some("v2.37.0".to_owned()), ..PlaneFacts::default() };
    let refused = desire(&plane(&with_database(&json!({}))), &newer).unwrap_err();
    assert_eq!(refused.reason, api::Reason::DowngradeRefused);
}

#[test]
fn a_job_is_outdated_when_what_it_would_read_is_another() {
    let plane = plane(&with_database(&json!({})));
    let with = |fingerprint: &str| {
        let source = Source { fingerprint: fingerprint.to_owned(), ..Source::default() };
        let sources = [(SourceRef::Secret("coder-db".to_owned()), source)].into();
        desire(&plane, &PlaneFacts { sources, ..PlaneFacts::default() }).unwrap().unwrap()
    };
    assert!(is_current(&with("1"), &with("1")));
    assert!(!is_current(&with("1"), &with("2")));
}

#[test]
fn what_is_written_into_the_secret_is_read_again() {
    let password = SecretString::from("Pass-1");
    let secret = secret(&plane(&json!({})), "ours", "ours@example.invalid", &password);
    let (username, found) = account(&secret).unwrap();
    assert_eq!((username.as_str(), found.email.as_str()), ("ours", "ours@example.invalid"));
    assert_eq!(found.password.expose_secret(), "Pass-1");
    assert!(account(&Secret { data: None, ..secret }).is_none());
}
