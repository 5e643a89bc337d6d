//! The chart without a release: what it renders, and what it refuses.

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::{Value, json};
use tokio::process::Command;

use super::site::{CHART, output_of, root};
use crate::{bed::stage::install, support::Folder};

/// Every optional part of the chart, switched on.
const EVERYTHING: &str = r#"
replicaCount: 3
image: {digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
imagePullSecrets: [{name: registry}]
serviceAccount: {annotations: {example.com/role: operator}}
resources: {limits: {memory: 1Gi}}
podDisruptionBudget: {minAvailable: 50%}
networkPolicy:
  enabled: true
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  egress: [{ports: [{port: 443}]}]
service: {annotations: {prometheus.io/scrape: "true"}}
extraArgs: [--log-format=json]
extraEnv: [{name: HTTPS_PROXY, value: "http://proxy.test:3128"}]
extraVolumes: [{name: rules, configMap: {name: allow-rules}}]
extraVolumeMounts: [{name: rules, mountPath: /etc/rules}]
affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
tolerations: [{key: dedicated, operator: Exists}]
nodeSelector: {kubernetes.io/os: linux}
topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}
priorityClassName: system-cluster-critical
podAnnotations: {example.com/note: "yes"}
podLabels: {example.com/team: platform}
"#;

/// The parts that need the kinds of the Prometheus operator.
const MONITORING: &str = r#"
serviceMonitor: {enabled: true, labels: {release: prometheus}, interval: 1m}
prometheusRule:
  enabled: true
  labels: {release: prometheus}
  rules: [{alert: Mine, expr: "vector(1)"}]
"#;

pub(super) async fn helm(args: &[&str]) -> Output {
    let bed = testbed::shared().unwrap();
    let mut command = Command::new(&bed.helm);
    command.args(args).current_dir(root()).env("KUBECONFIG", &bed.kubeconfig);
    command.output().await.unwrap()
}

/// The objects that the chart renders with more arguments.
pub(super) async fn render(args: &[&str]) -> Vec<Value> {
    render_release("coder-operator", args).await
}

/// The objects that the chart renders for a release of that name.
pub(super) async fn render_release(release: &str, args: &[&str]) -> Vec<Value> {
    let text = output_of(&helm(&[&["template", release, CHART], args].concat()).await);
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    objects.into_iter().filter(|it| !it.is_null()).collect()
}

pub(super) fn find<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects
        .iter()
        .find(|it| it["kind"] == kind)
        .unwrap_or_else(|| unreachable!("no {kind} among {objects:#?}"))
}

/// Every page below a folder.
fn pages(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let read = |path: PathBuf| {
        if path.is_dir() { pages(&path) } else { std::fs::read_to_string(path).unwrap_or_default() }
    };
    entries.map(read).collect()
}

#[tokio::test]
async fn chart_passes_lint_with_defaults_and_with_everything() {
    let folder = Folder::new("chart-lint");
    let everything = folder.write("everything.yaml", EVERYTHING);
    let monitoring = folder.write("monitoring.yaml", MONITORING);
    output_of(&helm(&["lint", "--strict", CHART]).await);
    output_of(&helm(&["lint", "--strict", CHART, "-f", &everything, "-f", &monitoring]).await);
}

#[tokio::test]
async fn schema_refuses_unknown_and_mistyped_values() {
    for (value, words) in [
        ("replicas=3", "replicas"),
        ("image.name=x", "name"),
        ("crds.install=true", "install"),
        ("replicaCount=many", "replicaCount"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("image.digest=latest", "digest"),
        ("watchNamespace=Not_A_Name", "watchNamespace"),
    ] {
        let output = helm(&["template", "coder-operator", CHART, "--set", value]).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{value} was accepted");
        assert!(error.contains("values don't meet the specifications") && error.contains(words), "{error}");
    }
    let several = ["--set", "leaderElection.enabled=false"];
    let output = helm(&[&["template", "coder-operator", CHART][..], &several].concat()).await;
    assert!(String::from_utf8_lossy(&output.stderr).contains("Set replicaCount to 1"));
    render(&["--set", "leaderElection.enabled=false,replicaCount=1"]).await;
    // What a parent chart adds to the values of its dependencies.
    render(&["--set", "global.registry=example.test,enabled=true"]).await;
}

#[tokio::test]
async fn every_value_of_the_chart_is_in_its_schema() {
    let read = |name: &str| std::fs::read_to_string(root().join(CHART).join(name)).unwrap();
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    for (name, value) in values.as_object().unwrap() {
        let property = &schema["properties"][name];
        assert!(property.is_object(), "{name} is not in the schema");
        let Some(allowed) = property["properties"].as_object() else { continue };
        assert_eq!(property["additionalProperties"], false, "{name}");
        let keys = |it: &serde_json::Map<String, Value>| it.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(value.as_object().unwrap()), keys(allowed), "{name}");
    }
}

#[tokio::test]
async fn rendered_deployment_fits_the_level_restricted_and_says_what_was_asked() {
    let objects = render(&["--namespace", "platform"]).await;
    let deployment = find(&objects, "Deployment");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(
        pod["securityContext"],
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})
    );
    let hardened = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}});
    assert_eq!(container["securityContext"], hardened);
    let image = container["image"].as_str().unwrap();
    assert!(
        image.ends_with(concat!("/coder-operator/coder-operator:", env!("CARGO_PKG_VERSION"))),
        "{image}"
    );
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    let crds = objects.iter().filter(|it| it["kind"] == "CustomResourceDefinition");
    let kept = crds.filter(|it| it["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep");
    assert_eq!(kept.count(), api::crds().len());
    let released = render(&["--set", "crds.keep=false"]).await;
    assert_eq!(find(&released, "CustomResourceDefinition")["metadata"]["annotations"], Value::Null);
    let without = render(&["--set", "crds.enabled=false,rbac.create=false"]).await;
    let is_gone = |it: &Value| it["kind"] != "CustomResourceDefinition" && it["kind"] != "ClusterRole";
    assert!(without.iter().all(is_gone));
}

#[tokio::test]
async fn alerts_and_monitor_use_metrics_that_the_operator_has() {
    let folder = Folder::new("chart-monitoring");
    let monitoring = folder.write("monitoring.yaml", MONITORING);
    let objects = render(&["-f", &monitoring]).await;
    let endpoint = &find(&objects, "ServiceMonitor")["spec"]["endpoints"][0];
    assert_eq!((&endpoint["port"], &endpoint["honorLabels"]), (&json!("metrics"), &json!(true)));
    let documented = pages(&root().join("docs"));
    let rules = find(&objects, "PrometheusRule")["spec"]["groups"][0]["rules"].as_array().unwrap().clone();
    assert_eq!(rules.last().unwrap()["alert"], "Mine");
    for rule in rules.iter().filter(|it| it["alert"] != "Mine") {
        let expression = rule["expr"].as_str().unwrap();
        let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let words = expression.split(|it| !is_word(it));
        let metrics: Vec<&str> = words.filter(|it| it.starts_with("coder_operator_")).collect();
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            assert!(
                documented.contains(&format!("`{metric}`")),
                "{metric} of {expression} is not documented"
            );
        }
    }
}

#[tokio::test]
async fn api_server_accepts_every_object_of_the_chart() {
    let bed = testbed::shared().unwrap();
    install(&bed.client().await.unwrap()).await;
    let namespace = bed.namespace("chart").await.unwrap();
    let folder = Folder::new("chart-everything");
    let everything = folder.write("everything.yaml", EVERYTHING);
    for (name, args) in [("defaults", vec![]), ("everything", vec!["-f", everything.as_str()])] {
        let watched = format!("watchNamespace={namespace}");
        for scope in ["watchNamespace=", watched.as_str()] {
            let mut command =
                vec!["template", "coder-operator", CHART, "--namespace", &namespace, "--set", scope];
            command.extend(&args);
            let rendered = folder.write(&format!("{name}.rendered.yaml"), &output_of(&helm(&command).await));
            let apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", &rendered];
            let mut kubectl = Command::new(&bed.kubectl);
            kubectl.args(apply).env("KUBECONFIG", &bed.kubeconfig);
            output_of(&kubectl.output().await.unwrap());
        }
    }
}
