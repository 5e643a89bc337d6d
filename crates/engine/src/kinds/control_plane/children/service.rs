//! The Service in front of the pods.

use api::CoderControlPlane;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt as _;

use super::{Child, child, metadata, unless_empty};
use crate::{
    coder::address,
    kinds::control_plane::names::{self, HTTP_PORT, HTTPS_PORT},
};

pub(super) fn desire(plane: &CoderControlPlane) -> Child {
    let spec = plane.spec.service.clone().unwrap_or_default();
    let mut ports = vec![port("http", address::http_port(plane), HTTP_PORT)];
    if address::speaks_tls(plane) {
        ports.push(port("https", 443, HTTPS_PORT));
    }
    let mut metadata = metadata(plane);
    metadata.annotations = spec.annotations.clone().and_then(unless_empty);
    let spec = ServiceSpec {
        type_: Some(spec.type_().as_str().to_owned()),
        selector: Some(names::labels(&plane.name_any())),
        ports: Some(ports),
        ..ServiceSpec::default()
    };
    child(&Service { metadata, spec: Some(spec), status: None }, "the address of the pods")
}

fn port(name: &str, port: i32, target: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        target_port: Some(IntOrString::Int(target)),
        // Part of what a port is merged by, so it is said.
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}
