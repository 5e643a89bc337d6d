//! A coderd with a database and a first user of its own: the shipped binary, or the licensed test harness.

mod template;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    sync::oneshot,
};

use crate::{
    kubernetes::{answers, http},
    parts::Parts,
    postgres::create_database,
    process::{Launch, Process, READY_WITHIN},
    run::Run,
};

/// Who the first user is. The account exists only in databases that a bed made.
pub const FIRST_USER_EMAIL: &str = "admin@bed.test";
/// What the first user is called.
pub const FIRST_USER_NAME: &str = "admin";

/// Which of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// The enterprise binary as it is shipped; it has no licence and takes only Coder's own.
    Shipped,
    /// The same API around Coder's own test harness, which takes licences that it signed itself.
    Licensed,
}

/// A running coderd. Dropping it ends the process.
#[derive(Debug)]
pub struct Coderd {
    /// The first user, signed in.
    pub owner: Session,
    /// The first user's password, made for this server.
    pub password: String,
    /// Where licences are signed; only on a licensed one.
    pub licenses: Option<String>,
    /// Its database.
    pub database: String,
    process: Process,
}

/// A running coderd that has no user yet. Dropping it ends the process.
#[derive(Debug)]
pub struct FreshCoderd {
    pub url: String,
    /// Where licences are signed; only on a licensed one.
    pub licenses: Option<String>,
    /// Its database.
    pub database: String,
    process: Process,
}

/// A signed-in user of a coderd.
#[derive(Clone)]
pub struct Session {
    pub url: String,
    pub token: String,
    http: reqwest::Client,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Session").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Addresses {
    url: String,
    licenses: String,
}

impl Coderd {
    /// Starts a coderd on a new database and signs its first user in.
    pub async fn start(run: &Run, parts: &Parts, server_url: &str, flavour: Flavour) -> Result<Self> {
        let FreshCoderd { url, licenses, database, process } =
            FreshCoderd::start(run, parts, server_url, flavour).await?;
        let password = format!("Bed-{}", uuid::Uuid::new_v4());
        let owner = Session::first_user(http()?, &url, &password)
            .await
            .with_context(|| format!("coderd's log ends:\n{}", process.last_words()))?;
        Ok(Self { owner, password, licenses, database, process })
    }

    /// The server's process id.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }
}

impl FreshCoderd {
    /// Starts a coderd on a new database.
    pub async fn start(run: &Run, parts: &Parts, server_url: &str, flavour: Flavour) -> Result<Self> {
        let database = create_database(&parts.postgres, server_url).await?;
        let (process, url, licenses) = match flavour {
            Flavour::Shipped => {
                let (process, url) = start_shipped(run, parts, &database).await?;
                (process, url, None)
            }
            Flavour::Licensed => {
                let (process, addresses) = start_licensed(run, parts, &database).await?;
                (process, addresses.url, Some(addresses.licenses))
            }
        };
        Ok(Self { url, licenses, database, process })
    }

    /// The server's process id.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }
}

impl Session {
    /// A session by its token.
    pub fn new(http: reqwest::Client, url: &str, token: &str) -> Self {
        Self { url: url.to_owned(), token: token.to_owned(), http }
    }

    /// Makes the first user of a coderd that has none, and signs in.
    pub async fn first_user(http: reqwest::Client, url: &str, password: &str) -> Result<Self> {
        let session = Self { url: url.to_owned(), token: String::new(), http };
        let user = json!({"email": FIRST_USER_EMAIL, "username": FIRST_USER_NAME, "password": password, "trial": false});
        let (status, answer) = session.request(Method::POST, "/api/v2/users/first", Some(&user)).await?;
        if status != 201 {
            bail!("create the first user at {url}: {status}: {answer}");
        }
        Self::sign_in(session.http, url, FIRST_USER_EMAIL, password).await
    }

    /// Signs a user in who is there already.
    pub async fn sign_in(http: reqwest::Client, url: &str, email: &str, password: &str) -> Result<Self> {
        let mut session = Self { url: url.to_owned(), token: String::new(), http };
        let login = json!({"email": email, "password": password});
        let (status, answer) = session.request(Method::POST, "/api/v2/users/login", Some(&login)).await?;
        match answer.get("session_token").and_then(Value::as_str) {
            Some(token) => token.clone_into(&mut session.token),
            None => bail!("sign {email} in at {url}: {status}"),
        }
        Ok(session)
    }

    /// Sends a JSON request, and returns the status and the answer.
    pub async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let mut request = self.start(method.clone(), path);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.with_context(|| format!("{method} {path} at {}", self.url))?;
        let status = answer.status().as_u16();
        let text = answer.text().await.with_context(|| format!("read the answer to {method} {path}"))?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// A request that carries the session, to be completed by the caller.
    pub fn start(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).header("Coder-Session-Token", &self.token)
    }
}

/// Asks the harness for a licence, as `POST` to its `licenses` address with these words.
pub async fn sign_license(licenses: &str, wanted: &Value) -> Result<String> {
    let answer = http()?.post(licenses).json(wanted).send().await.context("ask for a licence")?;
    let status = answer.status();
    let text = answer.text().await.context("read the licence")?;
    if !status.is_success() {
        bail!("sign a licence: {status}: {}", text.trim());
    }
    Ok(text.trim().to_owned())
}

async fn start_shipped(run: &Run, parts: &Parts, database: &str) -> Result<(Process, String)> {
    let (name, home) = name_and_home(run, "coderd")?;
    let address = run.addresses().free_port()?;
    let url = format!("http://{address}");
    let settings = [
        ("CODER_PG_CONNECTION_URL", database),
        ("CODER_HTTP_ADDRESS", &address.to_string()),
        ("CODER_ACCESS_URL", &url),
        ("CODER_TELEMETRY_ENABLE", "false"),
        ("CODER_UPDATE_CHECK", "false"),
        ("CODER_DERP_SERVER_STUN_ADDRESSES", "disable"),
        ("CODER_PROVISIONER_DAEMONS", "0"),
        ("CODER_CONFIG_DIR", &format!("{home}/config")),
        ("CODER_CACHE_DIRECTORY", &format!("{home}/cache")),
        ("HOME", &home),
    ];
    let mut process = Process::start(
        run,
        Launch {
            name: &name,
            binary: &parts.coder,
            args: vec!["server".to_owned()],
            env: owned(&settings),
            user: None,
            read_output: false,
        },
    )?;
    let health = format!("{url}/healthz");
    process.ready(|| answers(&health)).await?;
    Ok((process, url))
}

async fn start_licensed(run: &Run, parts: &Parts, database: &str) -> Result<(Process, Addresses)> {
    let (name, home) = name_and_home(run, "coderd-licensed")?;
    let address = run.addresses().free_port()?;
    let settings = [
        ("CODER_PG_CONNECTION_URL", database),
        ("CODER_HTTP_ADDRESS", &address.to_string()),
        ("CODER_ACCESS_URL", &format!("http://{address}")),
        ("BED_LICENSES_ADDRESS", &run.addresses().free_port()?.to_string()),
        ("HOME", &home),
        ("TMPDIR", &home),
    ];
    let mut process = Process::start(
        run,
        Launch {
            name: &name,
            binary: &parts.coder_licensed,
            args: licensed_arguments().map(str::to_owned).to_vec(),
            env: owned(&settings),
            user: None,
            read_output: true,
        },
    )?;
    let output = process.take_output().context("the harness's output is piped")?;
    let mut log = process.open_log()?;
    let (sender, announced) = oneshot::channel();
    // What is not the line is the test's log. It is read to the end: a full pipe would stop the server.
    tokio::spawn(async move {
        let mut sender = Some(sender);
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).await.is_ok_and(|count| count > 0) {
            match (serde_json::from_slice::<Addresses>(&line), sender.take()) {
                (Ok(addresses), Some(sender)) => drop(sender.send(addresses)),
                (_, unsent) => {
                    sender = unsent;
                    log.write_all(&line).ok();
                }
            }
            line.clear();
        }
    });
    match tokio::time::timeout(READY_WITHIN, announced).await {
        Ok(Ok(addresses)) => Ok((process, addresses)),
        Ok(Err(_)) => bail!("the licensed coderd ended while it started:\n{}", process.last_words()),
        Err(_) => {
            let waited = READY_WITHIN.as_secs();
            bail!("the licensed coderd was not there after {waited} s:\n{}", process.last_words())
        }
    }
}

/// What makes the compiled test a server that stays.
pub(crate) fn licensed_arguments() -> [&'static str; 4] {
    ["-test.run", "^TestServe$", "-test.timeout", "0"]
}

fn name_and_home(run: &Run, kind: &str) -> Result<(String, String)> {
    let name = format!("{kind}-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let home = run.folder(&name)?;
    Ok((name, home.display().to_string()))
}

fn owned(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}
