//! Test workspaces whose destruction fails: only tests and promotions wait for it.

use engine::Cluster as _;

use super::{super::drift::drift, *};

impl Scene {
    /// Lets every deletion of a workspace fail that has just begun.
    fn fail_deletions(&self) {
        let now = self.cluster.now();
        self.deployment.edit(|it| {
            let builds = it.workspaces.values_mut().flat_map(|it| &mut it.builds);
            let new = builds.filter(|it| it.transition == "delete" && it.created_at == now);
            new.for_each(|it| it.is_canceled = true);
        });
    }

    /// How many deletions of workspaces have begun.
    fn deletions(&self) -> usize {
        let builds = |it: &sim::state::State| {
            it.workspaces.values().flat_map(|it| &it.builds).filter(|it| it.transition == "delete").count()
        };
        self.deployment.read(builds)
    }

    /// The display name of the template.
    async fn title(&self, manifest: &Value) -> Value {
        self.remote(manifest).await["display_name"].clone()
    }
}

/// A template with a passed version, and the workspace of an earlier test of another one, which could not be deleted. The source
/// has changed since.
async fn with_a_failed_deletion(scene: &Scene, more: &Value) -> Value {
    let mut manifest = tested(AGENT, &json!({}));
    manifest["spec"]["displayName"] = json!("Declared");
    scene.passes(&mut manifest).await;
    manifest["spec"]["source"] = source(SILENT);
    while scene.made() < 2 {
        scene.reported(&mut manifest).await;
        scene.clock.advance(SignedDuration::from_secs(1));
    }
    scene.build();
    manifest["spec"]["source"] = source(&format!("{AGENT}\nlocals {{}}"));
    manifest["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let deletions = scene.deletions();
    assert_eq!(scene.reported(&mut manifest).await, Reason::VersionTesting);
    assert_eq!(scene.deletions(), deletions + 1, "a deletion that is due is a plan of its own");
    scene.fail_deletions();
    manifest
}

#[tokio::test]
async fn settings_change_while_a_test_workspace_cannot_be_deleted() {
    let scene = Scene::tested().await;
    let mut manifest = with_a_failed_deletion(&scene, &json!({})).await;
    let first = scene.remote(&manifest).await["active_version_id"].clone();
    let id = manifest["status"]["id"].as_str().unwrap().to_owned();
    scene
        .by_hand(Method::PATCH, &format!("/api/v2/templates/{id}"), &json!({"display_name": "By hand"}))
        .await;
    manifest["spec"]["acl"] = json!({"groups": {}, "users": {"owner": "use"}});
    for _ in 0..4 {
        scene.reported(&mut manifest).await;
        scene.build();
    }
    assert_eq!(scene.title(&manifest).await, "Declared");
    let access = scene.by_hand(Method::GET, &format!("/api/v2/templates/{id}/acl"), &json!(null)).await;
    assert_eq!(access["users"].as_array().map(Vec::len), Some(1));

    // The next version is built, and neither tested nor promoted.
    let waiting = scene.blocked(&mut manifest).await;
    assert_eq!(waiting.reason, Reason::VersionTesting);
    assert!(waiting.message.contains("of an earlier test could not be deleted"), "{}", waiting.message);
    assert_eq!((scene.versions(), scene.made()), (3, 2));
    assert_eq!(manifest["status"]["version"]["build"], "succeeded");
    assert_eq!(scene.remote(&manifest).await["active_version_id"], first);

    // The deletion is repeated, and once it is done the version is tested.
    let deletions = scene.deletions();
    scene.clock.advance(SignedDuration::from_mins(5));
    scene.reported(&mut manifest).await;
    assert_eq!(scene.deletions(), deletions + 1);
    scene.passes(&mut manifest).await;
    assert_eq!(scene.made(), 3);
    assert_ne!(scene.remote(&manifest).await["active_version_id"], first);
}

#[tokio::test]
async fn drift_is_reported_while_a_test_workspace_cannot_be_deleted() {
    for (spec, reason) in [
        (json!({"approval": "Manual"}), Reason::ApprovalRequired),
        (json!({"mode": "Observe"}), Reason::Observed),
    ] {
        let scene = Scene::tested().await;
        let mut manifest = with_a_failed_deletion(&scene, &spec).await;
        assert!(!drift(&manifest).0, "{reason}");
        let path = format!("/api/v2/templates/{}", manifest["status"]["id"].as_str().unwrap());
        scene.by_hand(Method::PATCH, &path, &json!({"display_name": "By hand"})).await;
        assert_eq!(scene.reported(&mut manifest).await, reason);
        assert_eq!(drift(&manifest), (true, vec!["displayName"]), "{reason}");
        assert_eq!(manifest["status"]["test"]["deleted"], json!(null), "{reason}");
        // The deletion is repeated without an approval, and is no drift.
        let deletions = scene.deletions();
        scene.clock.advance(SignedDuration::from_mins(5));
        assert_eq!(scene.reported(&mut manifest).await, Reason::VersionTesting, "{reason}");
        assert!(!drift(&manifest).1.contains(&"version.test.workspace"), "{reason}");
        scene.build();
        assert_eq!(scene.reported(&mut manifest).await, reason);
        assert_eq!((scene.deletions(), scene.workspaces().await.len()), (deletions + 1, 0), "{reason}");
        assert_eq!(manifest["status"]["test"]["deleted"], true, "{reason}");
        assert_eq!(drift(&manifest), (true, vec!["displayName"]), "{reason}");
        assert_eq!(scene.title(&manifest).await, "By hand");
    }
}

#[tokio::test]
async fn failed_deletion_is_tried_again_when_it_is_due() {
    let scene = Scene::tested().await;
    let manifest = with_a_failed_deletion(&scene, &json!({"mode": "Observe"})).await;
    let again = || async {
        let assessment = subject(&manifest).assess(&scene.coder.anew(), Door::Controller).await;
        let at = assessment.aside.again_at.unwrap();
        at.duration_since(scene.cluster.now())
    };
    assert_eq!(again().await, SignedDuration::from_mins(5));
    scene.clock.advance(SignedDuration::from_mins(2));
    assert_eq!(again().await, SignedDuration::from_mins(3));
}

#[tokio::test]
async fn running_test_ends_while_another_workspace_cannot_be_deleted() {
    let scene = Scene::tested().await;
    let mut manifest = tested(AGENT, &json!({}));
    begun(&scene, &mut manifest).await;
    // A second workspace of the same manifest, of a test before.
    let version = scene.remote(&manifest).await["active_version_id"].clone();
    let name = scene.workspaces().await.remove(0);
    let other = format!("{}00000000", &name[..name.len() - 8]);
    let path = format!("/api/v2/organizations/default/members/{OWNER}/workspaces");
    scene.by_hand(Method::POST, &path, &json!({"name": other, "template_version_id": version})).await;
    scene.build();
    scene.build();
    scene.reported(&mut manifest).await;
    scene.fail_deletions();
    assert_eq!(scene.deletions(), 1);
    assert_eq!(scene.reported(&mut manifest).await, Reason::VersionTesting);
    assert_eq!((scene.deletions(), &manifest["status"]["test"]["result"]), (2, &json!("passed")));
    scene.build();
    assert_eq!(scene.workspaces().await, [other]);
}
