//! Licences of a control plane whose deployment refuses them, or whose answers are lost.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use client::{Transport, TransportError};
use futures::future::BoxFuture;
use jiff::SignedDuration;
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use sim::{Coder, MemoryCluster};
use tokio_util::bytes::Bytes;

use super::{PASSWORD, Stage, URL};

/// A transport that records requests.
#[derive(Debug)]
struct Wire {
    coder: Coder,
    /// Methods and paths, in the order of the requests.
    requests: Mutex<Vec<String>>,
    /// Whether the answer to the next upload is lost.
    loses: AtomicBool,
    /// Whether licences cannot be listed, as after an upload whose answer was lost.
    is_silent: AtomicBool,
}

impl Wire {
    fn uploads(&self) -> usize {
        self.requests.lock().unwrap().iter().filter(|it| *it == "POST /api/v2/licenses").count()
    }
}

impl Transport for Wire {
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, TransportError>> {
        Box::pin(async move {
            let is_of_licenses = request.uri().path() == "/api/v2/licenses";
            let is_upload = is_of_licenses && request.method() == http::Method::POST;
            if is_of_licenses && !is_upload && self.is_silent.load(Ordering::Relaxed) {
                return Err(TransportError::Connect("connection refused".to_owned()));
            }
            let asked = format!("{} {}", request.method(), request.uri().path());
            self.requests.lock().unwrap().push(asked);
            let answer = self.coder.send(request).await;
            if is_upload && self.loses.swap(false, Ordering::Relaxed) {
                self.is_silent.store(true, Ordering::Relaxed);
                return Err(TransportError::TimedOut);
            }
            answer
        })
    }
}

/// A Coder that runs elsewhere, with its first user and a token, and these licences in a Secret each.
async fn stage(loses: bool, licenses: impl FnOnce(&Stage) -> Vec<String>) -> (Stage, Arc<Wire>) {
    let mut wire = None;
    let cluster = MemoryCluster::new(Arc::new(jiff::Timestamp::now), 1);
    let stage = Stage::over(cluster, |coder| {
        let it = Arc::new(Wire {
            coder: coder.clone(),
            requests: Mutex::default(),
            loses: loses.into(),
            is_silent: AtomicBool::default(),
        });
        wire = Some(Arc::clone(&it));
        it
    });
    let user = json!({"email": "admin@coder.test", "username": "admin", "password": PASSWORD});
    stage.request("POST", "/api/v2/users/first", &user).await;
    let token = stage.coder.sign_in("admin", SignedDuration::from_hours(24)).unwrap();
    stage.write_secret("coder-automation", &[("token", token.expose_secret())]).await;
    let mut refs = Vec::new();
    for (number, license) in licenses(&stage).into_iter().enumerate() {
        let name = format!("license-{number}");
        stage.write_secret(&name, &[("license", &license)]).await;
        refs.push(json!({"name": name}));
    }
    let external = json!({"url": URL, "credentialsSecretRef": {"name": "coder-automation"}});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main"}, "spec": {"external": external, "interval": "10s",
                "licenseSecretRefs": refs, "licenseDeletionPolicy": "Delete"}}))
        .await;
    (stage, wire.unwrap())
}

fn record(plane: &Value) -> Value {
    serde_json::from_str(plane["status"]["licenseRecord"].as_str().unwrap_or("{}")).unwrap()
}

fn says(plane: &Value, status: &str, reason: &str) -> bool {
    let mut conditions = plane["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "LicenseApplied" && it["status"] == status && it["reason"] == reason)
}

#[tokio::test(start_paused = true)]
async fn licence_whose_answer_was_lost_is_ours_and_goes_with_the_control_plane() {
    let (stage, wire) = stage(true, |it| vec![it.coder.sign_license(&Map::new())]).await;
    let failed = stage
        .until("CoderControlPlane", "main", "without an answer", |it| {
            it.is_some_and(|it| says(it, "False", "Error"))
        })
        .await;
    let intended = &record(&failed)["uploaded"];
    assert!(intended[0]["identity"].is_string() && intended[0]["id"].is_null(), "{failed:#}");
    wire.is_silent.store(false, Ordering::Relaxed);
    let applied = stage.ready("CoderControlPlane", "main").await;
    assert!(record(&applied)["uploaded"][0]["id"].is_number(), "{applied:#}");
    assert!(record(&applied)["epoch"].as_u64() > record(&failed)["epoch"].as_u64());
    assert_eq!(wire.uploads(), 1);
    stage.delete("CoderControlPlane", "main").await;
    stage.until("CoderControlPlane", "main", "gone", |it| it.is_none()).await;
    assert!(stage.coder.read(|it| it.licenses.is_empty()));
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn refused_licence_is_sent_once_and_holds_up_no_other() {
    let (stage, wire) = stage(false, |it| {
        let valid = it.coder.sign_license(&Map::new());
        let other = it.coder.sign_license(&Map::new());
        let forged = format!("{}.{}", other.rsplit_once('.').unwrap().0, "A".repeat(86));
        vec![forged, valid]
    })
    .await;
    let told = |it: &Value| says(it, "False", "Invalid") && record(it)["refused"].is_array();
    let plane = stage.until("CoderControlPlane", "main", "told", |it| it.is_some_and(told)).await;
    assert_eq!(record(&plane)["uploaded"].as_array().map(Vec::len), Some(1), "{plane:#}");
    assert_eq!((stage.coder.read(|it| it.licenses.len()), wire.uploads()), (1, 2));
    // It is not sent again at later intervals.
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    assert_eq!(wire.uploads(), 2);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn control_plane_and_its_first_licence_cost_one_reconcile() {
    let (stage, wire) = stage(false, |it| vec![it.coder.sign_license(&Map::new())]).await;
    let written = stage.cluster.writes();
    stage.ready("CoderControlPlane", "main").await;
    // Own writes cause no second reconcile.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let mut asked: Vec<String> = wire.requests.lock().unwrap().clone();
    let lifetime = asked.pop().unwrap();
    assert!(lifetime.starts_with("GET /api/v2/users/me/keys/"), "how long the token lives: {lifetime}");
    let expected = [
        "GET /api/v2/buildinfo",
        "GET /api/v2/users/me",
        "GET /api/v2/entitlements",
        "GET /api/v2/licenses",
        "POST /api/v2/licenses",
        "GET /api/v2/entitlements",
    ];
    assert_eq!(asked, expected);
    // The finalizer, the first status with what is about to be uploaded, and what came of it.
    assert_eq!(stage.cluster.writes() - written, 3);
    stage.end().await;
}
