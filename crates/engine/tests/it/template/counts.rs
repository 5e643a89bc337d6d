//! What reads of unchanged templates cost, and who made them differ.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::{Transport, TransportError, transport::BoxFuture};
use engine::{
    Coder, Door,
    coder::{Beside, Promises},
};
use http::{Request, Response};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Scene, template};
use crate::{memory, support::subject};

/// Passes everything on, and writes it down.
#[derive(Debug)]
pub(super) struct Counting {
    inner: Arc<dyn Transport>,
    asked: Mutex<Vec<String>>,
}

impl Transport for Counting {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        self.asked.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        self.inner.send(request)
    }
}

impl Counting {
    pub(super) fn new(inner: Arc<dyn Transport>) -> Arc<Self> {
        Arc::new(Self { inner, asked: Mutex::default() })
    }

    /// What was asked since the last time, with one word for every id.
    pub(super) fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let plain = |it: String| {
            let parts =
                it.split('/').map(|part| if part.parse::<uuid::Uuid>().is_ok() { "ID" } else { part });
            parts.collect::<Vec<_>>().join("/")
        };
        asked.into_iter().map(plain).collect()
    }
}

/// That many templates that are as declared, with a controller that counts.
async fn settled(count: usize, more: &Value) -> (Scene, Arc<Counting>, Vec<Value>) {
    let mut scene = Scene::new().await;
    let counting = Counting::new(scene.deployment.transport());
    let client = memory::owner(Arc::clone(&counting) as _);
    scene.coder = Coder::new(client, Promises::default()).beside(Beside {
        cluster: Arc::clone(&scene.cluster) as _,
        references: Arc::clone(&scene.cluster) as _,
        memory: Arc::default(),
        writes_status: true,
        fingerprints: Some(Arc::default()),
        allowed_rules: None,
        tokens: Arc::default(),
    });
    let mut manifests = Vec::new();
    for number in 0..count {
        let mut manifest = template(more);
        manifest["metadata"]["name"] = json!(format!("template-{number}"));
        scene.published(&mut manifest).await;
        manifests.push(manifest);
    }
    (scene, counting, manifests)
}

/// The requests of one round over templates that are equal.
pub(super) async fn round(coder: &Coder, counting: &Counting, manifests: &[Value]) -> Vec<String> {
    counting.asked();
    for manifest in manifests {
        let assessment = subject(manifest).assess(coder, Door::Controller).await;
        assert!(assessment.plan.steps.is_empty(), "{:?}", assessment.plan);
    }
    counting.asked()
}

#[tokio::test]
async fn twice_as_many_unchanged_templates_need_the_same_requests() {
    let mut costs = Vec::new();
    for count in [5, 10] {
        let (scene, counting, manifests) = settled(
            count,
            &json!({"acl": {"groups": {"Everyone": "use"}}, "schedule": {"defaultTTL": "8h"}}),
        )
        .await;
        // The first round reads the access of each template, for which Coder has no list.
        round(&scene.coder.anew(), &counting, &manifests).await;
        let asked = round(&scene.coder.anew(), &counting, &manifests).await;
        assert!(
            asked.iter().all(|it| it.starts_with("GET ")
                && !it.contains("/templateversions")
                && !it.ends_with("/acl")),
            "{asked:?}"
        );
        costs.push(asked);
        // The command line has no memory: a version and an access are read for each template, and no variables or files.
        let client = memory::owner(Arc::clone(&counting) as _);
        let command_line = Coder::new(client, Promises::default()).reading(Arc::clone(&scene.cluster) as _);
        let mut files = manifests.clone();
        for it in &mut files {
            it.as_object_mut().unwrap().remove("status");
            it["spec"]["adoptionPolicy"] = json!("Adopt");
        }
        let asked = round(&command_line, &counting, &files).await;
        let of = |path: &str| asked.iter().filter(|it| it.ends_with(path)).count();
        assert_eq!(
            (of("/templateversions/ID"), of("/acl"), of("/variables")),
            (count, count, 0),
            "{asked:?}"
        );
        assert_eq!(
            asked.len() - 2 * count,
            costs[0].iter().filter(|it| !it.ends_with("/audit") && !it.ends_with("/users/me")).count()
        );
    }
    assert_eq!(costs[0], costs[1]);
}

#[tokio::test]
async fn changed_access_is_read_again() {
    let (scene, counting, mut manifests) = settled(2, &json!({"acl": {"groups": {"Everyone": "use"}}})).await;
    round(&scene.coder.anew(), &counting, &manifests).await;
    let organization = scene.deployment.read(|it| it.default_organization.to_string());
    let path = format!("/api/v2/templates/{}/acl", manifests[0]["status"]["id"].as_str().unwrap());
    scene.by_hand(Method::PATCH, &path, &json!({"group_perms": {(organization): "admin"}})).await;
    counting.asked();
    let coder = scene.coder.anew();
    let drifted = subject(&manifests[0]).assess(&coder, Door::Controller).await;
    let equal = subject(&manifests[1]).assess(&coder, Door::Controller).await;
    assert_eq!((drifted.plan.steps.len(), equal.plan.steps.len()), (1, 0), "{:?}", drifted.plan);
    let asked = counting.asked();
    assert_eq!(asked.iter().filter(|it| it.ends_with("/acl")).count(), 1, "{asked:?}");
    scene.applied(&mut manifests[0]).await;

    // Without the log the access is read each time.
    scene.deployment.edit(|it| it.entitlements.features.retain(|name, _| name != "audit_log"));
    for _ in 0..2 {
        let asked = round(&scene.coder.anew(), &counting, &manifests).await;
        assert_eq!(asked.iter().filter(|it| it.ends_with("/acl")).count(), 2, "{asked:?}");
    }
}

#[tokio::test]
async fn drift_of_a_template_names_who_made_it() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({"displayName": "Kubernetes", "schedule": {"defaultTTL": "8h"},
        "acl": {"groups": {"Everyone": "use"}}}));
    scene.published(&mut manifest).await;
    manifest["metadata"]["generation"] = json!(1);
    manifest["status"]["observedGeneration"] = json!(1);
    manifest["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "UpToDate", "message": "",
        "lastTransitionTime": memory::start()}]);
    let id = manifest["status"]["id"].clone();
    let path = format!("/api/v2/templates/{}", id.as_str().unwrap());
    let by_hand = json!({"display_name": "By hand", "default_ttl_ms": 60_000});
    scene.by_hand(Method::PATCH, &path, &by_hand).await;
    let organization = scene.deployment.read(|it| it.default_organization.to_string());
    scene
        .by_hand(Method::PATCH, &format!("{path}/acl"), &json!({"group_perms": {(organization): "admin"}}))
        .await;
    let pushed = scene.push(&id, "by-hand").await;
    scene.by_hand(Method::PATCH, &format!("{path}/versions"), &json!({"id": pushed})).await;
    let assessment = subject(&manifest).assess(&scene.coder.anew(), Door::Controller).await;
    let who: Vec<(&str, &str)> =
        assessment.attributions.iter().map(|it| (it.field.as_str(), it.by.as_str())).collect();
    for field in ["displayName", "schedule.defaultTTL", "acl.groups", "activeVersion"] {
        assert!(who.contains(&(field, "owner")), "{field}: {who:?}");
    }
}
