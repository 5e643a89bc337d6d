//! A pod's volumes as folders below the pod's own.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{
            ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath, Pod,
            SecretProjection, ServiceAccount, ServiceAccountTokenProjection, Volume, VolumeProjection,
        },
    },
};
use kube::{Api, ResourceExt as _, api::PostParams};

use super::{
    environment::Facts,
    objects::{Objects, References},
};

const DEFAULT_MODE: i32 = 0o644;

/// Writes the volumes of a pod below `folder`, one folder each by its name.
/// An error names what is missing; it may be there on the next try.
pub(super) async fn mount(
    client: &kube::Client,
    facts: &Facts<'_>,
    folder: &Path,
) -> Result<BTreeMap<String, PathBuf>> {
    let namespace = facts.pod.namespace().unwrap_or_default();
    let objects = Objects::fetch(client, &namespace, &References::of_volumes(facts.pod)).await?;
    let mut places = BTreeMap::new();
    for volume in facts.pod.spec.iter().flat_map(|it| it.volumes.iter().flatten()) {
        let place = match &volume.host_path {
            Some(host_path) => PathBuf::from(&host_path.path),
            None => folder.join(&volume.name),
        };
        fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
        let files = files(client, volume, &objects, facts).await.map_err(|error| {
            anyhow!("MountVolume.SetUp failed for volume \"{}\" : {error:#}", volume.name)
        })?;
        for (path, file) in files {
            write(&place, &path, &file)?;
        }
        places.insert(volume.name.clone(), place);
    }
    Ok(places)
}

/// Where a container's mount paths are on this machine.
pub(super) fn mounts_of(container: &Container, places: &BTreeMap<String, PathBuf>) -> Vec<(String, PathBuf)> {
    let mounts = container.volume_mounts.iter().flatten();
    mounts
        .filter_map(|mount| {
            let place = places.get(&mount.name)?;
            let place = mount
                .sub_path
                .as_deref()
                .filter(|it| !it.is_empty())
                .map_or_else(|| place.clone(), |it| place.join(it));
            let path = mount.mount_path.trim_end_matches('/');
            // The root of all paths cannot be told from the machine's own.
            (!path.is_empty()).then(|| (path.to_owned(), place))
        })
        .collect()
}

struct File {
    content: Vec<u8>,
    mode: i32,
}

/// The files of a volume. One that has none of its own (an empty folder, a claim) starts empty.
async fn files(
    client: &kube::Client,
    volume: &Volume,
    objects: &Objects,
    facts: &Facts<'_>,
) -> Result<BTreeMap<String, File>> {
    let mut files = BTreeMap::new();
    let (sources, mode) = sources(volume);
    for source in sources {
        if let Some(SecretProjection { name, items, optional }) = &source.secret {
            let found = objects.secret(name);
            add(
                &mut files,
                Picked { kind: "secret", name, found, items: items.as_deref(), optional: *optional },
                mode,
            )?;
        }
        if let Some(ConfigMapProjection { name, items, optional }) = &source.config_map {
            let found = objects.config_map(name);
            add(
                &mut files,
                Picked { kind: "configmap", name, found, items: items.as_deref(), optional: *optional },
                mode,
            )?;
        }
        if let Some(source) = &source.downward_api {
            add_fields(&mut files, source.items.as_deref(), facts, mode)?;
        }
        if let Some(source) = &source.service_account_token {
            let content = request_token(client, facts.pod, source).await?.into_bytes();
            files.insert(source.path.clone(), File { content, mode: 0o600 });
        }
    }
    Ok(files)
}

/// What a volume is filled from, and the mode of its files: a plain volume is a projection of one source.
fn sources(volume: &Volume) -> (Vec<VolumeProjection>, i32) {
    if let Some(projected) = &volume.projected {
        return (
            projected.sources.clone().unwrap_or_default(),
            projected.default_mode.unwrap_or(DEFAULT_MODE),
        );
    }
    let mut source = VolumeProjection::default();
    let mut mode = None;
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.clone().unwrap_or_default();
        source.secret =
            Some(SecretProjection { name, items: secret.items.clone(), optional: secret.optional });
        mode = secret.default_mode;
    }
    if let Some(config_map) = &volume.config_map {
        let (name, items) = (config_map.name.clone(), config_map.items.clone());
        source.config_map = Some(ConfigMapProjection { name, items, optional: config_map.optional });
        mode = config_map.default_mode;
    }
    if let Some(downward) = &volume.downward_api {
        source.downward_api = Some(DownwardAPIProjection { items: downward.items.clone() });
        mode = downward.default_mode;
    }
    (vec![source], mode.unwrap_or(DEFAULT_MODE))
}

/// An object, or some of its keys, that becomes files.
#[derive(Clone, Copy)]
struct Picked<'a> {
    kind: &'static str,
    name: &'a str,
    found: Option<&'a BTreeMap<String, ByteString>>,
    items: Option<&'a [KeyToPath]>,
    optional: Option<bool>,
}

fn add(files: &mut BTreeMap<String, File>, picked: Picked<'_>, mode: i32) -> Result<()> {
    let Picked { kind, name, found, items, optional } = picked;
    let Some(data) = found else {
        if optional == Some(true) {
            return Ok(());
        }
        bail!("{kind} \"{name}\" not found");
    };
    match items {
        None => files
            .extend(data.iter().map(|(key, value)| (key.clone(), File { content: value.0.clone(), mode }))),
        Some(items) => {
            for item in items {
                match data.get(&item.key) {
                    Some(value) => {
                        let file = File { content: value.0.clone(), mode: item.mode.unwrap_or(mode) };
                        files.insert(item.path.clone(), file);
                    }
                    None if optional == Some(true) => {}
                    None => bail!("references non-existent {kind} key: {}", item.key),
                }
            }
        }
    }
    Ok(())
}

fn add_fields(
    files: &mut BTreeMap<String, File>,
    items: Option<&[DownwardAPIVolumeFile]>,
    facts: &Facts<'_>,
    mode: i32,
) -> Result<()> {
    for item in items.unwrap_or_default() {
        let field = item.field_ref.as_ref().context("this node knows no resource fields")?;
        let content = facts.field(&field.field_path).map_err(anyhow::Error::msg)?.into_bytes();
        files.insert(item.path.clone(), File { content, mode: item.mode.unwrap_or(mode) });
    }
    Ok(())
}

/// A token of the pod's service account, as the kubelet requests one: good for as long as the pod exists.
async fn request_token(
    client: &kube::Client,
    pod: &Pod,
    source: &ServiceAccountTokenProjection,
) -> Result<String> {
    let account = pod
        .spec
        .as_ref()
        .and_then(|it| it.service_account_name.clone())
        .unwrap_or_else(|| "default".to_owned());
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: source.audience.iter().cloned().collect(),
            expiration_seconds: source.expiration_seconds,
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        },
        ..TokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let answer = accounts
        .create_token_request(&account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("request a token of service account {account}"))?;
    Ok(answer.status.map(|it| it.token).unwrap_or_default())
}

fn write(place: &Path, path: &str, file: &File) -> Result<()> {
    let path = place.join(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    // A file of an earlier try may be one that even its owner must not write to.
    fs::remove_file(&path).ok();
    fs::write(&path, &file.content).with_context(|| format!("write {}", path.display()))?;
    let mode = u32::try_from(file.mode).unwrap_or(0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("set the mode of {}", path.display()))
}
