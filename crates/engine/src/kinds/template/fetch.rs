//! Archives on other hosts: read when a version of them is published or compared, and checked before anything else.

use std::{io::Read as _, sync::Arc};

use api::Reason;
use client::DownloadPermit;
use flate2::read::MultiGzDecoder;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{
    archive::{self, Files, is_left_out},
    recipe::Recipe,
};
use crate::{
    coder::{ArchiveKey, Coder},
    pipeline::outcome::{Blocked, Invalid, Trouble},
    secrets::SecretPlace,
};

/// The most bytes of an archive that is not compressed: headers and padding come on top of the files.
const LARGEST_TAR: u64 = 16 * 1024 * 1024;
/// What a file that is compressed with gzip begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ALGORITHM: &str = "sha256:";
/// The key of a Secret with a token, where a manifest names none.
const TOKEN: &str = "token";

/// An archive on another host, known by the digest of its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Archive {
    key: ArchiveKey,
    /// `None` until the Secret was read.
    token: Option<SecretString>,
}

/// The files of an archive, packed as all others are. The number of these in memory is bounded.
#[derive(Debug)]
pub(crate) struct Fetched {
    bytes: Arc<Vec<u8>>,
    _permit: DownloadPermit,
}

impl std::ops::Deref for Fetched {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Archive {
    pub(crate) fn declared(declared: &api::TemplateArchive, namespace: &str) -> Result<Self, Invalid> {
        let field = |name: &str| format!("spec.source.archive.{name}");
        let invalid = |message: &str| Invalid::new(&field("url"), message);
        let url: Url = declared.url.parse().map_err(|_| invalid("must be an http or https address"))?;
        if !["http", "https"].contains(&url.scheme()) || !url.has_host() {
            return Err(invalid("must be an http or https address"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("must have no user and no password in it: use credentialsSecretRef"));
        }
        let digest = declared.digest.strip_prefix(ALGORITHM).unwrap_or_default();
        if digest.len() != 64 || !digest.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Invalid::new(&field("digest"), "must be `sha256:` and 64 hexadecimal digits"));
        }
        let (namespace, digest) = (namespace.to_owned(), digest.to_owned());
        let key = ArchiveKey { namespace, url, credentials: secret_ref(declared), digest };
        Ok(Self { key, token: None })
    }

    /// Takes the token for the host, where the manifest refers to one.
    pub(crate) fn take_token(&mut self, token: impl FnOnce(&SecretPlace) -> Option<SecretString>) {
        self.token = self.key.credentials.as_ref().and_then(token);
    }

    /// The digest of the bytes, as hexadecimal digits.
    pub(crate) fn digest(&self) -> &str {
        &self.key.digest
    }

    /// What stands for the bytes in the recipe of a version, so that they need not be read to know it.
    pub(crate) fn recipe_digest(&self) -> [u8; 32] {
        Recipe::digest(format!("archive {ALGORITHM}{}", self.key.digest).as_bytes())
    }

    /// Reads the archive, and packs its files as all others are packed. Archives that this process has read are remembered.
    pub(crate) async fn packed(&self, coder: &Coder) -> Result<Fetched, Trouble> {
        let downloads = coder.downloads().ok_or_else(|| {
            unusable("spec.source.archive: no connection to other hosts can be made here: use files or configMapRef")
        })?;
        let permit = downloads.permit().await;
        if let Some(known) = coder.archive(&self.key) {
            return Ok(Fetched { bytes: known, _permit: permit });
        }
        let read = downloads.get(&self.key.url, self.token.as_ref()).await;
        let bytes = read.map_err(|why| unusable(format!("spec.source.archive.url: {why}")))?;
        self.check(&bytes)?;
        let files = unpacked(&bytes).map_err(|why| unusable(format!("spec.source.archive: {why}")))?;
        drop(bytes);
        let packed = archive::pack(&files).map_err(|why| unusable(format!("spec.source.archive: {why}")))?;
        let bytes = Arc::new(packed);
        coder.note_archive(&self.key, &bytes);
        Ok(Fetched { bytes, _permit: permit })
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Blocked> {
        let found = base16ct::lower::encode_string(&Sha256::digest(bytes));
        if found == self.key.digest {
            return Ok(());
        }
        Err(unusable(format!(
            "spec.source.archive.digest: the file has the digest {ALGORITHM}{found}, and the manifest declares {ALGORITHM}{}: nothing \
             of it is published. Set the digest if the file is the right one",
            self.key.digest
        )))
    }
}

/// The source cannot be published as it is.
pub(crate) fn unusable(message: impl Into<String>) -> Blocked {
    Blocked { reason: Reason::SourceNotUsable, message: message.into() }
}

/// The entry of a Secret with the token for the host.
pub(crate) fn secret_ref(declared: &api::TemplateArchive) -> Option<SecretPlace> {
    let reference = declared.credentials_secret_ref.as_ref()?;
    Some(SecretPlace { name: reference.name.clone(), key: reference.key_or(TOKEN).to_owned() })
}

/// The files of a tar archive, which may be compressed. The same entries are left out as of a directory.
fn unpacked(bytes: &[u8]) -> Result<Files, String> {
    let mut tar = Vec::new();
    let bytes = if bytes.starts_with(&GZIP) {
        let mut decoder = MultiGzDecoder::new(bytes).take(LARGEST_TAR + 1);
        let read = decoder.read_to_end(&mut tar);
        read.map_err(|error| format!("the file cannot be decompressed: {error}"))?;
        if tar.len() as u64 > LARGEST_TAR {
            return Err(format!("the file is more than {LARGEST_TAR} bytes once it is decompressed"));
        }
        tar.as_slice()
    } else {
        bytes
    };
    let mut files = archive::unpack(bytes)?;
    files.retain(|path, _| !path.split('/').any(is_left_out));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn files(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec().into())).collect()
    }

    fn declared(url: &str, digest: &str) -> Result<Archive, String> {
        let declared =
            api::TemplateArchive { url: url.to_owned(), digest: digest.to_owned(), ..Default::default() };
        Archive::declared(&declared, "platform").map_err(|it| it.field)
    }

    #[test]
    fn archive_may_be_compressed_and_hidden_files_are_left_out() {
        let all = files(&[
            ("main.tf", "a"),
            (".git/config", "b"),
            ("terraform.tfvars", "c"),
            (".terraform.lock.hcl", "d"),
        ]);
        let packed = archive::pack(&all).unwrap();
        let expected = files(&[("main.tf", "a"), (".terraform.lock.hcl", "d")]);
        assert_eq!(unpacked(&packed), Ok(expected.clone()));
        assert_eq!(unpacked(&gzip(&packed)), Ok(expected));
    }

    #[test]
    fn bombs_and_broken_files_are_refused() {
        let bomb = gzip(&vec![0; usize::try_from(LARGEST_TAR).unwrap() + 1]);
        assert!(bomb.len() < 100_000);
        assert!(unpacked(&bomb).unwrap_err().contains("once it is decompressed"));
        let packed = gzip(&archive::pack(&files(&[("main.tf", "a")])).unwrap());
        assert!(unpacked(&packed[..packed.len() / 2]).is_err());
        assert!(unpacked(b"PK\x03\x04 a zip archive").is_err() && unpacked(b"").is_err());
    }

    #[test]
    fn address_and_digest_are_checked_before_anything_is_read() {
        let digest = format!("sha256:{}", "0f".repeat(32));
        assert!(declared("https://one.example/x.tar.gz?ref=v1", &digest).is_ok());
        for url in ["", "x.tar", "ftp://one.example/x", "file:///etc/passwd", "https://a:b@one.example/x"] {
            assert_eq!(declared(url, &digest).unwrap_err(), "spec.source.archive.url", "{url}");
        }
        let long = format!("{digest}0");
        for digest in ["", "sha256:", "0f", &digest.to_uppercase(), &digest.replace("sha256", "sha1"), &long]
        {
            let field = declared("https://one.example/x", digest).unwrap_err();
            assert_eq!(field, "spec.source.archive.digest", "{digest}");
        }
    }
}
