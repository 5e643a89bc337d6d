//! The container that runs Coder.

use api::{CoderControlPlane, ProbeSpec};
use k8s_openapi::{
    api::core::v1::{Container, ContainerPort, HTTPGetAction, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{PlaneFacts, environment, volumes};
use crate::{
    coder::address,
    kinds::control_plane::names::{CONTAINER, HTTP_PORT, HTTPS_PORT},
    objects::hardening,
    pipeline::outcome::Invalid,
};

pub(super) fn desire(plane: &CoderControlPlane, facts: &PlaneFacts) -> Result<Container, Invalid> {
    let spec = &plane.spec;
    let mut args = vec![format!("--http-address=0.0.0.0:{HTTP_PORT}")];
    args.extend(spec.extra_args.iter().flatten().cloned());
    let mut ports = vec![port("http", HTTP_PORT)];
    if address::speaks_tls(plane) {
        ports.push(port("https", HTTPS_PORT));
    }
    Ok(Container {
        name: CONTAINER.to_owned(),
        image: Some(spec.image().to_owned()),
        args: Some(args),
        env: Some(environment::variables(plane, facts)?),
        env_from: spec.env_from.clone().filter(|it| !it.is_empty()),
        ports: Some(ports),
        resources: spec.resources.clone(),
        security_context: Some(hardening::container(spec.security_context.as_ref())),
        readiness_probe: probe(spec.readiness_probe.as_ref(), true),
        liveness_probe: probe(spec.liveness_probe.as_ref(), false),
        volume_mounts: volumes::mounts(spec)?,
        ..Container::default()
    })
}

fn port(name: &str, port: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        // Part of what a port is merged by, so it is said.
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn probe(spec: Option<&ProbeSpec>, by_default: bool) -> Option<Probe> {
    let enabled = spec.and_then(|it| it.enabled).unwrap_or(by_default);
    let spec = spec.cloned().unwrap_or_default();
    enabled.then(|| Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/healthz".to_owned()),
            port: IntOrString::String("http".to_owned()),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: spec.initial_delay_seconds.filter(|it| *it > 0),
        period_seconds: Some(spec.period_seconds.unwrap_or(10)),
        timeout_seconds: Some(spec.timeout_seconds.unwrap_or(1)),
        success_threshold: Some(spec.success_threshold.unwrap_or(1)),
        failure_threshold: Some(spec.failure_threshold.unwrap_or(3)),
        ..Probe::default()
    })
}
