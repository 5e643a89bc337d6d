//! What a pod's processes see, and what the API says of them.

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Event, Pod, Secret},
};
use serde_json::json;

use crate::support::{Corner, ask, condition, container, wait_for};

/// A pod of the machine's own shell, whose words come back as its termination message.
fn shell(name: &str, script: &str, more: &serde_json::Value) -> serde_json::Value {
    let mut container = json!({"name": "main", "image": "bed/host", "command": ["sh", "-c", script]});
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container]}})
}

fn has_ended(pod: &Pod) -> bool {
    !container(pod)["state"]["terminated"].is_null()
}

#[tokio::test]
async fn a_pod_sees_its_secrets_its_config_maps_and_itself() {
    let corner = Corner::new("sees").await;
    corner.create::<Secret>(json!({"metadata": {"name": "keys"}, "stringData": {"token": "s3cr3t"}})).await;
    corner.create::<ConfigMap>(json!({"metadata": {"name": "settings"}, "data": {"colour": "blue"}})).await;
    let mut pod = shell(
        "seer",
        "echo \"$TOKEN $colour $NAME $IP $(cat /etc/app/token) $(cat /etc/all/colour) $LINE\" > /dev/termination-log",
        &json!({
            "env": [
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "LINE", "value": "$(NAME)/$(colour)"},
            ],
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "volumeMounts": [
                {"name": "keys", "mountPath": "/etc/app/token", "subPath": "token"},
                {"name": "settings", "mountPath": "/etc/all"},
            ],
        }),
    );
    pod["spec"]["volumes"] = json!([
        {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "settings", "configMap": {"name": "settings"}},
    ]);
    corner.create::<Pod>(pod).await;
    let pod = corner.pod("seer", "finished", has_ended).await;
    let address = pod.status.as_ref().unwrap().pod_ip.clone().unwrap();
    assert_eq!(
        container(&pod)["state"]["terminated"]["message"],
        format!("s3cr3t blue seer {address} s3cr3t blue seer/blue\n"),
    );
    let pod = corner
        .pod("seer", "succeeded", |pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Succeeded"));
    pod.await;
}

#[tokio::test]
async fn a_pod_finds_the_api_server_with_its_service_account() {
    let corner = Corner::new("account").await;
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    let script = format!(
        "curl -s --cacert {token}/ca.crt -H \"Authorization: Bearer $(cat {token}/token)\" \
         https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$(cat {token}/namespace)/secrets \
         > /dev/termination-log"
    );
    corner.create::<Pod>(shell("asker", &script, &json!({}))).await;
    let pod = corner.pod("asker", "finished", has_ended).await;
    let answer = container(&pod)["state"]["terminated"]["message"].as_str().unwrap().to_owned();
    // RBAC is on: the account is known by name, and may do nothing.
    let account = format!("system:serviceaccount:{}:default", corner.namespace);
    assert!(answer.contains(&account) && answer.contains("is forbidden"), "{answer}");
}

/// What `kubectl auth whoami` says in a pod, without a word of how the API server is reached.
async fn whoami(corner: &Corner, name: &str, automount: bool) -> String {
    let script =
        format!("'{}' auth whoami -o json > /dev/termination-log 2>&1", corner.bed.kubectl.display());
    let mut pod = shell(name, &script, &json!({}));
    pod["spec"]["automountServiceAccountToken"] = json!(automount);
    corner.create::<Pod>(pod).await;
    let pod = corner.pod(name, "finished", has_ended).await;
    container(&pod)["state"]["terminated"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_client_in_a_pod_is_the_pods_service_account_if_its_token_is_mounted() {
    let corner = Corner::new("whoami").await;
    let (mounted, bare) = tokio::join!(whoami(&corner, "mounted", true), whoami(&corner, "bare", false));
    let answer: serde_json::Value = serde_json::from_str(&mounted).unwrap();
    let user = &answer["status"]["userInfo"];
    assert_eq!(user["username"], format!("system:serviceaccount:{}:default", corner.namespace));
    assert_eq!(
        user["extra"]["authentication.kubernetes.io/pod-name"],
        json!(["mounted"]),
        "bound to its pod"
    );
    assert!(!bare.contains("serviceaccount"), "{bare}");
}

#[tokio::test]
async fn an_image_of_ones_own_runs_a_local_program() {
    let corner = Corner::new("image").await;
    let repository = format!("{}/echo", corner.namespace);
    let pod = json!({"metadata": {"name": "own"}, "spec": {"restartPolicy": "Never", "containers": [{
        "name": "main", "image": format!("registry.test/{repository}:v1"), "args": ["hello"],
        "terminationMessagePolicy": "FallbackToLogsOnError"}]}});
    corner.create::<Pod>(pod).await;
    corner.pod("own", "held back", |pod| !container(pod)["state"]["waiting"].is_null()).await;
    corner.bed.add_image(&repository, std::path::Path::new("/bin/echo")).unwrap();
    let pod = corner.pod("own", "finished", has_ended).await;
    assert_eq!(container(&pod)["state"]["terminated"]["exitCode"], 0);
}

#[tokio::test]
async fn a_missing_secret_holds_a_container_back_until_it_comes() {
    let corner = Corner::new("late").await;
    let env = json!({"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]});
    corner.create::<Pod>(shell("waiter", "echo $T > /dev/termination-log", &env)).await;
    let pod = corner.pod("waiter", "held back", |pod| {
        container(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    assert_eq!(container(&pod.await)["state"]["waiting"]["message"], "secret \"late\" not found");
    corner.create::<Secret>(json!({"metadata": {"name": "late"}, "stringData": {"k": "v"}})).await;
    let pod = corner.pod("waiter", "finished", has_ended).await;
    assert_eq!(container(&pod)["state"]["terminated"]["message"], "v\n");
}

#[tokio::test]
async fn a_failing_readiness_probe_is_reported() {
    let corner = Corner::new("probe").await;
    let probe = json!({"readinessProbe": {"httpGet": {"path": "/", "port": 9}, "periodSeconds": 1}});
    corner.create::<Pod>(shell("unready", "sleep 1000", &probe)).await;
    let events = corner.api::<Event>();
    let note = ask("an event about the probe", || async {
        let found = events.list(&kube::api::ListParams::default()).await.unwrap();
        found.into_iter().find(|it| it.reason.as_deref() == Some("Unhealthy")).and_then(|it| it.message)
    })
    .await;
    assert!(note.starts_with("Readiness probe failed:"), "{note}");
    let pod = corner.pod("unready", "running", |pod| !container(pod)["state"]["running"].is_null()).await;
    assert_eq!(condition(&pod, "Ready"), Some("False"));
    assert_eq!(container(&pod)["ready"], false);
}

#[tokio::test]
async fn a_readiness_probe_that_succeeds_makes_the_pod_ready() {
    let corner = Corner::new("ready").await;
    let server = "python3 -m http.server 8080 --bind $(IP)";
    let more = json!({
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [{"name": "web", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 1},
    });
    corner.create::<Pod>(shell("ready", server, &more)).await;
    corner.pod("ready", "ready", |pod| condition(pod, "Ready") == Some("True")).await;
}

#[tokio::test]
async fn a_probe_that_is_a_command_runs_where_its_container_does() {
    let corner = Corner::new("exec").await;
    corner.create::<Secret>(json!({"metadata": {"name": "keys"}, "stringData": {"token": "s3cr3t"}})).await;
    let check = "test \"$WORD\" = here && test \"$(cat /etc/app/token)\" = s3cr3t";
    let more = json!({
        "env": [{"name": "WORD", "value": "here"}],
        "volumeMounts": [{"name": "keys", "mountPath": "/etc/app"}],
        "readinessProbe": {"exec": {"command": ["sh", "-c", check]}, "periodSeconds": 1},
    });
    let mut pod = shell("checked", "sleep 1000", &more);
    pod["spec"]["volumes"] =
        json!([{"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}}]);
    corner.create::<Pod>(pod).await;
    corner.pod("checked", "ready", |pod| condition(pod, "Ready") == Some("True")).await;
}

#[tokio::test]
async fn a_volume_over_tmp_moves_what_the_pod_says_and_not_its_home() {
    let corner = Corner::new("tmp").await;
    let script = "cd \"$HOME\" && echo kept > /tmp/note && cat $NOTE > /dev/termination-log";
    let more = json!({"env": [{"name": "NOTE", "value": "/tmp/note"}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}]});
    let mut pod = shell("writer", script, &more);
    pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    corner.create::<Pod>(pod).await;
    let pod = corner.pod("writer", "finished", has_ended).await;
    assert_eq!(container(&pod)["state"]["terminated"]["message"], "kept\n");
}

#[tokio::test]
async fn a_failing_liveness_probe_restarts_the_container() {
    let corner = Corner::new("alive").await;
    let probe =
        json!({"livenessProbe": {"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 1}});
    let mut pod = shell("sick", "sleep 1000", &probe);
    pod["spec"]["restartPolicy"] = json!("Always");
    corner.create::<Pod>(pod).await;
    let pod = corner.pod("sick", "restarted", |pod| container(pod)["restartCount"].as_i64() > Some(0)).await;
    assert_eq!(container(&pod)["lastState"]["terminated"]["signal"], 15);
}

#[tokio::test]
async fn a_crashing_container_backs_off_and_shows_its_last_message() {
    let corner = Corner::new("crash").await;
    let mut pod = shell(
        "crasher",
        "echo there is no database; exit 3",
        &json!({"terminationMessagePolicy": "FallbackToLogsOnError"}),
    );
    pod["spec"]["restartPolicy"] = json!("Always");
    corner.create::<Pod>(pod).await;
    let pod = corner.pod("crasher", "backing off", |pod| {
        container(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
    let container = container(&pod.await);
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(container["lastState"]["terminated"]["message"], "there is no database\n");
    assert_eq!(container["restartCount"], 1, "the first restart comes at once, the second one has to wait");
}

#[tokio::test]
async fn an_image_that_the_bed_does_not_have_is_not_pulled() {
    let corner = Corner::new("image").await;
    let pod = json!({"metadata": {"name": "strange"}, "spec": {"containers": [{"name": "main", "image": "no/such:1"}]}});
    corner.create::<Pod>(pod).await;
    let pod = corner
        .pod("strange", "refused", |pod| container(pod)["state"]["waiting"]["reason"] == "ImagePullBackOff");
    assert_eq!(pod.await.status.unwrap().phase.as_deref(), Some("Pending"));
}

#[tokio::test]
async fn a_pod_that_fits_no_node_is_unschedulable() {
    let corner = Corner::new("fits").await;
    let mut pod = shell("picky", "true", &json!({}));
    pod["spec"]["nodeSelector"] = json!({"disk": "fast"});
    corner.create::<Pod>(pod).await;
    let pod =
        corner.pod("picky", "unschedulable", |pod| condition(pod, "PodScheduled") == Some("False")).await;
    assert_eq!(pod.spec.unwrap().node_name, None);
}

#[tokio::test]
async fn init_containers_run_first_and_one_after_the_other() {
    let corner = Corner::new("init").await;
    let mount = json!([{"name": "notes", "mountPath": "/notes"}]);
    let init = |name: &str| {
        json!({"name": name, "image": "bed/host", "volumeMounts": mount,
            "command": ["sh", "-c", format!("echo {name} >> /notes/order")]})
    };
    let mut pod =
        shell("ordered", "cat /notes/order > /dev/termination-log", &json!({"volumeMounts": mount}));
    pod["spec"]["initContainers"] = json!([init("first"), init("second")]);
    pod["spec"]["volumes"] = json!([{"name": "notes", "emptyDir": {}}]);
    corner.create::<Pod>(pod).await;
    let pod = corner.pod("ordered", "finished", has_ended).await;
    assert_eq!(container(&pod)["state"]["terminated"]["message"], "first\nsecond\n");
}

#[tokio::test]
async fn a_job_completes_when_its_pod_does() {
    let corner = Corner::new("job").await;
    let template = json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "bed/host", "command": ["true"]}]}});
    corner.create::<Job>(json!({"metadata": {"name": "once"}, "spec": {"template": template}})).await;
    let jobs = corner.api::<Job>();
    wait_for(&jobs, "once", "complete", |job| job.status.as_ref().is_some_and(|it| it.succeeded == Some(1)))
        .await;
}
