//! What containers have written, as `kubectl logs` shows it.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::json;

use crate::support::{Corner, container};

/// What kubectl says, and whether it was content.
async fn kubectl(corner: &Corner, args: &[&str]) -> (bool, String) {
    let mut command = tokio::process::Command::new(&corner.bed.kubectl);
    command.env("KUBECONFIG", &corner.bed.kubeconfig).args(["logs", "-n", &corner.namespace]).args(args);
    let output = command.output().await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn the_life_that_runs_and_the_one_before_it_are_shown() {
    let corner = Corner::new("logs").await;
    let script = "n=$(cat /keep/n 2>/dev/null || echo 0); echo $((n+1)) > /keep/n; echo begins; echo life $n; \
                  [ $n = 0 ] && exit 3; while :; do sleep 0.05; done";
    let main = json!({"name": "main", "image": "bed/host", "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "keep", "mountPath": "/keep"}]});
    let pod = json!({"metadata": {"name": "twice"},
        "spec": {"containers": [main], "volumes": [{"name": "keep", "emptyDir": {}}]}});
    corner.create::<Pod>(pod).await;
    let runs_again =
        |pod: &Pod| container(pod)["restartCount"] == 1 && !container(pod)["state"]["running"].is_null();
    corner.pod("twice", "in its second life", runs_again).await;
    // What it says first may come a moment after it runs.
    let now = crate::support::ask("the second life's words", || async {
        let (_, said) = kubectl(&corner, &["twice"]).await;
        said.ends_with("life 1\n").then_some(said)
    });
    assert_eq!(now.await, "begins\nlife 1\n");
    assert_eq!(kubectl(&corner, &["twice", "--previous"]).await, (true, "begins\nlife 0\n".to_owned()));
    assert_eq!(kubectl(&corner, &["twice", "--previous", "--tail=1"]).await, (true, "life 0\n".to_owned()));
    let (found, said) = kubectl(&corner, &["twice", "-c", "other"]).await;
    assert!(!found && said.contains("other"), "{said}");
}

#[tokio::test]
async fn a_container_that_waits_after_a_crash_still_has_its_words() {
    let corner = Corner::new("crash").await;
    let main =
        json!({"name": "main", "image": "bed/host", "command": ["sh", "-c", "echo last words; exit 3"]});
    corner.create::<Pod>(json!({"metadata": {"name": "crashing"}, "spec": {"containers": [main]}})).await;
    let waits = |pod: &Pod| container(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    corner.pod("crashing", "in a crash loop", waits).await;
    assert_eq!(kubectl(&corner, &["crashing", "--previous"]).await, (true, "last words\n".to_owned()));
}

#[tokio::test]
async fn nobody_but_the_api_server_is_shown_logs() {
    let corner = Corner::new("stranger").await;
    let node = Api::<Node>::all(corner.client.clone()).get("bed").await.unwrap();
    let node = serde_json::to_value(node.status).unwrap();
    let (address, port) =
        (&node["addresses"][0]["address"], &node["daemonEndpoints"]["kubeletEndpoint"]["Port"]);
    let url = format!("https://{}:{port}/containerLogs/a/b/c", address.as_str().unwrap());
    let stranger =
        reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build().unwrap();
    let refused = format!("{:?}", stranger.get(url).send().await.unwrap_err());
    assert!(refused.contains("CertificateRequired"), "{refused}");
}
