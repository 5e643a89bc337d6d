//! A coderd with a database and a first user of its own: the shipped binary, or the licensed test harness.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    kubernetes::{answers, http},
    parts::Parts,
    postgres::create_database,
    process::{Launch, Process},
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
    pub url: String,
    /// A session token of the first user, who is an owner.
    pub token: String,
    /// The first user's password, made for this server.
    pub password: String,
    /// Where licences are signed; only on a licensed one.
    pub licenses: Option<String>,
    /// Its database.
    pub database: String,
    process: Process,
}

#[derive(Deserialize)]
struct Addresses {
    url: String,
    licenses: String,
}

impl Coderd {
    /// Starts a coderd on a new database and signs its first user in.
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
        let password = format!("Bed-{}", uuid::Uuid::new_v4());
        let token = sign_in_first_user(&url, &password)
            .await
            .with_context(|| format!("coderd's log ends:\n{}", process.last_words()))?;
        Ok(Self { url, token, password, licenses, database, process })
    }

    /// Sends a JSON request as the first user, and returns the status and the answer.
    pub async fn request(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        request(&self.url, &self.token, method, path, body).await
    }

    /// The server's process id.
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }
}

/// Sends a JSON request to a coderd, and returns the status and the answer.
pub async fn request(
    url: &str,
    token: &str,
    method: reqwest::Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(u16, Value)> {
    let mut request =
        http()?.request(method.clone(), format!("{url}{path}")).header("Coder-Session-Token", token);
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await.with_context(|| format!("{method} {path} at {url}"))?;
    let status = answer.status().as_u16();
    let text = answer.text().await.with_context(|| format!("read the answer to {method} {path}"))?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
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
    let mut lines = BufReader::new(output).lines();
    let announced = async {
        while let Some(line) = lines.next_line().await? {
            if let Ok(addresses) = serde_json::from_str::<Addresses>(&line) {
                return Ok(addresses);
            }
        }
        bail!("the licensed coderd ended while it started:\n{}", process.last_words())
    };
    let addresses = tokio::time::timeout(Duration::from_mins(2), announced)
        .await
        .context("the licensed coderd did not come up within two minutes")??;
    // Test frameworks may print later; a full pipe would stop the server.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((process, addresses))
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

/// Makes the first user of a coderd that has none, and returns a session token.
pub async fn sign_in_first_user(url: &str, password: &str) -> Result<String> {
    let user =
        json!({"email": FIRST_USER_EMAIL, "username": FIRST_USER_NAME, "password": password, "trial": false});
    let (status, answer) =
        request(url, "", reqwest::Method::POST, "/api/v2/users/first", Some(&user)).await?;
    if status != 201 {
        bail!("create the first user at {url}: {status}: {answer}");
    }
    let login = json!({"email": FIRST_USER_EMAIL, "password": password});
    let (status, answer) =
        request(url, "", reqwest::Method::POST, "/api/v2/users/login", Some(&login)).await?;
    match answer.get("session_token").and_then(Value::as_str) {
        Some(token) => Ok(token.to_owned()),
        None => bail!("sign the first user in at {url}: {status}"),
    }
}
