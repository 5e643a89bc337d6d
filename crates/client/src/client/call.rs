//! One call: from a route and its values to a request, through rate limiter, circuit and retries, to an answer or an error.

use std::{sync::PoisonError, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;
use url::Url;

use super::Client;
use crate::{
    answer::Answer,
    circuit::Circuit,
    error::{Attempt, Error, Problem, Refusal},
    observer::{Attempted, Ending, UnderWay},
    retry,
    route::Route,
    scrub::clean,
    transport::TransportError,
};

const JSON: &str = "application/json";
const TOKEN_HEADER: &str = "coder-session-token";
/// How requests name this program, whatever carries them: Coder's audit log shows it.
const USER_AGENT: &str = concat!("coder-operator/", env!("CARGO_PKG_VERSION"));

/// A call under construction. What cannot be sent is said when it would be sent.
#[must_use]
pub(crate) struct Call<'a> {
    client: &'a Client,
    route: &'static Route,
    parameters: Vec<(&'static str, String)>,
    query: Vec<(&'static str, String)>,
    body: Result<Bytes, serde_json::Error>,
    secrets: Vec<&'a SecretString>,
    /// What the body is.
    content_type: &'static str,
    secret_header: Option<(&'static str, &'a SecretString)>,
}

type Outcome = Result<Answer, TransportError>;

/// The one request by which the circuit decides. A caller that goes away before its end frees the place at once.
struct Trial<'a>(&'a Call<'a>);

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        self.0.circuit(|it| it.withdraw(Instant::now()));
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(client: &'a Client, route: &'static Route) -> Self {
        let (parameters, query) = (Vec::new(), Vec::new());
        Self {
            client,
            route,
            parameters,
            query,
            body: Ok(Bytes::new()),
            secrets: Vec::new(),
            content_type: JSON,
            secret_header: None,
        }
    }

    /// Fills in a parameter of the route's path.
    pub(crate) fn parameter(mut self, name: &'static str, value: &impl ToString) -> Self {
        self.parameters.push((name, value.to_string()));
        self
    }

    pub(crate) fn query(mut self, name: &'static str, value: &impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(crate) fn body(mut self, body: &impl Serialize) -> Self {
        self.body = serde_json::to_vec(body).map(Bytes::from);
        self
    }

    /// Sends bytes that are no JSON.
    pub(crate) fn raw(mut self, body: impl Into<Bytes>, content_type: &'static str) -> Self {
        self.body = Ok(body.into());
        self.content_type = content_type;
        self
    }

    /// Names a value of the body that no error may repeat.
    pub(crate) fn carries(mut self, secret: &'a SecretString) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Sends a value in a header of its own; no error may repeat it.
    pub(crate) fn secret_header(mut self, name: &'static str, value: &'a SecretString) -> Self {
        self.secret_header = Some((name, value));
        self
    }

    /// Sends, and is content with any success.
    pub(crate) async fn done(&self) -> Result<(), Error> {
        self.send().await.map(drop)
    }

    /// Sends, and reads the answer.
    pub(crate) async fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let answer = self.send().await?;
        let mut deserializer = serde_json::Deserializer::from_slice(&answer.body);
        let read = serde_path_to_error::deserialize(&mut deserializer);
        let read = read.map_err(|error| unreadable(&answer, &error)).and_then(|value| {
            deserializer.end().map_err(|_| "there is more than one value".to_owned())?;
            Ok(value)
        });
        read.map_err(|reason| {
            let problem = Problem::Unreadable { status: answer.status, reason: self.cleaned(&reason) };
            self.error(problem).with_request_id(answer.request_id)
        })
    }

    /// Sends, and returns the body as it came.
    pub(crate) async fn bytes(&self) -> Result<Vec<u8>, Error> {
        self.send().await.map(|it| it.body.to_vec())
    }

    /// Sends, and reads a list, for which coderd sometimes says `null`.
    pub(crate) async fn list<T: DeserializeOwned>(&self) -> Result<Vec<T>, Error> {
        self.read::<Option<Vec<T>>>().await.map(Option::unwrap_or_default)
    }

    async fn send(&self) -> Result<Answer, Error> {
        let url = self.address().map_err(|reason| self.error(Problem::Unsendable(reason)))?;
        let mut outcome = self.attempt(&url).await?;
        for _ in 1..retry::MOST_TRIES {
            let Some(pause) = retry::pause(self.route, &outcome) else { break };
            tokio::time::sleep(pause).await;
            match self.attempt(&url).await {
                Ok(next) => outcome = next,
                // Not asked again, so the first answer stands.
                Err(_) => break,
            }
        }
        self.judge(outcome, &url)
    }

    /// One try. The error is that it was not sent.
    async fn attempt(&self, url: &Url) -> Result<Outcome, Error> {
        let request = self.request(url).map_err(|reason| self.error(Problem::Unsendable(reason)))?;
        let deployment = &self.client.deployment;
        let _trial = match self.admit() {
            Ok(trial) => trial,
            Err(pause) => {
                self.not_sent(Ending::CircuitOpen);
                return Err(self.error(Problem::CircuitOpen).with_retry_after(Some(pause)));
            }
        };
        let Client { share, longest_wait, rate_limiter, .. } = self.client;
        if let Err(pause) = rate_limiter.acquire(self.counted(url), *share, *longest_wait).await {
            self.not_sent(Ending::ShareUsed);
            return Err(self.error(Problem::ShareUsed).with_retry_after(Some(pause)));
        }
        // The semaphore is never closed.
        let _permit = deployment.concurrency.acquire().await;
        if let Some(why) = self.client.guards.iter().find_map(|it| it.refusal(self.route)) {
            self.not_sent(Ending::Withheld);
            return Err(self.error(Problem::Withheld(why)));
        }
        let under_way = UnderWay::begin(&*self.client.observer, self.route);
        let outcome = deployment.transport.send(request).await.map(Answer::read);
        under_way.end(Ending::from(&outcome));
        self.learn(url, &outcome);
        Ok(outcome)
    }

    /// Asks the circuit to let a request through; what comes back is held until there is an outcome.
    fn admit(&self) -> Result<Option<Trial<'_>>, Duration> {
        let is_trial = self.circuit(|it| it.admit(Instant::now()).map(|()| it.is_on_trial()))?;
        Ok(is_trial.then(|| Trial(self)))
    }

    fn learn(&self, url: &Url, outcome: &Outcome) {
        match outcome {
            Ok(answer) if answer.is_from_gateway() => self.circuit(|it| it.failed(Instant::now())),
            // It says nothing about the deployment.
            Err(TransportError::NotAllowed(_)) => {}
            Ok(_) | Err(TransportError::TooLarge { .. }) => self.circuit(Circuit::answered),
            Err(_) => self.circuit(|it| it.failed(Instant::now())),
        }
        let (rate_limiter, path) = (&self.client.rate_limiter, self.counted(url));
        if let Ok(answer) = outcome {
            if let Some(allowance) = answer.allowance {
                rate_limiter.learn(path, allowance, self.client.share);
            }
            if let Some(pause) = answer.retry_after.filter(|_| answer.status.as_u16() == 429) {
                rate_limiter.close(path, pause);
            }
        }
    }

    /// The path by which coderd counts: without the prefix of the address, which coderd does not see.
    fn counted<'u>(&self, url: &'u Url) -> &'u str {
        let prefix = self.client.deployment.url.path().trim_end_matches('/');
        url.path().strip_prefix(prefix).unwrap_or_else(|| url.path())
    }

    fn judge(&self, outcome: Outcome, url: &Url) -> Result<Answer, Error> {
        let answer = match outcome {
            Ok(answer) if answer.status.is_success() => return Ok(answer),
            Ok(answer) => answer,
            Err(error) => return Err(self.error(Problem::Transport(error.reworded(|it| self.cleaned(it))))),
        };
        let refusal = Refusal::judge(&answer, url, &self.secrets());
        Err(self
            .error(Problem::Refused(refusal))
            .with_retry_after(answer.retry_after)
            .with_request_id(answer.request_id))
    }

    /// The deployment's address, then the route's path with each parameter as one encoded segment.
    fn address(&self) -> Result<Url, String> {
        let mut url = self.client.deployment.url.clone();
        {
            let mut segments = url.path_segments_mut().map_err(|()| "the address has no path".to_owned())?;
            segments.pop_if_empty();
            for segment in self.route.path().split('/').filter(|it| !it.is_empty()) {
                match segment.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
                    Some(name) => segments.push(self.value_of(name)?),
                    None => segments.push(segment),
                };
            }
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        Ok(url)
    }

    fn value_of(&self, name: &str) -> Result<&str, String> {
        let value = self.parameters.iter().find(|(it, _)| *it == name).map(|(_, value)| value.as_str());
        // The first three change which route is meant; an encoded slash is one that coderd never finds.
        match value {
            None | Some("" | "." | "..") => Err(format!("there is no usable value for {{{name}}}")),
            Some(value) if value.contains('/') => Err(format!("the value for {{{name}}} has a slash in it")),
            Some(value) => Ok(value),
        }
    }

    fn request(&self, url: &Url) -> Result<http::Request<Bytes>, String> {
        let body = self.body.as_ref().map_err(|_| "the body cannot be written as JSON".to_owned())?;
        let json = HeaderValue::from_static(JSON);
        let mut request = http::Request::builder()
            .method(self.route.method().clone())
            .uri(url.as_str())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, &json);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        if let Some(token) = self.client.token.as_ref().filter(|_| !self.route.anonymous()) {
            request = request.header(TOKEN_HEADER, &token.header);
        }
        if let Some((name, value)) = self.secret_header {
            let value = HeaderValue::from_str(value.expose_secret());
            let mut value = value.map_err(|_| format!("the value for {name} cannot be put into a header"))?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        request.body(body.clone()).map_err(|_| "the address cannot be put into a request".to_owned())
    }

    /// Asks or tells the circuit, and passes on what it has become.
    fn circuit<T>(&self, use_it: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuit = self.client.deployment.circuit.lock().unwrap_or_else(PoisonError::into_inner);
        let before = circuit.state();
        let answer = use_it(&mut circuit);
        if circuit.state() != before {
            self.client.observer.circuit(circuit.state());
        }
        answer
    }

    fn not_sent(&self, ending: Ending) {
        let attempt = Attempted { route: self.route, ending, took: Duration::ZERO };
        self.client.observer.attempted(attempt);
    }

    fn error(&self, problem: Problem) -> Error {
        let (method, path) = (self.route.method().clone(), self.route.path());
        Error::new(Attempt { method, path, host: self.client.deployment.host.clone() }, problem)
    }

    fn secrets(&self) -> Vec<&str> {
        let token = self.client.token.as_ref().map(|it| &it.secret);
        let header = self.secret_header.map(|(_, value)| value);
        let body = self.secrets.iter().copied();
        body.chain(token).chain(header).map(SecretString::expose_secret).collect()
    }

    fn cleaned(&self, text: &str) -> String {
        clean(text, &self.secrets())
    }
}

/// Where and why an answer cannot be read, without the value: it may be a secret that is shown only once.
fn unreadable(answer: &Answer, error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    if answer.body.is_empty() {
        return "it is empty".to_owned();
    }
    if answer.is_html {
        return "it is an HTML page".to_owned();
    }
    let path = error.path().to_string();
    let inner = error.inner();
    let reason = inner.to_string();
    let reason = match reason.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None if inner.is_data() && !reason.starts_with("missing field") => {
            "a value of the wrong kind".to_owned()
        }
        None => reason,
    };
    if path == "." { reason } else { format!("{path}: {reason}") }
}
