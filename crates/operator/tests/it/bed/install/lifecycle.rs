//! A release of the chart from its first pod to its last, then the same by kustomize.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Namespace, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PostParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watcher},
    },
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::site::{CHART, OPERATOR, PLATFORM, Site};
use crate::bed::stage::{LIMIT, group, is_held_up, is_ready, words};

const RELEASE: &str = "coder-operator";
/// How long a change in Coder may stay while the operator is replaced: the interval of the object, a lease that passes from
/// pod to pod, and a machine with other work.
const HEALED_WITHIN: Duration = Duration::from_mins(1);
/// How long nobody may lead once a leader has released the Lease. A standby looks every two seconds.
const LED_AGAIN_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test]
async fn chart_is_installed_upgraded_and_uninstalled_with_a_working_operator() {
    let site = Site::start().await;
    // With the values as they are: somebody who installs the chart sets none.
    site.helm(&["install", RELEASE, CHART, "--wait", "--timeout=4m"]).await;
    two_pods_are_ready_and_one_leads(&site).await;
    pods_are_restricted_and_act_as_the_service_account(&site).await;
    site.connect(PLATFORM).await;
    let deleted_with_it = group(&json!({"quotaAllowance": 4, "deletionPolicy": "Delete"}));
    site.apply(PLATFORM, &deleted_with_it).await;
    let made = site.wait("CoderGroup", "developers", "ready", is_ready).await;
    group_of_another_namespace_is_held_by_the_first(&site).await;
    upgrade_passes_leadership_and_heals_meanwhile(&site, made["status"]["id"].as_str().unwrap()).await;
    uninstall_is_refused_while_an_object_needs_the_operator(&site).await;
    uninstall_leaves_the_definitions_and_nothing_else(&site).await;
    release_for_one_namespace_works_with_a_role_alone(&site).await;
    overlays_are_applied(&site).await;
}

async fn group_of_another_namespace_is_held_by_the_first(site: &Site) {
    site.kubectl(&["create", "namespace", "second"]).await;
    site.connect("second").await;
    site.apply("second", &group(&json!({"quotaAllowance": 4}))).await;
    let is_held = is_held_up("HeldByOther");
    let told = site.wait_in("second", ("CoderGroup", "developers"), "told", is_held).await;
    assert!(words(&told).starts_with("developers in namespace platform "), "{}", words(&told));
    site.kubectl(&["delete", "namespace", "second"]).await;
}

async fn two_pods_are_ready_and_one_leads(site: &Site) {
    let pods = site.pods(OPERATOR).await;
    assert_eq!(pods.len(), 2, "{pods:?}");
    let leader = site.leader(OPERATOR, &pods).await;
    let ready = "jsonpath={.status.readyReplicas}";
    let ready = site.kubectl(&["get", "deployment", RELEASE, "--namespace", OPERATOR, "-o", ready]).await;
    assert_eq!(ready, "2", "the standby beside {leader} is ready, too");
}

async fn pods_are_restricted_and_act_as_the_service_account(site: &Site) {
    // The namespace enforces the level: what does not fit it is refused there.
    let loose: Pod = serde_json::from_value(json!({"metadata": {"name": "loose"},
        "spec": {"containers": [{"name": "main", "image": "bed/host"}]}}))
    .unwrap();
    let refused = Api::namespaced(site.client.clone(), OPERATOR).create(&PostParams::default(), &loose).await;
    assert!(refused.unwrap_err().to_string().contains("violates PodSecurity"));
    let account = format!("system:serviceaccount:{OPERATOR}:{RELEASE}");
    let leases = |it: &&Value| it["objectRef"]["resource"] == "leases" && it["objectRef"]["name"] == RELEASE;
    let audited = site.audited();
    let mut users = audited.iter().filter(leases).map(|it| it["user"]["username"].as_str().unwrap());
    assert!(users.all(|it| it == account || it == "bed-admin"), "somebody else used the Lease");
    assert!(audited.iter().any(|it| it["user"]["username"] == account && it["verb"] == "watch"));
}

/// Every holder of the Lease since the watch began, with the time at which it was seen; empty while nobody holds it.
#[derive(Clone, Default)]
struct Holders(Arc<Mutex<Vec<(Instant, String)>>>);

impl Holders {
    /// Watches the Lease for as long as the test runs.
    fn watch(site: &Site) -> Self {
        let holders = Self::default();
        let (leases, seen) = (site.leases(OPERATOR), holders.clone());
        let config = watcher::Config::default().fields(&format!("metadata.name={RELEASE}"));
        let versions = watcher(leases, config).default_backoff().applied_objects();
        // The watch goes on by itself after a failure.
        tokio::spawn(versions.for_each(move |lease| {
            if let Ok(Some(spec)) = lease.map(|it| it.spec) {
                seen.add(spec.holder_identity.unwrap_or_default());
            }
            futures::future::ready(())
        }));
        holders
    }

    fn add(&self, holder: String) {
        let mut seen = self.0.lock().unwrap();
        if seen.last().is_none_or(|(_, last)| *last != holder) {
            seen.push((Instant::now(), holder));
        }
    }

    fn seen(&self) -> Vec<(Instant, String)> {
        self.0.lock().unwrap().clone()
    }
}

async fn upgrade_passes_leadership_and_heals_meanwhile(site: &Site, group: &str) {
    let (before, holders) = (site.pods(OPERATOR).await, Holders::watch(site));
    let change = ["upgrade", RELEASE, CHART, "--reuse-values", "--set", "podAnnotations.changed=yes"];
    let upgrade = site.helm_command(&[&change[..], &["--wait", "--timeout=4m"]].concat()).spawn().unwrap();
    let path = format!("/api/v2/groups/{group}");
    let by_hand = json!({"name": "", "quota_allowance": 3});
    let mut healed = Vec::new();
    let mut upgrade = Box::pin(upgrade.wait_with_output());
    // Again and again, so that the leader's last and the next one's first moments are among them.
    loop {
        let since = Instant::now();
        assert_eq!(site.coder.request(Method::PATCH, &path, Some(&by_hand)).await.unwrap().0, 200);
        while site.coder.request(Method::GET, &path, None).await.unwrap().1["quota_allowance"] != 4 {
            assert!(since.elapsed() < HEALED_WITHIN, "not healed:\n{}", site.logs().await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        healed.push(since.elapsed());
        if let Ok(done) = tokio::time::timeout(Duration::ZERO, &mut upgrade).await {
            super::site::output_of(&done.unwrap());
            break;
        }
    }
    let pods = site.pods(OPERATOR).await;
    assert!(pods.iter().all(|it| !before.contains(it)), "every pod was replaced: {before:?}, {pods:?}");
    let leader = site.leader(OPERATOR, &pods).await;
    let seen = holders.seen();
    let released = seen.windows(2).filter(|it| it[0].1.is_empty());
    let gaps: Vec<Duration> = released.map(|it| it[1].0.duration_since(it[0].0)).collect();
    assert!(!gaps.is_empty(), "no leader released the Lease before {leader} took it: {seen:?}");
    assert!(gaps.iter().all(|it| *it < LED_AGAIN_WITHIN), "{gaps:?}");
}

async fn uninstall_is_refused_while_an_object_needs_the_operator(site: &Site) {
    let refused = site.try_helm(&["uninstall", RELEASE, "--timeout=4m"]).await;
    assert!(!refused.status.success());
    let said =
        format!("{}{}", String::from_utf8_lossy(&refused.stdout), String::from_utf8_lossy(&refused.stderr));
    let advice = format!("helm rollback {RELEASE} 2 --namespace {OPERATOR}");
    for words in ["CoderGroup platform/developers", "delete codergroup developers", &advice] {
        assert!(said.contains(words), "{words} is not in:\n{said}");
    }
    let pods = site.pods(OPERATOR).await;
    assert_eq!(pods.len(), 2, "a refused uninstall removes nothing");
    // As advised; without it Helm holds the release for one that is being uninstalled, and upgrades it no more.
    site.helm(&["rollback", RELEASE, "2", "--wait"]).await;
    let status: Value = serde_json::from_str(&site.helm(&["status", RELEASE, "-o", "json"]).await).unwrap();
    assert_eq!(status["info"]["status"], "deployed");
    assert_eq!(site.pods(OPERATOR).await, pods, "the pods are those from before");
}

async fn uninstall_leaves_the_definitions_and_nothing_else(site: &Site) {
    let delete = ["delete", "--namespace", PLATFORM, "--timeout=240s"];
    site.kubectl(&[&delete[..], &["codergroup/developers"]].concat()).await;
    site.kubectl(&[&delete[..], &["codercontrolplane/main"]].concat()).await;
    site.helm(&["uninstall", RELEASE, "--wait", "--timeout=4m"]).await;
    let jobs = Api::<Job>::namespaced(site.client.clone(), OPERATOR);
    assert_eq!(jobs.list(&ListParams::default()).await.unwrap().items.len(), 0);
    let crds = Api::<CustomResourceDefinition>::all(site.client.clone());
    let crds = crds.list(&ListParams::default()).await.unwrap().items;
    let ours =
        crds.iter().filter(|it| it.spec.group == "coder.com" && it.metadata.deletion_timestamp.is_none());
    assert_eq!(ours.count(), api::crds().len());
    let mine = format!("app.kubernetes.io/instance={RELEASE}");
    let kinds = "deployments,services,serviceaccounts,poddisruptionbudgets,roles,rolebindings,clusterroles,clusterrolebindings";
    let left = site.kubectl(&["get", kinds, "--all-namespaces", "--selector", &mine, "-o", "name"]).await;
    assert_eq!(left, "");
    let since = Instant::now();
    while !site.pods(OPERATOR).await.is_empty() {
        assert!(since.elapsed() < LIMIT, "the pods did not go");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn release_for_one_namespace_works_with_a_role_alone(site: &Site) {
    let scope = format!("watchNamespace={PLATFORM}");
    // The definitions that the first release left are taken over.
    let install = ["install", RELEASE, CHART, "--wait", "--timeout=4m", "--set", &scope];
    site.helm(&install).await;
    site.kubectl(&["create", "namespace", "elsewhere"]).await;
    for namespace in ["elsewhere", PLATFORM] {
        site.connect(namespace).await;
        site.apply(namespace, &group(&json!({"quotaAllowance": 5, "deletionPolicy": "Delete"}))).await;
    }
    site.wait("CoderGroup", "developers", "ready", is_ready).await;
    let unseen = site.kind("elsewhere", "CoderGroup").get("developers").await.unwrap();
    assert_eq!(unseen.data["status"], Value::Null);
    assert_eq!(unseen.finalizers(), [] as [&str; 0]);
    let account = format!("--as=system:serviceaccount:{OPERATOR}:{RELEASE}");
    for (namespace, expected) in [(PLATFORM, true), ("elsewhere", false), ("kube-system", false)] {
        let can = ["auth", "can-i", "get", "secrets", "--namespace", namespace, &account];
        assert_eq!(site.try_kubectl(&can).await.status.success(), expected, "{namespace}");
    }
    // The check looks where the operator does: what it never saw does not need it.
    let refused = site.try_helm(&["uninstall", RELEASE, "--timeout=4m"]).await;
    assert!(!refused.status.success());
    site.kubectl(&["delete", "codergroup/developers", "--namespace", PLATFORM, "--timeout=240s"]).await;
    site.kubectl(&["delete", "codercontrolplane/main", "--namespace", PLATFORM, "--timeout=240s"]).await;
    site.helm(&["uninstall", RELEASE, "--wait", "--timeout=4m"]).await;
}

async fn overlays_are_applied(site: &Site) {
    let namespace = "coder-operator-system";
    let overlays = "deploy/kustomize/overlays";
    let apply = ["apply", "--server-side", "--force-conflicts", "-k"];
    site.kubectl(&[&apply[..], &[&format!("{overlays}/cluster")]].concat()).await;
    site.kubectl(&["rollout", "status", "deployment/coder-operator", "-n", namespace, "--timeout=240s"])
        .await;
    let pods = site.pods(namespace).await;
    assert_eq!(pods.len(), 2);
    site.leader(namespace, &pods).await;
    let enforced = Api::<Namespace>::all(site.client.clone()).get(namespace).await.unwrap();
    assert_eq!(enforced.labels()["pod-security.kubernetes.io/enforce"], "restricted");
    site.kubectl(&["apply", "--server-side", "--dry-run=server", "-f", "deploy/install.yaml"]).await;
    // The operator of all namespaces has taken these over, and is needed to let them go.
    let objects = ["codergroup/developers", "codercontrolplane/main"];
    for object in objects {
        site.kubectl(&["delete", object, "--namespace", "elsewhere", "--timeout=240s"]).await;
    }
    site.kubectl(&["delete", "-k", &format!("{overlays}/cluster"), "--timeout=240s"]).await;

    site.kubectl(&[&apply[..], &[&format!("{overlays}/namespaced")]].concat()).await;
    site.kubectl(&["rollout", "status", "deployment/coder-operator", "-n", namespace, "--timeout=240s"])
        .await;
    site.leader(namespace, &site.pods(namespace).await).await;
    site.connect(namespace).await;
    site.apply(namespace, &group(&json!({"quotaAllowance": 6, "deletionPolicy": "Delete"}))).await;
    for object in objects {
        let wait = ["wait", "--for=condition=Ready", object, "--timeout=240s"];
        site.kubectl(&[&wait[..], &["--namespace", namespace]].concat()).await;
    }
    let account = format!("--as=system:serviceaccount:{namespace}:coder-operator");
    for (place, expected) in [(namespace, true), (PLATFORM, false)] {
        let can = ["auth", "can-i", "get", "secrets", "--namespace", place, &account];
        assert_eq!(site.try_kubectl(&can).await.status.success(), expected, "{place}");
    }
}
