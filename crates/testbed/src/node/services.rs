//! From a Service's name to the address of a ready pod, or of a program outside of the cluster.

use std::{
    collections::{BTreeMap, HashMap},
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::core::v1::{Pod, Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};

/// The Services of the cluster and the pods of the node.
pub(super) struct Services {
    pub(super) known: Store<Service>,
    pub(super) pods: Store<Pod>,
    /// How many connections each Service has had, so that its pods take turns.
    pub(super) turns: Mutex<HashMap<ObjectRef<Service>, usize>>,
}

/// A Service's name inside the cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name<'a> {
    service: &'a str,
    namespace: &'a str,
}

impl<'a> Name<'a> {
    /// Reads `<service>.<namespace>.svc`, with or without the cluster's domain.
    pub(super) fn parse(host: &'a str) -> Option<Self> {
        let host = host.trim_end_matches('.');
        let host = host.strip_suffix(".cluster.local").unwrap_or(host);
        let (service, namespace) = host.strip_suffix(".svc")?.split_once('.')?;
        (!service.is_empty() && !namespace.is_empty() && !namespace.contains('.'))
            .then_some(Self { service, namespace })
    }
}

impl Services {
    /// The ready pod whose turn it is, or why there is none.
    pub(super) fn resolve(&self, name: &Name<'_>, port: u16) -> Result<SocketAddr, String> {
        let Name { service, namespace } = name;
        let reference = ObjectRef::<Service>::new(service).within(namespace);
        let found = self
            .known
            .get(&reference)
            .ok_or_else(|| format!("no Service {service} in namespace {namespace}"))?;
        let spec = found.spec.as_ref().ok_or_else(|| format!("Service {service} has no spec"))?;
        let number = i32::from(port);
        let service_port = spec
            .ports
            .iter()
            .flatten()
            .find(|it| it.port == number)
            .ok_or_else(|| format!("Service {service} in namespace {namespace} has no port {port}"))?;
        if let Some(address) = external(spec, service_port) {
            return Ok(address);
        }
        let selector = spec.selector.clone().unwrap_or_default();
        let mut pods: Vec<Arc<Pod>> = self.pods.state();
        pods.retain(|pod| {
            pod.namespace().as_deref() == Some(namespace) && is_selected(pod, &selector) && is_ready(pod)
        });
        pods.sort_by_key(|pod| pod.name_any());
        let targets: Vec<SocketAddr> = pods.iter().filter_map(|pod| target(pod, service_port)).collect();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = turns.entry(reference).or_default();
        *turn = turn.wrapping_add(1);
        turn.checked_rem(targets.len())
            .and_then(|turn| targets.get(turn).copied())
            .ok_or_else(|| format!("Service {service} in namespace {namespace} has no ready pod"))
    }
}

/// The address of a Service whose `externalName` is one of this machine's addresses.
fn external(spec: &ServiceSpec, port: &ServicePort) -> Option<SocketAddr> {
    let address: Ipv4Addr = spec.external_name.as_ref()?.parse().ok()?;
    Some((address, u16::try_from(port.port).ok()?).into())
}

fn is_selected(pod: &Pod, selector: &BTreeMap<String, String>) -> bool {
    !selector.is_empty() && selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Where a pod serves a Service's port.
fn target(pod: &Pod, port: &ServicePort) -> Option<SocketAddr> {
    let address: Ipv4Addr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.iter().flat_map(|it| &it.containers);
            let mut ports = containers.flat_map(|it| it.ports.iter().flatten());
            ports.find(|it| it.name.as_deref() == Some(name))?.container_port
        }
    };
    Some((address, u16::try_from(number).ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_name_that_is_an_address_needs_no_pod() {
        let port = ServicePort { port: 3000, ..ServicePort::default() };
        let spec = |name: Option<&str>| ServiceSpec {
            external_name: name.map(str::to_owned),
            ..ServiceSpec::default()
        };
        let expected = SocketAddr::from(([127, 1, 2, 3], 3000));
        assert_eq!(external(&spec(Some("127.1.2.3")), &port), Some(expected));
        assert_eq!(external(&spec(Some("coder.example.com")), &port), None);
        assert_eq!(external(&spec(None), &port), None);
    }

    #[test]
    fn names_of_services_are_told_from_other_hosts() {
        let name = Name { service: "coder", namespace: "team-a" };
        for host in ["coder.team-a.svc", "coder.team-a.svc.cluster.local", "coder.team-a.svc.cluster.local."]
        {
            assert_eq!(Name::parse(host), Some(Name { ..name }), "{host}");
        }
        for host in ["coder.test", "127.0.0.1", "svc", ".svc", "a.svc", "a.b.c.svc", "localhost"] {
            assert_eq!(Name::parse(host), None, "{host}");
        }
    }
}
