//! The shell blocks of the pages, run as a reader would run them.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{
    licensed,
    stage::{Stage, is_ready, plane},
};
use crate::support::{Folder, said};

/// The mark of a block that this test runs.
const MARK: &str = "<!-- runs: shell_blocks_of_the_docs_run -->";
/// It begins with nothing but a cluster and a token, and removes what it made. The other pages begin with a control plane.
const IN_A_CLUSTER: &str = "docs/in-a-cluster.md";

/// The marked blocks of a page, one after the other.
fn script(path: &str, text: &str) -> String {
    let mut script = String::new();
    let (mut is_marked, mut is_code) = (false, false);
    for (index, line) in text.lines().enumerate() {
        match (line.trim() == MARK, line.starts_with("```")) {
            (true, _) if !is_code => is_marked = true,
            (_, true) if is_code => (is_marked, is_code) = (false, false),
            (_, true) => {
                is_code = true;
                if is_marked {
                    writeln!(script, "echo '== {path}:{}'", index + 2).unwrap();
                }
            }
            _ if is_marked && is_code => {
                script.push_str(line);
                script.push('\n');
            }
            _ => {}
        }
    }
    script
}

/// Every page, with its path from the root.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("docs")];
    let mut paths = vec![root.join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let named = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(named).collect()
}

/// What a reader has: kubectl, coder-operator, a context with a namespace, and the variables that the pages name.
fn reader(stage: &Stage, folder: &Folder) -> Vec<(String, String)> {
    let bed = testbed::shared().unwrap();
    let programs = folder.0.join("bin");
    fs::create_dir(&programs).unwrap();
    symlink(&bed.kubectl, programs.join("kubectl")).unwrap();
    for name in ["coder-operator", "kubectl-coder_operator"] {
        symlink(env!("CARGO_BIN_EXE_coder-operator"), programs.join(name)).unwrap();
    }
    let mut kubeconfig: Value = serde_json::from_str(&fs::read_to_string(&bed.kubeconfig).unwrap()).unwrap();
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(stage.namespace);
    let kubeconfig = folder.write("kubeconfig", &kubeconfig.to_string());
    let owner = &stage.coderd.owner;
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let own = [
        ("PATH", path),
        ("HOME", folder.0.display().to_string()),
        ("KUBECONFIG", kubeconfig),
        ("CODER_URL", owner.url.clone()),
        ("CODER_SESSION_TOKEN", owner.token.clone()),
        // Pages about the bed change its licensed coderd; here that is the test's own.
        ("BED_LICENSED_URL", owner.url.clone()),
        ("BED_LICENSED_TOKEN", owner.token.clone()),
        ("BED_LICENSES_URL", stage.coderd.licenses.clone().unwrap()),
        ("NO_PROXY", "127.0.0.0/8".to_owned()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    bed.variables().into_iter().chain(own).collect()
}

async fn run(path: &str, text: &str, variables: &[(String, String)]) {
    let script = script(path, text);
    if script.is_empty() {
        return;
    }
    let folder = Folder::new(&format!("docs-{}", path.replace('/', "-")));
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", &script]).current_dir(&folder.0).envs(variables.iter().cloned());
    let output = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{path}: {}\n{}", output.status, said(&output));
}

#[tokio::test]
async fn shell_blocks_of_the_docs_run() {
    let stage = Stage::bare(licensed().await).await;
    let folder = Folder::new("docs-reader");
    let variables = reader(&stage, &folder);
    let (first, others): (Vec<_>, Vec<_>) = pages().into_iter().partition(|it| it.0 == IN_A_CLUSTER);
    for (path, text) in &first {
        assert!(script(path, text).contains("kubectl wait"), "the first page has blocks that run");
        run(path, text, &variables).await;
    }
    stage.write_token(&stage.coderd.owner.token).await;
    stage.apply(&plane("main", &stage.coderd.owner.url)).await;
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    for (path, text) in &others {
        run(path, text, &variables).await;
    }
}

#[test]
fn only_marked_blocks_are_run() {
    let page =
        format!("{MARK}\n```sh\none\n```\n\n```sh\ntwo\n```\n\n<!-- not run: x -->\n```sh\nthree\n```\n");
    assert_eq!(script("a.md", &page), "echo '== a.md:3'\none\n");
}
