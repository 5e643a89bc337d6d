//! One PostgreSQL server for a bed, with a database for each coderd.

use std::{net::SocketAddr, path::Path, process::Command};

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpStream;

use crate::{
    parts::{Parts, PostgresTools},
    process::{Launch, Process, last_words},
    run::{MARKER, Run},
};

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    address: SocketAddr,
    _process: Process,
}

impl Postgres {
    /// Makes a cluster in the run's folder and serves it on loopback, trusting everybody who can reach it.
    pub async fn start(run: &Run, parts: &Parts) -> Result<Self> {
        let user = server_user()?;
        let folder = run.folder("postgres")?;
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid))
                .with_context(|| format!("give {} to PostgreSQL's user", folder.display()))?;
        }
        let data = folder.join("data");
        initialise(run, &parts.postgres, &data, user).await?;
        let address = run.addresses().free_port()?;
        let settings = [
            format!("listen_addresses={}", address.ip()),
            format!("port={}", address.port()),
            format!("unix_socket_directories={}", folder.display()),
            "fsync=off".to_owned(),
            "synchronous_commit=off".to_owned(),
            "full_page_writes=off".to_owned(),
            "max_connections=1000".to_owned(),
            "shared_buffers=128MB".to_owned(),
            // Segments in the data folder go with it; those in /dev/shm would outlive a killed server.
            "dynamic_shared_memory_type=mmap".to_owned(),
        ];
        let mut args = vec!["-D".to_owned(), data.display().to_string()];
        args.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
        let binary = parts.postgres.program("postgres");
        let launch =
            Launch { name: "postgres", binary: &binary, args, env: Vec::new(), user, read_output: false };
        let mut process = Process::start(run, launch)?;
        let ready = parts.postgres.program("pg_isready");
        process
            .ready(|| async {
                // The port opens before the server takes connections, so its own tool has the last word.
                TcpStream::connect(address).await.is_ok() && accepts(&ready, address).await
            })
            .await?;
        Ok(Self { address, _process: process })
    }

    /// The server's address, as the URL of its maintenance database.
    pub fn url(&self) -> String {
        database_url(self.address, "postgres")
    }
}

/// Makes an empty database on the server that a URL names, and returns the new one's URL.
pub async fn create_database(tools: &PostgresTools, server_url: &str) -> Result<String> {
    let name = format!("coder_{}", uuid::Uuid::new_v4().simple());
    let output = tokio::process::Command::new(tools.program("createdb"))
        .args(["--template=template0", "--maintenance-db"])
        .args([server_url, name.as_str()])
        .env_clear()
        .output()
        .await
        .context("run createdb")?;
    if !output.status.success() {
        bail!("create a database at {server_url}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let (server, options) = server_url.rsplit_once('/').context("a PostgreSQL URL names a database")?;
    let options = options.split_once('?').map_or("", |(_, options)| options);
    Ok(format!("{server}/{name}?{options}"))
}

fn database_url(address: SocketAddr, name: &str) -> String {
    format!("postgres://postgres@{address}/{name}?sslmode=disable")
}

async fn accepts(pg_isready: &Path, address: SocketAddr) -> bool {
    tokio::process::Command::new(pg_isready)
        .args(["--quiet", "--host", &address.ip().to_string(), "--port", &address.port().to_string()])
        .status()
        .await
        .is_ok_and(|status| status.success())
}

async fn initialise(run: &Run, tools: &PostgresTools, data: &Path, user: Option<(u32, u32)>) -> Result<()> {
    let mut command = tokio::process::Command::new(tools.program("initdb"));
    command
        .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync", "-D"])
        .arg(data)
        .current_dir("/")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env(MARKER, run.id())
        .kill_on_drop(true);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    let output = command.output().await.context("run initdb")?;
    if !output.status.success() {
        bail!("initdb failed:\n{}", last_words(&output.stderr));
    }
    Ok(())
}

/// The user that the server runs as: PostgreSQL refuses to be root.
fn server_user() -> Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    for user in ["postgres", "nobody"] {
        if let (Some(uid), Some(gid)) = (id("-u", user), id("-g", user)) {
            return Ok(Some((uid, gid)));
        }
    }
    bail!("PostgreSQL refuses to run as root, and there is neither a user `postgres` nor `nobody`: add one")
}

fn id(which: &str, user: &str) -> Option<u32> {
    let output = Command::new("id").args([which, user]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
