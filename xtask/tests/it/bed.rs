//! The bed's commands on real parts: what they print, and what is left when they are gone.

mod demo;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Far more than anything here takes, also where everything is slow; only a failure ever waits this long.
const LIMIT: Duration = Duration::from_mins(4);

fn up() -> (Child, Value) {
    let mut bed = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["bed", "up"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(bed.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (bed, serde_json::from_str(&line).unwrap())
}

/// The folder of a bed, from its line.
fn folder(info: &Value) -> PathBuf {
    Path::new(info["kubeconfig"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// The processes that carry the mark of the bed in that folder.
fn processes(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let mark = format!("BED_RUN={}", name.strip_prefix("coder-operator-bed-").unwrap());
    let marked = |process: &PathBuf| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    all.filter(marked).map(|it| fs::read_to_string(it.join("comm")).unwrap_or_default()).collect()
}

fn assert_nothing_stays(folder: &Path) {
    let deadline = Instant::now() + LIMIT;
    while folder.exists() || !processes(folder).is_empty() {
        assert!(Instant::now() < deadline, "{} stays, with {:?}", folder.display(), processes(folder));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a pod whose process has cleared its environment, and returns the process.
fn start_disguised_pod(info: &Value) -> PathBuf {
    let kubectl = |args: &[&str]| {
        let mut command = Command::new(info["kubectl"].as_str().unwrap());
        let output =
            command.args(args).env("KUBECONFIG", info["kubeconfig"].as_str().unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    kubectl(&["create", "namespace", "disguise"]);
    kubectl(&["wait", "--namespace=disguise", "--for=create", "serviceaccount/default", "--timeout=240s"]);
    kubectl(&[
        "run",
        "disguised",
        "--namespace=disguise",
        "--image=bed/host",
        "--command",
        "--",
        "env",
        "-i",
        "sleep",
        "1000",
    ]);
    kubectl(&["wait", "--namespace=disguise", "--for=condition=Ready", "pod/disguised", "--timeout=240s"]);
    let path = "jsonpath={.status.containerStatuses[0].containerID}";
    let id = kubectl(&["get", "--namespace=disguise", "pod", "disguised", "-o", path]);
    Path::new("/proc").join(id.strip_prefix("bed://").unwrap())
}

#[test]
fn a_killed_owner_leaves_no_process_and_no_folder() {
    let (mut bed, info) = up();
    let folder = folder(&info);
    assert!(processes(&folder).len() >= 6, "{:?}", processes(&folder));
    let disguised = start_disguised_pod(&info);
    assert!(disguised.exists());
    bed.kill().unwrap();
    bed.wait().unwrap();
    assert_nothing_stays(&folder);
    // One that is dead and that nobody has asked about yet has no command line any more.
    assert!(!fs::read_to_string(disguised.join("cmdline")).is_ok_and(|it| it.starts_with("sleep")));
}

#[test]
fn a_command_in_the_bed_ends_with_a_killed_owner() {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["bed", "exec", "--", "sh", "-c", "echo \"$KUBECONFIG\"; sleep 1000 & wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let folder = Path::new(line.trim()).parent().unwrap().to_owned();
    let deadline = Instant::now() + LIMIT;
    while !processes(&folder).contains(&"sleep\n".to_owned()) {
        assert!(Instant::now() < deadline, "the command never started: {:?}", processes(&folder));
        std::thread::sleep(Duration::from_millis(20));
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_nothing_stays(&folder);
}

#[test]
fn a_bed_says_where_everything_is_and_ends_when_its_input_closes() {
    let (mut bed, info) = up();
    for path in
        ["/kubectl", "/coder/url", "/coder/token", "/licensed/url", "/licensed/token", "/licensed/licenses"]
    {
        assert!(info.pointer(path).is_some_and(Value::is_string), "{path} of {info}");
    }
    assert!(info["postgres"].as_str().unwrap().starts_with("postgres://"));
    drop(bed.stdin.take());
    assert!(bed.wait().unwrap().success());
    assert_nothing_stays(&folder(&info));
}

#[test]
fn a_command_in_the_bed_finds_it_in_its_environment_and_its_exit_code_is_ours() {
    let script = r#"
        "$KUBECTL" version -o json && curl -sf "$BED_CODER_URL/healthz" >/dev/null \
        && curl -sf -H "Coder-Session-Token: $BED_LICENSED_TOKEN" "$BED_LICENSED_URL/api/v2/users/me" >/dev/null \
        && license=$(curl -sf -X POST "$BED_LICENSES_URL" -d '{"feature_set":"premium"}') \
        && curl -sf -H "Coder-Session-Token: $BED_LICENSED_TOKEN" "$BED_LICENSED_URL/api/v2/licenses" \
            -d "{\"license\":\"$license\"}" >/dev/null && command -v xtask >/dev/null && exit 7"#;
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["bed", "exec", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    let versions: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(versions["serverVersion"]["gitVersion"], "v1.36.3");
    assert_eq!(versions["clientVersion"]["gitVersion"], "v1.36.3");
}

#[test]
fn install_manifests_are_what_the_chart_renders() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["installgen", "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
