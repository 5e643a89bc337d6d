//! The Secrets and `ConfigMap`s that the pods of a control plane read, and what a change of one of them means.

use std::collections::{BTreeMap, BTreeSet};

use api::CoderControlPlaneSpec;
use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Volume};
use sha2::{Digest as _, Sha256};

/// Something that the pods read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    ConfigMap(String),
    Secret(String),
}

/// What was found under a reference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The keys that can become environment variables: of a `ConfigMap` those of `data` alone.
    pub keys: BTreeSet<String>,
    /// Tells this content from any other and says nothing of it: made with a key that only we have.
    pub fingerprint: String,
}

/// Everything that the pods read. Each is to be found for [`Facts`](super::Facts), and watched.
pub fn references(spec: &CoderControlPlaneSpec) -> BTreeSet<Reference> {
    let mut found = BTreeSet::new();
    found.extend(spec.extra_env.iter().flatten().filter_map(of_variable));
    found.extend(spec.env_from.iter().flatten().filter_map(of_source));
    found.extend(spec.tls_secrets().into_iter().map(|it| Reference::Secret(it.to_owned())));
    let certificates = spec.certs.iter().flat_map(|it| it.secrets.iter().flatten());
    found.extend(certificates.map(|it| Reference::Secret(it.name.trim().to_owned())));
    found.extend(spec.volumes.iter().flatten().flat_map(of_volume));
    found
}

/// Changes with anything that the pods read, and with nothing else.
pub fn configuration(spec: &CoderControlPlaneSpec, sources: &BTreeMap<Reference, Source>) -> String {
    let mut hash = Sha256::new();
    for reference in references(spec) {
        let (kind, name) = match &reference {
            Reference::ConfigMap(name) => ("ConfigMap", name),
            Reference::Secret(name) => ("Secret", name),
        };
        let fingerprint = sources.get(&reference).map_or("", |it| it.fingerprint.as_str());
        for part in [kind, name, fingerprint] {
            hash.update(part);
            hash.update([0]);
        }
    }
    base16ct::lower::encode_string(&hash.finalize()[..16])
}

pub(crate) fn of_source(source: &EnvFromSource) -> Option<Reference> {
    let map = source.config_map_ref.as_ref().map(|it| Reference::ConfigMap(it.name.clone()));
    map.or_else(|| source.secret_ref.as_ref().map(|it| Reference::Secret(it.name.clone())))
}

pub(crate) fn of_variable(variable: &EnvVar) -> Option<Reference> {
    let from = variable.value_from.as_ref()?;
    let map = from.config_map_key_ref.as_ref().map(|it| Reference::ConfigMap(it.name.clone()));
    map.or_else(|| from.secret_key_ref.as_ref().map(|it| Reference::Secret(it.name.clone())))
}

pub(crate) fn of_volume(volume: &Volume) -> Vec<Reference> {
    let secret = volume.secret.iter().filter_map(|it| it.secret_name.clone()).map(Reference::Secret);
    let map = volume.config_map.iter().map(|it| Reference::ConfigMap(it.name.clone()));
    let projected = volume.projected.iter().flat_map(|it| it.sources.iter().flatten()).filter_map(|source| {
        let secret = source.secret.as_ref().map(|it| Reference::Secret(it.name.clone()));
        secret.or_else(|| source.config_map.as_ref().map(|it| Reference::ConfigMap(it.name.clone())))
    });
    secret.chain(map).chain(projected).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> CoderControlPlaneSpec {
        let key = |name: &str| json!({"name": name, "key": "k"});
        serde_json::from_value(json!({
            "extraEnv": [{"name": "A", "value": "plain"}, {"name": "B", "valueFrom": {"secretKeyRef": key("env")}},
                {"name": "C", "valueFrom": {"configMapKeyRef": key("map")}}],
            "envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "map"}}],
            "tls": {"secretNames": ["tls"]}, "certs": {"secrets": [key("ca")]},
            "volumes": [{"name": "v", "secret": {"secretName": "file"}}, {"name": "w", "configMap": {"name": "files"}},
                {"name": "x", "projected": {"sources": [{"secret": {"name": "part"}}]}}],
            "licenseSecretRef": {"name": "license"},
        }))
        .unwrap()
    }

    #[test]
    fn everything_that_pods_read_is_found_and_nothing_else() {
        let secrets = ["all", "ca", "env", "file", "part", "tls"].map(|it| Reference::Secret(it.to_owned()));
        let maps = ["files", "map"].map(|it| Reference::ConfigMap(it.to_owned()));
        assert_eq!(references(&spec()).into_iter().collect::<Vec<_>>(), [&maps[..], &secrets[..]].concat());
    }

    #[test]
    fn the_configuration_changes_with_what_pods_read() {
        let source = |fingerprint: &str| Source { fingerprint: fingerprint.to_owned(), ..Source::default() };
        let of = |name: &str, fingerprint: &str| {
            configuration(&spec(), &[(Reference::Secret(name.to_owned()), source(fingerprint))].into())
        };
        assert_eq!(of("tls", "1"), of("tls", "1"));
        assert_ne!(of("tls", "1"), of("tls", "2"));
        assert_ne!(of("tls", "1"), of("env", "1"));
        assert_eq!(of("license", "1"), of("license", "2"), "no pod reads the licence");
        assert_ne!(configuration(&spec(), &BTreeMap::new()), of("tls", "1"), "one that came");
    }
}
