//! `cargo xtask ci-check`: the GitHub action, and the workflow of the docs that uses it, checked with actionlint.

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result};
use testbed::cache;

use crate::{
    bed::{exit_code, root},
    terminal::say,
};

const MODULE: &str = "github.com/rhysd/actionlint/cmd/actionlint";
const VERSION: &str = "v1.7.7";
/// The page with the workflow.
const PAGE: &str = "docs/how-to/ci.md";
const ACTION: &str = "deploy/ci/github";
/// The action as the workflow of the page names it.
const PUBLISHED: &str = "coder-operator/coder-operator/deploy/ci/github@main";

pub(crate) fn run() -> Result<ExitCode> {
    let Some(program) = actionlint()? else {
        say("skipped: actionlint cannot be had here, because Go or its module proxy is missing");
        return Ok(ExitCode::SUCCESS);
    };
    let page = fs::read_to_string(root().join(PAGE)).with_context(|| format!("read {PAGE}"))?;
    let workflow =
        workflow(&page).with_context(|| format!("{PAGE} has no workflow that uses {PUBLISHED}"))?;
    let folder = root().join("target/ci-check");
    let (workflows, action) = (folder.join(".github/workflows"), folder.join(ACTION));
    for folder in [&workflows, &action] {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::copy(root().join(ACTION).join("action.yml"), action.join("action.yml")).context("copy the action")?;
    fs::write(workflows.join("coder.yml"), workflow).context("write the workflow")?;
    // actionlint finds actions from the root of a repository.
    let made = Command::new("git").args(["init", "--quiet"]).current_dir(&folder).status();
    made.context("make a repository with git")?;
    let status = Command::new(program).current_dir(&folder).stdin(Stdio::null()).status();
    Ok(exit_code(status.context("run actionlint")?))
}

/// The program, built from its Go module once into the cache. `None` where that is not possible.
fn actionlint() -> Result<Option<PathBuf>> {
    let folder = cache::folder()?.join("tools").join(format!("actionlint-{VERSION}"));
    let program = folder.join("actionlint");
    if program.exists() {
        return Ok(Some(program));
    }
    say(&format!("building actionlint {VERSION} from its Go module, once"));
    let built = Command::new("go")
        .args(["install", &format!("{MODULE}@{VERSION}")])
        .env("GOBIN", &folder)
        .stdin(Stdio::null())
        .status();
    Ok(built.is_ok_and(|it| it.success()).then_some(program))
}

/// The workflow of a page, with the action of this tree.
fn workflow(page: &str) -> Option<String> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|it| it.split("```").next());
    let block = blocks.into_iter().find(|it| it.contains(PUBLISHED))?;
    Some(format!("on: pull_request\n{}", block.replace(PUBLISHED, &format!("./{ACTION}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflow_of_the_docs_uses_the_action_of_this_tree() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        let workflow = workflow(&page).unwrap();
        assert!(
            workflow.starts_with("on: ") && workflow.contains("uses: ./deploy/ci/github\n"),
            "{workflow}"
        );
        assert!(workflow.contains("verb: plan"), "{workflow}");
        assert_eq!(super::workflow("no block"), None);
    }
}
