//! The Secrets and ConfigMaps that a pod refers to, fetched when it needs them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Container, Pod, Secret},
};
use kube::Api;

type Data = BTreeMap<String, ByteString>;

/// Objects by name, all of one namespace.
#[derive(Default)]
pub(super) struct Objects {
    secrets: BTreeMap<String, Data>,
    config_maps: BTreeMap<String, Data>,
}

/// The names of what is referred to.
#[derive(Default)]
pub(super) struct References {
    secrets: BTreeSet<String>,
    config_maps: BTreeSet<String>,
}

impl Objects {
    /// Fetches what exists of the objects that are referred to.
    pub(super) async fn fetch(
        client: &kube::Client,
        namespace: &str,
        references: &References,
    ) -> Result<Self> {
        let mut objects = Self::default();
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        for name in &references.secrets {
            if let Some(secret) =
                secrets.get_opt(name).await.with_context(|| format!("read Secret {name}"))?
            {
                objects.insert_secret(name, secret.data.unwrap_or_default());
            }
        }
        let config_maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        for name in &references.config_maps {
            if let Some(found) =
                config_maps.get_opt(name).await.with_context(|| format!("read ConfigMap {name}"))?
            {
                let mut data = found.binary_data.unwrap_or_default();
                let text = found.data.unwrap_or_default();
                data.extend(text.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))));
                objects.insert_config_map(name, data);
            }
        }
        Ok(objects)
    }

    pub(super) fn secret(&self, name: &str) -> Option<&Data> {
        self.secrets.get(name)
    }

    pub(super) fn config_map(&self, name: &str) -> Option<&Data> {
        self.config_maps.get(name)
    }

    pub(super) fn insert_secret(&mut self, name: &str, data: Data) {
        self.secrets.insert(name.to_owned(), data);
    }

    pub(super) fn insert_config_map(&mut self, name: &str, data: Data) {
        self.config_maps.insert(name.to_owned(), data);
    }
}

impl References {
    /// What a container's environment refers to.
    pub(super) fn of_container(container: &Container) -> Self {
        let mut references = Self::default();
        for source in container.env_from.iter().flatten() {
            references.secrets.extend(source.secret_ref.iter().map(|it| it.name.clone()));
            references.config_maps.extend(source.config_map_ref.iter().map(|it| it.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|it| it.value_from.as_ref()) {
            references.secrets.extend(source.secret_key_ref.iter().map(|it| it.name.clone()));
            references.config_maps.extend(source.config_map_key_ref.iter().map(|it| it.name.clone()));
        }
        references
    }

    /// What a pod's volumes refer to.
    pub(super) fn of_volumes(pod: &Pod) -> Self {
        let mut references = Self::default();
        for volume in pod.spec.iter().flat_map(|it| it.volumes.iter().flatten()) {
            references.secrets.extend(volume.secret.iter().filter_map(|it| it.secret_name.clone()));
            references.config_maps.extend(volume.config_map.iter().map(|it| it.name.clone()));
            for source in volume.projected.iter().flat_map(|it| it.sources.iter().flatten()) {
                references.secrets.extend(source.secret.iter().map(|it| it.name.clone()));
                references.config_maps.extend(source.config_map.iter().map(|it| it.name.clone()));
            }
        }
        references
    }
}
