//! `sandbox`: a Coder in memory on a loopback address, to try manifests on.
//!
//! [`deployment`] opens the deployment, [`server`] answers for it, [`page`] shows it to people.

mod caller;
mod deployment;
mod guard;
mod page;
mod server;
mod state_file;

use std::{
    ffi::{OsStr, OsString},
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::ExitStatusExt as _,
    time::Duration,
};

use anyhow::{Context as _, Result};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::Sandbox,
    cli::{
        exit::{Exit, Failure},
        terminal::{WARNING, print, say, say_as},
    },
};
use server::Served;
use state_file::StateFile;

/// How long open requests may take after the sandbox was told to stop.
const LAST_REQUESTS: Duration = Duration::from_secs(2);

/// The numbers of SIGINT and SIGTERM.
const INTERRUPT: u8 = 2;
const TERMINATE: u8 = 15;

/// Serves a deployment until SIGINT or SIGTERM, or for as long as a command runs.
pub(super) async fn sandbox(args: &Sandbox, quiet: bool) -> Result<Exit, Failure> {
    let mut signals = Signals::new().context("listen for signals")?;
    let listener = listen(args.port).await?;
    let address = listener.local_addr().context("find the port of the sandbox")?;
    let url = format!("http://{address}");
    let file = args.state.clone().map(|path| StateFile::new(path, args.save));
    let coder = deployment::open(args.license, file.as_ref(), &url).await?;
    let token = deployment::token(&coder)?;
    let served = Served::new(coder, &address, file);
    let stopping = CancellationToken::new();
    let server = axum::serve(listener, server::router(served.clone()))
        .with_graceful_shutdown(stopping.clone().cancelled_owned());
    let mut server = tokio::spawn(server.into_future());
    let saving = tokio::spawn(served.clone().keep_saving());
    if !quiet {
        announce(&url, args);
    }
    let mut command = None;
    if let Some((program, rest)) = args.command.split_first() {
        command = Some(start(program, rest, &url, &token)?);
    } else {
        let token = token.expose_secret();
        print(&format!("export CODER_URL={url}\nexport CODER_SESSION_TOKEN={token}\n"))
            .context("print the address and the token of the sandbox")?;
    }
    let exit = tokio::select! {
        number = signals.stop() => match command.as_mut() {
            Some(command) => interrupt(command, number).await?,
            None => Exit::Success,
        },
        ended = ended(command.as_mut()) => ended?,
        served = &mut server => return Err(anyhow::anyhow!("the sandbox stopped serving: {served:?}").into()),
    };
    stopping.cancel();
    tokio::time::timeout(LAST_REQUESTS, server).await.ok();
    saving.abort();
    served.save()?;
    if !quiet {
        say(if args.save {
            "sandbox stopped; its state is saved"
        } else {
            "sandbox stopped; its state is gone"
        });
    }
    Ok(exit)
}

/// Starts a command that finds the sandbox in its environment.
fn start(program: &OsStr, args: &[OsString], url: &str, token: &SecretString) -> Result<Child, Failure> {
    let mut command = Command::new(program);
    command.args(args).env("CODER_URL", url).env("CODER_SESSION_TOKEN", token.expose_secret());
    for variable in ["NO_PROXY", "no_proxy"] {
        // No proxy leads to this machine's own loopback.
        let others = std::env::var(variable).unwrap_or_default();
        let separator = if others.is_empty() { "" } else { "," };
        command.env(variable, format!("{others}{separator}{}", Ipv4Addr::LOCALHOST));
    }
    command.kill_on_drop(true).spawn().map_err(|error| {
        Failure::usage(format!("cannot run {}: {error}: give a program and its arguments", program.display()))
    })
}

/// Ends the command of a sandbox that was told to stop. The exit code is that of a program which the signal ended: what the command
/// was to check is not checked.
async fn interrupt(command: &mut Child, number: u8) -> Result<Exit> {
    // On a terminal the command has the signal, too.
    if tokio::time::timeout(LAST_REQUESTS, command.wait()).await.is_err() {
        command.kill().await.context("end the command")?;
    }
    Ok(Exit::OfCommand(128 + number))
}

/// How the command ended. Never returns without one.
async fn ended(command: Option<&mut Child>) -> Result<Exit> {
    let Some(command) = command else { return std::future::pending().await };
    let status = command.wait().await.context("wait for the command")?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(Exit::OfCommand(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Listens on loopback and nowhere else.
async fn listen(port: u16) -> Result<TcpListener, Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.map_err(|error| {
        Failure::from(anyhow::anyhow!(
            "cannot listen at {address}: {error}: give another --port, or none to use a free one"
        ))
    })
}

fn announce(url: &str, args: &Sandbox) {
    say_as(
        WARNING,
        "SANDBOX",
        &format!(
            "this is not Coder. {url} imitates Coder's API in memory, for the routes that coder-operator uses; its \
             version ends in `{}`",
            deployment::BUILD
        ),
    );
    let end = match &args.state {
        Some(path) if args.save => format!("the state is saved in {}", path.display()),
        _ => "the state is lost when the sandbox stops".to_owned(),
    };
    say(&format!("See the state and change it by hand at {url}/"));
    if args.command.is_empty() {
        say(&format!(
            "Paste the next two lines into another shell, then run `coder-operator apply -f manifests/ --url \
             \"$CODER_URL\"`\nStop with Ctrl-C; {end}"
        ));
    }
}

/// The signals that stop the sandbox.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Returns the number of the signal when the process is told to stop.
    async fn stop(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPT,
            _ = self.terminate.recv() => TERMINATE,
        }
    }
}
