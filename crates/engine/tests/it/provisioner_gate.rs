//! Whether daemons may run elsewhere, from what coderd answers.

use std::sync::Arc;

use api::Reason;
use bytes::Bytes;
use client::{Client, ClientOptions, Transport, TransportError, transport::BoxFuture};
use engine::kinds::provisioner::gate;
use http::{Request, Response};

/// Answers everything with this.
#[derive(Debug)]
struct Always(u16, String);

impl Transport for Always {
    fn send(&self, _request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let answer = Response::builder().status(self.0).body(Bytes::from(self.1.clone())).unwrap();
        Box::pin(async move { Ok(answer) })
    }
}

/// The reason of the condition; none when the gate is open.
async fn reason(status: u16, body: &str) -> Option<Reason> {
    let transport: Arc<dyn Transport> = Arc::new(Always(status, body.to_owned()));
    let url = "https://coder.test".parse().unwrap();
    let client = Client::new(ClientOptions { url, token: None, transport }).unwrap();
    let answer = client.entitlements().await;
    gate::asked(answer.as_ref()).err().map(|it| it.reason)
}

fn licensed(word: &str) -> String {
    format!(
        r#"{{"features": {{"external_provisioner_daemons": {{"entitlement": "{word}", "enabled": true}}}},
        "has_license": true, "refreshed_at": "2026-01-01T00:00:00Z"}}"#
    )
}

#[tokio::test]
async fn the_gate_opens_for_a_licence_and_for_its_grace_period() {
    assert_eq!(reason(200, &licensed("entitled")).await, None);
    assert_eq!(reason(200, &licensed("grace_period")).await, None);
}

#[tokio::test]
async fn every_way_in_which_the_gate_stays_shut_has_its_reason() {
    let none = r#"{"features": {}, "has_license": false, "refreshed_at": "2026-01-01T00:00:00Z"}"#;
    assert_eq!(reason(200, none).await, Some(Reason::NotEntitled));
    assert_eq!(reason(200, &licensed("not_entitled")).await, Some(Reason::NotEntitled));
    let missing = r#"{"message": "Route not found."}"#;
    assert_eq!(reason(404, missing).await, Some(Reason::NotSupported));
    assert_eq!(reason(403, r#"{"message": "Forbidden."}"#).await, Some(Reason::Forbidden));
    assert_eq!(reason(401, r#"{"message": "You are signed out."}"#).await, Some(Reason::Forbidden));
    assert_eq!(reason(400, r#"{"message": "boom"}"#).await, Some(Reason::EntitlementsQueryFailed));
}
