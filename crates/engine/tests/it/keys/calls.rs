//! The calls of one operator, to deployments and to the cluster: each stops, is done or not, is checked, and stops again.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
};

use bytes::Bytes;
use client::{Transport, TransportError, transport::BoxFuture};
use engine::{
    ports::{Answer, ClusterError, Write},
    secrets::checksum,
};
use http::{Method, Request, Response};
use secrecy::SecretString;
use serde_json::{Value, json};
use sim::cluster::{ClusterCall, Interceptor};
use uuid::Uuid;

use super::{
    model::{Ailing, Fault, GRACE, Model, Shared},
    secret::{entries, is_owned, record_of},
};
use crate::memory::wait;

/// Stops once.
struct Pause(bool);

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

type Answered = Result<Response<Bytes>, TransportError>;

/// What must be the same after a call.
#[derive(Debug)]
struct Before {
    foreign: usize,
    is_live: bool,
}

impl Model {
    /// Counts and logs a call. Returns what goes wrong with it.
    fn begin_call(&mut self, who: &str, what: &str) -> Option<Fault> {
        self.calls += 1;
        let number = self.calls;
        let fault = self.faults.remove(&number);
        let how = fault.map_or_else(String::new, |it| format!(" {it:?}"));
        self.log.push(format!("{who}: {what}{how}"));
        fault
    }

    fn before(&self) -> Before {
        let foreign = self.rows.iter().filter(|it| it.is_foreign).count();
        Before { foreign, is_live: self.checks_value && self.live().is_some() }
    }

    fn check_since(&self, before: &Before) {
        let foreign = self.rows.iter().filter(|it| it.is_foreign).count();
        assert_eq!(foreign, before.foreign, "a foreign key was deleted\n{self:#?}");
        assert!(!before.is_live || self.live().is_some(), "the value in the Secret is dead\n{self:#?}");
        self.check();
    }

    /// A key that goes is no longer used by anybody.
    fn check_unused(&self, deployment: Uuid, name: &str) {
        let is_it = |it: &&super::model::Row| it.deployment == deployment && it.key.name == name;
        let Some(row) = self.rows.iter().find(is_it) else { return };
        let since = self.record().and_then(|it| {
            it.retiring.iter().find(|it| it.held.name.eq_ignore_ascii_case(name)).map(|it| it.since)
        });
        let is_over = since.is_some_and(|it| self.now().duration_since(it) >= GRACE);
        let is_carried = self.carried.contains(&checksum(&SecretString::from(row.value.clone())));
        assert!(!is_carried || is_over, "{name} is carried by pods\n{self:#?}");
        assert!(
            row.is_foreign || self.newest.as_ref() != Some(&row.value),
            "the live key {name} is revoked\n{self:#?}"
        );
    }
}

/// The way of one operator to one deployment.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) who: &'static str,
    pub(super) model: Shared,
    pub(super) deployment: Uuid,
}

impl Transport for Wire {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Answered> {
        Box::pin(async move {
            Pause(false).await;
            let answer = self.exchange(&mut self.model.lock().unwrap(), request);
            Pause(false).await;
            answer
        })
    }
}

impl Wire {
    fn exchange(&self, model: &mut Model, request: Request<Bytes>) -> Answered {
        let path = request.uri().path().to_owned();
        let segments: Vec<&str> = path.split('/').skip(3).collect();
        let sent: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let what = match (request.method(), segments.as_slice()) {
            (&Method::GET, ["organizations", _, "provisionerkeys", "daemons"]) => "list".to_owned(),
            (&Method::GET, ["provisionerkeys", _]) => "prove".to_owned(),
            (&Method::POST, _) => format!("mint {}", sent["name"].as_str().unwrap()),
            (&Method::DELETE, [.., name]) => format!("delete {name}"),
            _ => path.clone(),
        };
        if request.method() == Method::POST
            && let Some(answer) = ailing_answer(model)
        {
            return answer;
        }
        let fault = model.begin_call(self.who, &what);
        if fault == Some(Fault::Refused) {
            return Err(TransportError::NotAllowed("refused".to_owned()));
        }
        if let ["organizations", organization, "provisionerkeys", "daemons"] = segments.as_slice()
            && organization.parse().is_ok_and(|it| model.unreadable.contains(&it))
        {
            return Ok(refusal(404, "Resource not found or you do not have access to this resource"));
        }
        let is_read = request.method() == Method::GET;
        let answer = if is_read { self.pass_on(model, request) } else { self.change(model, request) };
        if fault == Some(Fault::LostAnswer) { lost() } else { answer }
    }

    fn pass_on(&self, model: &mut Model, request: Request<Bytes>) -> Answered {
        let deployment = model.deployment(self.deployment).transport();
        wait(deployment.send(request))
    }

    /// A request that makes or deletes a key.
    fn change(&self, model: &mut Model, request: Request<Bytes>) -> Answered {
        // Others may have changed keys, too.
        model.enter_rows(self.deployment, None);
        let before = model.before();
        let path = request.uri().path().to_owned();
        let is_mint = request.method() == Method::POST;
        let ailing = if is_mint { model.ailing } else { None };
        if !is_mint {
            model.check_unused(self.deployment, path.rsplit('/').next().unwrap());
        }
        let again = request.clone();
        let answer = self.pass_on(model, request)?;
        let made = (answer.status() == 201).then(|| serde_json::from_slice::<Value>(answer.body()).unwrap());
        model.writes += usize::from(made.is_some() || !is_mint);
        model.minted += usize::from(made.is_some());
        let sent: Value = serde_json::from_slice(again.body()).unwrap_or_default();
        let value = made.as_ref().and_then(|it| it["key"].as_str());
        model.enter_rows(self.deployment, sent["name"].as_str().zip(value));
        model.check_since(&before);
        if let Some(ailing @ (Ailing::Mute | Ailing::Twice)) = ailing {
            model.ailing = None;
            return if ailing == Ailing::Mute { lost() } else { self.pass_on(model, again) };
        }
        Ok(answer)
    }
}

/// The answer to a request for a key that does not arrive at all.
fn ailing_answer(model: &mut Model) -> Option<Answered> {
    model.posts += 1;
    match model.ailing? {
        Ailing::Fails => Some(Ok(refusal(500, "it does not work"))),
        Ailing::Refuses => Some(Ok(refusal(403, "Forbidden."))),
        Ailing::Mute | Ailing::Twice => None,
    }
}

fn lost() -> Answered {
    Err(TransportError::Broken("lost".to_owned()))
}

/// A refusal as coderd words it.
fn refusal(status: u16, message: &str) -> Response<Bytes> {
    let body = Bytes::from(json!({"message": message}).to_string());
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.header("x-coder-build-version", "v2.36.1").body(body).unwrap()
}

/// The calls of one operator to the cluster.
#[derive(Debug)]
pub(super) struct ClusterCalls {
    who: &'static str,
    model: Shared,
    under_way: Mutex<UnderWay>,
}

/// The call that is being made.
#[derive(Debug, Default)]
struct UnderWay {
    fault: Option<Fault>,
    /// The Secret before it is written.
    secret: Option<Value>,
    before: Option<Before>,
    epoch: u64,
}

impl ClusterCalls {
    pub(super) fn new(who: &'static str, model: &Shared) -> Arc<Self> {
        Arc::new(Self { who, model: Arc::clone(model), under_way: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap()
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap()
    }

    fn begin(&self, call: &ClusterCall<'_>) -> Result<(), ClusterError> {
        let mut model = self.lock();
        if let ClusterCall::Event { note } = call {
            hear(&mut model, note);
            return Ok(());
        }
        let secret = secret_of(call).and_then(|it| model.cluster.find("Secret", &it));
        let what = words(call, secret.as_ref(), &model);
        let fault = model.begin_call(self.who, &what);
        let is_write = matches!(call, ClusterCall::Write(_) | ClusterCall::Delete(_));
        let before = is_write.then(|| model.before());
        let epoch = if is_write { model.status().epoch() } else { 0 };
        *self.under_way() = UnderWay { fault, secret, before, epoch };
        if fault == Some(Fault::Refused) {
            return Err(ClusterError::NoAnswer("refused".to_owned()));
        }
        if let (ClusterCall::List { .. }, Some(code)) = (call, model.refused_list) {
            return Err(ClusterError::refusal(code, "ServiceUnavailable", "later"));
        }
        match model.denial.as_mut().filter(|it| it.times > 0 && secret_of(call).is_some()) {
            Some(denial) => {
                denial.times -= 1;
                Err(ClusterError::refusal(denial.code, denial.reason, "cannot find RESTMapping"))
            }
            None => Ok(()),
        }
    }

    fn end(&self, call: &ClusterCall<'_>) -> Result<(), ClusterError> {
        let UnderWay { fault, secret, before, epoch } = std::mem::take(&mut *self.under_way());
        if let Some(before) = before {
            let mut model = self.lock();
            if let Some(name) = secret_of(call) {
                let now = model.cluster.find("Secret", &name);
                if now != secret {
                    model.writes += 1;
                    check_secret(&mut model, secret.as_ref(), now.as_ref());
                }
            } else {
                model.writes += 1;
                assert!(model.status().epoch() >= epoch, "the epoch goes back\n{model:#?}");
            }
            model.check_since(&before);
        }
        if fault == Some(Fault::LostAnswer) {
            return Err(ClusterError::NoAnswer("lost".to_owned()));
        }
        Ok(())
    }
}

impl Interceptor for ClusterCalls {
    fn before<'a>(&'a self, call: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            Pause(false).await;
            self.begin(call)
        })
    }

    fn after<'a>(&'a self, call: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            let ended = self.end(call);
            Pause(false).await;
            ended
        })
    }
}

/// The name of the Secret that is written.
fn secret_of(call: &ClusterCall<'_>) -> Option<String> {
    match call {
        ClusterCall::Write(Write::Create(it) | Write::Replace(it)) if it["kind"] == "Secret" => {
            it["metadata"]["name"].as_str().map(str::to_owned)
        }
        ClusterCall::Delete(key) if key.kind == "Secret" => Some(key.name.clone()),
        _ => None,
    }
}

/// The entries of a Secret that another one does not have like that.
fn changed(secret: &Value, other: Option<&Value>) -> Vec<(String, String)> {
    let others = other.map(entries).unwrap_or_default();
    entries(secret).into_iter().filter(|it| !others.contains(it)).collect()
}

fn words(call: &ClusterCall<'_>, stored: Option<&Value>, model: &Model) -> String {
    match call {
        ClusterCall::Secret { name, .. } => format!("read {name}"),
        ClusterCall::Write(Write::MergeStatus { .. }) => "mirror".to_owned(),
        ClusterCall::Write(Write::Create(secret) | Write::Replace(secret)) => {
            let is_removal = stored.is_some_and(|it| entries(secret).len() < entries(it).len());
            if is_removal {
                return format!("remove an entry of {}", secret["metadata"]["name"]);
            }
            let record = record_of(secret).unwrap();
            format!(
                "write {} intent {:?} current {:?} retiring {:?}",
                if changed(secret, stored).is_empty() { "-" } else { "value" },
                record.intent.as_ref().map(|it| &it.name),
                record.current.as_ref().map(|it| &it.name),
                record.retiring.iter().map(|it| &it.held.name).collect::<Vec<_>>(),
            )
        }
        ClusterCall::Delete(key) => format!("remove {}", key.name),
        ClusterCall::List { kind } => format!("list {kind}"),
        ClusterCall::Get(key) => format!("read {key}"),
        other => panic!("{other:?} is not expected\n{model:#?}"),
    }
}

/// A Secret was written, or is gone.
fn check_secret(model: &mut Model, before: Option<&Value>, now: Option<&Value>) {
    let uid = &model.wanted.names.uid;
    let gone = before.map(|it| (it, now.map(entries).unwrap_or_default()));
    if let Some((before, now)) = gone {
        let name = before["metadata"]["name"].as_str().unwrap();
        let is_gone = |key: &str| !now.iter().any(|it| it.0 == key);
        let is_read = model.read.iter().any(|it| it.name == name && is_gone(&it.key) && has(before, &it.key));
        assert!(!is_read, "pods read an entry that is removed\n{model:#?}");
        assert!(
            is_owned(before, uid) || record_of(before).is_some(),
            "a person's Secret was written\n{model:#?}"
        );
    }
    let Some(now) = now else { return };
    let is_removal = before.is_some_and(|it| entries(now).len() < entries(it).len());
    let epoch = |secret: &Value| record_of(secret).map_or(0, |it| it.epoch());
    let (last, next) = (before.map_or(0, epoch), epoch(now));
    assert!(is_removal || next > last, "epoch {last} is followed by {next}");
    if !is_removal {
        model.backups.push(now.clone());
    }
    if let Some((_, value)) = changed(now, before).pop() {
        model.newest = Some(value);
    }
}

fn has(secret: &Value, key: &str) -> bool {
    super::secret::entry(secret, key).is_some()
}

/// What people are told of a key.
fn hear(model: &mut Model, note: &str) {
    let name = note.split(' ').nth(2).unwrap().to_owned();
    if note.contains("is left behind: the deployment of control plane") {
        model.log.push(format!(": left {name}"));
        model.name_as_left(&name, true);
    } else if note.contains("is left behind: it") {
        model.log.push(format!("revoked {name} doubtful: {note}"));
        model.name_as_left(&name, false);
    } else {
        model.log.push(format!("revoked {name}: {note}"));
    }
}
