//! One of the two deployments that are compared, and the accounts that call it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use client::{Transport, transport::BoxFuture};
use http::{HeaderMap, Request};
use serde_json::{Value, json};

use crate::transcript::Transcript;

/// The account without a token.
pub(crate) const ANONYMOUS: &str = "anonymous";
/// The first user.
pub(crate) const OWNER: &str = "owner";
/// An account without rights in the default organization.
pub(crate) const MEMBER: &str = "member";
/// The password of every account of the suite.
pub(crate) const PASSWORD: &str = "Conformance-31-cases!";

/// Headers of every answer, by which the client knows that coderd answered.
const OWN: [&str; 2] = ["x-coder-build-version", "x-coder-request-id"];
/// Headers that callers depend on.
const HEADERS: [&str; 1] = ["retry-after"];

/// What a deployment does that no request asks for.
pub(crate) trait Host: Send + Sync {
    /// Signs a licence as the test bed is asked for one.
    fn sign_license(&self, wanted: Value) -> BoxFuture<'_, String>;
}

/// A deployment with its transcript.
pub(crate) struct Side {
    url: String,
    transport: Arc<dyn Transport>,
    pub(crate) host: Arc<dyn Host>,
    tokens: BTreeMap<&'static str, String>,
    pub(crate) transcript: Transcript,
    version: String,
    succeeded: BTreeSet<String>,
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    /// The text of a field.
    pub(crate) fn text(&self, field: &str) -> String {
        self.body[field].as_str().unwrap_or_default().to_owned()
    }
}

impl Side {
    pub(crate) fn new(url: &str, version: &str, transport: Arc<dyn Transport>, host: Arc<dyn Host>) -> Self {
        let mut side = Self {
            url: url.trim_end_matches('/').to_owned(),
            transport,
            host,
            tokens: BTreeMap::new(),
            transcript: Transcript::default(),
            version: version.to_owned(),
            succeeded: BTreeSet::new(),
        };
        side.begin();
        side
    }

    /// Begins the transcript of another case and returns the one so far.
    pub(crate) fn begin(&mut self) -> Transcript {
        let mut next = Transcript::default();
        next.name(&self.url, "<url>");
        next.name(&self.version, "<version>");
        std::mem::replace(&mut self.transcript, next)
    }

    pub(crate) async fn get(&mut self, who: &str, path: &str) -> Answer {
        self.call(who, "GET", path, &Value::Null).await
    }

    pub(crate) async fn post(&mut self, who: &str, path: &str, body: Value) -> Answer {
        self.call(who, "POST", path, &body).await
    }

    pub(crate) async fn patch(&mut self, who: &str, path: &str, body: Value) -> Answer {
        self.call(who, "PATCH", path, &body).await
    }

    pub(crate) async fn put(&mut self, who: &str, path: &str, body: Value) -> Answer {
        self.call(who, "PUT", path, &body).await
    }

    pub(crate) async fn delete(&mut self, who: &str, path: &str) -> Answer {
        self.call(who, "DELETE", path, &Value::Null).await
    }

    /// Sends a request of an account and records it. `Null` is no body, a string is sent as it is.
    pub(crate) async fn call(&mut self, who: &str, method: &str, path: &str, body: &Value) -> Answer {
        let token = self.tokens.get(who).cloned();
        let headers = token.iter().map(|it| ("coder-session-token", it.as_str())).collect::<Vec<_>>();
        self.call_with(who, (method, path, body), &headers).await
    }

    /// The same with these headers and no others.
    pub(crate) async fn call_with(
        &mut self,
        who: &str,
        (method, path, body): (&str, &str, &Value),
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let bytes = match body {
            Value::Null => Bytes::new(),
            Value::String(text) => Bytes::from(text.clone()),
            value => Bytes::from(serde_json::to_vec(value).unwrap()),
        };
        let response = self.transport.send(request.body(bytes).unwrap()).await.unwrap();
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        let answer = Answer {
            status: response.status().as_u16(),
            body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        };
        let line = format!("{who} {method} {path}{}", shown(response.headers()));
        self.transcript.record(&line, body, answer.status, &answer.body);
        if response.status().is_success() {
            self.succeeded.insert(format!("{method} {path}"));
        }
        answer
    }

    /// Every `METHOD path` that was answered with a success since this was last called.
    pub(crate) fn take_succeeded(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.succeeded)
    }

    /// Makes an account in the default organization and signs it in under that name.
    pub(crate) async fn sign_up(&mut self, who: &'static str) -> String {
        let user = json!({"username": who, "email": format!("{who}@sim.test"), "password": PASSWORD,
            "organization_ids": [uuid::Uuid::nil()]});
        let id = self.post(OWNER, "/api/v2/users", user).await.text("id");
        self.sign_in(who).await;
        id
    }

    /// Signs an account in.
    pub(crate) async fn sign_in(&mut self, who: &'static str) {
        let login = json!({"email": format!("{who}@sim.test"), "password": PASSWORD});
        let token = self.post(ANONYMOUS, "/api/v2/users/login", login).await.text("session_token");
        self.set_token(who, &token);
    }

    /// Calls of that account carry this token from now on.
    pub(crate) fn set_token(&mut self, who: &'static str, token: &str) {
        self.tokens.insert(who, token.to_owned());
    }

    pub(crate) fn token(&self, who: &str) -> String {
        self.tokens.get(who).cloned().unwrap_or_default()
    }

    /// Returns a licence of this deployment's signer.
    pub(crate) async fn sign_license(&self, wanted: Value) -> String {
        self.host.sign_license(wanted).await
    }

    /// Reads what the licences cover, without what differs between the real servers of the bed or moves with their timers.
    pub(crate) async fn entitlements(&mut self) {
        let mut shown = self.unrecorded(ANONYMOUS, "/api/v2/entitlements").await;
        shown["features"].as_object_mut().unwrap().remove("connection_log");
        shown["features"]["user_limit"].as_object_mut().unwrap().remove("actual");
        let warnings = shown["warnings"].as_array_mut().unwrap();
        warnings.retain(|it| !it.as_str().unwrap().starts_with("Connection Log"));
        self.transcript.note("anonymous GET entitlements", &shown);
    }

    /// The id of the default organization.
    pub(crate) async fn default_organization(&mut self) -> String {
        let listed = self.get(OWNER, "/api/v2/organizations").await.body;
        let organizations = listed.as_array().unwrap();
        let default = organizations.iter().find(|it| it["is_default"] == true).unwrap();
        default["id"].as_str().unwrap().to_owned()
    }
}

/// The headers that callers depend on, without values that move with the clock.
fn shown(headers: &HeaderMap) -> String {
    let sent = HEADERS.into_iter().filter(|it| headers.contains_key(*it)).map(|it| format!(" with {it}"));
    let missing = OWN.into_iter().filter(|it| !headers.contains_key(*it)).map(|it| format!(" without {it}"));
    sent.chain(missing).collect::<Vec<_>>().concat()
}

impl Side {
    /// Sends with these headers and without a record.
    pub(crate) async fn unrecorded_with(
        &mut self,
        request: (&str, &str, &Value),
        headers: &[(&str, &str)],
    ) -> Answer {
        let answer = self.call_with(ANONYMOUS, request, headers).await;
        self.transcript.entries.pop();
        answer
    }

    /// Reads the roles of an organization: their order is random, and the permissions of built-in ones are not read by the
    /// client.
    pub(crate) async fn roles(&mut self, who: &str, organization: &str) {
        let path = format!("/api/v2/organizations/{organization}/members/roles");
        let mut roles = self.unrecorded(who, &path).await;
        let built_in = |it: &&mut Value| it["built_in"] == true;
        for role in roles.as_array_mut().into_iter().flatten().filter(built_in) {
            role.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_permissions"));
        }
        self.transcript.note(&format!("{who} GET roles"), &roles);
    }

    /// Reads without a record, for answers that are compared in another form.
    pub(crate) async fn unrecorded(&mut self, who: &str, path: &str) -> Value {
        let answer = self.get(who, path).await;
        self.transcript.entries.pop();
        answer.body
    }
}
