//! Deliberate differences: the comparison has to find each of them.

use std::sync::Arc;

use bytes::Bytes;
use client::{Transport, TransportError, transport::BoxFuture};
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Memory, URL, VERSION, side, unlimited};
use crate::{cases::CASES, side::Side, transcript::difference};

/// One mistake that a deployment in memory could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    /// A group name that is taken is refused with another status.
    Status,
    /// A refusal has other words.
    Words,
    /// An answer lacks a field.
    Field,
    /// An absent value is shown as an empty one.
    NullAsEmpty,
    /// A write is answered and not done.
    LostWrite,
    /// A refused request is carried out.
    MissingCheck,
}

const MISTAKES: [Mistake; 6] = [
    Mistake::Status,
    Mistake::Words,
    Mistake::Field,
    Mistake::NullAsEmpty,
    Mistake::LostWrite,
    Mistake::MissingCheck,
];

/// A deployment with one mistake.
#[derive(Debug)]
struct Mistaken {
    inner: Arc<dyn Transport>,
    mistake: Mistake,
}

impl Mistaken {
    async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let is_sync = path.ends_with("/settings/idpsync/organization");
        if self.mistake == Mistake::LostWrite && method == "PATCH" && is_sync {
            let mut echo = Response::new(request.into_body());
            *echo.status_mut() = StatusCode::OK;
            return Ok(echo);
        }
        let is_color = path == "/api/v2/appearance" && method == "PUT";
        let answer = self.inner.send(request).await?;
        let (mut parts, body) = answer.into_parts();
        let mut value: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        match self.mistake {
            Mistake::Status if parts.status == 409 && path.ends_with("/groups") => {
                parts.status = StatusCode::BAD_REQUEST;
            }
            Mistake::Words if value["message"] == "Name is required" => {
                value["message"] = json!("A name is required");
            }
            Mistake::Field if path.ends_with("/paginated-members") => {
                value.as_object_mut().unwrap().remove("count");
            }
            Mistake::NullAsEmpty if value["regex_filter"].is_null() && path.ends_with("/idpsync/groups") => {
                value["regex_filter"] = json!("");
            }
            Mistake::MissingCheck if parts.status == 400 && is_color => {
                parts.status = StatusCode::OK;
            }
            _ => return Ok(Response::from_parts(parts, body)),
        }
        Ok(Response::from_parts(parts, Bytes::from(value.to_string())))
    }
}

impl Transport for Mistaken {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        Box::pin(self.answer(request))
    }
}

/// The cases whose transcripts differ.
async fn differing(mut one: Side, mut other: Side) -> Vec<&'static str> {
    let mut differing = Vec::new();
    for case in CASES {
        (case.run)(&mut one).await;
        (case.run)(&mut other).await;
        let one = one.begin();
        let other = other.begin();
        differing.extend(difference(&one.entries, &other.entries).map(|_| case.name));
    }
    differing
}

#[tokio::test]
async fn equal_deployments_have_equal_transcripts() {
    assert_eq!(differing(side(&unlimited()), side(&unlimited())).await, [""; 0]);
}

#[tokio::test]
async fn every_mistake_is_found() {
    for mistake in MISTAKES {
        let coder = unlimited();
        let transport = Arc::new(Mistaken { inner: coder.transport(), mistake });
        let host = Memory { coder, clock: Arc::new(Timestamp::now) };
        let mistaken = Side::new(URL, VERSION, transport, Arc::new(host));
        assert_ne!(differing(side(&unlimited()), mistaken).await, [""; 0], "{mistake:?}");
    }
}
