//! Where a control plane that we run is reached inside the cluster.

use api::CoderControlPlane;
use kube::ResourceExt as _;

const HTTP: i32 = 80;
const HTTPS: i32 = 443;

/// The Service's port for plain HTTP. With certificates 443 is HTTPS', so a Service that declares it has plain HTTP on 80.
pub fn http_port(plane: &CoderControlPlane) -> i32 {
    let port = declared_port(plane);
    if speaks_tls(plane) && port == HTTPS { HTTP } else { port }
}

/// Where the operator sends its requests, token included: HTTPS where the manifest declares certificates.
pub fn internal(plane: &CoderControlPlane) -> String {
    if speaks_tls(plane) { format!("https://{}", host(plane)) } else { for_daemons(plane) }
}

/// Where daemons connect: plain HTTP, so that their pods stay as they are when certificates come or go. The usual port is left out:
/// another spelling of the address would roll the pods.
pub fn for_daemons(plane: &CoderControlPlane) -> String {
    match http_port(plane) {
        HTTP => format!("http://{}", host(plane)),
        port => format!("http://{}:{port}", host(plane)),
    }
}

/// What the status says, with its port as coder-k8s writes it.
pub fn advertised(plane: &CoderControlPlane) -> String {
    if speaks_tls(plane) {
        format!("https://{}:{HTTPS}", host(plane))
    } else {
        format!("http://{}:{}", host(plane), declared_port(plane))
    }
}

/// What Coder is told of its own address unless a person says another one.
pub fn access(plane: &CoderControlPlane) -> String {
    match declared_port(plane) {
        _ if speaks_tls(plane) => format!("https://{}", host(plane)),
        HTTP => format!("http://{}", host(plane)),
        port => format!("http://{}:{port}", host(plane)),
    }
}

/// Whether the pods speak HTTPS beside plain HTTP.
pub(crate) fn speaks_tls(plane: &CoderControlPlane) -> bool {
    !plane.spec.tls_secrets().is_empty()
}

pub(super) fn declared_port(plane: &CoderControlPlane) -> i32 {
    plane.spec.service.as_ref().map_or(HTTP, api::ServiceSpec::port)
}

/// The name of the Service, which a certificate has to be for.
pub fn host(plane: &CoderControlPlane) -> String {
    format!("{}.{}.svc.cluster.local", plane.name_any(), plane.namespace().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plane(spec: &Value) -> CoderControlPlane {
        serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main", "namespace": "platform"}, "spec": spec}))
        .unwrap()
    }

    #[test]
    fn addresses_follow_the_port_and_the_certificates() {
        let tls = json!({"secretNames": ["certificate"]});
        let at = "main.platform.svc.cluster.local";
        for (spec, access_at, daemons_at, advertised_at) in [
            (json!({}), format!("http://{at}"), format!("http://{at}"), format!("http://{at}:80")),
            (
                json!({"service": {"port": 8080}}),
                format!("http://{at}:8080"),
                format!("http://{at}:8080"),
                format!("http://{at}:8080"),
            ),
            (
                json!({"service": {"port": 443}}),
                format!("http://{at}:443"),
                format!("http://{at}:443"),
                format!("http://{at}:443"),
            ),
            (
                json!({"tls": tls}),
                format!("https://{at}"),
                format!("http://{at}"),
                format!("https://{at}:443"),
            ),
            (
                json!({"tls": tls, "service": {"port": 443}}),
                format!("https://{at}"),
                format!("http://{at}"),
                format!("https://{at}:443"),
            ),
        ] {
            let plane = plane(&spec);
            assert_eq!(access(&plane), access_at, "{spec}");
            assert_eq!(for_daemons(&plane), daemons_at, "{spec}");
            let as_parsed = url::Url::parse(&daemons_at).unwrap();
            assert_eq!(
                as_parsed.as_str().trim_end_matches('/'),
                daemons_at,
                "earlier releases recorded it so"
            );
            let encrypted = spec.get("tls").map(|_| format!("https://{at}"));
            assert_eq!(internal(&plane), encrypted.unwrap_or_else(|| for_daemons(&plane)), "{spec}");
            assert_eq!(advertised(&plane), advertised_at, "{spec}");
        }
    }
}
