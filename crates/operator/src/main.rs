//! `coder-operator`: the doors to the engine. Today the command line; thin, with no decision of its own.
//!
//! Standard output is data, standard error is for people. Nothing here knows what a kind is: that is the engine's.

mod args;
mod cluster;
mod deployment;
mod exit;
mod manifests;
mod render;
mod run;
mod terminal;
mod verbs;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let done = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime.block_on(verbs::run(args)),
        Err(error) => Err(exit::Failure::from(anyhow::Error::from(error).context("start a runtime"))),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            terminal::say(&format!("error: {:#}", failure.error));
            failure.exit.into()
        }
    }
}
