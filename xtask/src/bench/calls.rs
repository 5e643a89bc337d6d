//! A proxy in front of a coderd that counts the requests that pass.
//!
//! Bytes are passed on as they are; only the head of each request is read. So the proxy costs little beside what is measured,
//! also where it is built without optimizations.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

/// More than any head of a request has.
const LONGEST_HEAD: usize = 64 * 1024;

/// A request to coderd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) method: String,
    /// The path without its query.
    pub(super) path: String,
    /// The name of the object that the body describes.
    pub(super) subject: Option<String>,
    pub(super) sent: Timestamp,
    /// When the last byte of the answer so far came; `None` until the first.
    pub(super) answered: Option<Timestamp>,
}

impl Call {
    /// Returns how long coderd took, in milliseconds.
    pub(super) fn milliseconds(&self) -> f64 {
        let answered = self.answered.unwrap_or(self.sent);
        answered.duration_since(self.sent).as_secs_f64() * 1e3
    }
}

#[derive(Debug, Default)]
struct Seen {
    calls: Mutex<Vec<Call>>,
    /// The bytes of all answers.
    received: AtomicU64,
}

impl Seen {
    /// Adds a call, and returns its index.
    fn add(&self, call: Call) -> usize {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(call);
        calls.len() - 1
    }

    /// Notes that bytes of an answer came.
    fn add_answer(&self, index: Option<usize>, count: usize) {
        self.received.fetch_add(u64::try_from(count).unwrap_or_default(), Ordering::Relaxed);
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = index.and_then(|it| calls.get_mut(it)) {
            call.answered = Some(Timestamp::now());
        }
    }
}

/// A running proxy. Dropping it closes its port.
#[derive(Debug)]
pub(super) struct CallCounter {
    pub(super) url: String,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

impl Drop for CallCounter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl CallCounter {
    /// Starts a proxy for the coderd at that URL, which has no certificate.
    pub(super) async fn start(coderd: &str) -> Result<Self> {
        let address = coderd.strip_prefix("http://").context("coderd of the bed answers by plain HTTP")?;
        let address = address.trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for requests to coderd")?;
        let url = format!("http://{}", listener.local_addr().context("read the address of the proxy")?);
        let seen = Arc::<Seen>::default();
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                let (address, seen) = (address.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    // A connection that ends early is seen by its two ends.
                    join(inner, &address, seen).await.ok();
                });
            }
        });
        Ok(Self { url, seen, task })
    }

    /// Returns the number of calls so far.
    pub(super) fn count(&self) -> usize {
        self.seen.calls.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the calls after the first so many.
    pub(super) fn since(&self, count: usize) -> Vec<Call> {
        let calls = self.seen.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get(count..).unwrap_or_default().to_vec()
    }

    /// Returns the bytes of all answers so far.
    pub(super) fn received(&self) -> u64 {
        self.seen.received.load(Ordering::Relaxed)
    }
}

/// Passes the bytes of a connection on in both directions.
async fn join(client: TcpStream, address: &str, seen: Arc<Seen>) -> Result<()> {
    let server = tokio::time::timeout(Duration::from_secs(10), TcpStream::connect(address))
        .await
        .context("coderd takes no connection")??;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The call of this connection that is not answered yet: a client sends the next one afterwards.
    let current = Arc::new(Mutex::new(None));
    let answers = tokio::spawn(pass_answers(from_server, to_client, Arc::clone(&current), Arc::clone(&seen)));
    let passed = pass_requests(from_client, to_server, &current, &seen).await;
    answers.await??;
    passed
}

async fn pass_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    current: &Mutex<Option<usize>>,
    seen: &Seen,
) -> Result<()> {
    let mut buffer = Vec::with_capacity(8192);
    loop {
        let Some(head) = read_head(&mut from, &mut buffer).await? else { return Ok(()) };
        while buffer.len() < head.end + head.length {
            if from.read_buf(&mut buffer).await? == 0 {
                bail!("a request ended in its middle");
            }
        }
        let whole = buffer.drain(..head.end + head.length).collect::<Vec<u8>>();
        let body = whole.get(head.end..).unwrap_or_default();
        let call = Call {
            method: head.method,
            path: head.path,
            subject: subject(body),
            sent: Timestamp::now(),
            answered: None,
        };
        let index = seen.add(call);
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(index);
        to.write_all(&whole).await?;
    }
}

async fn pass_answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    current: Arc<Mutex<Option<usize>>>,
    seen: Arc<Seen>,
) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let index = *current.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add_answer(index, count);
        to.write_all(buffer.get(..count).unwrap_or_default()).await?;
    }
}

/// The head of a request.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    method: String,
    path: String,
    /// Where the body begins.
    end: usize,
    /// The length of the body.
    length: usize,
}

/// Reads until a whole head is in the buffer. `None` where the connection ends before the next one.
async fn read_head(from: &mut OwnedReadHalf, buffer: &mut Vec<u8>) -> Result<Option<Head>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|it| it == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(buffer.get(..end).unwrap_or_default()).into_owned();
            return parse_head(&text, end + 4).map(Some);
        }
        if buffer.len() > LONGEST_HEAD {
            bail!("a request has no end of its head");
        }
        if from.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn parse_head(text: &str, end: usize) -> Result<Head> {
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target)) = (first.next(), first.next()) else { bail!("not an HTTP request") };
    let mut length = 0;
    for (name, value) in lines.filter_map(|it| it.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().context("read the length of a request")?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") || name.eq_ignore_ascii_case("upgrade") {
            bail!("the proxy passes neither chunked requests nor upgrades on");
        }
    }
    let path = target.split('?').next().unwrap_or_default();
    Ok(Head { method: method.to_owned(), path: path.to_owned(), end, length })
}

/// Returns the field `name` of a JSON body.
fn subject(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body["name"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_has_method_path_and_length() {
        let text = "POST /api/v2/keys?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 12";
        let head = parse_head(text, 70).unwrap();
        let expected =
            Head { method: "POST".to_owned(), path: "/api/v2/keys".to_owned(), end: 70, length: 12 };
        assert_eq!(head, expected);
        assert!(parse_head("POST / HTTP/1.1\r\nTransfer-Encoding: chunked", 40).is_err());
    }

    #[test]
    fn subject_is_the_name_in_the_body() {
        assert_eq!(subject(br#"{"name": "alpha", "tags": {}}"#).as_deref(), Some("alpha"));
        assert_eq!(subject(b"no JSON"), None);
    }

    #[tokio::test]
    async fn requests_of_one_connection_are_counted_and_passed_on() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut connection, _) = server.accept().await.unwrap();
            let mut buffer = Vec::new();
            while connection.read_buf(&mut buffer).await.unwrap() > 0 {
                connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            }
        });
        let proxy = CallCounter::start(&format!("http://{address}")).await.unwrap();
        let mut client = TcpStream::connect(proxy.url.trim_start_matches("http://")).await.unwrap();
        let mut answer = [0; 27];
        for request in ["GET /a?b=c HTTP/1.1\r\n\r\n", "POST /d HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"] {
            client.write_all(request.as_bytes()).await.unwrap();
            client.read_exact(&mut answer).await.unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 204"));
        }
        let calls = proxy.since(0);
        let shown: Vec<String> = calls.iter().map(|it| format!("{} {}", it.method, it.path)).collect();
        assert_eq!(shown, ["GET /a", "POST /d"]);
        assert!(calls.iter().all(|it| it.answered.is_some()));
        assert_eq!((proxy.count(), proxy.received()), (2, 54));
    }
}
