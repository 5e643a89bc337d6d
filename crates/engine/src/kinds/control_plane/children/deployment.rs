//! The Deployment: pods around one container, and when they are replaced.

use api::{CoderControlPlane, annotation};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::ResourceExt as _;

use super::{
    Child, Deployed, PlaneFacts, child, container, database, metadata, service_account, unless_empty, volumes,
};
use crate::{
    kinds::control_plane::names,
    objects::{
        hardening,
        pods::{pull_secrets, spread},
        references,
    },
    pipeline::outcome::Invalid,
};

pub(super) fn desire(plane: &CoderControlPlane, facts: &PlaneFacts) -> Result<Child, Invalid> {
    let labels = names::labels(&plane.name_any());
    let configuration = match &facts.deployed {
        Some(Deployed { pods, found, .. }) if facts.lacks_fingerprints => {
            Configuration { pods: pods.clone(), found: found.clone() }
        }
        deployed => {
            Configuration::of(deployed.as_ref(), references::configuration(&plane.spec, &facts.sources))
        }
    };
    let mut pod_labels = plane.spec.pod_labels.clone().unwrap_or_default();
    // The selector finds pods by these, so nobody else's value may stand there.
    pod_labels.extend(labels.clone());
    let mut pod_annotations = plane.spec.pod_annotations.clone().unwrap_or_default();
    pod_annotations.extend(configuration.pods.map(|it| (annotation::CONFIGURATION.to_owned(), it)));
    let pod = pod(plane, facts)?;
    let database = database::record(&pod, &facts.sources);
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels),
            annotations: unless_empty(pod_annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(pod),
    };
    let mut metadata = metadata(plane);
    let found = configuration.found.map(|it| (annotation::CONFIGURATION_FOUND.to_owned(), it));
    // Beside the pods: on them it would replace every pod once.
    let database = (annotation::DATABASE.to_owned(), database);
    metadata.annotations = Some(found.into_iter().chain([database]).collect());
    let spec = DeploymentSpec {
        replicas: plane.spec.replicas,
        selector: LabelSelector { match_labels: Some(labels), match_expressions: None },
        template,
        ..DeploymentSpec::default()
    };
    Ok(child(&Deployment { metadata, spec: Some(spec), status: None }, "the pods"))
}

/// What runs in a pod, whoever starts it.
pub(super) fn pod(plane: &CoderControlPlane, facts: &PlaneFacts) -> Result<PodSpec, Invalid> {
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
            Some(Deployed { pods: None, found, .. }) if found.as_ref().is_none_or(|it| *it == now) => {
                Self { pods: None, found: Some(now) }
            }
            _ => Self { pods: Some(now), found: None },
        }
    }
}
