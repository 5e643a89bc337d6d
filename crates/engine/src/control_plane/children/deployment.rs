//! The Deployment: pods around one container, and when they are replaced.

use std::collections::BTreeMap;

use api::{CoderControlPlane, annotation};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{LocalObjectReference, PodSpec, PodTemplateSpec, TopologySpreadConstraint},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::ResourceExt as _;

use super::{
    Child, Deployed, Facts, child, container, hardening, metadata, service_account, unless_empty, volumes,
};
use crate::{
    control_plane::{names, references},
    kind::Invalid,
};

pub(super) fn desire(plane: &CoderControlPlane, facts: &Facts) -> Result<Child, Invalid> {
    let labels = names::labels(&plane.name_any());
    let configuration =
        Configuration::of(facts.deployed.as_ref(), references::configuration(&plane.spec, &facts.sources));
    let mut pod_labels = plane.spec.pod_labels.clone().unwrap_or_default();
    // The selector finds pods by these, so nobody else's value may stand there.
    pod_labels.extend(labels.clone());
    let mut pod_annotations = plane.spec.pod_annotations.clone().unwrap_or_default();
    pod_annotations.extend(configuration.pods.map(|it| (annotation::CONFIGURATION.to_owned(), it)));
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels),
            annotations: unless_empty(pod_annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(pod(plane, facts)?),
    };
    let mut metadata = metadata(plane);
    metadata.annotations =
        configuration.found.map(|it| BTreeMap::from([(annotation::CONFIGURATION_FOUND.to_owned(), it)]));
    let spec = DeploymentSpec {
        replicas: plane.spec.replicas,
        selector: LabelSelector { match_labels: Some(labels), match_expressions: None },
        template,
        ..DeploymentSpec::default()
    };
    Ok(child(&Deployment { metadata, spec: Some(spec), status: None }, "the pods"))
}

fn pod(plane: &CoderControlPlane, facts: &Facts) -> Result<PodSpec, Invalid> {
    let spec = &plane.spec;
    let context = hardening::pod(spec.pod_security_context.as_ref(), spec.security_context.as_ref());
    Ok(PodSpec {
        service_account_name: Some(service_account::name(plane)),
        security_context: Some(context),
        image_pull_secrets: spec.image_pull_secrets.as_deref().and_then(pull_secrets),
        containers: vec![container::desire(plane, facts)?],
        volumes: volumes::volumes(spec)?,
        node_selector: spec.node_selector.clone().and_then(unless_empty),
        tolerations: spec.tolerations.clone().filter(|it| !it.is_empty()),
        affinity: spec.affinity.clone(),
        topology_spread_constraints: spread(spec.topology_spread_constraints.as_deref())?,
        ..PodSpec::default()
    })
}

/// Each once: they are merged by name.
fn pull_secrets(declared: &[LocalObjectReference]) -> Option<Vec<LocalObjectReference>> {
    let mut secrets: Vec<LocalObjectReference> = Vec::new();
    for secret in declared.iter().filter(|it| !it.name.trim().is_empty()) {
        if !secrets.contains(secret) {
            secrets.push(secret.clone());
        }
    }
    (!secrets.is_empty()).then_some(secrets)
}

fn spread(
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

/// What is noted of the configuration, on the pods and on the Deployment.
///
/// A new annotation would replace every pod of an installation that we only take over. So the first time the configuration is
/// noted beside the pods, and on them once it is another one.
struct Configuration {
    pods: Option<String>,
    found: Option<String>,
}

impl Configuration {
    fn of(deployed: Option<&Deployed>, now: String) -> Self {
        match deployed {
            Some(Deployed { pods: None, found }) if found.as_ref().is_none_or(|it| *it == now) => {
                Self { pods: None, found: Some(now) }
            }
            _ => Self { pods: Some(now), found: None },
        }
    }
}
