use serde_json::{Value, json};

use super::*;

fn provisioner(spec: &Value) -> CoderProvisioner {
    let mut whole = json!({"controlPlaneRef": {"name": "main"}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
        "metadata": {"name": "alpha", "namespace": "platform", "uid": "1"}, "spec": whole}))
    .unwrap()
}

fn facts() -> DaemonFacts {
    DaemonFacts {
        url: "https://coder.test".to_owned(),
        image: "coder:v2.36.0".to_owned(),
        secret: ("alpha-provisioner-key".to_owned(), "key".to_owned()),
        checksum: "bf9cf968".to_owned(),
        replicas: 2,
        authority: None,
    }
}

fn trusting() -> DaemonFacts {
    let authority = Authority {
        secret: "coder-tls".to_owned(),
        key: "ca.crt".to_owned(),
        fingerprint: fingerprint(b"certificates"),
    };
    DaemonFacts { authority: Some(authority), ..facts() }
}

fn objects(spec: &Value) -> Vec<Value> {
    desire(&provisioner(spec), &facts()).unwrap().into_iter().map(|it| it.object).collect()
}

fn kinds(spec: &Value) -> Vec<String> {
    objects(spec).iter().map(|it| it["kind"].as_str().unwrap().to_owned()).collect()
}

fn object(spec: &Value, kind: &str) -> Value {
    objects(spec).into_iter().find(|it| it["kind"] == kind).unwrap()
}

fn template(spec: &Value, facts: &DaemonFacts) -> Value {
    let made = desire(&provisioner(spec), facts).unwrap();
    made.last().unwrap().object["spec"]["template"].clone()
}

fn variable(template: &Value, name: &str) -> Value {
    let variables = template["spec"]["containers"][0]["env"].as_array().unwrap();
    variables.iter().find(|it| it["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn a_bare_manifest_makes_the_objects_of_coder_k8s() {
    let bare = json!({});
    assert_eq!(kinds(&bare), ["ServiceAccount", "Role", "RoleBinding", "Deployment"]);
    let names: Vec<Value> = objects(&bare).iter().map(|it| it["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["alpha-provisioner", "provisioner-alpha", "provisioner-alpha", "provisioner-alpha"]);
    let labels = json!({"app.kubernetes.io/name": "coder-provisioner", "app.kubernetes.io/instance": "alpha",
        "app.kubernetes.io/managed-by": "coder-k8s"});
    for made in objects(&bare) {
        assert_eq!(made["metadata"]["labels"], labels, "{made:#}");
        let owner = &made["metadata"]["ownerReferences"][0];
        assert_eq!((owner["uid"].as_str(), owner["controller"].as_bool()), (Some("1"), Some(true)));
    }
    let deployment = object(&bare, "Deployment");
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(deployment["spec"]["replicas"], 2);
}

#[test]
fn a_daemon_is_told_its_address_its_key_and_its_name_and_never_its_organization() {
    let template = template(&json!({"organizationName": "team", "extraArgs": ["--verbose"]}), &facts());
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["name"], "provisioner");
    assert_eq!(container["image"], "coder:v2.36.0");
    assert_eq!(container["command"], json!(["coder"]));
    assert_eq!(container["args"], json!(["provisioner", "start", "--verbose"]));
    assert_eq!(variable(&template, "CODER_URL")["value"], "https://coder.test");
    assert_eq!(
        variable(&template, "CODER_PROVISIONER_DAEMON_KEY")["valueFrom"]["secretKeyRef"],
        json!({"name": "alpha-provisioner-key", "key": "key"})
    );
    assert_eq!(
        variable(&template, "CODER_PROVISIONER_DAEMON_NAME")["valueFrom"]["fieldRef"]["fieldPath"],
        "metadata.name"
    );
    assert_eq!(variable(&template, "CODER_ORGANIZATION"), Value::Null);
    assert_eq!(variable(&template, "SSL_CERT_DIR"), Value::Null);
    assert_eq!(template["metadata"]["annotations"], json!({"checksum/provisioner-key": "bf9cf968"}));
}

#[test]
fn a_build_has_ten_minutes_to_end_unless_the_manifest_says_otherwise() {
    let seconds = |spec| template(&spec, &facts())["spec"]["terminationGracePeriodSeconds"].clone();
    assert_eq!(seconds(json!({})), 600);
    assert_eq!(seconds(json!({"terminationGracePeriodSeconds": 0})), 0);
}

#[test]
fn pods_pass_the_level_restricted_and_what_a_person_sets_is_kept() {
    let bare = template(&json!({}), &facts());
    let pod = &bare["spec"]["securityContext"];
    assert_eq!(
        (&pod["runAsNonRoot"], &pod["seccompProfile"]["type"]),
        (&json!(true), &json!("RuntimeDefault"))
    );
    let container = &bare["spec"]["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["capabilities"]["drop"], json!(["ALL"]));
    let own = json!({"securityContext": {"allowPrivilegeEscalation": true}, "podSecurityContext": {"runAsUser": 7}});
    let own = template(&own, &facts());
    assert_eq!(own["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"], true);
    assert_eq!(own["spec"]["securityContext"]["runAsUser"], 7);
}

#[test]
fn an_authority_is_one_file_of_its_secret_and_other_certificates_make_other_pods() {
    let spec = json!({"volumes": [{"name": "cache", "emptyDir": {}}],
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]});
    let trusting = template(&spec, &trusting());
    assert_eq!(
        trusting["spec"]["volumes"],
        json!([{"name": "coder-authority", "secret": {"secretName": "coder-tls",
            "items": [{"key": "ca.crt", "path": "authority.crt"}]}}, {"name": "cache", "emptyDir": {}}])
    );
    let mounts = &trusting["spec"]["containers"][0]["volumeMounts"];
    assert_eq!(mounts[0]["mountPath"], "/etc/coder/authority");
    assert_eq!((&mounts[0]["readOnly"], &mounts[1]["name"]), (&json!(true), &json!("cache")));
    let folders = variable(&trusting, "SSL_CERT_DIR")["value"].as_str().unwrap().to_owned();
    assert!(
        folders.starts_with("/etc/ssl/certs:") && folders.ends_with(":/etc/coder/authority"),
        "{folders}"
    );
    assert_eq!(trusting["metadata"]["annotations"][annotation::CONFIGURATION], fingerprint(b"certificates"));
    assert_ne!(fingerprint(b"certificates"), fingerprint(b"others"));
}

#[test]
fn a_volume_of_a_name_that_is_taken_is_refused_at_its_field() {
    let twice = json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]});
    let refused = desire(&provisioner(&twice), &facts()).unwrap_err();
    assert_eq!(refused.field, "spec.volumes[1].name");
    let ours = json!({"volumes": [{"name": "coder-authority", "emptyDir": {}}]});
    assert_eq!(desire(&provisioner(&ours), &trusting()).unwrap_err().field, "spec.volumes[0].name");
    assert!(desire(&provisioner(&ours), &facts()).is_ok());
}

#[test]
fn what_is_passed_through_reaches_the_pod() {
    let spec = json!({
        "extraEnv": [{"name": "TF_LOG", "value": "WARN"}, {"name": "CODER_URL", "value": "https://other.test"}],
        "envFrom": [{"configMapRef": {"name": "more"}}],
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "podAnnotations": {"team": "platform"}, "podLabels": {"team": "platform", "app.kubernetes.io/name": "mine"},
        "priorityClassName": "high", "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "builds", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]});
    let template = template(&spec, &facts());
    let (metadata, pod) = (&template["metadata"], &template["spec"]);
    assert_eq!(variable(&template, "TF_LOG")["value"], "WARN");
    assert_eq!(variable(&template, "CODER_URL")["value"], "https://other.test");
    assert_eq!(pod["containers"][0]["envFrom"], json!([{"configMapRef": {"name": "more"}}]));
    assert_eq!(pod["containers"][0]["resources"]["limits"]["memory"], "1Gi");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    assert_eq!(metadata["annotations"]["team"], "platform");
    assert_eq!(metadata["labels"]["team"], "platform");
    assert_eq!(
        metadata["labels"]["app.kubernetes.io/name"], "coder-provisioner",
        "the selector finds pods by it"
    );
    assert_eq!((&pod["priorityClassName"], &pod["nodeSelector"]["zone"]), (&json!("high"), &json!("a")));
    assert_eq!(pod["tolerations"][0]["key"], "builds");
    assert_eq!(pod["affinity"], json!({"nodeAffinity": {}}));
    assert_eq!(pod["topologySpreadConstraints"][0]["topologyKey"], "zone");
}

#[test]
fn an_account_of_somebody_else_is_used_and_gets_no_rights() {
    let spec = json!({"serviceAccountName": "theirs"});
    assert_eq!(kinds(&spec), ["Deployment"]);
    assert_eq!(template(&spec, &facts())["spec"]["serviceAccountName"], "theirs");
    // As a manifest of coder-k8s may hold it.
    assert_eq!(
        template(&json!({"serviceAccountName": ""}), &facts())["spec"]["serviceAccountName"],
        "alpha-provisioner"
    );
    let ours = json!({"serviceAccount": {"annotations": {"role": "r"}, "labels": {"team": "platform"}}});
    let account = object(&ours, "ServiceAccount");
    assert_eq!(account["metadata"]["annotations"]["role"], "r");
    assert_eq!(account["metadata"]["labels"]["team"], "platform");
}

#[test]
fn rights_are_those_that_workspaces_need_and_deployments_only_when_asked() {
    let rules = |spec| object(&spec, "Role")["rules"].clone();
    let bare = rules(json!({}));
    assert_eq!(bare.as_array().unwrap().len(), 1);
    assert_eq!(bare[0]["resources"], json!(["pods", "persistentvolumeclaims"]));
    assert_eq!(bare[0]["verbs"], json!(["get", "list", "watch", "create", "update", "patch", "delete"]));
    let more = rules(json!({"rbac": {"enableDeployments": true}}));
    assert_eq!((&more[1]["apiGroups"][0], &more[1]["resources"][0]), (&json!("apps"), &json!("deployments")));
    assert_eq!(kinds(&json!({"rbac": {"workspacePerms": false}})), ["ServiceAccount", "Deployment"]);
    let binding = object(&json!({}), "RoleBinding");
    assert_eq!(binding["roleRef"]["name"], "provisioner-alpha");
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "ServiceAccount", "name": "alpha-provisioner", "namespace": "platform"}])
    );
}
