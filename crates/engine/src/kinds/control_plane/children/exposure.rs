//! How people outside the cluster reach the pods: an Ingress or an `HTTPRoute`.

use api::{CoderControlPlane, GatewayExposure, IngressExposure, Reason};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend,
    IngressSpec, IngressTLS, ServiceBackendPort,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{Child, PlaneFacts, child, metadata, unless_empty};
use crate::{
    coder::address,
    pipeline::outcome::{Blocked, Invalid},
    ports::object::Key,
};

/// The version of the Gateway API that every release of it since its first stable one has.
pub(in crate::kinds::control_plane) const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";

pub(super) fn desire(
    plane: &CoderControlPlane,
    facts: &PlaneFacts,
    notices: &mut Vec<Blocked>,
) -> Result<Option<Child>, Invalid> {
    let expose = plane.spec.expose.clone().unwrap_or_default();
    if let Some(ingress) = &expose.ingress {
        return of_ingress(plane, ingress).map(Some);
    }
    let Some(gateway) = &expose.gateway else { return Ok(None) };
    let route = of_gateway(plane, gateway)?;
    if !facts.gateway_api {
        notices.push(Blocked {
            reason: Reason::GatewayAPIMissing,
            message: format!(
                "the cluster has no {GATEWAY_API}: the HTTPRoute is created once it is installed"
            ),
        });
        return Ok(None);
    }
    Ok(Some(route))
}

fn of_ingress(plane: &CoderControlPlane, ingress: &IngressExposure) -> Result<Child, Invalid> {
    let field = "spec.expose.ingress";
    let host = required(&ingress.host, &format!("{field}.host"))?;
    let wildcard = given(ingress.wildcard_host.as_deref());
    let tls = ingress.tls.clone().unwrap_or_default();
    let wildcard_secret = given(tls.wildcard_secret_name.as_deref());
    if wildcard_secret.is_some() && wildcard.is_none() {
        return Err(Invalid::new(
            &format!("{field}.wildcardHost"),
            "must be set, because there is a certificate for it",
        ));
    }
    let certificates = [(given(tls.secret_name.as_deref()), Some(host)), (wildcard_secret, wildcard)];
    let certificates: Vec<IngressTLS> = certificates
        .into_iter()
        .filter_map(|(secret, host)| secret.zip(host))
        .map(|(secret, host)| IngressTLS {
            secret_name: Some(secret.to_owned()),
            hosts: Some(vec![host.to_owned()]),
        })
        .collect();
    let rules = [Some(host), wildcard].into_iter().flatten().map(|it| ingress_rule(plane, it)).collect();
    let mut metadata = metadata(plane);
    metadata.annotations = ingress.annotations.clone().and_then(unless_empty);
    let spec = IngressSpec {
        ingress_class_name: given(ingress.class_name.as_deref()).map(str::to_owned),
        rules: Some(rules),
        tls: (!certificates.is_empty()).then_some(certificates),
        default_backend: None,
    };
    Ok(child(&Ingress { metadata, spec: Some(spec), status: None }, "external access"))
}

fn ingress_rule(plane: &CoderControlPlane, host: &str) -> IngressRule {
    let port = ServiceBackendPort { number: Some(address::http_port(plane)), name: None };
    let service = IngressServiceBackend { name: plane.name_any(), port: Some(port) };
    let path = HTTPIngressPath {
        path: Some("/".to_owned()),
        path_type: "Prefix".to_owned(),
        backend: IngressBackend { service: Some(service), resource: None },
    };
    IngressRule { host: Some(host.to_owned()), http: Some(HTTPIngressRuleValue { paths: vec![path] }) }
}

fn of_gateway(plane: &CoderControlPlane, gateway: &GatewayExposure) -> Result<Child, Invalid> {
    let field = "spec.expose.gateway";
    let host = required(&gateway.host, &format!("{field}.host"))?;
    let hostnames: Vec<&str> =
        [Some(host), given(gateway.wildcard_host.as_deref())].into_iter().flatten().collect();
    let mut parents = Vec::new();
    for (index, parent) in gateway.parent_refs.iter().enumerate() {
        let field = format!("{field}.parentRefs[{index}]");
        let mut written = json!({"name": required(&parent.name, &format!("{field}.name"))?});
        for (key, value) in [("namespace", &parent.namespace), ("sectionName", &parent.section_name)] {
            if let Some(value) = value {
                written[key] = Value::from(required(value, &format!("{field}.{key}"))?);
            }
        }
        parents.push(written);
    }
    if parents.is_empty() {
        return Err(Invalid::new(&format!("{field}.parentRefs"), "must name at least one Gateway"));
    }
    let backend =
        json!({"group": "", "kind": "Service", "name": plane.name_any(), "port": address::http_port(plane)});
    let object = json!({
        "apiVersion": GATEWAY_API,
        "kind": "HTTPRoute",
        "metadata": metadata(plane),
        "spec": {
            "hostnames": hostnames,
            "parentRefs": parents,
            "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [backend]}],
        },
    });
    let key = Key::new(GATEWAY_API, "HTTPRoute", &plane.namespace().unwrap_or_default(), &plane.name_any());
    Ok(Child { key, object, reason: "external access" })
}

/// A text that says something.
fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|it| !it.is_empty())
}

fn required<'a>(text: &'a str, field: &str) -> Result<&'a str, Invalid> {
    given(Some(text)).ok_or_else(|| Invalid::new(field, "must not be blank"))
}
