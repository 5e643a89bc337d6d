//! Files of other hosts, by their addresses. No token of Coder goes there.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use crate::{
    address::AddressPolicy,
    scrub::clean,
    transport::{HttpOptions, HttpTransport, Transport, TransportOptionsError},
};

/// How many redirects are followed.
const MOST_REDIRECTS: usize = 5;
/// How many files are held in memory at a time. One of the largest size takes 50 MB while it is unpacked and packed again.
const MOST_AT_A_TIME: usize = 2;

/// Reads files of other hosts. Every address is checked, those of redirects too.
#[derive(Debug, Clone)]
pub struct Downloads {
    transport: Arc<dyn Transport>,
    addresses: AddressPolicy,
    permits: Arc<Semaphore>,
}

/// The permit to hold the bytes of a file in memory.
#[derive(Debug)]
pub struct DownloadPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Downloads {
    pub fn new(addresses: AddressPolicy) -> Result<Self, TransportOptionsError> {
        let transport = HttpTransport::new(HttpOptions { authority: None, addresses })?;
        Ok(Self::over(Arc::new(transport), addresses))
    }

    /// The same over another transport.
    pub fn over(transport: Arc<dyn Transport>, addresses: AddressPolicy) -> Self {
        Self { transport, addresses, permits: Arc::new(Semaphore::new(MOST_AT_A_TIME)) }
    }

    /// Waits until the bytes of another file may be held in memory, by this value and its clones together. The permit is kept as
    /// long as the bytes. No caller waits for a second one while it has the first.
    pub async fn permit(&self) -> DownloadPermit {
        // The semaphore is never closed.
        DownloadPermit { _permit: Arc::clone(&self.permits).acquire_owned().await.ok() }
    }

    /// Reads a file. The token is sent to the origin of the address, and to no other that a redirect names. The error says what
    /// failed, without the query of an address and without the token.
    pub async fn get(&self, url: &Url, token: Option<&SecretString>) -> Result<Vec<u8>, String> {
        let mut at = url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let fail = |why: &str| format!("GET {}: {}", shown(&at), cleaned(why, token));
            self.check(&at).map_err(|why| fail(&why))?;
            let own = token.filter(|_| at.origin() == url.origin());
            let request = request(&at, own).map_err(|why| fail(&why))?;
            let answer = self.transport.send(request).await.map_err(|error| fail(&error.to_string()))?;
            let status = answer.status();
            if status.is_success() {
                return Ok(answer.into_body().to_vec());
            }
            if !status.is_redirection() {
                return Err(fail(&format!("the server answered {}", status.as_u16())));
            }
            let location = answer.headers().get(header::LOCATION).and_then(|it| it.to_str().ok());
            let next = location.and_then(|it| at.join(it).ok());
            at = next.ok_or_else(|| fail("the redirect names no address"))?;
        }
        Err(format!("GET {}: there are more than {MOST_REDIRECTS} redirects", shown(url)))
    }

    fn check(&self, url: &Url) -> Result<(), String> {
        let is_allowed = match self.addresses {
            AddressPolicy::Any => ["http", "https"].contains(&url.scheme()),
            AddressPolicy::NotLocal => url.scheme() == "https",
        };
        if !is_allowed {
            return Err(format!("the address is not allowed: {} is not used here, use https", url.scheme()));
        }
        let checked = self.addresses.check_url(url);
        checked.map_err(|why| format!("the address is not allowed: {why}"))
    }
}

fn cleaned(words: &str, token: Option<&SecretString>) -> String {
    let secrets: Vec<&str> = token.iter().map(|it| it.expose_secret()).collect();
    clean(words, &secrets)
}

/// An address without what may be secret in it.
fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|it| format!(":{it}")).unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path())
}

fn request(url: &Url, token: Option<&SecretString>) -> Result<http::Request<Bytes>, String> {
    let mut request = http::Request::get(url.as_str());
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()));
        let mut value = value.map_err(|_| "the token cannot be put into a header".to_owned())?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    request.body(Bytes::new()).map_err(|_| "the address cannot be put into a request".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::transport::{BoxFuture, TransportError};

    const TOKEN: &str = "archive-token-0123456789";

    /// Answers with the next of the answers, and records what was asked.
    #[derive(Debug, Default)]
    struct Script {
        answers: Mutex<Vec<(u16, String)>>,
        asked: Mutex<Vec<(String, bool)>>,
    }

    impl Transport for Script {
        fn send(
            &self,
            request: http::Request<Bytes>,
        ) -> BoxFuture<'_, Result<http::Response<Bytes>, TransportError>> {
            let has_token = request.headers().contains_key(header::AUTHORIZATION);
            self.asked.lock().unwrap().push((request.uri().to_string(), has_token));
            let (status, text) = self.answers.lock().unwrap().remove(0);
            let answer = http::Response::builder().status(status).header(header::LOCATION, text.clone());
            Box::pin(async move { Ok(answer.body(text.into()).unwrap()) })
        }
    }

    async fn get(
        url: &str,
        addresses: AddressPolicy,
        answers: &[(u16, &str)],
    ) -> (Result<Vec<u8>, String>, Vec<(String, bool)>) {
        let script = Arc::new(Script::default());
        *script.answers.lock().unwrap() =
            answers.iter().map(|(it, text)| (*it, (*text).to_owned())).collect();
        let downloads = Downloads::over(Arc::clone(&script) as _, addresses);
        let answer = downloads.get(&url.parse().unwrap(), Some(&TOKEN.into())).await;
        let asked = script.asked.lock().unwrap().clone();
        (answer, asked)
    }

    #[tokio::test]
    async fn redirects_are_followed_and_the_token_stays_at_its_origin() {
        let answers = [(302, "/b"), (307, "https://other.example/c"), (200, "file")];
        let (answer, asked) = get("https://one.example/a", AddressPolicy::NotLocal, &answers).await;
        assert_eq!(answer, Ok(b"file".to_vec()));
        let asked: Vec<(&str, bool)> = asked.iter().map(|(url, it)| (url.as_str(), *it)).collect();
        assert_eq!(
            asked,
            [
                ("https://one.example/a", true),
                ("https://one.example/b", true),
                ("https://other.example/c", false)
            ]
        );
    }

    #[tokio::test]
    async fn refused_addresses_are_not_asked_by_redirects_either() {
        for bad in [
            "http://one.example/a",
            "https://127.0.0.1/a",
            "https://[::1]/a",
            "https://169.254.169.254/latest/meta-data",
            "https://metadata.google.internal/a",
            "https://localhost/a",
            "file:///etc/passwd",
        ] {
            let (answer, asked) = get(bad, AddressPolicy::NotLocal, &[]).await;
            assert!(answer.unwrap_err().contains("the address is not allowed"), "{bad}");
            assert_eq!(asked, []);
            let (answer, asked) = get("https://one.example/a", AddressPolicy::NotLocal, &[(302, bad)]).await;
            assert!(answer.unwrap_err().contains("the address is not allowed"), "{bad}");
            assert_eq!(asked.len(), 1, "{bad}");
        }
        let (answer, _) = get("http://127.0.0.1:1/a", AddressPolicy::Any, &[(200, "file")]).await;
        assert!(answer.is_ok(), "a person's own command line reads what the person names");
        let (answer, asked) = get("file:///etc/passwd", AddressPolicy::Any, &[]).await;
        assert!(answer.is_err() && asked.is_empty());
    }

    #[tokio::test]
    async fn failures_name_the_address_without_its_query_and_without_the_token() {
        let url = "https://one.example/a?sig=hunter2";
        for answers in [vec![(404, TOKEN)], vec![(302, "https://[")], vec![(302, "/a?sig=hunter2"); 6]] {
            let (answer, _) = get(url, AddressPolicy::NotLocal, &answers).await;
            let why = answer.unwrap_err();
            assert!(why.starts_with("GET https://one.example/a: "), "{why}");
            assert!(!why.contains("hunter2") && !why.contains(TOKEN), "{why}");
        }
    }
}
