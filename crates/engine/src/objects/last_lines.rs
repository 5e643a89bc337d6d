//! The last line that a pod in trouble has logged: whom to ask for it, and what of it may be shown.
//!
//! A process that cannot start likes to print what it was given, so every value of every Secret that the pod reads is taken out
//! first, and then whatever else looks like a secret.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::ResourceExt as _;
use url::form_urlencoded;

use super::crash::{crash, lives};
use crate::objects::references::{SourceRef, of_source, of_variable, of_volume};

/// How many lines are asked for: the very last ones may be empty.
pub const LINES: i64 = 10;
/// How many bytes are asked for. More than one line of Coder's, far less than would hurt.
pub const BYTES: i64 = 32 * 1024;
/// How many pods are asked: one that speaks is enough.
const MOST_PODS: usize = 3;
/// What is shorter is no secret, and taking it out would leave nothing to read.
const SHORTEST: usize = 3;

/// A container to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub pod: String,
    pub container: String,
    /// Whether its words are those of a life that is over.
    pub previous: bool,
}

/// The containers whose last words say why a Deployment is stuck: those that end again and again, then those that run and are
/// not ready. The youngest pods come first, because they are of the form that was declared last.
pub fn whom_to_ask(pods: &[Pod]) -> Vec<Asked> {
    let mut living: Vec<&Pod> = pods.iter().filter(|it| lives(it)).collect();
    living.sort_by_key(|it| std::cmp::Reverse(it.metadata.creation_timestamp.as_ref().map(|it| it.0)));
    living.into_iter().filter_map(troubled).take(MOST_PODS).collect()
}

fn troubled(pod: &Pod) -> Option<Asked> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let all: Vec<&ContainerStatus> = init.chain(status.container_statuses.iter().flatten()).collect();
    let ends = all.iter().find_map(|it| Some((it, crash(pod, it)?.is_before)));
    let runs = || all.iter().find(|it| !it.ready && it.state.as_ref().is_some_and(|it| it.running.is_some()));
    let (container, previous) = ends.or_else(|| runs().map(|it| (it, false)))?;
    Some(Asked { pod: pod.name_any(), container: container.name.clone(), previous })
}

/// The Secrets that a pod reads.
pub fn secrets_read(pod: &Pod) -> BTreeSet<String> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let containers = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let variables = containers().flat_map(|it| it.env.iter().flatten()).filter_map(of_variable);
    let sources = containers().flat_map(|it| it.env_from.iter().flatten()).filter_map(of_source);
    let volumes = spec.volumes.iter().flatten().flat_map(of_volume);
    let all = variables.chain(sources).chain(volumes);
    all.filter_map(|it| if let SourceRef::Secret(name) = it { Some(name) } else { None }).collect()
}

/// The plain values in a pod's own manifest that have a password in them: not secret, and still nobody's business.
pub fn plain_values(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|it| it.containers.iter().chain(it.init_containers.iter().flatten()));
    let variables = containers.flat_map(|it: &Container| it.env.iter().flatten());
    variables.filter_map(|it| it.value.as_deref()).filter(|it| password_of(it).is_some())
}

/// The last line of a log that says something, without these values. Nothing where there is none.
pub fn last_line(log: &[u8], values: &[&str]) -> Option<String> {
    let is_cut = i64::try_from(log.len()).is_ok_and(|it| it >= BYTES);
    let log = String::from_utf8_lossy(log);
    // What was cut off in its middle may be half of a secret, which nobody would recognise.
    let log = if is_cut { log.rsplit_once('\n').map_or("", |(whole, _)| whole) } else { &log };
    let spellings = spellings(values);
    let spellings: Vec<&str> = spellings.iter().map(String::as_str).collect();
    // A secret may span lines, so it is looked for before they are told apart.
    let mut shown = log.to_owned();
    for secret in spellings.iter().filter(|it| it.contains('\n')) {
        shown = shown.replace(secret, client::scrub::REDACTED);
    }
    let last = shown.lines().map(str::trim).rfind(|it| !it.is_empty())?;
    let clean = client::scrub::clean(without_time(last), &spellings);
    (!clean.is_empty()).then_some(clean)
}

/// Everything that a value may show up as: the whole of it, each of its lines, the password in it. The longest come first, so
/// that one that is part of another leaves nothing of that.
fn spellings(values: &[&str]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for value in values {
        found.insert((*value).to_owned());
        found.insert(value.trim().to_owned());
        found.extend(value.lines().map(|it| it.trim().to_owned()));
        found.extend(value.lines().filter_map(password_of).flatten());
    }
    let mut found: Vec<String> = found.into_iter().filter(|it| it.trim().len() >= SHORTEST).collect();
    found.sort_by_key(|it| std::cmp::Reverse(it.len()));
    found
}

/// The password in an address: as it is written, as it is meant, and in the pieces that a complaint about an address shows
/// when there is something in it that ends the host's name.
fn password_of(value: &str) -> Option<Vec<String>> {
    let (_, rest) = value.split_once("://")?;
    let (_, written) = rest.get(..rest.rfind('@')?)?.split_once(':')?;
    let meant = written.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    let meant = form_urlencoded::parse(meant.as_bytes()).next().map(|(it, _)| it.into_owned());
    let pieces = written.split(['/', '?', '#']).map(str::to_owned);
    Some(pieces.chain([written.to_owned()]).chain(meant).collect())
}

/// A line without the time that it begins with: with it no line would be the same twice, nor would what is told of it.
fn without_time(line: &str) -> &str {
    let is_time = |word: &str| {
        word.chars().any(|it| it.is_ascii_digit())
            && word.chars().all(|it| it.is_ascii_digit() || "-:.,TZ+/[]".contains(it))
            && word.contains([':', '-', '/'])
    };
    let mut rest = line.trim_start();
    for _ in 0..2 {
        match rest.split_once(' ') {
            Some((first, after)) if is_time(first) => rest = after.trim_start(),
            _ => break,
        }
    }
    rest
}

#[cfg(test)]
mod tests;
