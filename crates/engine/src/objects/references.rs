//! The Secrets and `ConfigMap`s that the pods of a control plane read, and what a change of one of them means.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use api::{CoderControlPlaneSpec, DATABASE_URL};
use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Volume};
use sha2::{Digest as _, Sha256};

use crate::pipeline::reference::Ref;

/// Something that the pods read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceRef {
    ConfigMap(String),
    Secret(String),
}

impl From<SourceRef> for Ref {
    fn from(source: SourceRef) -> Self {
        match source {
            SourceRef::ConfigMap(name) => Self::ConfigMap(name),
            SourceRef::Secret(name) => Self::Secret(name),
        }
    }
}

/// What was found under a reference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The keys that can become environment variables: of a `ConfigMap` those of `data` alone.
    pub keys: BTreeSet<String>,
    /// Those of them whose value is blank.
    pub blank: BTreeSet<String>,
    /// Tells this content from any other and says nothing of it: made with a key that only we have.
    pub fingerprint: String,
}

/// One place where the pods read something.
struct Read {
    reference: SourceRef,
    /// Nothing where all of it is read.
    key: Option<String>,
    /// Whether a pod starts without it.
    is_optional: bool,
    /// Whether an empty value is as good as none: Coder without the address of its database starts an empty one.
    needs_value: bool,
}

/// Everything that the pods read. Each is to be found for [`PlaneFacts`](crate::PlaneFacts), and watched.
pub fn references(spec: &CoderControlPlaneSpec) -> BTreeSet<SourceRef> {
    reads(spec).into_iter().map(|it| it.reference).collect()
}

/// What no pod may start without and is not there, in words. The address of the database is never optional: Coder would
/// start an empty database.
pub fn missing(spec: &CoderControlPlaneSpec, sources: &BTreeMap<SourceRef, Source>) -> BTreeSet<String> {
    let required = reads(spec).into_iter().filter(|it| !it.is_optional || it.needs_value);
    required
        .filter_map(|Read { reference, key, needs_value, .. }| match (sources.get(&reference), key) {
            (None, _) => Some(reference.to_string()),
            (Some(source), Some(key)) if !source.keys.contains(&key) => {
                Some(format!("{reference} (its key {key})"))
            }
            (Some(source), Some(key)) if needs_value && source.blank.contains(&key) => {
                Some(format!("{reference} (its key {key}, which is empty)"))
            }
            (Some(_), _) => None,
        })
        .collect()
}

/// Everything that the pods read, as if it were there.
#[cfg(test)]
pub(crate) fn all_there(spec: &CoderControlPlaneSpec) -> BTreeMap<SourceRef, Source> {
    let mut sources = BTreeMap::<SourceRef, Source>::new();
    for Read { reference, key, .. } in reads(spec) {
        sources.entry(reference).or_default().keys.extend(key);
    }
    sources
}

fn reads(spec: &CoderControlPlaneSpec) -> Vec<Read> {
    let whole = |reference| Read { reference, key: None, is_optional: false, needs_value: false };
    let mut found = Vec::new();
    found.extend(spec.extra_env.iter().flatten().filter_map(read_by_variable));
    found.extend(spec.database.iter().map(|it| Read {
        reference: SourceRef::Secret(it.connection_secret_ref.name.clone()),
        key: Some(it.connection_secret_ref.key.clone()),
        is_optional: false,
        needs_value: true,
    }));
    found.extend(spec.env_from.iter().flatten().filter_map(|it| {
        let map = it.config_map_ref.as_ref().and_then(|it| it.optional);
        let is_optional = map.or_else(|| it.secret_ref.as_ref()?.optional).unwrap_or_default();
        Some(Read { reference: of_source(it)?, key: None, is_optional, needs_value: false })
    }));
    found.extend(spec.tls_secrets().into_iter().map(|it| whole(SourceRef::Secret(it.to_owned()))));
    let certificates = spec.certs.iter().flat_map(|it| it.secrets.iter().flatten());
    found.extend(certificates.map(|it| whole(SourceRef::Secret(it.name.trim().to_owned()))));
    found.extend(spec.volumes.iter().flatten().flat_map(read_by_volume));
    found
}

/// Changes with anything that the pods read, and with nothing else.
pub fn configuration(spec: &CoderControlPlaneSpec, sources: &BTreeMap<SourceRef, Source>) -> String {
    let mut hash = Sha256::new();
    for reference in references(spec) {
        let (kind, name) = match &reference {
            SourceRef::ConfigMap(name) => ("ConfigMap", name),
            SourceRef::Secret(name) => ("Secret", name),
        };
        let fingerprint = sources.get(&reference).map_or("", |it| it.fingerprint.as_str());
        for part in [kind, name, fingerprint] {
            hash.update(part);
            hash.update([0]);
        }
    }
    base16ct::lower::encode_string(&hash.finalize()[..16])
}

/// What a source of `envFrom` has for a variable, and under which key. One that is missing has nothing.
pub(crate) fn found_in<'a>(
    source: &EnvFromSource,
    name: &'a str,
    sources: &'a BTreeMap<SourceRef, Source>,
) -> Option<(&'a str, &'a Source)> {
    let key = name.strip_prefix(source.prefix.as_deref().unwrap_or_default())?;
    let found = sources.get(&of_source(source)?)?;
    (!key.is_empty() && found.keys.contains(key)).then_some((key, found))
}

pub(crate) fn of_source(source: &EnvFromSource) -> Option<SourceRef> {
    let map = source.config_map_ref.as_ref().map(|it| SourceRef::ConfigMap(it.name.clone()));
    map.or_else(|| source.secret_ref.as_ref().map(|it| SourceRef::Secret(it.name.clone())))
}

pub(crate) fn of_variable(variable: &EnvVar) -> Option<SourceRef> {
    read_by_variable(variable).map(|it| it.reference)
}

pub(crate) fn of_volume(volume: &Volume) -> Vec<SourceRef> {
    read_by_volume(volume).into_iter().map(|it| it.reference).collect()
}

fn read_by_variable(variable: &EnvVar) -> Option<Read> {
    let from = variable.value_from.as_ref()?;
    let needs_value = variable.name == DATABASE_URL;
    if let Some(it) = &from.config_map_key_ref {
        let (reference, key) = (SourceRef::ConfigMap(it.name.clone()), Some(it.key.clone()));
        return Some(Read { reference, key, is_optional: it.optional.unwrap_or_default(), needs_value });
    }
    let it = from.secret_key_ref.as_ref()?;
    let (reference, key) = (SourceRef::Secret(it.name.clone()), Some(it.key.clone()));
    Some(Read { reference, key, is_optional: it.optional.unwrap_or_default(), needs_value })
}

fn read_by_volume(volume: &Volume) -> Vec<Read> {
    let read = |reference, optional: Option<bool>| Read {
        reference,
        key: None,
        is_optional: optional.unwrap_or_default(),
        needs_value: false,
    };
    let secret = volume
        .secret
        .iter()
        .filter_map(|it| it.secret_name.clone().map(|name| read(SourceRef::Secret(name), it.optional)));
    let map = volume.config_map.iter().map(|it| read(SourceRef::ConfigMap(it.name.clone()), it.optional));
    let projected = volume.projected.iter().flat_map(|it| it.sources.iter().flatten()).filter_map(|source| {
        let secret = source.secret.as_ref().map(|it| read(SourceRef::Secret(it.name.clone()), it.optional));
        let map = source.config_map.as_ref();
        secret.or_else(|| map.map(|it| read(SourceRef::ConfigMap(it.name.clone()), it.optional)))
    });
    secret.chain(map).chain(projected).collect()
}

impl fmt::Display for SourceRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigMap(name) => write!(formatter, "ConfigMap {name}"),
            Self::Secret(name) => write!(formatter, "Secret {name}"),
        }
    }
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
            "licenseSecretRef": {"name": "license"}, "database": {"connectionSecretRef": key("database")},
        }))
        .unwrap()
    }

    #[test]
    fn everything_that_pods_read_is_found_and_nothing_else() {
        let secrets = ["all", "ca", "database", "env", "file", "part", "tls"]
            .map(|it| SourceRef::Secret(it.to_owned()));
        let maps = ["files", "map"].map(|it| SourceRef::ConfigMap(it.to_owned()));
        assert_eq!(references(&spec()).into_iter().collect::<Vec<_>>(), [&maps[..], &secrets[..]].concat());
    }

    #[test]
    fn what_no_pod_starts_without_is_named_with_its_key_and_what_is_optional_is_not() {
        let source = |keys: &[&str]| Source {
            keys: keys.iter().map(|it| (*it).to_owned()).collect(),
            ..Source::default()
        };
        let mut there = all_there(&spec());
        assert_eq!(missing(&spec(), &there), BTreeSet::new());
        there.insert(SourceRef::Secret("env".to_owned()), source(&["other"]));
        there.remove(&SourceRef::Secret("tls".to_owned()));
        there.remove(&SourceRef::ConfigMap("files".to_owned()));
        let found: Vec<String> = missing(&spec(), &there).into_iter().collect();
        assert_eq!(found, ["ConfigMap files", "Secret env (its key k)", "Secret tls"]);
        let optional = json!({
            "extraEnv": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "k", "optional": true}}}],
            "envFrom": [{"configMapRef": {"name": "b", "optional": true}}],
            "volumes": [{"name": "v", "secret": {"secretName": "c", "optional": true}}],
        });
        assert_eq!(missing(&serde_json::from_value(optional).unwrap(), &BTreeMap::new()), BTreeSet::new());
    }

    #[test]
    fn the_configuration_changes_with_what_pods_read() {
        let source = |fingerprint: &str| Source { fingerprint: fingerprint.to_owned(), ..Source::default() };
        let of = |name: &str, fingerprint: &str| {
            configuration(&spec(), &[(SourceRef::Secret(name.to_owned()), source(fingerprint))].into())
        };
        assert_eq!(of("tls", "1"), of("tls", "1"));
        assert_ne!(of("tls", "1"), of("tls", "2"));
        assert_ne!(of("tls", "1"), of("env", "1"));
        assert_ne!(of("database", "1"), of("database", "2"));
        assert_eq!(of("license", "1"), of("license", "2"), "no pod reads the licence");
        assert_ne!(configuration(&spec(), &BTreeMap::new()), of("tls", "1"), "one that came");
    }
}
