//! Test workspaces that are deleted whatever becomes of the manifest and of the other steps.

use bytes::Bytes;
use client::{Transport, TransportError, transport::BoxFuture};
use http::{Request, Response};

use super::*;

/// Templates whose files are in a ConfigMap, and whose variables are in a Secret.
fn referring(files: &str) -> Value {
    let mut manifest = tested(AGENT, &json!({}));
    manifest["spec"]["source"] = json!({"configMapRef": {"name": files}});
    manifest["spec"]["variables"] = super::super::variables();
    manifest
}

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "platform"},
        "data": {"main.tf": text}})
}

/// A template with a passed version, and the workspace of the test of its next one, which is over: every agent is ready.
async fn with_an_ended_test(scene: &Scene) -> Value {
    let mut manifest = tested(AGENT, &json!({}));
    scene.passes(&mut manifest).await;
    manifest["spec"]["source"] = source(&format!("{AGENT}\nlocals {{}}"));
    while scene.made() < 2 {
        scene.reconcile(&mut manifest).await;
        scene.clock.advance(SignedDuration::from_secs(1));
    }
    scene.build();
    scene.build();
    assert_eq!(scene.workspaces().await.len(), 1);
    manifest
}

#[tokio::test]
async fn workspace_of_an_ended_test_goes_before_an_update_that_coder_refuses() {
    let scene = Scene::tested().await;
    let mut manifest = with_an_ended_test(&scene).await;
    // Coder allows 16 weeks.
    manifest["spec"]["schedule"] = json!({"autostop": {"days": ["monday"], "weeks": 17}});
    let report = scene.reconcile(&mut manifest).await;
    assert_eq!((report.done, report.outcome.reason()), (1, Reason::VersionTesting), "{:?}", report.outcome);
    scene.build();
    assert_eq!(scene.workspaces().await, Vec::<String>::new());
    let report = scene.reconcile(&mut manifest).await;
    assert_eq!(report.outcome.reason(), Reason::Invalid, "{:?}", report.outcome);
    manifest["spec"]["schedule"]["autostop"]["weeks"] = json!(2);
    scene.passes(&mut manifest).await;
    assert_eq!(scene.made(), 2, "the result was entered into the mark of the version");
}

#[tokio::test]
async fn workspace_of_an_ended_test_goes_without_an_approval() {
    let scene = Scene::tested().await;
    let mut manifest = with_an_ended_test(&scene).await;
    manifest["spec"]["approval"] = json!("Manual");
    manifest["spec"]["displayName"] = json!("Another name");
    let report = scene.reconcile(&mut manifest).await;
    assert_eq!((report.done, report.outcome.reason()), (1, Reason::VersionTesting), "{:?}", report.outcome);
    scene.build();
    let report = scene.reconcile(&mut manifest).await;
    assert_eq!(report.outcome.reason(), Reason::ApprovalRequired);
    assert_eq!(scene.workspaces().await, Vec::<String>::new());
    assert_eq!(scene.remote(&manifest).await["display_name"], "");
}

#[tokio::test]
async fn workspace_goes_although_its_manifest_cannot_be_compared() {
    for (why, reason) in [
        ("ConfigMap", Reason::ReferenceNotFound),
        ("file", Reason::SourceNotUsable),
        ("Secret", Reason::SecretNotFound),
        ("manifest", Reason::Invalid),
        ("group", Reason::ReferenceNotFound),
    ] {
        let scene = Scene::tested().await;
        scene.cluster.set(&config_map("files", SILENT));
        let mut manifest = referring("files");
        begun(&scene, &mut manifest).await;
        scene.build();
        match why {
            "ConfigMap" => scene.cluster.remove("ConfigMap", "files"),
            "file" => {
                let files = json!({"../main.tf": "locals {}"});
                scene.cluster.edit("ConfigMap", "files", |it| it["data"] = files.clone());
            }
            "Secret" => scene.cluster.remove("Secret", "registry"),
            "group" => manifest["spec"]["acl"] = json!({"groups": {"nobody": "use"}}),
            _ => manifest["spec"]["version"]["test"]["timeout"] = json!("1s"),
        }
        let report = scene.reconcile(&mut manifest).await;
        assert_eq!((report.done, report.outcome.reason()), (1, reason), "{why}: {:?}", report.outcome);
        scene.build();
        assert_eq!(scene.workspaces().await, Vec::<String>::new(), "{why}");
        let report = scene.reconcile(&mut manifest).await;
        assert_eq!((report.done, report.outcome.reason()), (0, reason), "{why}: {:?}", report.outcome);
        assert_eq!(manifest["status"]["test"]["deleted"], true, "{why}");
        assert!(manifest["status"]["id"].is_string(), "{why}: the template is still held");
    }
}

/// A deployment that answers 503 to reads of versions.
#[derive(Debug)]
struct Unwell(Arc<dyn Transport>);

impl Transport for Unwell {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        if request.uri().path().contains("/templateversions/") {
            let answer = Response::builder().status(503).body(Bytes::new()).unwrap();
            return Box::pin(std::future::ready(Ok(answer)));
        }
        self.0.send(request)
    }
}

#[tokio::test(start_paused = true)]
async fn test_goes_on_while_coder_does_not_answer() {
    let mut scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    begun(&scene, &mut manifest).await;
    let well = scene.coder;
    scene.coder =
        Coder::new(memory::owner(Arc::new(Unwell(scene.deployment.transport()))), Promises::default());
    let report = scene.reconcile(&mut manifest).await;
    assert_eq!((report.done, report.outcome.reason()), (0, Reason::Unreachable), "{:?}", report.outcome);
    scene.coder = well;
    scene.passes(&mut manifest).await;
    assert_eq!(scene.made(), 1);
}

#[tokio::test]
async fn deletion_takes_the_workspace_of_a_template_that_is_not_held() {
    let scene = Scene::tested().await;
    let mut manifest = tested(SILENT, &json!({"timeout": "1h"}));
    manifest["spec"]["deletionPolicy"] = json!("Delete");
    manifest["spec"]["allowDestructive"] = json!(true);
    begun(&scene, &mut manifest).await;
    scene.build();
    // A workspace that only the name connects with the manifest stays.
    let version = scene.remote(&manifest).await["active_version_id"].clone();
    let name = scene.workspaces().await.remove(0);
    let other = format!("{}00000000", &name[..name.len() - 8]);
    let path = format!("/api/v2/organizations/default/members/{OWNER}/workspaces");
    scene.by_hand(Method::POST, &path, &json!({"name": other, "template_version_id": version})).await;
    manifest["status"].as_object_mut().unwrap().remove("id");
    assert!(scene.deleted(&manifest).await > 0, "the workspace is waited for");
    assert_eq!(scene.workspaces().await, [other]);
    assert!(scene.deployment.read(|it| it.templates.values().all(|it| !it.deleted)), "it is another's");
}

/// A deployment that makes no workspaces, because a parameter has no value.
#[derive(Debug)]
struct NoWorkspaces(Arc<dyn Transport>);

impl Transport for NoWorkspaces {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        if request.method() == Method::POST && request.uri().path().ends_with("/workspaces") {
            let body = json!({"message": "Unable to validate parameters",
                "validations": [{"field": "region", "detail": "Required parameter not provided"}]});
            let answer = Response::builder().status(400).header("x-coder-build-version", "v2.36.1");
            let answer = answer.body(body.to_string().into()).unwrap();
            return Box::pin(std::future::ready(Ok(answer)));
        }
        self.0.send(request)
    }
}

#[tokio::test]
async fn version_of_which_coder_makes_no_workspace_fails_its_test_once() {
    let mut scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    scene.passes(&mut manifest).await;
    let active = scene.remote(&manifest).await["active_version_id"].clone();
    let well = scene.coder;
    let client = memory::owner(Arc::new(NoWorkspaces(scene.deployment.transport())));
    scene.coder = Coder::new(client, Promises::default()).reading(Arc::clone(&scene.cluster) as _);
    manifest["spec"]["source"] = source("locals {}");
    for _ in 0..2 {
        let message = scene.fails(&mut manifest).await;
        assert!(message.contains("Coder refuses to make a workspace of it"), "{message}");
        assert!(message.contains("Required parameter not provided"), "{message}");
    }
    let test = &manifest["status"]["test"];
    assert_eq!((&test["result"], &test["deleted"]), (&json!("failed"), &json!(true)), "{test}");
    assert_eq!((scene.made(), scene.archived()), (1, 1));
    // It is not tried again while nothing changed, and with the parameter it is.
    scene.coder = well;
    scene.fails(&mut manifest).await;
    assert_eq!(scene.remote(&manifest).await["active_version_id"], active);
    manifest["spec"]["version"]["test"]["parameters"] = json!({"region": "eu"});
    scene.passes(&mut manifest).await;
    assert_eq!((scene.made(), scene.archived()), (2, 0));
}
