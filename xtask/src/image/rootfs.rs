//! The image's root file system: the binary, its shared libraries, CA certificates, and a user that is not root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

/// Where the binary is in the image.
pub(super) const BINARY: &str = "usr/bin/coder-operator";
/// Where the CA certificates are in the image.
pub(super) const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
/// The user that the image runs as; distroless images use the same number.
pub(super) const USER: u32 = 65532;

/// Where distributions keep the bundle of CA certificates.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A file of the image.
pub(super) struct File {
    /// Relative to the image's root.
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) content: Vec<u8>,
}

/// Collects the files of the image, sorted by path.
pub(super) fn collect(binary: &Path) -> Result<Vec<File>> {
    let mut files = vec![
        file(BINARY, 0o755, read(binary)?),
        file(CERTIFICATES, 0o644, certificates()?),
        file("etc/passwd", 0o644, format!("nonroot:x:{USER}:{USER}::/nonexistent:/sbin/nologin\n").into()),
        file("etc/group", 0o644, format!("nonroot:x:{USER}:\n").into()),
        // Without it the C library asks the network before /etc/hosts.
        file("etc/nsswitch.conf", 0o644, b"hosts: files dns\n".to_vec()),
    ];
    for library in libraries(binary)? {
        let path = library.strip_prefix("/").unwrap_or(&library).display().to_string();
        files.push(file(&path, 0o755, read(&library)?));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn file(path: &str, mode: u32, content: Vec<u8>) -> File {
    File { path: path.to_owned(), mode, content }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

fn certificates() -> Result<Vec<u8>> {
    let Some(bundle) = BUNDLES.iter().map(Path::new).find(|it| it.exists()) else {
        bail!("this machine has no bundle of CA certificates: install the package ca-certificates");
    };
    read(bundle)
}

/// The shared libraries that a binary is loaded with, the loader included.
fn libraries(binary: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(binary).output().context("run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        // A static binary has none, and ldd reports that as a failure on either stream.
        let is_static =
            |it: &str| it.contains("statically linked") || it.contains("not a dynamic executable");
        if is_static(&text) || is_static(&error) {
            return Ok(Vec::new());
        }
        bail!("ldd {} failed: {}", binary.display(), error.trim());
    }
    parse_ldd(&text)
}

fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        if let Some((name, "not found")) = line.trim().split_once(" => ") {
            bail!("this machine does not have the library {name}, which the binary needs");
        }
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        // The kernel's own object has no path.
        if let Some(path) = path.split_whitespace().next().filter(|it| it.starts_with('/')) {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LDD: &str = "\tlinux-vdso.so.1 (0x00007ffd)\n\
        \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f01)\n\
        \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f02)\n\
        \t/lib64/ld-linux-x86-64.so.2 (0x00007f03)\n";

    #[test]
    fn libraries_and_loader_are_read_from_ldd() {
        let expected = [
            "/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse_ldd(LDD).unwrap(), expected.map(PathBuf::from));
        assert_eq!(parse_ldd("\tstatically linked\n").unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn missing_library_is_an_error_with_its_name() {
        let error = parse_ldd("\tlibssl.so.3 => not found\n").unwrap_err().to_string();
        assert!(error.contains("libssl.so.3"), "{error}");
    }
}
