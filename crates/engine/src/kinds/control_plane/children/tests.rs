use serde_json::json;

use super::*;

fn plane(spec: &Value) -> CoderControlPlane {
    serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main", "namespace": "platform", "uid": "1"}, "spec": spec}))
    .unwrap()
}

/// Everything that the pods read is there.
fn facts(spec: &Value) -> PlaneFacts {
    PlaneFacts { sources: references::all_there(&plane(spec).spec), ..PlaneFacts::default() }
}

fn desired(spec: &Value) -> Desired {
    desire(&plane(spec), &facts(spec)).unwrap()
}

fn object(spec: &Value, kind: &str) -> Value {
    let children = desired(spec).children;
    children.into_iter().find(|it| it.key.kind == kind).unwrap_or_else(|| panic!("no {kind}")).object
}

fn pod(spec: &Value) -> Value {
    object(spec, "Deployment")["spec"]["template"]["spec"].clone()
}

fn container(spec: &Value) -> Value {
    pod(spec)["containers"][0].clone()
}

fn variable(spec: &Value, facts: &PlaneFacts, name: &str) -> Value {
    let children = desire(&plane(spec), facts).unwrap().children;
    let deployment = children.into_iter().find(|it| it.key.kind == "Deployment").unwrap().object;
    let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    let found: Vec<&Value> = variables.as_array().unwrap().iter().filter(|it| it["name"] == name).collect();
    assert!(found.len() < 2, "{name} is there twice");
    found.first().map_or(Value::Null, |it| it["value"].clone())
}

fn invalid(spec: &Value) -> Invalid {
    desire(&plane(spec), &PlaneFacts::default()).unwrap_err()
}

#[test]
fn a_bare_manifest_is_what_coder_k8s_makes_of_it() {
    let keys: Vec<String> = desired(&json!({})).children.iter().map(|it| it.key.to_string()).collect();
    let hash = "32828b9f";
    assert_eq!(
        keys,
        [
            "ServiceAccount platform/main".to_owned(),
            format!("Role platform/main-{hash}-workspace-perms"),
            format!("RoleBinding platform/main-{hash}"),
            "Service platform/main".to_owned(),
            "Deployment platform/main".to_owned(),
        ]
    );
    let labels = json!({"app.kubernetes.io/name": "coder-control-plane", "app.kubernetes.io/instance": "main",
        "app.kubernetes.io/managed-by": "coder-k8s"});
    let deployment = object(&json!({}), "Deployment");
    assert_eq!(deployment["metadata"]["labels"], labels);
    assert_eq!(deployment["spec"]["selector"], json!({"matchLabels": labels}));
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(deployment["spec"].get("replicas"), None, "nobody said how many");
    let container = container(&json!({}));
    assert!(container["image"].as_str().unwrap().ends_with("/coder/coder:latest"));
    assert_eq!(container["args"], json!(["--http-address=0.0.0.0:8080"]));
    assert_eq!(container["ports"], json!([{"name": "http", "containerPort": 8080, "protocol": "TCP"}]));
    let service = object(&json!({}), "Service");
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(
        service["spec"]["ports"],
        json!([{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}])
    );
}

#[test]
fn what_is_in_the_namespace_goes_with_the_control_plane() {
    let owner = json!([{"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "name": "main", "uid": "1",
        "controller": true, "blockOwnerDeletion": true}]);
    let spec = json!({"expose": {"ingress": {"host": "a.example.com"}}});
    for child in desired(&spec).children {
        assert_eq!(child.object["metadata"]["ownerReferences"], owner, "{}", child.key);
    }
}

#[test]
fn arguments_image_and_number_are_passed_on() {
    let spec = json!({"image": "coder:v2.36.0", "replicas": 2, "extraArgs": ["--verbose"], "service": {"port": 8080}});
    assert_eq!(container(&spec)["image"], "coder:v2.36.0");
    assert_eq!(container(&spec)["args"], json!(["--http-address=0.0.0.0:8080", "--verbose"]));
    assert_eq!(object(&spec, "Deployment")["spec"]["replicas"], 2);
    assert_eq!(object(&spec, "Service")["spec"]["ports"][0]["port"], 8080);
}

#[test]
fn what_is_passed_through_reaches_the_pod() {
    let spec = json!({
        "envFrom": [{"secretRef": {"name": "a"}}], "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}}, "imagePullSecrets": [{"name": "pull"}, {"name": "pull"}],
        "volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "resources": {"limits": {"cpu": 1}}, "securityContext": {"readOnlyRootFilesystem": true},
        "podSecurityContext": {"fsGroup": 7},
    });
    let (pod, container) = (pod(&spec), container(&spec));
    for field in ["nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "volumes"] {
        assert_eq!(pod[field], spec[field], "{field}");
    }
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "pull"}]), "merged by name, so each once");
    assert_eq!(container["envFrom"], spec["envFrom"]);
    assert_eq!(container["volumeMounts"], spec["volumeMounts"]);
    assert_eq!(container["resources"], json!({"limits": {"cpu": "1"}}));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(pod["securityContext"]["fsGroup"], 7);
}

#[test]
fn coder_is_told_its_address_unless_somebody_else_tells_it() {
    let none = PlaneFacts::default();
    let name = "CODER_ACCESS_URL";
    let default = json!("http://main.platform.svc.cluster.local");
    assert_eq!(variable(&json!({}), &none, name), default);
    let own = json!({"extraEnv": [{"name": name, "value": "https://coder.example.com"}]});
    assert_eq!(variable(&own, &none, name), "https://coder.example.com");
    assert_eq!(variable(&json!({"envUseClusterAccessURL": false}), &none, name), Value::Null);
    let from = |prefix: &str, keys: &[&str]| {
        let keys = keys.iter().map(|it| (*it).to_owned()).collect();
        let source = Source { keys, ..Source::default() };
        let facts = PlaneFacts {
            sources: [(SourceRef::Secret("s".to_owned()), source)].into(),
            ..PlaneFacts::default()
        };
        variable(&json!({"envFrom": [{"prefix": prefix, "secretRef": {"name": "s"}}]}), &facts, name)
    };
    assert_eq!(from("", &[name]), Value::Null);
    assert_eq!(from("CODER_", &["ACCESS_URL"]), Value::Null);
    assert_eq!(from("", &["OTHER"]), default);
    assert_eq!(from(name, &[""]), default, "no key is empty");
    let missing = json!({"envFrom": [{"configMapRef": {"name": "gone", "optional": true}}]});
    assert_eq!(variable(&missing, &none, name), default);
}

#[test]
fn a_variable_of_a_persons_takes_the_place_of_a_built_in_one() {
    let spec = json!({"extraEnv": [{"name": "KUBE_POD_IP", "value": "1"}, {"name": "A", "value": "1"}, {"name": "A", "value": "2"}]});
    let variables = container(&spec)["env"].clone();
    assert_eq!(variables[0], json!({"name": "KUBE_POD_IP", "value": "1"}), "before what refers to it");
    assert_eq!(variable(&spec, &PlaneFacts::default(), "A"), "2", "the last one counts, as in Kubernetes");
    let database = json!({"name": "CODER_PG_CONNECTION_URL", "value": "x"});
    assert_eq!(invalid(&json!({"extraEnv": [database, database]})).field, "spec.extraEnv[1].name");
}

#[test]
fn readiness_is_asked_by_default_and_liveness_when_it_is_switched_on() {
    let ask = json!({"path": "/healthz", "port": "http", "scheme": "HTTP"});
    let default = json!({"httpGet": ask, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1,
        "failureThreshold": 3});
    let bare = container(&json!({"livenessProbe": {}}));
    assert_eq!((&bare["readinessProbe"], bare.get("livenessProbe")), (&default, None));
    let own = container(&json!({"readinessProbe": {"enabled": false},
        "livenessProbe": {"enabled": true, "initialDelaySeconds": 5, "periodSeconds": 6}}));
    assert_eq!(own.get("readinessProbe"), None);
    assert_eq!(
        (&own["livenessProbe"]["initialDelaySeconds"], &own["livenessProbe"]["periodSeconds"]),
        (&json!(5), &json!(6))
    );
}

#[test]
fn certificates_make_the_pods_speak_https_too() {
    let spec = json!({"tls": {"secretNames": ["one", "one", " "]}});
    let container = container(&spec);
    assert_eq!(container["ports"][1], json!({"name": "https", "containerPort": 8443, "protocol": "TCP"}));
    let facts = facts(&spec);
    assert_eq!(variable(&spec, &facts, "CODER_TLS_ENABLE"), "true");
    assert_eq!(variable(&spec, &facts, "CODER_TLS_ADDRESS"), "0.0.0.0:8443");
    assert_eq!(variable(&spec, &facts, "CODER_TLS_CERT_FILE"), "/etc/ssl/certs/coder/one/tls.crt");
    assert_eq!(variable(&spec, &facts, "CODER_TLS_KEY_FILE"), "/etc/ssl/certs/coder/one/tls.key");
    assert_eq!(variable(&spec, &facts, "CODER_ACCESS_URL"), "https://main.platform.svc.cluster.local");
    assert_eq!(pod(&spec)["volumes"], json!([{"name": "tls-one", "secret": {"secretName": "one"}}]));
    let mount = json!([{"name": "tls-one", "mountPath": "/etc/ssl/certs/coder/one", "readOnly": true}]);
    assert_eq!(container["volumeMounts"], mount);
    let ports = |port: i32| {
        let mut spec = spec.clone();
        spec["service"] = json!({"port": port});
        let ports = object(&spec, "Service")["spec"]["ports"].clone();
        let pairs = ports.as_array().unwrap().iter().map(|it| (it["port"].clone(), it["targetPort"].clone()));
        pairs.collect::<Vec<_>>()
    };
    assert_eq!(ports(80), [(json!(80), json!(8080)), (json!(443), json!(8443))]);
    assert_eq!(ports(443), [(json!(80), json!(8080)), (json!(443), json!(8443))]);
}

#[test]
fn authorities_are_files_that_do_not_collide() {
    let files = |secrets: Value| {
        let mounts = container(&json!({"certs": {"secrets": secrets}}))["volumeMounts"].clone();
        let mounts = mounts.as_array().unwrap().clone();
        mounts.into_iter().map(|it| it["mountPath"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let at = |file: &str| format!("/etc/ssl/certs/{file}");
    assert_eq!(files(json!([{"name": "ca", "key": "x"}, {"name": "ca", "key": "x"}])), [at("ca.crt")]);
    let two = json!([{"name": "ca", "key": "one"}, {"name": "ca", "key": "two.crt"}]);
    assert_eq!(files(two.clone()), [at("ca-one.crt"), at("ca-two.crt")]);
    assert_eq!(pod(&json!({"certs": {"secrets": two}}))["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(
        files(json!([{"name": "foo", "key": "x"}, {"name": "foo.crt", "key": "x"}])),
        [at("foo.crt"), at("foo-2.crt")]
    );
}

#[test]
fn names_that_collide_are_refused_at_their_field() {
    let volume = json!({"name": "tls-one", "emptyDir": {}});
    let spec = json!({"tls": {"secretNames": ["one"]}, "volumes": [volume]});
    assert_eq!(invalid(&spec).field, "spec.volumes[0].name");
    let mount = json!({"name": "x", "mountPath": "/x"});
    assert_eq!(invalid(&json!({"volumeMounts": [mount, mount]})).field, "spec.volumeMounts[1].mountPath");
    let spread = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let spec = json!({"topologySpreadConstraints": [spread, spread]});
    assert_eq!(invalid(&spec).field, "spec.topologySpreadConstraints[1]");
    assert_eq!(invalid(&json!({"extraEnv": [{"name": ""}]})).field, "spec.extraEnv[0].name");
}

#[test]
fn the_account_is_named_labelled_and_left_to_others() {
    let spec = json!({"serviceAccount": {"name": "own", "annotations": {"a": "b"},
        "labels": {"c": "d", "app.kubernetes.io/managed-by": "me"}}});
    let account = object(&spec, "ServiceAccount");
    assert_eq!(account["metadata"]["name"], "own");
    assert_eq!(account["metadata"]["annotations"], json!({"a": "b"}));
    let labels = &account["metadata"]["labels"];
    assert_eq!((&labels["c"], &labels["app.kubernetes.io/managed-by"]), (&json!("d"), &json!("me")));
    assert_eq!(pod(&spec)["serviceAccountName"], "own");
    let spec = json!({"serviceAccount": {"name": "theirs", "disableCreate": true}});
    assert!(desired(&spec).children.iter().all(|it| it.key.kind != "ServiceAccount"));
    assert_eq!(pod(&spec)["serviceAccountName"], "theirs");
}

#[test]
fn rights_are_given_in_namespaces_that_consent() {
    let rbac = json!({"workspaceNamespaces": ["dev", "foreign", " dev ", "platform"]});
    let facts = PlaneFacts { consenting: ["dev".to_owned()].into(), ..PlaneFacts::default() };
    let desired = desire(&plane(&json!({"rbac": rbac})), &facts).unwrap();
    let of =
        |kind: &str| desired.children.iter().filter(|it| it.key.kind == kind).cloned().collect::<Vec<_>>();
    let namespaces: Vec<String> = of("Role").iter().map(|it| it.key.namespace.clone()).collect();
    assert_eq!(namespaces, ["platform", "dev"]);
    let refused: Vec<&str> = desired
        .notices
        .iter()
        .filter(|it| it.reason == api::Reason::NoConsent)
        .map(|it| it.message.as_str())
        .collect();
    assert!(
        refused.len() == 1
            && refused[0].contains("foreign")
            && refused[0].contains("coder.com/workspaces-from=platform"),
        "{refused:?}"
    );
    let elsewhere = &of("RoleBinding")[1].object;
    assert_eq!(
        elsewhere["metadata"].get("ownerReferences"),
        None,
        "an owner elsewhere would be taken for gone"
    );
    assert_eq!(elsewhere["metadata"]["annotations"], json!({"coder.com/workspace-rbac-owner-uid": "1"}));
    assert_eq!(
        elsewhere["subjects"],
        json!([{"kind": "ServiceAccount", "name": "main", "namespace": "platform"}])
    );
    assert_eq!(elsewhere["roleRef"]["name"], of("Role")[1].key.name.as_str());
}

#[test]
fn namespace_that_the_operator_may_not_read_is_left_out_with_the_remedy() {
    let rbac = json!({"workspaceNamespaces": ["dev", "far"]});
    let unreadable = [("far".to_owned(), "namespaces \"far\" is forbidden".to_owned())].into();
    let facts = PlaneFacts { consenting: ["dev".to_owned()].into(), unreadable, ..PlaneFacts::default() };
    let desired = desire(&plane(&json!({"rbac": rbac})), &facts).unwrap();
    let roles = desired.children.iter().filter(|it| it.key.kind == "Role");
    assert_eq!(roles.map(|it| it.key.namespace.as_str()).collect::<Vec<_>>(), ["platform", "dev"]);
    let notice = desired.notices.iter().find(|it| it.reason == api::Reason::NotPermitted).unwrap();
    for words in ["namespace far", "is forbidden", "deploy/rbac/workspaces.yaml"] {
        assert!(notice.message.contains(words), "{notice:?}");
    }
}

#[test]
fn a_namespace_consents_by_its_label_and_to_one_namespace() {
    let labelled = |value: &str| BTreeMap::from([("coder.com/workspaces-from".to_owned(), value.to_owned())]);
    assert!(consents(&plane(&json!({})), &labelled("platform")));
    assert!(!consents(&plane(&json!({})), &labelled("other")));
    assert!(!consents(&plane(&json!({})), &BTreeMap::new()));
}

#[test]
fn rights_are_those_of_coder_k8s_and_what_the_operator_allows() {
    let resources = |rbac: Value, facts: &PlaneFacts| {
        let children = desire(&plane(&json!({"rbac": rbac})), facts).unwrap().children;
        let role = children.into_iter().find(|it| it.key.kind == "Role");
        let rules = role.map(|it| it.object["rules"].as_array().unwrap().clone()).unwrap_or_default();
        rules.iter().map(|it| it["resources"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let none = PlaneFacts::default();
    assert_eq!(resources(json!({}), &none), ["pods", "persistentvolumeclaims", "deployments"]);
    assert_eq!(resources(json!({"enableDeployments": false}), &none), ["pods", "persistentvolumeclaims"]);
    assert_eq!(resources(json!({"workspacePerms": false}), &none), [""; 0]);
    let extra = json!({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]});
    let rbac =
        json!({"extraRules": [extra, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    assert_eq!(resources(rbac.clone(), &none), ["pods", "persistentvolumeclaims", "deployments"]);
    let notices = desired(&json!({"rbac": rbac})).notices;
    assert_eq!(notices.iter().filter(|it| it.reason == api::Reason::RulesNotAllowed).count(), 2);
    let allowing =
        PlaneFacts { allowed_rules: vec![serde_json::from_value(extra).unwrap()], ..PlaneFacts::default() };
    assert_eq!(resources(rbac, &allowing), ["pods", "persistentvolumeclaims", "deployments", "jobs"]);
}

#[test]
fn an_ingress_leads_to_plain_http() {
    let ingress = json!({"className": "nginx", "host": "coder.example.com", "wildcardHost": "*.coder.example.com",
        "annotations": {"a": "b"}, "tls": {"secretName": "one", "wildcardSecretName": "two"}});
    let spec =
        json!({"expose": {"ingress": ingress}, "tls": {"secretNames": ["t"]}, "service": {"port": 443}});
    let ingress = object(&spec, "Ingress");
    assert_eq!(ingress["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(ingress["spec"]["ingressClassName"], "nginx");
    let backend = json!({"service": {"name": "main", "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let rule = |host: &str| json!({"host": host, "http": {"paths": [path]}});
    assert_eq!(ingress["spec"]["rules"], json!([rule("coder.example.com"), rule("*.coder.example.com")]));
    let tls = json!([{"hosts": ["coder.example.com"], "secretName": "one"},
        {"hosts": ["*.coder.example.com"], "secretName": "two"}]);
    assert_eq!(ingress["spec"]["tls"], tls);
    let blank = json!({"expose": {"ingress": {"host": " "}}});
    assert_eq!(invalid(&blank).field, "spec.expose.ingress.host");
}

#[test]
fn a_route_waits_for_the_gateway_api_and_holds_up_nothing_else() {
    let gateway = json!({"host": "coder.example.com", "parentRefs": [{"name": "public", "namespace": "edge", "sectionName": "https"}]});
    let spec =
        json!({"expose": {"gateway": gateway}, "tls": {"secretNames": ["t"]}, "service": {"port": 443}});
    let without = desired(&spec);
    assert!(without.notices.iter().any(|it| it.reason == api::Reason::GatewayAPIMissing));
    assert_eq!(without.children.len(), 5);
    let with = desire(&plane(&spec), &PlaneFacts { gateway_api: true, ..facts(&spec) }).unwrap();
    assert!(with.notices.iter().all(|it| it.reason != api::Reason::GatewayAPIMissing));
    let route = &with.children[5];
    assert_eq!(
        (route.key.api_version.as_str(), route.key.kind.as_str()),
        ("gateway.networking.k8s.io/v1", "HTTPRoute")
    );
    let backend = json!({"group": "", "kind": "Service", "name": "main", "port": 80});
    let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [backend]});
    assert_eq!(
        route.object["spec"],
        json!({"hostnames": ["coder.example.com"], "parentRefs": gateway["parentRefs"], "rules": [rule]})
    );
    let blank =
        json!({"expose": {"gateway": {"host": "a", "parentRefs": [{"name": "a", "namespace": " "}]}}});
    assert_eq!(invalid(&blank).field, "spec.expose.gateway.parentRefs[0].namespace");
}

#[test]
fn pods_are_replaced_when_what_they_read_changes() {
    let spec = json!({"envFrom": [{"secretRef": {"name": "s"}}]});
    let annotations = |fingerprint: &str, deployed: Option<Deployed>| {
        let source = Source { fingerprint: fingerprint.to_owned(), ..Source::default() };
        let sources = [(SourceRef::Secret("s".to_owned()), source)].into();
        let children = desire(&plane(&spec), &PlaneFacts { sources, deployed, ..PlaneFacts::default() })
            .unwrap()
            .children;
        let deployment = children.into_iter().find(|it| it.key.kind == "Deployment").unwrap().object;
        Deployed::of(&deployment, &BTreeMap::new())
    };
    let new = annotations("1", None);
    assert!(new.pods.is_some() && new.found.is_none());
    assert_ne!(annotations("2", Some(new.clone())).pods, new.pods);
    // Pods that were there before us are not replaced because we came, and are when something changes.
    let found = annotations("1", Some(Deployed::default()));
    assert_eq!((&found.pods, &found.found), (&None, &new.pods));
    assert_eq!(annotations("1", Some(found.clone())), found);
    assert_eq!(annotations("2", Some(found)), annotations("2", None));
}

#[test]
fn an_image_that_would_destroy_the_database_is_not_deployed() {
    let facts = PlaneFacts { database_version: Some("v2.37.0".to_owned()), ..PlaneFacts::default() };
    let older = desire(&plane(&json!({"image": "coder:v2.36.0"})), &facts).unwrap();
    assert!(older.children.iter().all(|it| it.key.kind != "Deployment"), "what runs stays as it is");
    assert!(older.notices.iter().any(|it| it.reason == api::Reason::DowngradeRefused));
    let same = desire(&plane(&json!({"image": "coder:v2.37.0"})), &facts).unwrap();
    assert!(same.children.iter().any(|it| it.key.kind == "Deployment"));
}

#[test]
fn pods_are_neither_made_nor_changed_while_something_that_they_read_is_not_there() {
    let spec = json!({"tls": {"secretNames": ["one"]}});
    let without = desire(&plane(&spec), &PlaneFacts::default()).unwrap();
    assert!(without.children.iter().all(|it| it.key.kind != "Deployment"));
    let told = without.notices.iter().find(|it| it.reason == api::Reason::SecretNotFound).unwrap();
    assert!(told.message.contains("Secret one"), "{told:?}");
    assert!(without.children.iter().any(|it| it.key.kind == "Service"), "it holds up nothing else");
}

#[test]
fn settings_of_template_tests_are_reported_as_not_used() {
    let notices = desired(&json!({"templateTests": {"allowRetain": true}})).notices;
    let told = notices.iter().find(|it| it.reason == api::Reason::NotSupported).unwrap();
    assert!(told.message.contains("spec.templateTests is not used"), "{told:?}");
    assert!(desired(&json!({})).notices.iter().all(|it| it.reason != api::Reason::NotSupported));
}
