//! What the condition says when coderd does not answer as it should, without a coderd.

use std::sync::{Arc, Mutex};

use api::Reason;
use bytes::Bytes;
use client::{Client, ClientOptions, Transport, TransportError, transport::BoxFuture};
use engine::{
    Coder, Trouble,
    coder::Promises,
    kinds::control_plane::license::{self, Declared, Jwt, LicenseEffect, LicenseRecord, LicenseVerdict},
};
use http::{Request, Response};
use secrecy::SecretString;

/// Answers each request with the next of these.
#[derive(Debug)]
struct Answers {
    left: Mutex<Vec<(u16, &'static str)>>,
    asked: Mutex<Vec<String>>,
}

impl Transport for Answers {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        self.asked.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        let (status, body) = self.left.lock().unwrap().remove(0);
        Box::pin(async move { Ok(Response::builder().status(status).body(Bytes::from(body)).unwrap()) })
    }
}

/// What an upload comes to, and what was asked for it.
async fn upload(answers: &[(u16, &'static str)]) -> (Result<license::Done, LicenseVerdict>, Vec<String>) {
    let wire = Arc::new(Answers { left: Mutex::new(answers.to_vec()), asked: Mutex::default() });
    let transport: Arc<dyn Transport> = Arc::clone(&wire) as _;
    let url = "https://coder.test".parse().unwrap();
    let client = Client::new(ClientOptions { url, token: None, transport }).unwrap();
    // The claims are `{}`.
    let jwt = Jwt::new(&SecretString::from("e30.e30.x"));
    let declared = [Declared { slot: "licenseSecretRef".to_owned(), jwt }];
    let identity = declared[0].identity().unwrap();
    let effect = LicenseEffect::Upload { slot: "licenseSecretRef".to_owned(), identity };
    let coder = Coder::new(client, Promises::default());
    let done = license::apply(&effect, &declared, &coder, &mut LicenseRecord::default()).await;
    let done = done.map_err(|trouble| match trouble {
        Trouble::Remote(error) => LicenseVerdict::failed(&error),
        other => panic!("{other:?}"),
    });
    let asked = std::mem::take(&mut *wire.asked.lock().unwrap());
    (done, asked)
}

async fn reason(answers: &[(u16, &'static str)]) -> (Reason, usize) {
    let (done, asked) = upload(answers).await;
    (done.unwrap_err().reason, asked.len())
}

#[tokio::test]
async fn each_refusal_has_its_reason() {
    let unsupported = reason(&[(404, r#"{"message":"Route not found."}"#)]).await;
    assert_eq!(unsupported, (Reason::NotSupported, 1));
    assert_eq!(reason(&[(403, r#"{"message":"Forbidden."}"#)]).await, (Reason::Forbidden, 1));
    assert_eq!(reason(&[(401, r#"{"message":"You are signed out."}"#)]).await, (Reason::Forbidden, 1));
    let (done, _) = upload(&[(400, r#"{"message":"Invalid license"}"#)]).await;
    assert_eq!(done, Ok(license::Done::Refused));
}

#[tokio::test]
async fn a_failure_is_looked_into_before_it_is_one() {
    let list = r#"[{"id":4,"uuid":"7d2f7e5e-6d0a-4d7b-9a1e-0c6a5d8b3f11","uploaded_at":"2026-01-01T00:00:00Z","claims":{}}]"#;
    let (done, asked) = upload(&[(500, r#"{"message":"boom"}"#), (200, list)]).await;
    assert_eq!(done, Ok(license::Done::Uploaded));
    assert_eq!(asked, ["POST /api/v2/licenses", "GET /api/v2/licenses"]);
    let other = r#"[{"id":4,"uuid":"7d2f7e5e-6d0a-4d7b-9a1e-0c6a5d8b3f11","uploaded_at":"2026-01-01T00:00:00Z","claims":{"jti":"x"}}]"#;
    assert_eq!(reason(&[(500, r#"{"message":"boom"}"#), (200, other)]).await, (Reason::Error, 2));
}
