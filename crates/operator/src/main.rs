//! `coder-operator`: the command line and the controllers, thin over the engine.
//!
//! Standard output is data, standard error is for people.

mod args;
mod cli;
mod cluster;
mod connect;
mod controller;
mod index;
mod lease;
mod planes;
mod sent;
mod telemetry;

use std::process::ExitCode;

use cli::{exit, terminal, verbs};
use tikv_jemallocator::Jemalloc;

/// Returns memory to the system after the first lists of a restart; glibc's allocator keeps it. `.cargo/config.toml` has the
/// settings.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The stack of a worker thread, as large as that of a main thread: a reconcile is a deep chain of calls, and in builds without
/// optimisation its frames are large.
const STACK: usize = 8 * 1024 * 1024;

fn main() -> ExitCode {
    let args = args::Args::read();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let done = match runtime.worker_threads(2).thread_stack_size(STACK).enable_all().build() {
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
