//! The database of a control plane: whether Coder is told where it is, and that a Deployment never loses it.

use std::collections::{BTreeMap, BTreeSet};

use api::{CoderControlPlane, CoderControlPlaneSpec, DATABASE_URL, reason};
use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, EnvVarSource, SecretKeySelector};
use kube::ResourceExt as _;
use serde_json::Value;

use super::{Facts, container::NAME};
use crate::{
    control_plane::references::{self, Reference, Source},
    objects::Notice,
};

/// The argument that means the same as the variable.
const ARGUMENT: &str = "--postgres-url";

/// Whether Coder is told where its database is. An empty text tells nothing.
pub(super) fn is_declared(spec: &CoderControlPlaneSpec, facts: &Facts) -> bool {
    let by_variable = spec.extra_env.iter().flatten().any(|it| it.name == DATABASE_URL && has_value(it));
    let by_argument = spec.extra_args.as_deref().is_some_and(names_database);
    let by_source = spec.env_from.iter().flatten().any(|it| provides(it, DATABASE_URL, &facts.sources));
    spec.database.is_some() || by_variable || by_argument || by_source
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
pub(super) fn check_kept(plane: &CoderControlPlane, facts: &Facts) -> Result<(), Notice> {
    let deployed = facts.deployed.as_ref().and_then(|it| it.database.as_ref());
    let Some(place) = deployed.filter(|_| !is_declared(&plane.spec, facts)) else { return Ok(()) };
    let message = format!(
        "Deployment {name} takes its database from {place} and the manifest names none, so the pods are left as they are: \
         set spec.database.connectionSecretRef, or {DATABASE_URL} in extraEnv. To start again with an empty database, \
         delete Deployment {name}",
        name = plane.name_any()
    );
    Err(Notice { reason: reason::DATABASE_REMOVAL_REFUSED, message })
}

/// That no database is declared.
pub(super) fn absence(spec: &CoderControlPlaneSpec, facts: &Facts) -> Option<Notice> {
    let message = format!(
        "no database is declared, so Coder keeps its data in its pod and loses it with the pod: set \
         spec.database.connectionSecretRef, or {DATABASE_URL} in extraEnv"
    );
    (!is_declared(spec, facts)).then_some(Notice { reason: reason::NO_DATABASE, message })
}

/// Where the pods of a live Deployment take their database from, in words; `None` where it is certain that they have none.
/// A Secret that is gone by now still was there when they started.
pub(super) fn of_deployment(deployment: &Value, sources: &BTreeMap<Reference, Source>) -> Option<String> {
    let container = container(deployment)?;
    let variable = container.env.iter().flatten().find(|it| it.name == DATABASE_URL && has_value(it));
    if let Some(variable) = variable {
        let selector = variable.value_from.as_ref().and_then(|it| it.secret_key_ref.as_ref());
        let place = selector.map(|it| format!("Secret {}, key {}", it.name, it.key));
        return Some(place.unwrap_or_else(|| format!("the variable {DATABASE_URL}")));
    }
    let source = container.env_from.iter().flatten().find(|it| provides(it, DATABASE_URL, sources));
    if let Some(reference) = source.and_then(references::of_source) {
        return Some(reference.to_string());
    }
    let words = [container.command.unwrap_or_default(), container.args.unwrap_or_default()].concat();
    names_database(&words).then(|| format!("the argument {ARGUMENT}"))
}

/// The Secrets and `ConfigMap`s whose keys become variables of a live Deployment's pods.
pub fn sources_of_deployment(deployment: &Value) -> BTreeSet<Reference> {
    let sources = container(deployment).and_then(|it| it.env_from).unwrap_or_default();
    sources.iter().filter_map(references::of_source).collect()
}

/// Whether a source of `envFrom` has the variable with a value. One that is missing has none.
fn provides(source: &EnvFromSource, name: &str, sources: &BTreeMap<Reference, Source>) -> bool {
    references::found_in(source, name, sources).is_some_and(|(key, found)| !found.blank.contains(key))
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
    let named = containers.iter().find(|it| it.get("name").and_then(Value::as_str) == Some(NAME));
    serde_json::from_value(named.or_else(|| containers.first())?.clone()).ok()
}

#[cfg(test)]
mod tests;
