//! Control planes that we run: what is taken, what is refused, and what is kept of a status.

use api::{CoderControlPlane, CoderControlPlaneStatus};
use serde_json::{Value, json};

use super::cluster::{Cluster, refusal};

/// A manifest with every field that coder-k8s has.
fn everything_that_coder_k8s_has() -> Value {
    let rule = json!({"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get"]});
    let claim = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": 1_073_741_824}}}});
    let term = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    let divisor = json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": 1}});
    json!({
        "image": "registry.example.com/coder/coder:v2.30.0", "replicas": 1,
        "service": {"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}},
        "extraArgs": ["--verbose"],
        "extraEnv": [
            {"name": "CODER_PG_CONNECTION_URL", "valueFrom": {"secretKeyRef": {"name": "coder-db-app", "key": "uri"}}},
            {"name": "MEMORY", "valueFrom": divisor},
        ],
        "imagePullSecrets": [{"name": "pull"}],
        "operatorAccess": {"disabled": false, "generatedTokenSecretName": ""},
        "licenseSecretRef": {"name": "license", "key": ""},
        "serviceAccount": {"disableCreate": false, "name": " ", "annotations": {"a": "b"}, "labels": {"a": "b"}},
        "rbac": {"workspacePerms": true, "enableDeployments": false, "extraRules": [rule], "workspaceNamespaces": ["dev"]},
        "resources": {"limits": {"cpu": 2, "memory": "2Gi"}, "requests": {"cpu": "500m"}},
        "securityContext": {"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}},
        "podSecurityContext": {"fsGroup": 1000, "sysctls": [{"name": "a", "value": "b"}]},
        "tls": {"secretNames": ["one", "one"]},
        "readinessProbe": {"enabled": true, "initialDelaySeconds": 0, "periodSeconds": 5, "timeoutSeconds": 2,
            "successThreshold": 1, "failureThreshold": 4},
        "livenessProbe": {},
        "envUseClusterAccessURL": true,
        "expose": {"ingress": {"className": "nginx", "host": "coder.example.com", "wildcardHost": "*.coder.example.com",
            "annotations": {"a": "b"}, "tls": {"secretName": "one", "wildcardSecretName": "two"}}},
        "envFrom": [{"prefix": "CODER_", "configMapRef": {"name": "a", "optional": true}}, {"secretRef": {"name": "b"}}],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": claim}},
            {"name": "all", "projected": {"sources": [{"secret": {"name": "x"}}]}}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "certs": {"secrets": [{"name": "ca", "key": "ca.crt"}]},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "templateTests": {"ownerUserID": "00000000-0000-4000-8000-000000000001", "allowRetain": true, "later": [1]},
    })
}

/// The database in the form of newer releases of coder-k8s.
fn database() -> Value {
    json!({"connectionSecretRef": {"name": "coder-db-app", "key": "uri"}})
}

#[tokio::test]
async fn a_manifest_of_coder_k8s_is_taken_unchanged_and_can_be_read() {
    let cluster = Cluster::new("unchanged").await;
    let spec = everything_that_coder_k8s_has();
    let taken = cluster.apply_spec("CoderControlPlane", "coder", &spec).await.unwrap();
    assert_eq!(taken.data["spec"], spec);
    let read: CoderControlPlane = serde_json::from_value(serde_json::to_value(&taken).unwrap()).unwrap();
    let written = serde_json::to_value(&read.spec).unwrap();
    assert_eq!(written["resources"]["limits"]["cpu"], "2", "a number is a quantity too");
    let fields = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&written), fields(&spec));
    let newer = json!({"image": "registry.example.com/coder/coder:v2.30.0", "database": database()});
    let taken = cluster.apply_spec("CoderControlPlane", "newer", &newer).await.unwrap();
    assert_eq!(taken.data["spec"], newer);
    assert_eq!(
        cluster.apply_spec("CoderControlPlane", "bare", &json!({})).await.unwrap().data["spec"],
        json!({})
    );
}

#[tokio::test]
async fn a_deployment_that_runs_elsewhere_is_not_configured_here() {
    let cluster = Cluster::new("elsewhere").await;
    let external = json!({"url": "https://coder.example.com", "credentialsSecretRef": {"name": "token"}});
    let mut fields = everything_that_coder_k8s_has();
    fields["database"] = database();
    for (field, value) in fields.as_object().unwrap() {
        let taken = cluster
            .apply_spec("CoderControlPlane", "main", &json!({"external": external, field: value}))
            .await;
        if ["licenseSecretRef", "operatorAccess"].contains(&field.as_str()) {
            taken.unwrap();
            continue;
        }
        let said = refusal(taken);
        assert!(said.contains("spec.external: "), "{said}");
        assert!(said.contains(&format!("remove external, or {field}")), "{said}");
    }
    let access = json!({"firstUserSecretRef": {"name": "first"}});
    let said = refusal(
        cluster
            .apply_spec("CoderControlPlane", "main", &json!({"external": external, "operatorAccess": access}))
            .await,
    );
    assert!(
        said.contains("spec.operatorAccess: ") && said.contains("external.credentialsSecretRef"),
        "{said}"
    );
}

#[tokio::test]
async fn a_name_that_no_service_can_have_is_refused_only_where_there_is_one() {
    let cluster = Cluster::new("services").await;
    let long = "a".repeat(64);
    let external =
        json!({"external": {"url": "https://coder.example.com", "credentialsSecretRef": {"name": "token"}}});
    for name in ["team.coder", "1coder", long.as_str()] {
        let said = refusal(cluster.apply_spec("CoderControlPlane", name, &json!({})).await);
        assert!(said.contains("becomes the name of a Service"), "{said}");
        cluster.apply_spec("CoderControlPlane", name, &external).await.unwrap();
    }
    cluster.apply_spec("CoderControlPlane", &"a".repeat(63), &json!({})).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_at_its_field() {
    let cluster = Cluster::new("run").await;
    let ingress = json!({"host": "a.example.com"});
    let gateway = json!({"host": "a.example.com", "parentRefs": [{"name": "public"}]});
    let wildcard = json!({"host": "a.example.com", "tls": {"wildcardSecretName": "x"}});
    let both = json!({"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}});
    for (spec, path, words) in [
        (json!({"replicas": -1}), "replicas", "greater than or equal to 0"),
        (json!({"service": {"port": 0}}), "service.port", "greater than or equal to 1"),
        (json!({"service": {"port": 65_536}}), "service.port", "less than or equal to 65535"),
        (json!({"service": {"type": "ExternalName"}}), "service.type", "Unsupported value"),
        (json!({"expose": {"ingress": ingress, "gateway": gateway}}), "expose", "by ingress or by gateway"),
        (json!({"expose": {"ingress": {}}}), "expose.ingress.host", "Required value"),
        (json!({"expose": {"ingress": {"host": ""}}}), "expose.ingress.host", "at least 1 char"),
        (json!({"expose": {"ingress": wildcard}}), "expose.ingress.tls", "needs wildcardHost"),
        (json!({"expose": {"gateway": {"host": "a"}}}), "expose.gateway.parentRefs", "Required value"),
        (
            json!({"expose": {"gateway": {"host": "a", "parentRefs": []}}}),
            "expose.gateway.parentRefs",
            "at least 1 item",
        ),
        (json!({"envFrom": [both]}), "envFrom", "make two entries"),
        (json!({"rbac": {"workspaceNamespaces": [""]}}), "rbac.workspaceNamespaces[0]", "at least 1 char"),
        (json!({"certs": {"secrets": [{"name": "ca"}]}}), "certs.secrets[0].key", "Required value"),
        (
            json!({"livenessProbe": {"periodSeconds": 0}}),
            "livenessProbe.periodSeconds",
            "greater than or equal to 1",
        ),
        (json!({"extraEnv": [{"value": "x"}]}), "extraEnv[0].name", "Required value"),
        (json!({"database": {}}), "database.connectionSecretRef", "Required value"),
        (
            json!({"database": {"connectionSecretRef": {"name": "db", "key": ""}}}),
            "database.connectionSecretRef.key",
            "at least 1 char",
        ),
        (
            json!({"database": database(), "extraEnv": [{"name": api::DATABASE_URL, "value": "postgres://x"}]}),
            "database",
            "remove one of them",
        ),
        (
            json!({"operatorAccess": {"firstUserSecretRef": {}}}),
            "operatorAccess.firstUserSecretRef.name",
            "Required",
        ),
    ] {
        let said = refusal(cluster.apply_spec("CoderControlPlane", "mistake", &spec).await);
        assert!(said.contains(&format!("spec.{path}: ")) && said.contains(words), "{spec}: {said}");
    }
    for (name, expose) in [
        ("ingress", json!({"ingress": ingress})),
        ("gateway", json!({"gateway": gateway})),
        ("none", json!({})),
    ] {
        cluster.apply_spec("CoderControlPlane", name, &json!({"expose": expose})).await.unwrap();
    }
}

#[tokio::test]
async fn a_control_planes_status_is_kept_whole() {
    let cluster = Cluster::new("planes").await;
    cluster.apply_spec("CoderControlPlane", "main", &json!({})).await.unwrap();
    let time = "2026-01-02T03:04:05Z";
    let condition = json!({"type": api::condition::READY, "status": "True", "reason": api::Reason::UpToDate,
        "message": "", "observedGeneration": 1, "lastTransitionTime": time});
    let status = json!({
        "observedGeneration": 1, "conditions": [condition], "phase": "Ready", "readyReplicas": 2,
        "url": "http://main.platform.svc.cluster.local:80", "version": "v2.36.0", "databaseVersion": "v2.36.0",
        "deploymentID": "1", "operatorAccessReady": true,
        "operatorTokenSecretRef": {"name": "main-operator-token", "key": "token"},
        "licenseLastApplied": time, "licenseLastAppliedHash": "h", "licenseTier": "premium",
        "licenses": [{"uuid": "u", "id": 1, "secretName": "license", "featureSet": "premium", "trial": false,
            "expiresAt": time, "graceEndsAt": time}],
        "entitlementsLastChecked": time, "externalProvisionerDaemonsEntitlement": "entitled",
        "features": [{"name": "audit_log", "entitlement": "entitled", "enabled": true}],
        "users": {"limit": 100, "actual": 3}, "licenseWarnings": ["soon"], "licenseErrors": ["late"],
        "plan": {"hash": "h", "summary": "one change"}, "drift": [{"field": "image", "expected": "b", "found": "a"}],
        "lastAppliedTime": time, "lastHandledReconcileAt": "now",
    });
    let typed: CoderControlPlaneStatus = serde_json::from_value(status.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), status);
    let kept = cluster.apply_status("CoderControlPlane", "main", &status).await.unwrap();
    assert_eq!(kept.data["status"], status);
}
