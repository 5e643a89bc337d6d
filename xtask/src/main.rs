//! The project's own commands: everything with a branch or a loop that is not the product.
//!
//! One file per verb. Data goes to standard output, words for people to standard error.

#![allow(clippy::disallowed_methods, reason = "the commands have no port")]

mod api_check;
mod bed;
mod bench;
mod chart;
mod ci_check;
mod crdgen;
mod demo;
mod deny;
mod docs;
mod docsgen;
mod fmt;
mod generated;
mod gitopsgen;
mod image;
mod installgen;
mod rbac_usage;
mod rbacgen;
mod release;
mod terminal;
mod test;
mod tidy;
mod tool;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build, start, list and remove beds: the real programs that tests run on
    #[command(subcommand)]
    Bed(bed::Verb),
    /// Show the product in seconds on the sandbox: plan, apply, drift, approval
    Demo(demo::Args),
    /// Run every test, on a bed that is started once
    Test(test::Args),
    /// Measure on a bed what the operator costs, beside the goals: seconds, requests, CPU time, memory
    Bench(bench::Args),
    /// Format the sources
    Fmt(fmt::Args),
    /// Check sizes, headers, words, dependencies between crates, reasons, pages, secrets and generated files
    Tidy,
    /// Build the book of the pages under `docs` into `target/book`
    Docs,
    /// Write the files under `docs/reference`
    Docsgen,
    /// Write the files under `deploy/crds`, and their templates in the chart
    Crdgen(crdgen::Args),
    /// Write the manifests of `deploy/kustomize` and `deploy/install.yaml` from the chart
    Installgen(installgen::Args),
    /// Write the files under `deploy/rbac`, and the chart's template of them
    Rbacgen,
    /// Write the files for Argo CD and Flux: `deploy/argocd/argocd-cm.yaml` and `deploy/flux`
    Gitopsgen,
    /// Build the container image as an OCI archive; needs no container engine
    Image(image::Args),
    /// Collect what a release consists of in one folder: binary, image, chart, install.yaml, CRDs, checksums, SBOM
    Release(release::Args),
    /// Check the licences, bans, sources and advisories of our dependencies
    Deny,
    /// Compare what the client sends and reads with the API document of the pinned Coder
    ApiCheck,
    /// Check the GitHub action, and the workflow of the docs that uses it, with actionlint
    CiCheck,
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Bed(verb) => bed::run(verb),
        Verb::Demo(args) => demo::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Fmt(args) => fmt::run(&args),
        Verb::Tidy => tidy::run(),
        Verb::Docs => docs::run(),
        Verb::Docsgen => generated::write(&generated::DOCS),
        Verb::Crdgen(args) => crdgen::run(&args),
        Verb::Installgen(args) => installgen::run(&args),
        Verb::Rbacgen => generated::write(&generated::RBAC),
        Verb::Gitopsgen => generated::write(&generated::GITOPS),
        Verb::Image(args) => image::run(&args),
        Verb::Release(args) => release::run(&args),
        Verb::Deny => deny::run(),
        Verb::ApiCheck => api_check::run(),
        Verb::CiCheck => ci_check::run(),
    };
    done.unwrap_or_else(|error| {
        terminal::say(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}
