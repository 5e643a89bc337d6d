//! A deployment: its state behind a lock, and the transport by which clients reach it.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use client::{Transport, TransportError, transport::BoxFuture};
use http::{HeaderMap, Method, Request, Response, header};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    answer::Answer,
    call::{Call, user_named},
    features,
    ids::Ids,
    licenses, provisioner_keys,
    rate_limit::{Allowance, RateLimit},
    router::{Access, Router, Unrouted},
    sessions,
    settings::{LicenseCheck, Settings},
    state::{AuditEntry, State},
};

/// How many changes are remembered.
const LONGEST_AUDIT_LOG: usize = 10_000;
/// How much of the name of a program is remembered.
const LONGEST_USER_AGENT: usize = 100;

/// Tells a deployment the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What a deployment is made of.
#[derive(Clone)]
pub struct Options {
    pub clock: Clock,
    /// Ids and secrets follow from this number and the order of requests.
    pub seed: u64,
    /// The address that the deployment reports for its dashboard.
    pub url: String,
    /// For example `v2.36.1`.
    pub version: String,
    /// Requests a minute by account and path. `None` is no limit.
    pub rate_limit: Option<u32>,
    pub license_check: LicenseCheck,
    /// How long a daemon builds a version of a template.
    pub build_time: SignedDuration,
}

impl Options {
    /// A deployment with coderd's defaults.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            seed: 1,
            url: "http://coder.test".to_owned(),
            version: "v2.36.1".to_owned(),
            rate_limit: Some(512),
            license_check: LicenseCheck::Signature,
            build_time: SignedDuration::from_secs(5),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clock: _, seed, url, version, rate_limit, license_check, build_time: _ } = self;
        let mut shown = formatter.debug_struct("Options");
        shown.field("seed", seed).field("url", url).field("version", version);
        shown.field("rate_limit", rate_limit).field("license_check", license_check).finish_non_exhaustive()
    }
}

/// A deployment in memory. Clones share it.
#[derive(Clone)]
pub struct Coder(Arc<Deployment>);

struct Deployment {
    clock: Clock,
    settings: Settings,
    rate_limit: Option<u32>,
    router: Router,
    memory: Mutex<Memory>,
}

struct Memory {
    state: State,
    counted: RateLimit,
}

impl Coder {
    /// A deployment without users and without a licence.
    pub fn new(options: Options) -> Self {
        let now = (options.clock)();
        let state = fresh(options.seed, now);
        Self::with_state(options, state)
    }

    /// A deployment that goes on from a state.
    pub fn with_state(options: Options, state: State) -> Self {
        let Options { clock, seed, url, version, rate_limit, license_check, build_time } = options;
        Self(Arc::new(Deployment {
            clock,
            settings: Settings { seed, url, version, license_check, build_time },
            rate_limit,
            router: Router::new(),
            memory: Mutex::new(Memory { state, counted: RateLimit::default() }),
        }))
    }

    /// The way by which clients reach the deployment.
    pub fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.clone())
    }

    /// A copy of the state.
    pub fn state(&self) -> State {
        self.memory().state.clone()
    }

    /// Reads the state in place.
    pub fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.memory().state)
    }

    /// Changes the state in place, for what no route does here.
    pub fn edit(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.memory().state);
    }

    /// Starts a session of an account and returns its token. `None` where no active account has that name.
    pub fn sign_in(&self, username: &str, lifetime: SignedDuration) -> Option<SecretString> {
        let now = (self.0.clock)();
        let mut memory = self.memory();
        let user = user_named(&memory.state, username).filter(|it| it.status == "active")?.id;
        let session = sessions::session(user, lifetime, now);
        Some(sessions::store(&mut memory.state, self.0.settings.seed, session).into())
    }

    /// Signs a licence that only this deployment accepts. The claims are added to those of a premium licence for 60 days,
    /// or replace them.
    pub fn sign_license(&self, claims: &Map<String, Value>) -> String {
        let now = (self.0.clock)();
        let mut memory = self.memory();
        let id = Ids { seed: self.0.settings.seed, issued: &mut memory.state.issued }.uuid();
        licenses::sign(&memory.state, claims, id, now)
    }

    /// Connects a provisioner daemon with the value of its key, or refreshes the one of that name.
    /// Returns the daemon's id. `None` where no key has that value.
    pub fn connect_daemon(&self, key: &str, name: &str, version: &str) -> Option<Uuid> {
        let now = (self.0.clock)();
        let mut memory = self.memory();
        let Memory { state, counted: _ } = &mut *memory;
        let id = Ids { seed: self.0.settings.seed, issued: &mut state.issued }.uuid();
        let connection = provisioner_keys::Connection::of_terraform(key, name, version);
        provisioner_keys::connect(state, id, connection, now)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let now = (self.0.clock)();
        let mut memory = self.memory();
        let Memory { state, counted } = &mut *memory;
        let request_id = Ids { seed: self.0.settings.seed, issued: &mut state.issued }.uuid();
        let path = request.uri().path();
        let limit = self.0.rate_limit.map(|limit| {
            let who = sessions::holder(state, request.headers(), now);
            counted.count(limit, &who.map_or_else(String::new, |it| it.to_string()), path, now)
        });
        let mut answer = match limit.filter(|it| it.is_exceeded) {
            Some(Allowance { limit, .. }) => rate_limited(limit),
            None => self.answer(state, request, request_id, now),
        };
        if request.method() == Method::HEAD {
            answer.body = None;
            answer.file = None;
        }
        respond(&answer, &self.0.settings.version, request_id, now, limit)
    }

    fn answer(
        &self,
        state: &mut State,
        request: &Request<Bytes>,
        request_id: Uuid,
        now: Timestamp,
    ) -> Answer {
        let path = request.uri().path();
        let (endpoint, parameters) = match self.0.router.find(request.method(), path) {
            Ok(found) => found,
            Err(Unrouted::OtherMethod) => return Answer::empty(405),
            Err(Unrouted::UnknownPath) => return Answer::message(404, "Route not found."),
        };
        let query = url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        let mut call = Call {
            state,
            settings: &self.0.settings,
            now,
            headers: request.headers(),
            body: request.body(),
            parameters,
            query: query.into_owned().collect(),
            caller: Uuid::nil(),
            api_key: String::new(),
            change: None,
        };
        let answer = admit(&mut call, endpoint.access)
            .and_then(|()| (endpoint.handler)(&mut call))
            .unwrap_or_else(|refusal| refusal);
        let change = call.change.take();
        let caller = call.caller;
        if let Some(change) = change {
            let user = state.users.get(&caller);
            if state.audit_log.len() >= LONGEST_AUDIT_LOG {
                state.audit_log.pop_front();
            }
            state.audit_log.push_back(AuditEntry {
                time: now,
                request_id,
                user_id: user.map(|it| it.id),
                username: user.map_or_else(String::new, |it| it.username.clone()),
                user_agent: user_agent(request.headers()),
                method: request.method().to_string(),
                path: path.to_owned(),
                status: answer.status,
                change,
            });
        }
        answer
    }
}

impl fmt::Debug for Coder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Coder").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Transport for Coder {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        Box::pin(async move { Ok(self.serve(&request)) })
    }
}

/// The program that sent a request, as it names itself; empty without a name.
fn user_agent(headers: &HeaderMap) -> String {
    let name = headers.get(header::USER_AGENT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    name.chars().take(LONGEST_USER_AGENT).collect()
}

/// Checks token and licence in the order of the route.
fn admit(call: &mut Call<'_>, access: Access) -> Result<(), Answer> {
    match access {
        Access::Anonymous => Ok(()),
        Access::Account => sessions::authenticate(call),
        Access::AccountOrAgent => sessions::authenticate_account_or_agent(call),
        Access::Licensed(feature) => {
            sessions::authenticate(call)?;
            call.licensed(feature)
        }
        Access::LicensedFirst(feature) => {
            call.licensed(feature)?;
            sessions::authenticate(call)
        }
    }
}

fn rate_limited(limit: u32) -> Answer {
    let message = format!("You've been rate limited for sending more than {limit} requests in 1m0s.");
    Answer::message(429, message).retry_after(60)
}

/// Adds the headers that every answer of coderd has.
fn respond(
    answer: &Answer,
    version: &str,
    request_id: Uuid,
    now: Timestamp,
    limit: Option<Allowance>,
) -> Response<Bytes> {
    let mut headers = vec![
        (header::DATE.as_str(), now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()),
        ("x-coder-build-version", version.to_owned()),
        ("x-coder-request-id", request_id.to_string()),
    ];
    let kind = match (&answer.file, &answer.body) {
        (Some((kind, _)), _) => Some(*kind),
        (None, None) => None,
        (None, Some(Value::String(_))) => Some("text/plain; charset=utf-8"),
        (None, Some(_)) => Some("application/json; charset=utf-8"),
    };
    headers.extend(kind.map(|it| (header::CONTENT_TYPE.as_str(), it.to_owned())));
    if let Some(seconds) = answer.retry_after {
        headers.push((header::RETRY_AFTER.as_str(), seconds.to_string()));
    }
    if let Some(Allowance { limit, remaining, reset, is_exceeded: _ }) = limit {
        headers.push(("x-ratelimit-limit", limit.to_string()));
        headers.push(("x-ratelimit-remaining", remaining.to_string()));
        headers.push(("x-ratelimit-reset", reset.to_string()));
    }
    let body = match (&answer.file, &answer.body) {
        (Some((_, bytes)), _) => bytes.clone(),
        (None, None) => Vec::new(),
        (None, Some(Value::String(text))) => text.clone().into_bytes(),
        (None, Some(value)) => value.to_string().into_bytes(),
    };
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() =
        http::StatusCode::from_u16(answer.status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let parsed = headers.into_iter().filter_map(|(name, value)| {
        Some((http::HeaderName::from_bytes(name.as_bytes()).ok()?, value.parse().ok()?))
    });
    *response.headers_mut() = parsed.collect::<HeaderMap>();
    response
}

/// The state of a deployment that was never used: the default organization with its group and the reserved keys.
fn fresh(seed: u64, now: Timestamp) -> State {
    let mut issued = 0;
    let mut ids = Ids { seed, issued: &mut issued };
    let deployment_id = ids.uuid();
    let default_organization = ids.uuid();
    let mut state = State {
        deployment_id,
        default_organization,
        issued,
        provisioner_keys: provisioner_keys::reserved(default_organization, now),
        ..State::default()
    };
    crate::organizations::insert_default(&mut state, now);
    features::recompute(&mut state, now);
    state
}
