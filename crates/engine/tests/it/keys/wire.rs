//! The same drive over the real client: what is asked of coderd, and how often.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::{Client, ClientOptions, Transport, TransportError, transport::BoxFuture};
use engine::{
    Coder,
    coder::Promises,
    secrets::{Drive, Held, Names, Policy, Retiring, Revoked, coderd::revoke},
};
use http::{Method, Request, Response};
use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    model::{self, Operator},
    run::wait,
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

/// Objects with a key each, and the deployment that they share.
struct Many {
    keys: Arc<Keys>,
    coder: Coder,
    operators: Vec<Operator>,
}

impl Many {
    fn new(count: usize) -> Self {
        let keys = Arc::new(Keys::default());
        let coder = Coder::new(keys.client(), Promises::default());
        let operator = |number: usize| {
            let shared = model::Coder::new(Policy::Recreate);
            let uid = format!("{number:04}0000-0000-4000-8000-000000000000");
            shared.lock().unwrap().wanted.names = Names::new(&format!("key-{number}"), &uid);
            Operator::new("wire", &shared)
        };
        Self { keys, coder, operators: (0..count).map(operator).collect() }
    }

    /// One pass over each of them; gives back the keys.
    fn pass(&mut self) -> Vec<Held> {
        let coder = Coder::new(self.keys.client(), Promises::default());
        let coder = std::mem::replace(&mut self.coder, coder);
        let held = self.pass_over(|_| &coder);
        self.coder = coder;
        held
    }

    /// The first pass, with a client each: one alone would take its time, as it should.
    fn make(&mut self) {
        let coders: Vec<Coder> =
            self.operators.iter().map(|_| Coder::new(self.keys.client(), Promises::default())).collect();
        self.pass_over(|number| &coders[number]);
    }

    fn pass_over<'a>(&self, coder: impl Fn(usize) -> &'a Coder) -> Vec<Held> {
        let held = self.operators.iter().enumerate().map(|(number, operator)| {
            let (wanted, mirror) = {
                let known = operator.lock();
                (known.wanted.clone(), known.status.clone())
            };
            *operator.status_version.lock().unwrap() = operator.lock().status_version;
            let drive = Drive {
                wanted: &wanted,
                coderd: coder(number),
                secret: operator,
                around: operator,
                mirror,
                remembered: None,
                pods: None,
                now: model::start(),
            };
            let driven = wait(drive.run()).unwrap();
            driven.rest.key.unwrap()
        });
        held.collect()
    }

    fn asked(&self) -> usize {
        self.keys.asked.lock().unwrap().len()
    }

    fn writes(&self) -> usize {
        self.operators.iter().map(|it| it.lock().writes).sum()
    }
}

/// Everything that a client needs of a runtime but somebody who runs it.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn many_new_keys_and_their_end_share_one_list() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let mut many = Many::new(20);
    let held = many.pass();
    let keys = Arc::clone(&many.keys);
    assert_eq!((keys.count("POST"), keys.count("GET own"), keys.count("GET daemons")), (20, 20, 1));
    assert!(held.iter().all(|it| it.is_ours && it.id.is_some()));
    many.pass();
    assert_eq!((keys.count("POST"), keys.count("GET daemons")), (20, 1));

    // A bare name is looked up before it is deleted, and what is gone is no trouble.
    let retiring = Retiring { held: held[3].clone(), ..Retiring::default() };
    for expected in [Revoked::Done, Revoked::Absent] {
        assert_eq!(wait(revoke(&many.coder, &retiring, false, model::start())).unwrap(), expected);
    }
    assert_eq!((keys.count("DELETE"), keys.rows.lock().unwrap().len()), (1, 19));
}

#[test]
fn a_pass_with_nothing_to_do_asks_as_much_for_two_hundred_as_for_one_hundred_and_writes_nothing() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let asked = |count: usize| {
        let mut many = Many::new(count);
        many.make();
        let (asked, writes) = (many.asked(), many.writes());
        many.pass();
        assert_eq!(many.writes(), writes);
        many.asked() - asked
    };
    assert_eq!((asked(100), asked(200)), (1, 1));
}
