//! Provisioners and provisioner keys: what is taken, what is refused, what may change, and what is kept of a status.

use api::{CoderProvisioner, CoderProvisionerKeyStatus, CoderProvisionerStatus};
use serde_json::{Value, json};

use super::cluster::{Cluster, refusal};

const TIME: &str = "2026-01-02T03:04:05Z";

fn with(further: &Value) -> Value {
    let mut spec = further.clone();
    spec["controlPlaneRef"] = json!({"name": "main"});
    spec
}

#[tokio::test]
async fn a_provisioner_of_coder_k8s_is_taken_unchanged_and_can_be_read() {
    let cluster = Cluster::new("unchanged").await;
    let spec = with(&json!({
        "organizationName": "", "key": {"name": "", "secretName": "", "secretKey": ""}, "replicas": 2,
        "tags": {"environment": "prod", "scope": "organization"}, "image": "registry.example.com/coder/coder:v2.30.0",
        "extraArgs": ["--verbose", "--log-human=/dev/stderr"], "extraEnv": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"cpu": 2}}, "imagePullSecrets": [{"name": "pull"}],
        "terminationGracePeriodSeconds": 30,
    }));
    let taken = cluster.apply_spec("CoderProvisioner", "alpha", &spec).await.unwrap();
    assert_eq!(taken.data["spec"], spec);
    let read: CoderProvisioner = serde_json::from_value(serde_json::to_value(&taken).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(&read.spec).unwrap()["resources"]["limits"]["cpu"], "2");
    let bare = cluster.apply_spec("CoderProvisioner", "bare", &with(&json!({}))).await.unwrap();
    assert_eq!(bare.data["spec"], with(&json!({"replicas": 1})), "the one default");
}

#[tokio::test]
async fn mistakes_about_keys_and_tags_are_refused_at_their_field() {
    let cluster = Cluster::new("keys").await;
    let many: serde_json::Map<String, Value> = (0..65).map(|it| (format!("t{it}"), json!("x"))).collect();
    for kind in ["CoderProvisioner", "CoderProvisionerKey"] {
        for (tags, words) in [
            (json!({"scope": "user"}), "can only be `organization`"),
            (json!({"owner": ""}), "the tag `owner` is set by Coder"),
            (json!({"owner": "somebody"}), "the tag `owner` is set by Coder"),
            (json!({"zone": ""}), "Coder drops those that are empty"),
            (json!({"": "a"}), "Coder drops those that are empty"),
            (json!({"zone": "x".repeat(1025)}), "1024"),
            (Value::Object(many.clone()), "at most 64 items"),
        ] {
            let said = refusal(cluster.apply_spec(kind, "mistake", &with(&json!({"tags": tags}))).await);
            assert!(said.contains("spec.tags") && said.contains(words), "{kind} {tags}: {said}");
        }
        let named = |name: &str| match kind {
            "CoderProvisioner" => ("spec.key.name: ", with(&json!({"key": {"name": name}}))),
            _ => ("spec.name: ", with(&json!({"name": name}))),
        };
        for name in ["psk", "PSK", "Built-In", "user-auth"] {
            let (path, spec) = named(name);
            let said = refusal(cluster.apply_spec(kind, "mistake", &spec).await);
            assert!(said.contains(path) && said.contains("keys of Coder itself"), "{kind} {name}: {said}");
        }
        let (path, spec) = named("a/b");
        let said = refusal(cluster.apply_spec(kind, "mistake", &spec).await);
        assert!(said.contains(path), "{kind}: {said}");
        let said = refusal(cluster.apply_spec(kind, "psk", &with(&json!({}))).await);
        assert!(said.contains("metadata.name cannot be the name of a key"), "{said}");
        cluster.apply_spec(kind, "psk", &named("mine").1).await.unwrap();
        for name in ["psk-2", "not-built-in"] {
            cluster.apply_spec(kind, "fine", &named(name).1).await.unwrap();
        }
    }
    let long = "a".repeat(65);
    let said = refusal(cluster.apply_spec("CoderProvisionerKey", &long, &with(&json!({}))).await);
    assert!(said.contains("set spec.name"), "{said}");
    cluster.apply_spec("CoderProvisioner", &long, &with(&json!({}))).await.unwrap();
}

#[tokio::test]
async fn what_daemons_cannot_be_run_with_is_refused_at_its_field() {
    let cluster = Cluster::new("daemons").await;
    let variable =
        |name: &str| json!({"extraEnv": [{"name": "A", "value": "b"}, {"name": name, "value": "x"}]});
    let argument = |argument: &str| json!({"extraArgs": ["--verbose", argument]});
    let (key_decides, name) = ("the key decides", "a name in the cluster");
    for (spec, path, words) in [
        (json!({"controlPlaneRef": {"name": ""}}), "controlPlaneRef.name", "at least 1 char"),
        (json!({"organizationName": "a b"}), "organizationName", "single hyphens"),
        (json!({"organizationName": "a".repeat(129)}), "organizationName", "128"),
        (json!({"key": {"name": "a".repeat(129)}}), "key.name", "128"),
        (json!({"key": {"name": "schlüssel"}}), "key.name", "ASCII"),
        (json!({"key": {"name": "Кey"}}), "key.name", "ASCII"),
        (json!({"key": {"name": "tab\tin"}}), "key.name", "ASCII"),
        (json!({"key": {"secretName": "Key"}}), "key.secretName", name),
        (json!({"key": {"secretName": "a".repeat(254)}}), "key.secretName", "253"),
        (json!({"key": {"secretKey": "a/b"}}), "key.secretKey", "should match"),
        (json!({"replicas": -1}), "replicas", "greater than or equal to 0"),
        (json!({"terminationGracePeriodSeconds": -1}), "terminationGracePeriodSeconds", "equal to 0"),
        (json!({"rotation": {"every": "30m"}}), "rotation.every", "at least 1h"),
        (json!({"rotation": {"every": "90 days"}}), "rotation.every", "should match"),
        (json!({"entitlementLossPolicy": "Delete"}), "entitlementLossPolicy", "Unsupported value"),
        (json!({"bootstrap": {}}), "bootstrap.credentialsSecretRef", "Required value"),
        (json!({"serviceAccountName": "a", "rbac": {}}), "serviceAccountName", "used as it is"),
        (json!({"serviceAccountName": "a", "serviceAccount": {}}), "serviceAccountName", "used as it is"),
        (json!({"priorityClassName": "High"}), "priorityClassName", name),
        (json!({"interval": "1s"}), "interval", "at least 10s"),
        (variable("CODER_ORGANIZATION"), "extraEnv", key_decides),
        (variable("CODER_PROVISIONER_DAEMON_KEY"), "extraEnv", key_decides),
        (variable("CODER_PROVISIONER_DAEMON_PSK"), "extraEnv", key_decides),
        (variable("CODER_PROVISIONERD_TAGS"), "extraEnv", key_decides),
        (argument("--key=secret"), "extraArgs", key_decides),
        (argument("--tag"), "extraArgs", key_decides),
        (argument("-tzone=a"), "extraArgs", key_decides),
        (argument("-O"), "extraArgs", key_decides),
        (argument("--org=alpha"), "extraArgs", key_decides),
    ] {
        let whole = if spec.get("controlPlaneRef").is_some() { spec.clone() } else { with(&spec) };
        let said = refusal(cluster.apply_spec("CoderProvisioner", "mistake", &whole).await);
        assert!(said.contains(&format!("spec.{path}: ")) && said.contains(words), "{spec}: {said}");
        assert!(!said.contains("--key=secret"), "what is refused is not repeated: {said}");
    }
    for (spec, path, words) in [
        (json!({"name": "a".repeat(65)}), "name", "64"),
        (json!({"name": "a b"}), "name", "letters and digits"),
        (json!({"secretName": ""}), "secretName", "at least 1 char"),
        (json!({"secretKey": "a b"}), "secretKey", "should match"),
        (json!({"rotation": {"every": "12h"}}), "rotation.overlap", "must not be longer than every"),
        (json!({"rotation": {"every": "48h", "overlap": "49h"}}), "rotation.overlap", "must not be longer"),
        (json!({"rotation": {"overlap": "1s"}}), "rotation.overlap", "at least 10s"),
    ] {
        let said = refusal(cluster.apply_spec("CoderProvisionerKey", "mistake", &with(&spec)).await);
        assert!(said.contains(&format!("spec.{path}: ")) && said.contains(words), "{spec}: {said}");
    }
    let overlap = json!({"rotation": {"every": "12h", "overlap": "1h"}});
    cluster.apply_spec("CoderProvisionerKey", "fine", &with(&overlap)).await.unwrap();
    let arguments = json!({"extraArgs": ["--tags-are-no-flag", "--organisation", "--name=-t"],
        "serviceAccountName": "mine"});
    cluster.apply_spec("CoderProvisioner", "fine", &with(&arguments)).await.unwrap();
}

#[tokio::test]
async fn a_provisioner_may_change_in_everything_and_a_key_in_all_but_its_control_plane() {
    let cluster = Cluster::new("changes").await;
    let spec = |plane: &str, organization: &str, zone: &str| json!({"controlPlaneRef": {"name": plane}, "organizationName": organization, "tags": {"zone": zone}});
    cluster.apply_spec("CoderProvisioner", "alpha", &spec("main", "alpha", "a")).await.unwrap();
    let moved = cluster.apply_spec("CoderProvisioner", "alpha", &spec("other", "bravo", "b")).await.unwrap();
    assert_eq!(moved.data["spec"]["controlPlaneRef"]["name"], "other");
    let key =
        |organization: &str, zone: &str| with(&json!({"organization": organization, "tags": {"zone": zone}}));
    cluster.apply_spec("CoderProvisionerKey", "alpha", &key("alpha", "a")).await.unwrap();
    cluster.apply_spec("CoderProvisionerKey", "alpha", &key("bravo", "b")).await.unwrap();
}

#[tokio::test]
async fn a_provisioner_can_be_scaled_whether_or_not_it_says_how_many() {
    let cluster = Cluster::new("scale").await;
    cluster.apply_spec("CoderProvisioner", "alpha", &with(&json!({}))).await.unwrap();
    let status = json!({"replicas": 1, "selector": "app.kubernetes.io/instance=alpha"});
    cluster.apply_status("CoderProvisioner", "alpha", &status).await.unwrap();
    let scale = cluster.scale("CoderProvisioner", "alpha").await;
    assert_eq!(scale.spec.and_then(|it| it.replicas), Some(1));
    let found = scale.status.unwrap();
    assert_eq!((found.replicas, found.selector.as_deref()), (1, Some("app.kubernetes.io/instance=alpha")));
}

fn key_state() -> Value {
    let retiring = json!({"name": "alpha", "id": "0", "organizationID": "1", "organizationName": "alpha",
        "controlPlaneRefName": "main", "controlPlaneURL": "https://coder.example.com", "deploymentID": "2",
        "since": TIME, "isOurs": true, "checksum": "0a1b2c3d"});
    json!({"organizationID": "1", "organizationName": "alpha", "provisionerKeyID": "3",
        "provisionerKeyName": "alpha-1a2b-1", "provisionerKeyIsOurs": true, "tagsHash": "0a1b2c3d",
        "controlPlaneRefName": "main", "controlPlaneURL": "https://coder.example.com", "deploymentID": "2",
        "secretRef": {"name": "alpha-provisioner-key", "key": "key"}, "pendingKey": retiring, "provisionerKeyChecksum": "bf9cf968",
        "formerSecretRefs": [{"name": "before", "key": "key"}], "usedKeyNames": ["alpha"],
        "retiringKeys": [retiring], "keyGeneration": 2, "keyEpoch": 7, "lastRotationTime": TIME, "lastHandledRotateAt": "now"})
}

#[tokio::test]
async fn the_status_of_a_provisioner_and_of_a_key_is_kept_whole() {
    let cluster = Cluster::new("status").await;
    let condition = json!({"type": api::condition::READY, "status": "True", "reason": api::Reason::UpToDate,
        "message": "", "observedGeneration": 1, "lastTransitionTime": TIME});
    let mut status = key_state();
    for (field, value) in json!({"observedGeneration": 1, "conditions": [condition],
        "plan": {"hash": "h", "summary": "one change"}, "drift": [{"field": "tags", "expected": "b", "found": "a"}],
        "lastAppliedTime": TIME, "lastHandledReconcileAt": "now"})
    .as_object()
    .unwrap()
    {
        status[field] = value.clone();
    }
    let mut of_key = status.clone();
    of_key["id"] = json!("3");
    let typed: CoderProvisionerKeyStatus = serde_json::from_value(of_key.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), of_key);
    cluster.apply_spec("CoderProvisionerKey", "alpha", &with(&json!({}))).await.unwrap();
    let kept = cluster.apply_status("CoderProvisionerKey", "alpha", &of_key).await.unwrap();
    assert_eq!(kept.data["status"], of_key);

    for (field, value) in
        json!({"phase": "Ready", "replicas": 2, "readyReplicas": 1, "selector": "a=b", "daemons": 1,
        "daemonVersions": ["v2.36.0"]})
        .as_object()
        .unwrap()
    {
        status[field] = value.clone();
    }
    let typed: CoderProvisionerStatus = serde_json::from_value(status.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), status);
    cluster.apply_spec("CoderProvisioner", "alpha", &with(&json!({}))).await.unwrap();
    let kept = cluster.apply_status("CoderProvisioner", "alpha", &status).await.unwrap();
    assert_eq!(kept.data["status"], status);
}
