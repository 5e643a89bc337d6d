//! Versions that a person promotes in Coder while the manifest waits for something else.

use api::{CoderTemplate, Reason, condition::DRIFTED};
use engine::{
    Cluster as _, Door,
    pipeline::status::{self, StatusInput},
};
use kube::Resource as _;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Scene, source, template};
use crate::support::subject;

impl Scene {
    /// One reconcile with the whole status that a controller would write, and the reason of `Ready`.
    pub(super) async fn reported(&self, manifest: &mut Value) -> Reason {
        manifest["metadata"]["generation"] = json!(1);
        let coder = self.coder.anew();
        let mut subject = subject(manifest);
        let assessment = subject.assess(&coder, Door::Controller).await;
        let report = subject.carry_out(&assessment, &coder).await;
        let typed: CoderTemplate = serde_json::from_value(manifest.clone()).unwrap();
        let next = status::next(
            typed.status.as_ref().map(|it| &it.common),
            &StatusInput {
                generation: typed.meta().generation,
                contact: assessment.contact,
                plan: &assessment.plan,
                target: &subject.target(),
                outcome: &report.outcome,
                unsupported: None,
                attributions: &assessment.attributions,
                own_changes: assessment.aside.own_changes,
                facts: &[],
                stalls: false,
                ready: None,
                id: report.id.as_ref().map(ToString::to_string),
                deployment: None,
                changed: report.done > 0,
                requested: None,
                now: self.cluster.now(),
            },
        );
        let mut status = manifest["status"].as_object().cloned().unwrap_or_default();
        for key in ["plan", "drift", "approved", "creating"] {
            status.remove(key);
        }
        status.extend(serde_json::to_value(next).unwrap().as_object().unwrap().clone());
        status.extend(assessment.aside.status.clone());
        status.extend(report.recorded.clone());
        status.retain(|_, it| !it.is_null());
        manifest["status"] = status.into();
        report.outcome.reason()
    }

    /// Reconciles until the manifest is as declared.
    async fn settled(&self, manifest: &mut Value) {
        for _ in 0..6 {
            if self.reported(manifest).await == Reason::UpToDate {
                return;
            }
            self.build();
        }
        panic!("{manifest:#}");
    }

    /// A person pushes a version and promotes it.
    async fn promoted_by_hand(&self, manifest: &Value, name: &str) -> Value {
        let id = manifest["status"]["id"].clone();
        let pushed = self.push(&id, name).await;
        let path = format!("/api/v2/templates/{}/versions", id.as_str().unwrap());
        self.by_hand(Method::PATCH, &path, &json!({"id": pushed})).await;
        pushed
    }
}

/// Whether a status reports drift, and the fields that drifted.
pub(super) fn drift(manifest: &Value) -> (bool, Vec<&str>) {
    let status = &manifest["status"];
    let condition = status["conditions"].as_array().unwrap().iter().find(|it| it["type"] == DRIFTED);
    let fields = status["drift"].as_array().into_iter().flatten();
    (condition.unwrap()["status"] == "True", fields.map(|it| it["field"].as_str().unwrap()).collect())
}

const NONE: (bool, Vec<&str>) = (false, Vec::new());

#[tokio::test]
async fn version_promoted_by_hand_is_drift_while_a_plan_waits() {
    for (spec, reason) in [
        (json!({"approval": "Manual"}), Reason::ApprovalRequired),
        (json!({"mode": "Observe"}), Reason::Observed),
    ] {
        let scene = Scene::new().await;
        let mut manifest = template(&json!({}));
        scene.settled(&mut manifest).await;
        let first = scene.remote(&manifest).await["active_version_id"].clone();
        manifest["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        manifest["spec"]["source"] = source("locals {}");
        for _ in 0..2 {
            assert_eq!(scene.reported(&mut manifest).await, reason);
            assert_eq!(drift(&manifest), NONE, "{reason}: the source changed, and no version in Coder");
        }
        scene.promoted_by_hand(&manifest, "by-hand").await;
        for _ in 0..2 {
            assert_eq!(scene.reported(&mut manifest).await, reason);
            assert_eq!(drift(&manifest), (true, vec!["activeVersion"]), "{reason}");
            assert_eq!(manifest["status"]["drift"][0]["found"], "by-hand");
            assert_eq!(manifest["status"]["drift"][0]["changedBy"], "owner");
        }
        // The person takes that back.
        let path = format!("/api/v2/templates/{}/versions", manifest["status"]["id"].as_str().unwrap());
        scene.by_hand(Method::PATCH, &path, &json!({"id": first})).await;
        assert_eq!(scene.reported(&mut manifest).await, reason);
        assert_eq!(drift(&manifest), NONE, "{reason}");
        // The plan is allowed after another one.
        scene.promoted_by_hand(&manifest, "by-hand-again").await;
        assert_eq!(scene.reported(&mut manifest).await, reason);
        assert_eq!(drift(&manifest), (true, vec!["activeVersion"]), "{reason}");
        manifest["spec"]["approval"] = json!("Automatic");
        manifest["spec"]["mode"] = json!("Enforce");
        scene.settled(&mut manifest).await;
        assert_eq!(drift(&manifest), NONE, "{reason}");
        assert_eq!(scene.remote(&manifest).await["active_version_id"], manifest["status"]["version"]["id"]);
        // A changed source after that is none.
        manifest["spec"]["source"] = source("locals { a = 1 }");
        scene.reported(&mut manifest).await;
        assert_eq!(drift(&manifest), NONE, "{reason}");
        scene.settled(&mut manifest).await;
    }
}

#[tokio::test]
async fn version_promoted_by_hand_is_drift_where_the_declared_one_failed() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({}));
    scene.settled(&mut manifest).await;
    manifest["spec"]["source"] = source("resource \"terraform_data\" \"one\" {");
    scene.reported(&mut manifest).await;
    scene.build();
    for _ in 0..2 {
        assert_eq!(scene.reported(&mut manifest).await, Reason::VersionFailed);
        assert_eq!(drift(&manifest), NONE);
    }
    let pushed = scene.promoted_by_hand(&manifest, "by-hand").await;
    for approval in ["Automatic", "Manual"] {
        manifest["spec"]["approval"] = json!(approval);
        assert_eq!(scene.reported(&mut manifest).await, Reason::VersionFailed, "no approval helps");
        assert_eq!(drift(&manifest), (true, vec!["activeVersion"]));
        assert_eq!(manifest["status"]["drift"][0]["changedBy"], "owner");
    }
    assert_eq!(
        scene.remote(&manifest).await["active_version_id"],
        pushed,
        "a failed version is not promoted"
    );
    manifest["spec"]["approval"] = json!("Automatic");
    manifest["spec"]["source"] = source("locals {}");
    scene.settled(&mut manifest).await;
    assert_eq!(drift(&manifest), NONE);
}

#[tokio::test]
async fn active_version_is_left_to_people_where_none_is_activated() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({}));
    scene.settled(&mut manifest).await;
    manifest["spec"]["version"] = json!({"name": "v2", "activate": false});
    scene.settled(&mut manifest).await;
    let pushed = scene.promoted_by_hand(&manifest, "by-hand").await;
    assert_eq!(scene.reported(&mut manifest).await, Reason::UpToDate);
    // The version that people chose is the one that later promotions are compared with.
    manifest["spec"]["approval"] = json!("Manual");
    manifest["spec"]["version"] = json!({"name": "v2"});
    assert_eq!(scene.reported(&mut manifest).await, Reason::ApprovalRequired);
    assert_eq!(scene.remote(&manifest).await["active_version_id"], pushed);
    assert_eq!(manifest["status"]["activeVersionID"], pushed);
}
