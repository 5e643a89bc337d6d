//! Lists of a pod that the API server merges by keys: an entry that is there twice would be refused, or lost.

use k8s_openapi::api::core::v1::{EnvVar, LocalObjectReference, TopologySpreadConstraint};

use crate::pipeline::outcome::Invalid;

/// Each once: they are merged by name.
pub(crate) fn pull_secrets(declared: &[LocalObjectReference]) -> Option<Vec<LocalObjectReference>> {
    let mut secrets: Vec<LocalObjectReference> = Vec::new();
    for secret in declared.iter().filter(|it| !it.name.trim().is_empty()) {
        if !secrets.contains(secret) {
            secrets.push(secret.clone());
        }
    }
    (!secrets.is_empty()).then_some(secrets)
}

/// Each pair of keys once: they are merged by it.
pub(crate) fn spread(
    declared: Option<&[TopologySpreadConstraint]>,
) -> Result<Option<Vec<TopologySpreadConstraint>>, Invalid> {
    let Some(declared) = declared.filter(|it| !it.is_empty()) else { return Ok(None) };
    let key = |it: &TopologySpreadConstraint| (it.topology_key.clone(), it.when_unsatisfiable.clone());
    for (index, constraint) in declared.iter().enumerate() {
        if declared.iter().take(index).any(|it| key(it) == key(constraint)) {
            return Err(Invalid::new(
                &format!("spec.topologySpreadConstraints[{index}]"),
                "has the topologyKey and the whenUnsatisfiable of one before it: keep one of them",
            ));
        }
    }
    Ok(Some(declared.to_vec()))
}

/// Variables, each once. One of a person's takes the place of a built-in one, so that what refers to it still finds it before
/// itself.
pub(crate) fn with_declared(mut variables: Vec<EnvVar>, declared: &[EnvVar]) -> Result<Vec<EnvVar>, Invalid> {
    for (index, variable) in declared.iter().enumerate() {
        if variable.name.is_empty() {
            return Err(Invalid::new(&format!("spec.extraEnv[{index}].name"), "must not be empty"));
        }
        match variables.iter_mut().find(|it| it.name == variable.name) {
            Some(place) => *place = variable.clone(),
            None => variables.push(variable.clone()),
        }
    }
    Ok(variables)
}

/// A variable with a plain value.
pub(crate) fn variable(name: &str, value: String) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value), value_from: None }
}
