//! Access on real coderds: how a token is come by, renewed and given up, also when something breaks in between.

mod account;
mod own;

use std::sync::{Arc, Mutex};

use client::{Client, ClientOptions, HttpOptions, HttpTransport};
use engine::{
    Blocked, Trouble,
    control_plane::access::{Record, TokenNames, Vault},
};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};

/// A Secret in memory that can be made to refuse a write.
#[derive(Default)]
struct Kept {
    record: Mutex<Record>,
    token: Mutex<Option<SecretString>>,
    refuses_tokens: Mutex<bool>,
}

impl Kept {
    fn record(&self) -> Record {
        self.record.lock().unwrap().clone()
    }

    fn token(&self) -> Option<SecretString> {
        self.token.lock().unwrap().clone()
    }

    fn id(&self) -> Option<String> {
        self.token().map(|it| it.expose_secret().split('-').next().unwrap().to_owned())
    }

    fn refuse_tokens(&self, refuse: bool) {
        *self.refuses_tokens.lock().unwrap() = refuse;
    }
}

impl Vault for Kept {
    async fn store(&self, record: &Record, token: Option<&SecretString>) -> Result<(), Trouble> {
        if token.is_some() && *self.refuses_tokens.lock().unwrap() {
            let message = "the Secret cannot be written".to_owned();
            return Err(Trouble::Blocked(Blocked { reason: api::Reason::Error, message }));
        }
        *self.record.lock().unwrap() = record.clone();
        if let Some(token) = token {
            *self.token.lock().unwrap() = Some(token.clone());
        }
        Ok(())
    }
}

fn anonymous(url: &str) -> Client {
    let transport = Arc::new(HttpTransport::new(HttpOptions::default()).unwrap());
    Client::new(ClientOptions { url: url.parse().unwrap(), token: None, transport }).unwrap()
}

fn names() -> TokenNames {
    TokenNames::of("0f0e0d0c-0000-4000-8000-000000000000")
}

fn later(now: Timestamp, hours: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_hours(hours)).unwrap()
}
