//! The objects of a control plane on a real API server: applied once, they are as declared; what others do to them stays; what
//! coder-k8s left is taken over.

use engine::objects::ChildEffect;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service, ServiceAccount},
    networking::v1::Ingress,
    rbac::v1::RoleBinding,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::plane::{Plane, effects};

/// A manifest that uses most fields, spelled as people do and as the API server does not.
fn rich() -> Value {
    json!({
        "image": "registry.example.com/coder/coder:v2.36.0", "replicas": 0,
        "service": {"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}},
        "extraArgs": ["--verbose"],
        "extraEnv": [
            {"name": "CODER_PG_CONNECTION_URL", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}},
            {"name": "ZONE", "value": "$(KUBE_POD_IP)"}, {"name": "EMPTY", "value": ""}, {"name": "ABOVE", "value": "1000m"},
        ],
        "envFrom": [{"prefix": "X_", "configMapRef": {"name": "map"}}],
        "imagePullSecrets": [{"name": "pull"}, {"name": "pull"}],
        "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}},
        "podSecurityContext": {"fsGroup": 1000}, "podAnnotations": {"c": "d"}, "podLabels": {"e": "f"},
        "tls": {"secretNames": ["certificate.example.com"]},
        "certs": {"secrets": [{"name": "ca", "key": "one.crt"}, {"name": "ca", "key": "two.crt"}]},
        "livenessProbe": {"enabled": true, "initialDelaySeconds": 5},
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1024Mi"}}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
            "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"e": "f"}}}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "expose": {"ingress": {"className": "nginx", "host": "coder.example.com", "wildcardHost": "*.coder.example.com",
            "tls": {"secretName": "one", "wildcardSecretName": "two"}}},
    })
}

#[tokio::test]
async fn what_was_applied_is_as_declared_and_costs_no_write() {
    let plane = Plane::new("applied", &rich()).await;
    assert_eq!(plane.converge().await, 6, "account, role, binding, service, deployment, ingress");
    assert_eq!(effects(&plane.plan().await), []);
    let bare = Plane::new("bare", &json!({})).await;
    bare.converge().await;
    assert_eq!(effects(&bare.plan().await), []);
}

#[tokio::test]
async fn pods_pass_the_restricted_level_unless_a_person_says_otherwise() {
    let mut plane = Plane::new("restricted", &json!({})).await;
    plane.restrict().await;
    plane.converge().await;
    let pods = Api::<Pod>::namespaced(plane.client.clone(), &plane.namespace);
    let attempt = |deployment: Deployment| {
        let template = deployment.spec.unwrap().template;
        let mut pod = Pod { metadata: template.metadata.unwrap(), spec: template.spec, status: None };
        pod.metadata.name = Some("attempt".to_owned());
        pod
    };
    let dry = PostParams { dry_run: true, field_manager: None };
    pods.create(&dry, &attempt(plane.get("main").await)).await.unwrap();
    plane.spec = json!({"podSecurityContext": {"runAsUser": 0}});
    plane.converge().await;
    let refusal = pods.create(&dry, &attempt(plane.get("main").await)).await.unwrap_err();
    assert!(refusal.to_string().contains("PodSecurity \"restricted"), "{refusal}");
}

#[tokio::test]
async fn what_others_set_survives() {
    let mut plane =
        Plane::new("others", &json!({"replicas": 1, "extraEnv": [{"name": "A", "value": "1"}]})).await;
    plane.converge().await;
    // From now on an autoscaler decides how many pods there are.
    plane.spec = json!({"extraEnv": [{"name": "A", "value": "1"}]});
    plane.converge().await;
    let deployments = Api::<Deployment>::namespaced(plane.client.clone(), &plane.namespace);
    let services = Api::<Service>::namespaced(plane.client.clone(), &plane.namespace);
    let scaled = json!({"spec": {"replicas": 3}});
    let scale =
        deployments.patch_scale("main", &PatchParams::default(), &Patch::Merge(&scaled)).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(3));
    let restart = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-02T03:04:05Z"});
    let restarted = json!({"spec": {"template": {"metadata": {"annotations": restart}}}});
    deployments.patch("main", &PatchParams::default(), &Patch::Merge(&restarted)).await.unwrap();
    let noted = json!({"metadata": {"annotations": {"cloud.example.com/balancer": "7"}}});
    services.patch("main", &PatchParams::default(), &Patch::Merge(&noted)).await.unwrap();
    assert_eq!(effects(&plane.plan().await), []);
    // They survive a write of ours as well.
    plane.spec = json!({"image": "registry.example.com/coder/coder:v2.37.0", "service": {"port": 81}});
    plane.converge().await;
    let deployment: Deployment = plane.get("main").await;
    let spec = deployment.spec.unwrap();
    assert_eq!(spec.replicas, Some(3));
    let annotations = spec.template.metadata.unwrap().annotations.unwrap();
    assert_eq!(annotations["kubectl.kubernetes.io/restartedAt"], "2026-01-02T03:04:05Z");
    let service: Service = plane.get("main").await;
    assert_eq!(service.metadata.annotations.unwrap()["cloud.example.com/balancer"], "7");
    assert_eq!(effects(&plane.plan().await), []);
}

#[tokio::test]
async fn the_number_of_pods_stays_when_it_is_no_longer_declared() {
    let mut plane = Plane::new("handover", &json!({"replicas": 2})).await;
    plane.converge().await;
    plane.spec = json!({});
    plane.converge().await;
    let deployment: Deployment = plane.get("main").await;
    assert_eq!(deployment.spec.unwrap().replicas, Some(2), "and not the API server's default of 1");
    assert_eq!(effects(&plane.plan().await), []);
}

#[tokio::test]
async fn what_is_changed_by_hand_is_mended_and_what_is_no_longer_declared_goes() {
    let mut plane = Plane::new("mended", &rich()).await;
    plane.converge().await;
    let deployments = Api::<Deployment>::namespaced(plane.client.clone(), &plane.namespace);
    for by_hand in [
        json!({"spec": {"replicas": 5}}),
        json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}),
        json!({"spec": {"template": {"spec": {"tolerations": []}}}}),
        json!({"metadata": {"labels": {"app.kubernetes.io/name": "other"}}}),
    ] {
        deployments.patch("main", &PatchParams::default(), &Patch::Merge(&by_hand)).await.unwrap();
        assert_eq!(plane.converge().await, 1, "{by_hand}");
        assert_eq!(effects(&plane.plan().await), []);
    }
    for field in [
        "expose",
        "nodeSelector",
        "volumes",
        "volumeMounts",
        "envFrom",
        "resources",
        "livenessProbe",
        "podLabels",
    ] {
        plane.spec.as_object_mut().unwrap().remove(field);
    }
    // The database stays: without it nothing would be rolled.
    let database = plane.spec["extraEnv"][0].clone();
    plane.spec["extraEnv"] =
        json!([database, {"name": "ABOVE", "value": "1"}, {"name": "ZONE", "value": "$(KUBE_POD_IP)"}]);
    plane.converge().await;
    assert_eq!(effects(&plane.plan().await), []);
    let ingresses = Api::<Ingress>::namespaced(plane.client.clone(), &plane.namespace);
    assert!(ingresses.get_opt("main").await.unwrap().is_none());
    let deployment: Deployment = plane.get("main").await;
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let container = &pod.containers[0];
    assert_eq!((pod.node_selector, &container.env_from, &container.liveness_probe), (None, &None, &None));
    let names: Vec<&str> = container.env.iter().flatten().map(|it| it.name.as_str()).collect();
    assert!(names.ends_with(&["ABOVE", "ZONE"]), "in the declared order: {names:?}");
}

#[tokio::test]
async fn what_coder_k8s_installed_is_taken_over_without_a_restart_of_hardened_pods() {
    let hardened = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let spec = json!({"image": "registry.example.com/coder/coder:v2.36.0", "replicas": 0, "securityContext": hardened,
        "extraEnv": [{"name": "CODER_ACCESS_URL", "value": "https://coder.example.com"}, {"name": "OLD", "value": "1"}]});
    let mut plane = Plane::new("takeover", &spec).await;
    plane.install_as_coder_k8s().await;
    let before: Deployment = plane.get("main").await;
    let planned = plane.plan().await;
    let migrations = effects(&planned).iter().filter(|it| matches!(it, ChildEffect::Migrate { .. })).count();
    assert_eq!(migrations, 5);
    plane.converge().await;
    assert_eq!(effects(&plane.plan().await), []);
    let after: Deployment = plane.get("main").await;
    assert_eq!(before.spec.unwrap().template, after.spec.unwrap().template, "the pods stay");
    assert_eq!(before.metadata.uid, after.metadata.uid);
    // What coder-k8s wrote goes when it is no longer declared.
    plane.spec["extraEnv"] = json!([{"name": "CODER_ACCESS_URL", "value": "https://coder.example.com"}]);
    plane.converge().await;
    let deployment: Deployment = plane.get("main").await;
    let container = deployment.spec.unwrap().template.spec.unwrap().containers.remove(0);
    assert!(container.env.iter().flatten().all(|it| it.name != "OLD"));
    assert_eq!(effects(&plane.plan().await), []);
}

#[tokio::test]
async fn nothing_of_somebody_elses_is_written() {
    let plane = Plane::new("foreign", &json!({"serviceAccount": {"name": "default"}})).await;
    let accounts = Api::<ServiceAccount>::namespaced(plane.client.clone(), &plane.namespace);
    let before = accounts.get("default").await.unwrap();
    let planned = plane.plan().await;
    let refused: Vec<&str> = planned.refused.iter().map(|it| it.message.as_str()).collect();
    assert!(refused.len() == 1 && refused[0].contains("serviceAccount.disableCreate"), "{refused:?}");
    plane.converge().await;
    assert_eq!(accounts.get("default").await.unwrap(), before);
    let bindings = Api::<RoleBinding>::namespaced(plane.client.clone(), &plane.namespace);
    assert_eq!(
        bindings.list(&kube::api::ListParams::default()).await.unwrap().items,
        [],
        "no rights for it either"
    );
}

#[tokio::test]
async fn an_account_that_is_no_longer_made_here_stays() {
    let mut plane = Plane::new("account", &json!({})).await;
    plane.converge().await;
    plane.spec = json!({"serviceAccount": {"disableCreate": true}});
    plane.converge().await;
    let account: ServiceAccount = plane.get("main").await;
    assert_eq!((account.metadata.owner_references, account.metadata.labels), (None, None));
    assert_eq!(effects(&plane.plan().await), []);
}
