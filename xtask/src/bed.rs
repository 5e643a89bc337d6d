//! `cargo xtask bed`: the bed of real parts, by hand.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus, Stdio},
};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use testbed::{Bed, BedInfo, Options, cache, parts, parts::Parts, run};
use tokio::signal::unix::{SignalKind, signal};

use crate::terminal::{print, say};

/// The image that the chart names, without registry and tag.
pub(crate) const OPERATOR_IMAGE: &str = "coder-operator/coder-operator";

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Start the bed, print where everything is as one line of JSON, stay until standard input closes
    Up,
    /// Start the bed around one command, which finds it in its environment
    Exec {
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Build or find every part, and start nothing
    Build,
    /// Show which parts are built and which beds are running
    Status,
    /// Remove built parts and kept logs
    Clean,
}

pub(crate) fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Up => up(),
        Verb::Exec { command } => exec(&command),
        Verb::Build => build(),
        Verb::Status => status(),
        Verb::Clean => clean(),
    }
}

/// Starts a bed and keeps it for as long as the work takes. The logs outlive a failure.
pub(crate) fn with_bed<W>(work: impl FnOnce(BedInfo) -> W) -> Result<ExitCode>
where
    W: Future<Output = Result<ExitCode>>,
{
    with_bed_of(None, work)
}

/// The same with that version of Coder instead of the pinned one.
pub(crate) fn with_bed_of<W>(coder: Option<&str>, work: impl FnOnce(BedInfo) -> W) -> Result<ExitCode>
where
    W: Future<Output = Result<ExitCode>>,
{
    with_whole_bed(coder, Options { coderds: true }, async |bed| work(bed.info().clone()).await)
}

/// The same for work that starts processes on the bed.
pub(crate) fn with_whole_bed(
    coder: Option<&str>,
    options: Options,
    work: impl AsyncFnOnce(&Bed) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let parts = Parts::ensure_with(coder, &say)?;
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    runtime.block_on(async {
        let started = std::time::Instant::now();
        let mut terminated = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let bed = tokio::select! {
            bed = Bed::start(&parts, options) => bed?,
            _ = interrupted(&mut terminated) => return Ok(ExitCode::FAILURE),
        };
        say(&format!("the bed is ready after {:.1} s", started.elapsed().as_secs_f64()));
        let done = tokio::select! {
            done = work(&bed) => done,
            // Being told to end is an end like any other: there is nothing to look for in the logs.
            signal = interrupted(&mut terminated) => return Ok(ExitCode::from(128 + signal)),
        };
        if !matches!(done, Ok(ExitCode::SUCCESS))
            && let Ok(kept) = bed.keep_logs()
        {
            say(&format!("the bed's logs are in {}", kept.display()));
        }
        done
    })
}

/// Ends when somebody asks this process to end, with the number of the signal.
async fn interrupted(terminated: &mut tokio::signal::unix::Signal) -> u8 {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => 2,
        _ = terminated.recv() => 15,
    }
}

fn up() -> Result<ExitCode> {
    with_bed(async |info| {
        print(&serde_json::to_string(&info)?)?;
        let (sender, closed) = tokio::sync::oneshot::channel();
        // A thread of our own: the runtime would wait for a read of its own when we are interrupted.
        std::thread::spawn(move || {
            std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).ok();
            sender.send(()).ok();
        });
        closed.await.ok();
        Ok(ExitCode::SUCCESS)
    })
}

fn exec(command: &[String]) -> Result<ExitCode> {
    let binaries = build_own_binaries()?;
    let (program, args) = command.split_first().context("a command to run")?;
    with_bed(async |info| {
        info.add_image(OPERATOR_IMAGE, &binaries.join("coder-operator"))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tools = [&info.kubectl, &info.helm].into_iter().filter_map(|it| it.parent()).map(Path::to_owned);
        let path = [binaries].into_iter().chain(tools).chain(std::env::split_paths(&path));
        let path = std::env::join_paths(path).context("put our binaries on PATH")?;
        let status = tokio::process::Command::new(program)
            .args(args)
            .env("PATH", path)
            .envs(info.variables())
            .envs(info.proxy_variables())
            .env(run::MARKER, &info.run)
            .kill_on_drop(true)
            .status()
            .await
            .with_context(|| format!("run {program}"))?;
        Ok(exit_code(status))
    })
}

/// Builds the workspace's binaries and returns where they are: beside this one.
pub(crate) fn build_own_binaries() -> Result<PathBuf> {
    build_binaries(&["--workspace", "--bins"])
}

/// The same for the product's binary alone.
pub(crate) fn build_operator() -> Result<PathBuf> {
    build_binaries(&["--package", "operator", "--bin", "coder-operator"])
}

fn build_binaries(which: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .arg("build")
        .args(which)
        .current_dir(root())
        .stdout(Stdio::null())
        .status()
        .context("build our own binaries with cargo")?;
    if !status.success() {
        bail!("our own binaries do not build");
    }
    let this = std::env::current_exe().context("find our own binaries")?;
    Ok(this.parent().context("a binary is in a folder")?.to_owned())
}

fn build() -> Result<ExitCode> {
    let parts = Parts::ensure(&say)?;
    say(&format!(
        "every part is there: Coder {}, Terraform at {}",
        parts.coder_version,
        parts.terraform.display()
    ));
    Ok(ExitCode::SUCCESS)
}

fn status() -> Result<ExitCode> {
    say(&format!("cache: {}", cache::folder()?.display()));
    for part in parts::states()? {
        let state = part.built.map_or_else(|| "not built".to_owned(), |path| path.display().to_string());
        print(&format!("part {:24} {state}", part.name))?;
    }
    for running in run::living()? {
        print(&format!("bed  {:24} owned by process {}", running.id, running.owner))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn clean() -> Result<ExitCode> {
    for removed in parts::clean(&say)? {
        say(&format!("removed {}", removed.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The exit code of a command, as a shell would say it.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// The workspace's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."))
}
