//! Test workspaces that Coder does not show any more, or not under the name on record.

use bytes::Bytes;
use client::{Transport, TransportError, transport::BoxFuture};
use http::{Request, Response};

use super::*;

/// A deployment that shows no workspaces to the account.
#[derive(Debug)]
struct NoRights(Arc<dyn Transport>);

impl Transport for NoRights {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let path = request.uri().path();
        let (status, body) = if path == "/api/v2/workspaces" {
            (200, json!({"workspaces": [], "count": 0}))
        } else if path == "/api/v2/authcheck" {
            (200, json!({"workspaces": false}))
        } else if path.starts_with("/api/v2/workspaces/") {
            (404, json!({"message": "Resource not found or you do not have access to this resource"}))
        } else {
            return self.0.send(request);
        };
        let answer = Response::builder().status(status).header("x-coder-build-version", "v2.36.1");
        Box::pin(std::future::ready(Ok(answer.body(body.to_string().into()).unwrap())))
    }
}

impl Scene {
    /// The account loses its rights over workspaces; returns the deployment as it was.
    fn lose_rights(&mut self) -> Coder {
        let client = memory::owner(Arc::new(NoRights(self.deployment.transport())));
        let without = Coder::new(client, Promises::default()).reading(Arc::clone(&self.cluster) as _);
        std::mem::replace(&mut self.coder, without)
    }

    /// The id of the only workspace there ever was.
    fn only_workspace(&self) -> String {
        self.deployment.read(|it| it.workspaces.keys().next().unwrap().to_string())
    }

    /// One attempt to take back what a deleted manifest owes.
    async fn deletion(&self, manifest: &Value) -> Outcome {
        let coder = self.coder.anew();
        let mut subject = subject(manifest);
        let assessment = subject.assess_deletion(&coder).await;
        subject.carry_out(&assessment, &coder).await.outcome
    }
}

#[tokio::test]
async fn id_of_the_workspace_is_on_record() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    begun(&scene, &mut manifest).await;
    let id = scene.only_workspace();
    assert_eq!(manifest["status"]["test"]["workspaceID"], json!(id));
    // The answer to the creation was lost, or the whole record.
    manifest["status"]["test"].as_object_mut().unwrap().remove("workspaceID");
    scene.reconcile(&mut manifest).await;
    assert_eq!(manifest["status"]["test"]["workspaceID"], json!(id));
    manifest["status"].as_object_mut().unwrap().remove("test");
    scene.reconcile(&mut manifest).await;
    assert_eq!(manifest["status"]["test"]["workspaceID"], json!(id));
    scene.passes(&mut manifest).await;
    let test = &manifest["status"]["test"];
    assert_eq!((&test["workspaceID"], &test["deleted"]), (&json!(id), &json!(true)));
}

#[tokio::test]
async fn workspace_that_is_not_shown_is_not_taken_for_deleted() {
    let mut scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    begun(&scene, &mut manifest).await;
    scene.build();
    let well = scene.lose_rights();
    manifest["spec"]["displayName"] = json!("Another name");
    for _ in 0..2 {
        let hidden = scene.blocked(&mut manifest).await;
        assert_eq!(hidden.reason, Reason::Forbidden, "{}", hidden.message);
        let name = manifest["status"]["test"]["workspace"].as_str().unwrap();
        assert!(hidden.message.contains(&format!("test workspace {OWNER}/{name}")), "{}", hidden.message);
        assert_eq!(manifest["status"]["test"]["deleted"], json!(null));
    }
    assert_eq!(scene.made(), 1, "no second workspace is made");
    assert_eq!(scene.remote(&manifest).await["display_name"], "Another name", "the rest goes on");
    // Neither does a deletion forget the workspace, nor a manifest that cannot be compared.
    assert_eq!(scene.deletion(&manifest).await.reason(), Reason::Forbidden);
    let mut invalid = manifest.clone();
    invalid["spec"]["version"]["test"]["timeout"] = json!("1s");
    assert_eq!(scene.reconcile(&mut invalid).await.outcome.reason(), Reason::Invalid);
    assert_eq!(invalid["status"]["test"]["deleted"], json!(null));
    assert!(!scene.deletion(&invalid).await.is_ready());
    scene.coder = well;
    scene.passes(&mut manifest).await;
    assert_eq!(scene.made(), 1);
}

#[tokio::test]
async fn version_without_a_test_is_promoted_although_a_workspace_is_not_shown() {
    let mut scene = Scene::tested().await;
    let mut manifest = tested(SILENT, &json!({}));
    begun(&scene, &mut manifest).await;
    scene.build();
    let well = scene.lose_rights();
    manifest["spec"].as_object_mut().unwrap().remove("version");
    manifest["spec"]["source"] = source("locals {}");
    for _ in 0..3 {
        scene.reconcile(&mut manifest).await;
        scene.build();
    }
    let hidden = scene.blocked(&mut manifest).await;
    assert_eq!(hidden.reason, Reason::Forbidden, "{}", hidden.message);
    assert_eq!(scene.remote(&manifest).await["active_version_id"], manifest["status"]["version"]["id"]);
    scene.coder = well;
    scene.passes(&mut manifest).await;
    assert_eq!(manifest["status"]["test"]["deleted"], true);
}

#[tokio::test]
async fn record_of_a_workspace_that_is_not_shown_stays() {
    let mut scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    scene.passes(&mut manifest).await;
    manifest["spec"]["source"] = source(SILENT);
    while scene.made() < 2 {
        scene.reconcile(&mut manifest).await;
        scene.clock.advance(SignedDuration::from_secs(1));
    }
    scene.build();
    let record = manifest["status"]["test"].clone();
    let well = scene.lose_rights();
    // The first version has its result in its mark.
    manifest["spec"]["source"] = source(AGENT);
    for _ in 0..2 {
        assert_eq!(scene.reconcile(&mut manifest).await.outcome.reason(), Reason::Forbidden);
        assert_eq!(manifest["status"]["test"], record);
    }
    scene.coder = well;
    scene.passes(&mut manifest).await;
    assert_eq!(scene.made(), 2);
}

#[tokio::test]
async fn workspace_of_a_renamed_owner_is_deleted() {
    for why in ["invalid", "deletion"] {
        let scene = Scene::tested().await;
        let mut manifest = tested(SILENT, &json!({}));
        begun(&scene, &mut manifest).await;
        scene.build();
        scene.edit_person(OWNER, |it| "renamed".clone_into(&mut it.username));
        if why == "invalid" {
            manifest["spec"]["version"]["test"]["timeout"] = json!("1s");
            scene.reconcile(&mut manifest).await;
            scene.build();
            scene.reconcile(&mut manifest).await;
            assert_eq!(manifest["status"]["test"]["deleted"], true);
        } else {
            // A template that is not held: only the record connects the workspace with the manifest.
            manifest["status"].as_object_mut().unwrap().remove("id");
            assert!(scene.deleted(&manifest).await > 0, "the workspace is waited for");
        }
        assert_eq!(scene.workspaces().await, Vec::<String>::new(), "{why}");
    }
}

#[tokio::test]
async fn workspace_of_a_hidden_organization_is_not_forgotten() {
    let scene = Scene::tested().await;
    let mut manifest = tested(SILENT, &json!({}));
    begun(&scene, &mut manifest).await;
    scene.build();
    manifest["spec"]["organization"] = json!("hidden");
    manifest["status"].as_object_mut().unwrap().remove("id");
    assert!(scene.deleted(&manifest).await > 0, "the workspace is waited for");
    assert_eq!(scene.workspaces().await, Vec::<String>::new());
}

#[tokio::test]
async fn workspace_that_never_existed_needs_no_deletion() {
    let scene = Scene::tested().await;
    let mut manifest = tested(SILENT, &json!({}));
    begun(&scene, &mut manifest).await;
    // The database was restored from a backup.
    scene.deployment.edit(|it| it.workspaces.clear());
    assert!(scene.deletion(&manifest).await.is_ready());
    scene.reconcile(&mut manifest).await;
    assert_eq!(scene.made(), 1, "the test begins anew");
}

#[tokio::test]
async fn deletion_of_an_invalid_manifest_takes_the_workspace_back() {
    for policy in ["Retain", "Delete"] {
        let scene = Scene::tested().await;
        let mut manifest = tested(SILENT, &json!({}));
        manifest["spec"]["deletionPolicy"] = json!(policy);
        begun(&scene, &mut manifest).await;
        scene.build();
        manifest["spec"]["version"]["test"]["timeout"] = json!("1s");
        for _ in 0..2 {
            let outcome = scene.deletion(&manifest).await;
            assert_eq!(outcome.reason(), Reason::Deleting, "{policy}: {outcome:?}");
        }
        scene.build();
        assert_eq!(scene.workspaces().await, Vec::<String>::new(), "{policy}");
        let outcome = scene.deletion(&manifest).await;
        match policy {
            "Retain" => assert!(outcome.is_ready(), "{outcome:?}"),
            _ => assert_eq!(outcome.reason(), Reason::Invalid, "the template itself is still owed"),
        }
    }
}
