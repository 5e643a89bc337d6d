//! `coder-operator`: the doors to the engine. Today the command line; thin, with no decision of its own.
//!
//! Standard output is data, standard error is for people. Nothing here knows what a kind is: that is the engine's.

mod args;
mod cluster;
mod deployment;
mod exit;
mod lookup;
mod manifests;
mod render;
mod run;
mod secrets;
mod terminal;
mod verbs;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let done = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => {
            let done = runtime.block_on(verbs::run(args));
            // A question that nobody will answer any more must not be waited for.
            runtime.shutdown_background();
            done
        }
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
