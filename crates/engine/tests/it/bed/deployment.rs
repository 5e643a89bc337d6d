//! A coderd of a test's own, with every request of the engine written down.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::{
    Client, ClientOptions, HttpOptions, HttpTransport, Transport, TransportError, transport::BoxFuture,
};
use engine::{
    Coder, Outcome,
    coder::{Beside, Promises},
};
use http::{Request, Response};
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use sim::MemoryCluster;
use testbed::{Coderd, Flavour, coderd::sign_license};
use uuid::Uuid;

use crate::{
    examples::{self, request},
    support::{self, holding, pass},
};

/// The wire, with everything that goes over it written down as `METHOD path`.
#[derive(Debug)]
struct Watched {
    wire: HttpTransport,
    asked: Mutex<Vec<String>>,
}

impl Transport for Watched {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        self.asked.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        self.wire.send(request)
    }
}

/// A deployment as the engine sees it.
pub(super) struct Deployment {
    client: Client,
    watched: Arc<Watched>,
    desk: Arc<MemoryCluster>,
}

impl Deployment {
    pub(super) fn at(url: &str, token: &str) -> Self {
        let wire = HttpTransport::new(HttpOptions::default()).unwrap();
        let watched = Arc::new(Watched { wire, asked: Mutex::default() });
        let transport: Arc<dyn Transport> = Arc::clone(&watched) as _;
        let token = Some(SecretString::from(token));
        let client = Client::new(ClientOptions { url: url.parse().unwrap(), token, transport }).unwrap();
        let desk = support::cluster();
        desk.set(&support::secret(examples::AI_KEYS, &examples::ai_keys()));
        Self { client, watched, desk: Arc::new(desk) }
    }

    /// A coder that has read nothing yet.
    pub(super) fn coder(&self) -> Coder {
        self.coder_with(Promises::default())
    }

    /// The same for a set of manifests that count on each other.
    pub(super) fn coder_with(&self, promises: Promises) -> Coder {
        Coder::new(self.client.clone(), promises).beside(Beside {
            cluster: Arc::clone(&self.desk) as _,
            references: Arc::clone(&self.desk) as _,
            memory: Arc::default(),
            writes_status: false,
            fingerprints: None,
            allowed_rules: None,
            tokens: Arc::default(),
        })
    }

    /// What was asked since the last time.
    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.watched.asked.lock().unwrap())
    }

    /// The writes among what was asked since the last time.
    pub(super) fn writes(&self) -> Vec<String> {
        self.asked().into_iter().filter(|it| !it.starts_with("GET ")).collect()
    }
}

/// A coderd of the test's own that has no licence yet and takes one.
pub(super) async fn licensable() -> (Coderd, Deployment) {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let deployment = Deployment::at(&coderd.owner.url, &coderd.owner.token);
    (coderd, deployment)
}

pub(super) async fn license(coderd: &Coderd) {
    let wanted = json!({"feature_set": "premium"});
    let license = sign_license(coderd.licenses.as_ref().unwrap(), &wanted).await.unwrap();
    request(&coderd.owner, Method::POST, "/api/v2/licenses", Some(&json!({"license": license}))).await;
}

/// A coderd of the test's own with a premium licence.
pub(super) async fn licensed() -> (Coderd, Deployment) {
    let (coderd, deployment) = licensable().await;
    license(&coderd).await;
    (coderd, deployment)
}

/// One pass that must end in `Applied`; the manifest with its id, as the controller keeps it.
pub(super) async fn applied(manifest: &Value, deployment: &Deployment) -> (Value, Uuid) {
    let report = pass(manifest, &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{}: {:?}", manifest["kind"], report.outcome);
    let id = report.id.unwrap();
    (holding(manifest, id), id)
}

/// One of every kind, made and held.
pub(super) async fn one_of_every_kind(deployment: &Deployment) -> Vec<(Value, Uuid)> {
    let mut made = Vec::new();
    for manifest in examples::all() {
        made.push(applied(&manifest, deployment).await);
    }
    made
}

/// Changes the field of [`examples::edit`] behind our back, as a person does.
pub(super) async fn drift(held: &Value, id: Uuid, coderd: &Coderd, deployment: &Deployment) {
    let kind = held["kind"].as_str().unwrap();
    if let Some(hand) = examples::by_hand(kind) {
        hand.change(&coderd.owner, &id.to_string()).await;
    } else {
        // Somebody else's manifest stands for the person.
        let (field, value) = examples::edit(kind);
        let mut theirs = held.clone();
        theirs["spec"][field] = value;
        applied(&theirs, deployment).await;
    }
    deployment.asked();
}
