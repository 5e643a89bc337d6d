//! The project's own commands: everything with a branch or a loop that is not the product.
//!
//! One file per verb. Data goes to standard output, words for people to standard error.

mod api_check;
mod bed;
mod crdgen;
mod demo;
mod docsgen;
mod generated;
mod terminal;
mod test;
mod tidy;

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
    /// Build, start and look after the bed of real parts
    #[command(subcommand)]
    Bed(bed::Verb),
    /// Show the quickstart: a Coder that runs in a cluster of real parts
    Demo(demo::Args),
    /// Run every test, on a bed that is started once
    Test(test::Args),
    /// Check what goodwill does not: sizes, headers, directions, secrets, generated files
    Tidy,
    /// Write the files under `docs/reference`
    Docsgen,
    /// Write the files under `deploy/crds`
    Crdgen,
    /// Compare what the client sends and reads with the API document of the pinned Coder
    ApiCheck,
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Bed(verb) => bed::run(verb),
        Verb::Demo(args) => demo::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Tidy => tidy::run(),
        Verb::Docsgen => generated::write(&generated::DOCS),
        Verb::Crdgen => generated::write(&generated::CRDS),
        Verb::ApiCheck => api_check::run(),
    };
    done.unwrap_or_else(|error| {
        terminal::say(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}
