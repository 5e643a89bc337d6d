//! The image, made and unpacked as somebody would who has no container engine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The image of the operator that this build made.
fn archive(folder: &Path) -> PathBuf {
    let archive = folder.join("image.tar");
    // The test binary is in `deps`, the operator beside that folder.
    let built = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("coder-operator");
    let binary = folder.join("coder-operator");
    let stripped = Command::new("strip").arg("-o").arg(&binary).arg(&built).status().unwrap();
    assert!(stripped.success(), "strip {}", built.display());
    let made = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["image", "--binary"])
        .arg(&binary)
        .arg("--output")
        .arg(&archive)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    archive
}

fn untar(archive: &Path, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let status = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(folder).status().unwrap();
    assert!(status.success());
}

fn json(folder: &Path, path: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.join(path)).unwrap()).unwrap()
}

/// The blob that a descriptor names.
fn blob(descriptor: &Value) -> String {
    descriptor["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/")
}

#[test]
fn image_runs_the_operator_as_a_user_without_a_shell() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image");
    fs::remove_dir_all(&folder).ok();
    let layout = folder.join("layout");
    fs::create_dir_all(&folder).unwrap();
    let archive = archive(&folder);
    untar(&archive, &layout);
    let manifest = json(&layout, &blob(&json(&layout, "index.json")["manifests"][0]));
    let config = json(&layout, &blob(&manifest["config"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
    let files = folder.join("files");
    untar(&layout.join(blob(&manifest["layers"][0])), &files);
    assert!(!files.join("bin/sh").exists() && !files.join("usr/bin/sh").exists());

    // As root a changed root is enough; everybody else gets one in a namespace of their own.
    let entrypoint = config["config"]["Entrypoint"][0].as_str().unwrap();
    let is_root = fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    let mut inside = if is_root {
        let mut command = Command::new("chroot");
        command.arg("--userspec=65532:65532");
        command
    } else {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "chroot"]);
        command
    };
    let output = inside
        .arg(&files)
        .args([entrypoint, "--version"])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin")
        .output();
    let output = output.unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(
        answer.contains(env!("CARGO_PKG_VERSION")),
        "{answer}{}",
        String::from_utf8_lossy(&output.stderr)
    );

    if let Ok(inspected) =
        Command::new("skopeo").arg("inspect").arg(format!("oci-archive:{}", archive.display())).output()
    {
        assert!(inspected.status.success(), "{}", String::from_utf8_lossy(&inspected.stderr));
        let told: Value = serde_json::from_slice(&inspected.stdout).unwrap();
        assert_eq!(told["Labels"]["org.opencontainers.image.title"], "coder-operator");
        assert_eq!(told["Os"], "linux");
    }
    fs::remove_dir_all(&folder).unwrap();
}
