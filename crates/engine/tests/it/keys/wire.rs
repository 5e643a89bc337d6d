//! The same drive over the real client: what is asked of coderd, and how often.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::{Client, ClientOptions, Transport, TransportError, transport::BoxFuture};
use engine::{
    World,
    provisioner_keys::{Drive, Names, Policy, coderd::revoke},
    world::Promises,
};
use http::{Method, Request, Response};
use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    model::{self, Operator},
    run::to_the_end,
};

const KEY_HEADER: &str = "coder-provisioner-daemon-key";

/// The four routes of keys.
#[derive(Debug, Default)]
struct Keys {
    rows: Mutex<Vec<(Value, String)>>,
    asked: Mutex<Vec<String>>,
}

impl Transport for Keys {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let (status, body) = self.answer(&request);
        let body = if status == 204 { Bytes::new() } else { Bytes::from(body.to_string()) };
        let response = Response::builder().status(status).header("content-type", "application/json");
        let response = response.header("x-coder-build-version", "v2.36.0").body(body).unwrap();
        Box::pin(async { Ok(response) })
    }
}

impl Keys {
    fn client(self: &Arc<Self>) -> Client {
        let transport: Arc<dyn Transport> = Arc::clone(self) as _;
        let token = Some(SecretString::from("not-a-token"));
        Client::new(ClientOptions { url: "https://coder.test".parse().unwrap(), token, transport }).unwrap()
    }

    fn answer(&self, request: &Request<Bytes>) -> (u16, Value) {
        let path = request.uri().path();
        let (_, last) = path.rsplit_once('/').unwrap();
        self.asked.lock().unwrap().push(format!("{} {last}", request.method()));
        let mut rows = self.rows.lock().unwrap();
        let none = || json!({"message": "Resource not found or you do not have access to this resource"});
        match (request.method(), last) {
            (&Method::POST, _) => {
                let body: Value = serde_json::from_slice(request.body()).unwrap();
                let name = body["name"].as_str().unwrap().to_lowercase();
                if rows.iter().any(|(it, _)| it["name"] == name.as_str()) {
                    return (409, json!({"message": "Provisioner key with that name already exists"}));
                }
                let (id, value) = (Uuid::from_u128(1000 + rows.len() as u128), format!("{:043}", rows.len()));
                let key = json!({"id": id, "created_at": model::start(), "name": name, "tags": body["tags"],
                    "organization": Uuid::from_u128(100)});
                rows.push((key, value.clone()));
                (201, json!({"key": value}))
            }
            (&Method::DELETE, name) => {
                let before = rows.len();
                rows.retain(|(it, _)| it["name"] != name);
                if rows.len() < before { (204, Value::Null) } else { (404, none()) }
            }
            (_, "daemons") => (200, rows.iter().map(|(it, _)| json!({"key": it, "daemons": []})).collect()),
            _ => {
                let value = request.headers().get(KEY_HEADER).unwrap().to_str().unwrap();
                match rows.iter().find(|(_, it)| it == value) {
                    Some((key, _)) => (200, key.clone()),
                    None => (401, json!({"message": "provisioner daemon key invalid"})),
                }
            }
        }
    }

    fn count(&self, what: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|it| it.starts_with(what)).count()
    }
}

#[test]
fn many_new_keys_and_their_end_share_one_list() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let keys = Arc::new(Keys::default());
    let world = World::new(keys.client(), Promises::default());
    let mut operators = Vec::new();
    for number in 0..20 {
        let shared = model::World::new(Policy::Recreate);
        let uid = format!("{number:04}0000-0000-4000-8000-000000000000");
        shared.lock().unwrap().wanted.names = Names::new(&format!("key-{number}"), &uid);
        operators.push(Operator::new("wire", &shared));
    }
    let pass = |operator: &Operator| {
        let (wanted, mirror) = {
            let world = operator.lock();
            (world.wanted.clone(), world.status.clone())
        };
        *operator.status_version.lock().unwrap() = operator.lock().status_version;
        let drive = Drive {
            wanted: &wanted,
            coderd: &world,
            secret: operator,
            around: operator,
            mirror,
            pods: None,
            proved: None,
            now: model::start(),
        };
        to_the_end(drive.run()).unwrap()
    };
    let held: Vec<_> = operators.iter().map(|it| pass(it).rest.key.unwrap()).collect();
    assert_eq!((keys.count("POST"), keys.count("GET own"), keys.count("GET daemons")), (20, 20, 1));
    assert!(held.iter().all(|it| it.is_ours && it.id.is_some()));
    for operator in &operators {
        pass(operator);
    }
    assert_eq!((keys.count("POST"), keys.count("GET daemons")), (20, 1));

    // A bare name is looked up before it is deleted, and what is gone is no trouble.
    let retiring = engine::provisioner_keys::Retiring { held: held[3].clone(), ..Default::default() };
    for expected in [engine::provisioner_keys::Revoked::Done, engine::provisioner_keys::Revoked::Absent] {
        assert_eq!(to_the_end(revoke(&world, &retiring, false, model::start())).unwrap(), expected);
    }
    assert_eq!((keys.count("DELETE"), keys.rows.lock().unwrap().len()), (1, 19));
}
