//! An OCI archive: one layer, its configuration, manifest and index, in a tar file.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::Write as _,
    str::FromStr as _,
};

use anyhow::{Context as _, Result};
use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, DescriptorBuilder, ImageConfigurationBuilder, ImageIndexBuilder,
    ImageManifestBuilder, MediaType, OciLayoutBuilder, Os, PlatformBuilder, RootFsBuilder, Sha256Digest,
};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::rootfs::{BINARY, CERTIFICATES, File, USER};

/// The repository of the sources, on the host of the chart's default registry.
const SOURCE: &str = "https://github.com/coder-operator/coder-operator";

/// What the image says of itself.
pub(super) struct Labels {
    pub(super) version: String,
    /// The commit; `None` outside a checkout.
    pub(super) revision: Option<String>,
    /// The commit's time in seconds since 1970, which is also every file's.
    pub(super) created: u64,
}

impl Labels {
    fn pairs(&self) -> HashMap<String, String> {
        let mut pairs = HashMap::from([
            ("title", "coder-operator".to_owned()),
            ("description", "Keeps Coder deployments equal to their manifests in Git".to_owned()),
            ("licenses", "Apache-2.0".to_owned()),
            ("source", SOURCE.to_owned()),
            ("version", self.version.clone()),
            ("created", self.timestamp()),
        ]);
        if let Some(revision) = &self.revision {
            pairs.insert("revision", revision.clone());
        }
        pairs.into_iter().map(|(key, value)| (format!("org.opencontainers.image.{key}"), value)).collect()
    }

    fn timestamp(&self) -> String {
        let seconds = i64::try_from(self.created).unwrap_or_default();
        Timestamp::from_second(seconds).unwrap_or_default().to_string()
    }
}

/// Packs files into an OCI archive.
pub(super) fn pack(files: &[File], labels: &Labels) -> Result<Vec<u8>> {
    let layer = tar(files, labels.created)?;
    let compressed = gzip(&layer)?;
    let mut blobs = Blobs::default();
    let layer_descriptor = blobs.add(MediaType::ImageLayerGzip, compressed)?;
    let config = ImageConfigurationBuilder::default()
        .created(labels.timestamp())
        .architecture(Arch::from(goarch()))
        .os(Os::Linux)
        .config(
            ConfigBuilder::default()
                .user(format!("{USER}:{USER}"))
                .entrypoint(vec![format!("/{BINARY}")])
                .cmd(vec!["--help".to_owned()])
                .env(vec!["PATH=/usr/bin".to_owned(), format!("SSL_CERT_FILE=/{CERTIFICATES}")])
                .working_dir("/")
                .labels(labels.pairs())
                .build()?,
        )
        .rootfs(RootFsBuilder::default().typ("layers").diff_ids(vec![digest(&layer)]).build()?)
        .build()?;
    let config = blobs.add(MediaType::ImageConfig, json(&config)?)?;
    let manifest = ImageManifestBuilder::default()
        .schema_version(2_u32)
        .media_type(MediaType::ImageManifest)
        .config(config)
        .layers(vec![layer_descriptor])
        .annotations(labels.pairs())
        .build()?;
    let mut manifest = blobs.add(MediaType::ImageManifest, json(&manifest)?)?;
    manifest.set_platform(Some(
        PlatformBuilder::default().architecture(Arch::from(goarch())).os(Os::Linux).build()?,
    ));
    manifest.set_annotations(Some(HashMap::from([(
        "org.opencontainers.image.ref.name".to_owned(),
        labels.version.clone(),
    )])));
    let index = ImageIndexBuilder::default()
        .schema_version(2_u32)
        .media_type(MediaType::ImageIndex)
        .manifests(vec![manifest])
        .build()?;
    let layout = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;
    let mut entries = blobs.0;
    entries.push(File { path: "index.json".to_owned(), mode: 0o644, content: json(&index)? });
    entries.push(File { path: "oci-layout".to_owned(), mode: 0o644, content: json(&layout)? });
    tar(&entries, labels.created)
}

/// JSON with sorted keys: labels are kept in maps without an order, and equal images have equal bytes.
fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&sorted(serde_json::to_value(value)?))?)
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> =
                fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// The blobs of an image, each under its digest.
#[derive(Default)]
struct Blobs(Vec<File>);

impl Blobs {
    fn add(&mut self, media_type: MediaType, content: Vec<u8>) -> Result<Descriptor> {
        let digest = sha256(&content);
        let descriptor = DescriptorBuilder::default()
            .media_type(media_type)
            .digest(Sha256Digest::from_str(&digest).context("read a digest that was just made")?)
            .size(u64::try_from(content.len())?)
            .build()?;
        self.0.push(File { path: format!("blobs/sha256/{digest}"), mode: 0o644, content });
        Ok(descriptor)
    }
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", sha256(content))
}

fn sha256(content: &[u8]) -> String {
    base16ct::lower::encode_string(&Sha256::digest(content))
}

/// A tar file with the folders that its files need, all of them root's and of one time.
fn tar(files: &[File], time: u64) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut made = BTreeSet::new();
    for File { path, mode, content } in files {
        for (end, _) in path.match_indices('/') {
            let folder = path.get(..=end).unwrap_or_default();
            if made.insert(folder.to_owned()) {
                append(&mut builder, folder, 0o755, time, &[])?;
            }
        }
        append(&mut builder, path, *mode, time, content)?;
    }
    Ok(builder.into_inner()?)
}

fn append(
    builder: &mut tar::Builder<Vec<u8>>,
    path: &str,
    mode: u32,
    time: u64,
    content: &[u8],
) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_size(u64::try_from(content.len())?);
    if path.ends_with('/') {
        header.set_entry_type(tar::EntryType::Directory);
    }
    builder.append_data(&mut header, path, content).with_context(|| format!("put {path} into a tar file"))
}

fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

/// This machine's architecture, as images call it.
fn goarch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, content: &str) -> File {
        File { path: path.to_owned(), mode: 0o644, content: content.as_bytes().to_vec() }
    }

    fn image(version: &str) -> Vec<u8> {
        let labels =
            Labels { version: version.to_owned(), revision: Some("abc".to_owned()), created: 1_700_000_000 };
        pack(&[text("etc/a/b", "content"), text("etc/c", "more")], &labels).unwrap()
    }

    fn repository_file(path: &str) -> String {
        std::fs::read_to_string(crate::bed::root().join(path)).unwrap()
    }

    #[test]
    fn dockerfile_makes_an_image_with_the_same_labels_and_users() {
        let dockerfile = repository_file("deploy/Dockerfile");
        let labels = Labels { version: String::new(), revision: Some(String::new()), created: 0 };
        for (label, value) in labels.pairs() {
            assert!(dockerfile.contains(&format!("{label}=\"")), "{label}");
            let is_fixed =
                ["title", "description", "licenses", "source"].iter().any(|it| label.ends_with(it));
            assert!(!is_fixed || dockerfile.contains(&format!("{label}=\"{value}\"")), "{label}: {value}");
        }
        for path in ["/etc/passwd", "/etc/group", "/etc/nsswitch.conf"] {
            assert!(dockerfile.contains(&format!("> /files{path}")), "{path}");
        }
        assert!(dockerfile.contains(&format!("USER {USER}:{USER}\n")));
    }

    #[test]
    fn dockerfile_builds_with_the_toolchain_of_the_workspace() {
        let toolchain = repository_file("rust-toolchain.toml");
        let (_, rest) = toolchain.split_once("channel = \"").unwrap();
        let (version, _) = rest.split_once('"').unwrap();
        let dockerfile = repository_file("deploy/Dockerfile");
        assert!(dockerfile.contains(&format!("FROM rust:{version}-")), "{version}");
        assert!(dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={version}\n")), "{version}");
    }

    #[test]
    fn equal_files_give_equal_bytes() {
        assert_eq!(image("1.2.3"), image("1.2.3"));
        assert_ne!(image("1.2.3"), image("1.2.4"));
    }

    #[test]
    fn folders_stand_before_their_files_once() {
        let packed = tar(&[text("etc/a/b", ""), text("etc/c", "")], 0).unwrap();
        let mut archive = tar::Archive::new(packed.as_slice());
        let paths: Vec<String> =
            archive.entries().unwrap().map(|it| it.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!(paths, ["etc/", "etc/a/", "etc/a/b", "etc/c"]);
    }
}
