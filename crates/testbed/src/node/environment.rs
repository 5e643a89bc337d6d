//! A container's environment and command line, as the kubelet makes them.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::{
    ByteString,
    api::core::v1::{Container, EnvVarSource, Pod},
};

use super::objects::Objects;

/// What a pod may ask about itself.
pub(super) struct Facts<'a> {
    pub(super) pod: &'a Pod,
    pub(super) address: Ipv4Addr,
    pub(super) node: &'a str,
    pub(super) node_address: String,
}

/// The variables that a container declares, in an order where each may refer to those before it.
/// `given` are those that the node sets and that references may name.
pub(super) fn variables(
    container: &Container,
    objects: &Objects,
    facts: &Facts<'_>,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut variables = given.clone();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let secret =
            source.secret_ref.iter().map(|it| ("secret", &it.name, objects.secret(&it.name), it.optional));
        let config_map = source.config_map_ref.iter();
        let config_map =
            config_map.map(|it| ("configmap", &it.name, objects.config_map(&it.name), it.optional));
        for (kind, name, object, optional) in secret.chain(config_map) {
            match object {
                Some(data) => {
                    variables.extend(data.iter().map(|(key, value)| (format!("{prefix}{key}"), text(value))));
                }
                None if optional == Some(true) => {}
                None => return Err(format!("{kind} \"{name}\" not found")),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(expand(value, &variables)),
            (None, Some(source)) => from_source(source, objects, facts)?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

/// The command line. Arguments come after the image's entrypoint and never replace a word of it.
pub(super) fn command_line(
    container: &Container,
    entrypoint: &[String],
    variables: &BTreeMap<String, String>,
) -> Vec<String> {
    let command = container.command.as_deref().filter(|it| !it.is_empty()).unwrap_or(entrypoint);
    let args = container.args.as_deref().unwrap_or_default();
    [command, args].concat().iter().map(|word| expand(word, variables)).collect()
}

fn from_source(
    source: &EnvVarSource,
    objects: &Objects,
    facts: &Facts<'_>,
) -> Result<Option<String>, String> {
    if let Some(reference) = &source.secret_key_ref {
        let wanted = Wanted { kind: "secret", name: &reference.name, key: &reference.key };
        return wanted.read(objects.secret(&reference.name), reference.optional);
    }
    if let Some(reference) = &source.config_map_key_ref {
        let wanted = Wanted { kind: "configmap", name: &reference.name, key: &reference.key };
        return wanted.read(objects.config_map(&reference.name), reference.optional);
    }
    if let Some(reference) = &source.field_ref {
        return facts.field(&reference.field_path).map(Some);
    }
    Err("a variable's source is one that this node does not know".to_owned())
}

/// A key of a Secret or ConfigMap.
struct Wanted<'a> {
    kind: &'static str,
    name: &'a str,
    key: &'a str,
}

impl Wanted<'_> {
    /// The key's value in the object, which may not exist.
    fn read(
        &self,
        object: Option<&BTreeMap<String, ByteString>>,
        optional: Option<bool>,
    ) -> Result<Option<String>, String> {
        let Self { kind, name, key } = self;
        match object.map(|data| data.get(*key)) {
            Some(Some(value)) => Ok(Some(text(value))),
            _ if optional == Some(true) => Ok(None),
            Some(None) => Err(format!("couldn't find key {key} in {kind} {name}")),
            None => Err(format!("{kind} \"{name}\" not found")),
        }
    }
}

impl Facts<'_> {
    /// A field of the downward API.
    pub(super) fn field(&self, path: &str) -> Result<String, String> {
        let metadata = &self.pod.metadata;
        let spec = self.pod.spec.as_ref();
        let of_map = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default()
        };
        if let Some((map, key)) =
            path.split_once("['").and_then(|(map, rest)| Some((map, rest.strip_suffix("']")?)))
        {
            return match map {
                "metadata.labels" => Ok(of_map(&metadata.labels, key)),
                "metadata.annotations" => Ok(of_map(&metadata.annotations, key)),
                _ => Err(format!("unsupported field path \"{path}\"")),
            };
        }
        let value = match path {
            "metadata.name" => metadata.name.clone(),
            "metadata.namespace" => metadata.namespace.clone(),
            "metadata.uid" => metadata.uid.clone(),
            "metadata.labels" => Some(lines(metadata.labels.as_ref())),
            "metadata.annotations" => Some(lines(metadata.annotations.as_ref())),
            "spec.nodeName" => Some(self.node.to_owned()),
            "spec.serviceAccountName" => spec.and_then(|it| it.service_account_name.clone()),
            "status.podIP" | "status.podIPs" => Some(self.address.to_string()),
            "status.hostIP" | "status.hostIPs" => Some(self.node_address.clone()),
            _ => return Err(format!("unsupported field path \"{path}\"")),
        };
        Ok(value.unwrap_or_default())
    }
}

/// A map as the downward API writes it to a file.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

fn text(value: &ByteString) -> String {
    String::from_utf8_lossy(&value.0).into_owned()
}

/// Replaces `$(NAME)` where the name is known; `$$` is a plain `$`.
pub(super) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (before, from) = rest.split_at(dollar);
        expanded.push_str(before);
        let known = from.strip_prefix("$(").and_then(|it| it.split_once(')'));
        rest = if let Some(after) = from.strip_prefix("$$") {
            expanded.push('$');
            after
        } else if let Some((value, after)) =
            known.and_then(|(name, after)| Some((variables.get(name)?, after)))
        {
            expanded.push_str(value);
            after
        } else {
            expanded.push('$');
            from.get(1..).unwrap_or_default()
        };
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests;
