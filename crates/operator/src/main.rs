//! `coder-operator`: the command line and the controllers, thin over the engine.
//!
//! Standard output is data, standard error is for people.

mod address;
mod args;
mod cluster;
mod deployment;
mod exit;
mod fence;
mod lookup;
mod manifests;
mod render;
mod run;
mod secrets;
mod terminal;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args = args::Args::read();
    let done = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => {
            let done = runtime.block_on(verbs::run(args));
            // A question may still wait for its answer.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(exit::Failure::from(anyhow::Error::from(error).context("start a runtime"))),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            terminal::say_as(terminal::ERROR, "error", &format!("{:#}", failure.error));
            failure.exit.into()
        }
    }
}
