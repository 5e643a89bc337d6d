//! The environment of the container: what is built in, and what a person adds or puts in its place.

use api::{CoderControlPlane, DATABASE_URL};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};

use super::{PlaneFacts, database, volumes};
use crate::{
    coder::address,
    kinds::control_plane::names::{HTTP_PORT, HTTPS_PORT},
    objects::{
        pods::{variable, with_declared},
        references,
    },
    pipeline::outcome::Invalid,
};

const ACCESS_URL: &str = "CODER_ACCESS_URL";

/// The variables, each once: they are merged by name.
pub(super) fn variables(plane: &CoderControlPlane, facts: &PlaneFacts) -> Result<Vec<EnvVar>, Invalid> {
    let declared = plane.spec.extra_env.as_deref().unwrap_or_default();
    for (index, variable) in declared.iter().enumerate() {
        let is_repeated = declared.iter().take(index).any(|it| it.name == variable.name);
        if is_repeated && [ACCESS_URL, DATABASE_URL].contains(&variable.name.as_str()) {
            return Err(Invalid::new(
                &format!("spec.extraEnv[{index}].name"),
                format!("{} is there already: keep one of them", variable.name),
            ));
        }
    }
    if plane.spec.database.is_some() && declared.iter().any(|it| it.name == DATABASE_URL) {
        let message = format!("{DATABASE_URL} is in extraEnv too: remove one of them");
        return Err(Invalid::new("spec.database", message));
    }
    with_declared(built_in(plane, facts), declared)
}

fn built_in(plane: &CoderControlPlane, facts: &PlaneFacts) -> Vec<EnvVar> {
    let spec = &plane.spec;
    let pod_ip =
        ObjectFieldSelector { field_path: "status.podIP".to_owned(), ..ObjectFieldSelector::default() };
    let pod_ip = EnvVarSource { field_ref: Some(pod_ip), ..EnvVarSource::default() };
    let mut variables = vec![
        EnvVar { name: "KUBE_POD_IP".to_owned(), value: None, value_from: Some(pod_ip) },
        variable("CODER_DERP_SERVER_RELAY_URL", format!("http://$(KUBE_POD_IP):{HTTP_PORT}")),
    ];
    let is_declared = spec.extra_env.iter().flatten().any(|it| it.name == ACCESS_URL);
    let is_in = |it| references::found_in(it, ACCESS_URL, &facts.sources).is_some();
    let comes_from_source = spec.env_from.iter().flatten().any(is_in);
    if spec.uses_cluster_access_url() && !is_declared && !comes_from_source {
        variables.push(variable(ACCESS_URL, address::access(plane)));
    }
    let secrets = spec.tls_secrets();
    if !secrets.is_empty() {
        let files = |file: &str| {
            let paths: Vec<String> =
                secrets.iter().map(|it| format!("{}/{file}", volumes::tls_folder(it))).collect();
            paths.join(",")
        };
        variables.extend([
            variable("CODER_TLS_ENABLE", "true".to_owned()),
            variable("CODER_TLS_ADDRESS", format!("0.0.0.0:{HTTPS_PORT}")),
            variable("CODER_TLS_CERT_FILE", files("tls.crt")),
            variable("CODER_TLS_KEY_FILE", files("tls.key")),
        ]);
    }
    variables.extend(database::variable(spec));
    variables
}
