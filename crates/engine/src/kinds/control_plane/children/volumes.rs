//! Volumes and where they are mounted: certificates first, then what a person adds.

use api::{CertSecret, CoderControlPlaneSpec};
use k8s_openapi::api::core::v1::{SecretVolumeSource, Volume, VolumeMount};

use crate::{kinds::control_plane::names, pipeline::outcome::Invalid};

const CERTIFICATES: &str = "/etc/ssl/certs";

/// Where the certificate and the key of a Secret are in the container.
pub(super) fn tls_folder(secret: &str) -> String {
    format!("{CERTIFICATES}/coder/{secret}")
}

/// The volumes of the pods, each name once.
pub(super) fn volumes(spec: &CoderControlPlaneSpec) -> Result<Option<Vec<Volume>>, Invalid> {
    let tls = spec.tls_secrets().into_iter().map(|it| of_secret("tls", it));
    let mut volumes: Vec<Volume> = tls.collect();
    for certificate in certificates(spec) {
        let volume = of_secret("ca-cert", &certificate.name);
        if !volumes.contains(&volume) {
            volumes.push(volume);
        }
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        if volumes.iter().any(|it| it.name == volume.name) {
            return Err(Invalid::new(
                &format!("spec.volumes[{index}].name"),
                format!("`{}` is the name of another volume: choose one that is free", volume.name),
            ));
        }
        volumes.push(volume.clone());
    }
    Ok((!volumes.is_empty()).then_some(volumes))
}

/// The mounts of the container, each path once.
pub(super) fn mounts(spec: &CoderControlPlaneSpec) -> Result<Option<Vec<VolumeMount>>, Invalid> {
    let tls = spec.tls_secrets().into_iter().map(|secret| VolumeMount {
        name: names::volume("tls", secret),
        mount_path: tls_folder(secret),
        read_only: Some(true),
        ..VolumeMount::default()
    });
    let mut mounts: Vec<VolumeMount> = tls.collect();
    let certificates = certificates(spec);
    let mut files: Vec<String> = Vec::new();
    for certificate in &certificates {
        let file = free(&file_name(certificate, &certificates), &files);
        mounts.push(VolumeMount {
            name: names::volume("ca-cert", &certificate.name),
            mount_path: format!("{CERTIFICATES}/{file}"),
            sub_path: Some(certificate.key.clone()),
            read_only: Some(true),
            ..VolumeMount::default()
        });
        files.push(file);
    }
    for (index, mount) in spec.volume_mounts.iter().flatten().enumerate() {
        if mounts.iter().any(|it| it.mount_path == mount.mount_path) {
            return Err(Invalid::new(
                &format!("spec.volumeMounts[{index}].mountPath"),
                format!("something else is mounted at {} already: choose another path", mount.mount_path),
            ));
        }
        mounts.push(mount.clone());
    }
    Ok((!mounts.is_empty()).then_some(mounts))
}

fn of_secret(prefix: &str, secret: &str) -> Volume {
    let source = SecretVolumeSource { secret_name: Some(secret.to_owned()), ..SecretVolumeSource::default() };
    Volume { name: names::volume(prefix, secret), secret: Some(source), ..Volume::default() }
}

/// The declared certificates, each once.
fn certificates(spec: &CoderControlPlaneSpec) -> Vec<CertSecret> {
    let mut found: Vec<CertSecret> = Vec::new();
    for it in spec.certs.iter().flat_map(|it| it.secrets.iter().flatten()) {
        let it = CertSecret { name: it.name.trim().to_owned(), key: it.key.trim().to_owned() };
        if !found.contains(&it) {
            found.push(it);
        }
    }
    found
}

/// The file of a certificate: named after its Secret, and after its key too where the Secret has several.
fn file_name(certificate: &CertSecret, all: &[CertSecret]) -> String {
    let CertSecret { name, key } = certificate;
    let is_alone = all.iter().filter(|it| it.name == *name).count() == 1;
    let name = if is_alone { name.clone() } else { format!("{name}-{key}") };
    format!("{}.crt", name.strip_suffix(".crt").unwrap_or(&name))
}

/// The name, or the first of `-2`, `-3`… that is free.
fn free(file: &str, taken: &[String]) -> String {
    let stem = file.strip_suffix(".crt").unwrap_or(file);
    let numbered = (2..).map(|number| format!("{stem}-{number}.crt"));
    std::iter::once(file.to_owned()).chain(numbered).find(|it| !taken.contains(it)).unwrap_or_default()
}
