//! The shell blocks of the pages that need only a sandbox, run as a reader would run them.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::support::{Folder, bare, said};

/// The mark of a block that this test runs.
const MARK: &str = "<!-- runs: shell_blocks_of_the_sandbox_run -->";
const QUICKSTART: &str = "docs/quickstart.md";
const IN_CI: &str = "docs/how-to/test-manifests.md";
/// What the commands of a job begin with.
const JOB: &str = "coder-operator sandbox -- ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The shell blocks of a page, each with the last line of text before it.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut before = String::new();
    let mut block: Option<String> = None;
    for line in page.lines() {
        match block.as_mut() {
            Some(text) if line == "```" => {
                blocks.push((before.clone(), std::mem::take(text)));
                block = None;
            }
            Some(text) => {
                text.push_str(line);
                text.push('\n');
            }
            None if line == "```sh" => block = Some(String::new()),
            None if !line.is_empty() => line.clone_into(&mut before),
            None => {}
        }
    }
    blocks
}

/// A reader's folder, with our binary on the search path and manifests.
fn reader(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    let programs = folder.0.join("bin");
    fs::create_dir(&programs).unwrap();
    symlink(env!("CARGO_BIN_EXE_coder-operator"), programs.join("coder-operator")).unwrap();
    symlink(root().canonicalize().unwrap().join("examples/demo/state"), folder.0.join("manifests")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    (folder, path)
}

/// Runs a script in a shell, with input for the programs that it starts.
fn run(name: &str, script: &str, input: &str) -> Output {
    let (folder, path) = reader(name);
    let environment = bare(&[]);
    let mut shell = Command::new("sh");
    for (variable, value) in environment.get_envs() {
        match value {
            Some(value) => shell.env(variable, value),
            None => shell.env_remove(variable),
        };
    }
    shell.args(["-euc", script]).env("PATH", path).current_dir(&folder.0);
    let mut shell =
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    shell.wait_with_output().unwrap()
}

#[test]
fn shell_blocks_of_the_sandbox_run() {
    let quickstart = blocks(&page(QUICKSTART));
    assert!(quickstart.len() >= 7, "{quickstart:?}");
    let [(_, first), rest @ ..] = quickstart.as_slice() else { panic!("{quickstart:?}") };
    assert_eq!(first, "coder-operator sandbox -- sh\n");
    assert!(quickstart.iter().all(|(mark, _)| mark == MARK), "every block is run: {quickstart:?}");
    let rest: String = rest.iter().map(|(_, block)| block.as_str()).collect();
    // The first block starts a shell, and the others are typed into that.
    let output = run("docs-quickstart", first, &format!("set -eux\n{rest}echo the end\n"));
    let words = said(&output);
    assert!(output.status.success() && words.contains("\nthe end\n"), "{words}");
    for expected in [
        "3 applied in ",
        "1 to change, 2 equal",
        "1 refused, 2 equal",
        "Team Alpha and Partners",
        "+ test 3 -eq 3",
        "+ test 4 -eq 4",
    ] {
        assert!(words.contains(expected), "{expected:?}: {words}");
    }
}

/// The pages that begin with a deployment that is in use.
const GUIDES: [&str; 4] = [
    "docs/how-to/existing-deployment.md",
    "docs/how-to/setup-scripts.md",
    "docs/how-to/take-over-coder-k8s.md",
    "docs/how-to/terraform.md",
];

#[test]
fn guides_run_on_a_deployment_that_is_in_use() {
    for guide in GUIDES {
        let blocks = blocks(&page(guide)).into_iter().filter(|(mark, _)| mark == MARK);
        let script: String = blocks.map(|(_, block)| block).collect();
        assert!(script.contains("coder-operator export "), "{guide}: {script}");
        let author = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com";
        let before = format!("{author}\ncoder-operator apply -q -f manifests/ --yes --url \"$CODER_URL\"\n");
        let name = guide.replace('/', "-");
        let output = run(
            &name,
            "coder-operator sandbox -- sh\n",
            &format!("set -eux\n{before}{script}echo the end\n"),
        );
        let words = said(&output);
        assert!(output.status.success() && words.contains("\nthe end\n"), "{guide}: {words}");
        assert!(words.contains("not exported: CoderProvisioner"), "{guide}: {words}");
    }
}

#[test]
fn commands_of_ci_jobs_apply_and_verify() {
    let page = page(IN_CI);
    let in_blocks = blocks(&page).into_iter().map(|(mark, block)| {
        assert_eq!(mark, MARK);
        block
    });
    let in_jobs =
        page.lines().filter_map(|it| it.split_once(JOB)).filter(|(before, _)| before.contains("- "));
    let in_jobs = in_jobs.map(|(_, rest)| format!("{JOB}{rest}\n"));
    let scripts: Vec<String> = in_blocks.chain(in_jobs).collect();
    assert_eq!(scripts.len(), 3, "a block, a GitHub job and a GitLab job: {scripts:?}");
    for script in scripts {
        let output = run("docs-ci", &script, "");
        assert!(output.status.success() && said(&output).contains("\n7 equal\n"), "{}", said(&output));
        let broken = run("docs-ci-broken", &script.replace("manifests/", "nowhere/"), "");
        assert_eq!(broken.status.code(), Some(2), "{}", said(&broken));
    }
}
