//! A licensed deployment in memory with an owner, as a state to begin with.

use std::{
    pin::pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, Waker},
};

use client::{Client, ClientOptions, Transport, users::CreateFirstUser};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use sim::{Clock, Coder, Options, state::State};

const PASSWORD: &str = "correct-horse-battery-staple-1";

/// A state, and the token of the owner in it.
static LICENSED: LazyLock<(State, SecretString)> = LazyLock::new(|| wait(sign_in()));

/// The time in memory when nothing has happened yet.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A deployment with every licensed feature, an owner and the default organization.
pub(crate) fn licensed() -> State {
    LICENSED.0.clone()
}

/// A deployment that goes on from a state, without a rate limit.
pub(crate) fn coder(clock: Clock, state: State) -> Coder {
    Coder::with_state(Options { rate_limit: None, ..Options::new(clock) }, state)
}

/// A client with the token of the owner.
pub(crate) fn owner(transport: Arc<dyn Transport>) -> Client {
    let url = "https://coder.test".parse().unwrap();
    Client::new(ClientOptions { url, token: Some(LICENSED.1.clone()), transport }).unwrap()
}

/// The token of the owner.
pub(crate) fn owner_token() -> String {
    LICENSED.1.expose_secret().to_owned()
}

/// Waits for something that nobody else has to do anything for.
pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

async fn sign_in() -> (State, SecretString) {
    let coder = Coder::new(Options { rate_limit: None, ..Options::new(Arc::new(start)) });
    let url = "https://coder.test".parse().unwrap();
    let options = ClientOptions { url, token: None, transport: coder.transport() };
    let anonymous = Client::new(options).unwrap();
    let password = SecretString::from(PASSWORD);
    let (email, username) = ("owner@coder.test".to_owned(), "owner".to_owned());
    let wanted = CreateFirstUser { email, username, password: password.clone() };
    anonymous.create_first_user(&wanted).await.unwrap();
    let token = anonymous.login(&wanted.email, &password).await.unwrap();
    let (first, last) = (start().as_second() - 86_400, start().as_second() + 2 * 365 * 86_400);
    let claims = json!({"nbf": first, "exp": last, "license_expires": last});
    let license = coder.sign_license(claims.as_object().unwrap());
    let owner = anonymous.with_token(token.clone()).unwrap();
    owner.add_license(&SecretString::from(license)).await.unwrap();
    let mut state = coder.state();
    let end = Timestamp::from_second(last).unwrap();
    state.api_keys.values_mut().for_each(|it| it.expires_at = end);
    (state, token)
}
