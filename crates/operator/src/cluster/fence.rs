//! Stops writes of a process that may not act any more.
//!
//! A leader that was frozen finds its work where it left it, and a reconcile goes on before anything tells it that another one
//! leads by now. So every write, to Kubernetes and to coderd, asks the clock first.

use std::sync::{Arc, PoisonError, RwLock};

use client::{Guard, routes::Route};
use tokio::time::Instant;

const CLOSED: &str = "this operator does not hold the Lease any more";

/// Whether writes may be sent. Clones share the answer.
#[derive(Debug, Clone)]
pub(crate) struct Fence(Arc<RwLock<Until>>);

/// Until when writes may be sent.
#[derive(Debug, Clone, Copy)]
enum Until {
    Always,
    Then(Instant),
}

impl Fence {
    /// Lets every write through: there is no election.
    pub(crate) fn open() -> Self {
        Self(Arc::new(RwLock::new(Until::Always)))
    }

    /// Lets no write through until told otherwise.
    pub(crate) fn closed() -> Self {
        Self(Arc::new(RwLock::new(Until::Then(Instant::now()))))
    }

    /// Lets writes through until then.
    pub(crate) fn open_until(&self, then: Instant) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Until::Then(then);
    }

    /// Says why no write may be sent now. `None` while one may.
    pub(crate) fn refusal_now(&self) -> Option<&'static str> {
        match *self.0.read().unwrap_or_else(PoisonError::into_inner) {
            Until::Then(then) if Instant::now() >= then => Some(CLOSED),
            Until::Then(_) | Until::Always => None,
        }
    }
}

impl Guard for Fence {
    fn refusal(&self, route: &Route) -> Option<&'static str> {
        if route.method().is_safe() { None } else { self.refusal_now() }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use axum::{Router, http::Method};
    use client::{Client, ClientOptions, HttpOptions, HttpTransport};
    use secrecy::SecretString;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn client_behind_a_closed_fence_sends_no_write() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let methods = Arc::clone(&sent);
        let answer = move |method: Method| {
            methods.lock().unwrap().push(method);
            async { "[]" }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
        let transport = Arc::new(HttpTransport::new(HttpOptions::default()).unwrap());
        let anonymous = Client::new(ClientOptions { url, token: None, transport }).unwrap();
        let fence = Fence::closed();
        // As a control plane is proved: the fence is there before the token.
        let fenced = anonymous.guarded_by(Arc::new(fence.clone()));
        let client = fenced.with_token(SecretString::from("token")).unwrap();

        client.list_organizations().await.unwrap();
        let refused = client.delete_provisioner_key(Uuid::nil(), "alpha").await.unwrap_err();
        assert!(refused.words().contains(CLOSED), "{refused}");
        assert_eq!(*sent.lock().unwrap(), [Method::GET]);
        fence.open_until(Instant::now() + Duration::from_mins(1));
        client.delete_provisioner_key(Uuid::nil(), "alpha").await.ok();
        assert!(sent.lock().unwrap().contains(&Method::DELETE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_closes_by_itself_when_nobody_extends_it() {
        let fence = Fence::closed();
        assert_eq!(fence.refusal_now(), Some(CLOSED));
        fence.open_until(Instant::now() + Duration::from_secs(10));
        assert_eq!(fence.clone().refusal_now(), None);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(fence.refusal_now(), Some(CLOSED));
        assert_eq!(Fence::open().refusal_now(), None);
    }
}
