//! Which requests of a browser are answered: those for our own address, and changes only from our own page.
//!
//! A page of another site can send requests to loopback, and by DNS rebinding even under a host name of its own.

use std::net::SocketAddr;

use axum::http::{HeaderMap, header};

/// The port that is left out of an address.
const DEFAULT_PORT: u16 = 80;

/// The names under which the sandbox is reached.
#[derive(Debug, Clone)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    pub(super) fn of(address: &SocketAddr) -> Self {
        let names = [address.ip().to_string(), "localhost".to_owned()];
        let port = address.port();
        let mut hosts: Vec<String> = names.iter().map(|it| format!("{it}:{port}")).collect();
        if port == DEFAULT_PORT {
            hosts.extend(names);
        }
        Self(hosts)
    }

    /// Why a request is not answered. `None` for one that is addressed to the sandbox.
    pub(super) fn refusal(&self, headers: &HeaderMap) -> Option<&'static str> {
        let host = text(headers, header::HOST.as_str()).to_ascii_lowercase();
        (!self.0.contains(&host)).then_some("the sandbox answers only at its own address: use CODER_URL")
    }

    /// Why a request may not change anything through the page. `None` for one of the page itself.
    pub(super) fn refusal_of_change(&self, headers: &HeaderMap) -> Option<&'static str> {
        let origin = text(headers, header::ORIGIN.as_str());
        let is_own = origin.strip_prefix("http://").is_some_and(|it| self.0.iter().any(|host| host == it));
        let is_json = text(headers, header::CONTENT_TYPE.as_str()) == "application/json";
        (!is_own || !is_json)
            .then_some("only the page of the sandbox may do this: use the API with the token")
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn hosts() -> Hosts {
        Hosts::of(&"127.0.0.1:4000".parse().unwrap())
    }

    #[test]
    fn only_our_own_address_is_answered() {
        for own in ["127.0.0.1:4000", "localhost:4000", "LOCALHOST:4000"] {
            assert_eq!(hosts().refusal(&headers(&[("host", own)])), None, "{own}");
        }
        for other in ["evil.example:4000", "127.0.0.1", "127.0.0.1:4001", "127.0.0.1.evil.example:4000", ""] {
            assert!(hosts().refusal(&headers(&[("host", other)])).is_some(), "{other}");
        }
        assert!(hosts().refusal(&HeaderMap::new()).is_some());
        let default = Hosts::of(&"127.0.0.1:80".parse().unwrap());
        assert_eq!(default.refusal(&headers(&[("host", "localhost")])), None);
    }

    #[test]
    fn only_our_own_page_changes_anything() {
        let json = ("content-type", "application/json");
        let own = ("origin", "http://127.0.0.1:4000");
        assert_eq!(hosts().refusal_of_change(&headers(&[own, json])), None);
        for other in [
            &[json][..],
            &[own],
            &[own, ("content-type", "text/plain")],
            &[("origin", "http://evil.example"), json],
            &[("origin", "https://127.0.0.1:4000"), json],
            &[("origin", "null"), json],
            &[("origin", "http://127.0.0.1:4001"), json],
        ] {
            assert!(hosts().refusal_of_change(&headers(other)).is_some(), "{other:?}");
        }
    }
}
