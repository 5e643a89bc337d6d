//! The database of a control plane: whether one is configured, and that a Deployment never loses it.

use std::collections::{BTreeMap, BTreeSet};

use api::{CoderControlPlane, CoderControlPlaneSpec, DATABASE_URL, Reason, annotation};
use k8s_openapi::api::core::v1::{
    Container, EnvFromSource, EnvVar, EnvVarSource, PodSpec, SecretKeySelector,
};
use kube::ResourceExt as _;
use serde_json::Value;

use super::{Deployed, PlaneFacts};
use crate::{
    kinds::control_plane::names::CONTAINER,
    objects::references::{self, Source, SourceRef},
    pipeline::outcome::Blocked,
};

/// The argument that means the same as the variable.
const ARGUMENT: &str = "--postgres-url";
/// The value of [`annotation::DATABASE`] on a Deployment whose pods have no database.
const ABSENT: &str = "none";

/// Whether a database is configured. An empty value configures none.
pub(super) fn is_declared(spec: &CoderControlPlaneSpec, facts: &PlaneFacts) -> bool {
    let variables = spec.extra_env.as_deref().unwrap_or_default();
    let from = spec.env_from.as_deref().unwrap_or_default();
    let arguments = spec.extra_args.as_deref().unwrap_or_default();
    spec.database.is_some() || place(variables, from, arguments, &facts.sources).is_some()
}

/// The variable of `spec.database`.
pub(super) fn variable(spec: &CoderControlPlaneSpec) -> Option<EnvVar> {
    let reference = &spec.database.as_ref()?.connection_secret_ref;
    let selector =
        SecretKeySelector { name: reference.name.clone(), key: reference.key.clone(), optional: None };
    let from = EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() };
    Some(EnvVar { name: DATABASE_URL.to_owned(), value: None, value_from: Some(from) })
}

/// Refuses to replace pods that have a database by pods that have none: Coder would start empty, and whatever it stores from
/// then on would go with the pod.
pub(super) fn check_kept(plane: &CoderControlPlane, facts: &PlaneFacts) -> Result<(), Blocked> {
    let Some(deployed) = facts.deployed.as_ref().filter(|_| !is_declared(&plane.spec, facts)) else {
        return Ok(());
    };
    let known = deployed.database.as_ref().map(|place| format!("takes its database from {place}"));
    let possible = deployed.missing_source.as_ref().filter(|_| has_changed(deployed, plane, facts));
    let possible = possible.map(|it| format!("may have taken its database from {it}, which is missing,"));
    let Some(finding) = known.or(possible) else { return Ok(()) };
    let message = format!(
        "Deployment {name} {finding} and neither the manifest nor the Secrets and ConfigMaps it refers to have one, so the \
         pods are left as they are: restore {DATABASE_URL} there, or set spec.database.connectionSecretRef, or \
         {DATABASE_URL} in extraEnv. To start again with an empty database, delete Deployment {name}",
        name = plane.name_any()
    );
    Err(Blocked { reason: Reason::DatabaseRemovalRefused, message })
}

/// Whether the pods read something else than when they started, or it is not known what they read then.
fn has_changed(deployed: &Deployed, plane: &CoderControlPlane, facts: &PlaneFacts) -> bool {
    let started_with = deployed.pods.as_ref().or(deployed.found.as_ref());
    started_with != Some(&references::configuration(&plane.spec, &facts.sources))
}

/// That no database is declared.
pub(super) fn absence(spec: &CoderControlPlaneSpec, facts: &PlaneFacts) -> Option<Blocked> {
    let message = format!(
        "no database is declared, so Coder keeps its data in its pod and loses it with the pod: set \
         spec.database.connectionSecretRef, or {DATABASE_URL} in extraEnv"
    );
    (!is_declared(spec, facts)).then_some(Blocked { reason: Reason::NoDatabase, message })
}

/// The value of [`annotation::DATABASE`] for a Deployment with these pods. A Secret may lose its key while the pods run, so
/// the place is recorded when they are declared.
pub(super) fn record(pod: &PodSpec, sources: &BTreeMap<SourceRef, Source>) -> String {
    let container = pod.containers.iter().find(|it| it.name == CONTAINER);
    container.and_then(|it| of_container(it, sources)).unwrap_or_else(|| ABSENT.to_owned())
}

/// Where the pods of a live Deployment take their database from, in words; `None` where no database is known.
pub(super) fn of_deployment(deployment: &Value, sources: &BTreeMap<SourceRef, Source>) -> Option<String> {
    let found = container(deployment).and_then(|it| of_container(&it, sources));
    found.or_else(|| recorded(deployment).filter(|it| *it != ABSENT).map(str::to_owned))
}

/// A source of a live Deployment's `envFrom` that is missing: it was there when the pods started, perhaps with the database.
/// `None` where the Deployment records its database.
pub(super) fn missing_source(deployment: &Value, sources: &BTreeMap<SourceRef, Source>) -> Option<SourceRef> {
    let wanted = sources_of_deployment(deployment).into_iter();
    wanted.filter(|_| recorded(deployment).is_none()).find(|it| !sources.contains_key(it))
}

fn recorded(deployment: &Value) -> Option<&str> {
    deployment.pointer("/metadata/annotations")?.get(annotation::DATABASE)?.as_str()
}

fn of_container(container: &Container, sources: &BTreeMap<SourceRef, Source>) -> Option<String> {
    let variables = container.env.as_deref().unwrap_or_default();
    let from = container.env_from.as_deref().unwrap_or_default();
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    place(variables, from, &words.cloned().collect::<Vec<_>>(), sources)
}

/// Where a container takes its database from, in words. A variable of its own hides the same one of a source, and a later
/// source an earlier one.
fn place(
    variables: &[EnvVar],
    from: &[EnvFromSource],
    arguments: &[String],
    sources: &BTreeMap<SourceRef, Source>,
) -> Option<String> {
    let by_argument = || names_database(arguments).then(|| format!("the argument {ARGUMENT}"));
    if let Some(variable) = variables.iter().find(|it| it.name == DATABASE_URL) {
        let selector = variable.value_from.as_ref().and_then(|it| it.secret_key_ref.as_ref());
        let place = selector.map(|it| format!("Secret {}, key {}", it.name, it.key));
        let place = place.unwrap_or_else(|| format!("the variable {DATABASE_URL}"));
        return Some(place).filter(|_| has_value(variable)).or_else(by_argument);
    }
    let provides = |it: &&EnvFromSource| references::found_in(it, DATABASE_URL, sources).is_some();
    let source = from.iter().rev().find(provides).filter(|it| has_value_in(it, sources));
    source.and_then(references::of_source).map(|it| it.to_string()).or_else(by_argument)
}

/// The Secrets and `ConfigMap`s whose keys become variables of a live Deployment's pods.
pub fn sources_of_deployment(deployment: &Value) -> BTreeSet<SourceRef> {
    let sources = container(deployment).and_then(|it| it.env_from).unwrap_or_default();
    sources.iter().filter_map(references::of_source).collect()
}

/// Whether a source of `envFrom` has the variable with a value. A missing source has no value.
fn has_value_in(source: &EnvFromSource, sources: &BTreeMap<SourceRef, Source>) -> bool {
    references::found_in(source, DATABASE_URL, sources).is_some_and(|(key, it)| !it.blank.contains(key))
}

fn has_value(variable: &EnvVar) -> bool {
    variable.value_from.is_some() || variable.value.as_ref().is_some_and(|it| !it.trim().is_empty())
}

/// The flag is one word with its value, or followed by it.
fn names_database(arguments: &[String]) -> bool {
    let follows = |index: usize| arguments.get(index + 1).is_some_and(|it| !it.trim().is_empty());
    arguments.iter().enumerate().any(|(index, word)| match word.strip_prefix(ARGUMENT) {
        Some("") => follows(index),
        Some(value) => value.strip_prefix('=').is_some_and(|it| !it.trim().is_empty()),
        None => false,
    })
}

/// The container that runs Coder. In a Deployment of another shape it is the first one.
fn container(deployment: &Value) -> Option<Container> {
    let containers = deployment.pointer("/spec/template/spec/containers")?.as_array()?;
    let named = containers.iter().find(|it| it.get("name").and_then(Value::as_str) == Some(CONTAINER));
    serde_json::from_value(named.or_else(|| containers.first())?.clone()).ok()
}

#[cfg(test)]
mod tests;
