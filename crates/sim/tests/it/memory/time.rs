//! What changes only because time passes, on a clock that the tests move.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use client::{
    Class, Client,
    users::{CreateToken, ME},
};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde_json::{Map, json};
use sim::{Coder, Options};

use super::{options, owner};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// A clock that stands until it is moved.
struct Stopped(Arc<AtomicI64>);

impl Stopped {
    fn forward(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

fn deployment(rate_limit: Option<u32>) -> (Stopped, Coder) {
    let second = Arc::new(AtomicI64::new(1_800_000_000));
    let read = Arc::clone(&second);
    let clock = Arc::new(move || Timestamp::from_second(read.load(Ordering::SeqCst)).unwrap());
    (Stopped(second), Coder::new(Options { clock, rate_limit, ..options() }))
}

async fn class(client: &Client) -> Option<Class> {
    client.current_user().await.err().map(|it| it.class())
}

#[tokio::test]
async fn token_expires_and_keeps_its_name() {
    let (clock, coder) = deployment(None);
    let owner = owner(&coder).await;
    let lifetime = Some(std::time::Duration::from_hours(2));
    let wanted = CreateToken { token_name: Some("short".to_owned()), lifetime, scopes: None };
    let token = owner.create_token(ME, &wanted).await.unwrap();
    let by_token = owner.with_token(token).unwrap();
    clock.forward(2 * HOUR - 1);
    assert_eq!(class(&by_token).await, None);
    clock.forward(1);
    assert_eq!(class(&by_token).await, Some(Class::SignedOut), "use does not extend a token");
    assert_eq!(owner.list_tokens(ME).await.unwrap().len(), 1);
    assert_eq!(owner.create_token(ME, &wanted).await.unwrap_err().class(), Class::Conflict);
}

#[tokio::test]
async fn session_is_extended_by_use() {
    let (clock, coder) = deployment(None);
    let owner = owner(&coder).await;
    for _ in 0..3 {
        clock.forward(23 * HOUR);
        assert_eq!(class(&owner).await, None);
    }
    clock.forward(24 * HOUR);
    assert_eq!(class(&owner).await, Some(Class::SignedOut));
}

#[tokio::test]
async fn licence_passes_through_grace_period_and_expiry() {
    let (clock, coder) = deployment(None);
    let owner = owner(&coder).await;
    let entitlement = async || {
        let entitlements = owner.entitlements().await.unwrap();
        let feature = &entitlements.features["multiple_organizations"];
        (feature.entitlement.clone(), feature.enabled, entitlements.has_license)
    };
    assert_eq!(entitlement().await, ("entitled".to_owned(), true, true));
    clock.forward(30 * DAY);
    let warnings = owner.entitlements().await.unwrap().warnings;
    assert_eq!(warnings[0], "Your license expires in 23 days.");
    clock.forward(24 * DAY);
    assert_eq!(entitlement().await, ("grace_period".to_owned(), true, true));
    clock.forward(6 * DAY);
    assert_eq!(entitlement().await, ("not_entitled".to_owned(), false, false));
}

#[tokio::test]
async fn future_licence_takes_effect_when_it_begins() {
    let (clock, coder) = deployment(None);
    let owner = owner(&coder).await;
    let first = owner.list_licenses().await.unwrap()[0].id;
    let begins = json!(1_800_000_000 + DAY);
    let license = coder.sign_license(&Map::from_iter([("nbf".to_owned(), begins)]));
    owner.add_license(&license.into()).await.unwrap();
    owner.delete_license(first).await.unwrap();
    assert!(!owner.entitlements().await.unwrap().has_license);
    clock.forward(DAY);
    assert!(owner.entitlements().await.unwrap().has_license);
}

#[tokio::test]
async fn refresh_is_allowed_a_minute_after_the_last_one() {
    let (clock, coder) = deployment(None);
    let owner = owner(&coder).await;
    let refused = owner.refresh_entitlements().await.unwrap_err();
    assert_eq!(
        (refused.class(), refused.retry_after().map(|it| it.as_secs())),
        (Class::RateLimited, Some(60))
    );
    clock.forward(60);
    owner.refresh_entitlements().await.unwrap();
    owner.refresh_entitlements().await.unwrap_err();
}

#[tokio::test]
async fn silent_daemon_leaves_the_list_after_three_minutes() {
    let (clock, coder) = deployment(None);
    let owner = owner(&coder).await;
    let organization = owner.list_organizations().await.unwrap()[0].id;
    let key =
        owner.create_provisioner_key(organization, "pods", &std::collections::BTreeMap::new()).await.unwrap();
    let connect = || coder.connect_daemon(key.expose_secret(), "pod-1", "v2.36.1");
    let first = connect().unwrap();
    let daemons = async || owner.list_provisioner_keys(organization).await.unwrap()[0].daemons.clone();
    clock.forward(180);
    assert_eq!(daemons().await[0].id, first);
    clock.forward(1);
    assert_eq!(daemons().await, []);
    assert_eq!(connect(), Some(first), "a daemon that comes back is the same one");
    assert_eq!(daemons().await.len(), 1);
    assert_eq!(coder.connect_daemon("unknown", "pod-2", "v2.36.1"), None);
}

#[tokio::test]
async fn rate_limit_of_a_path_ends_with_its_window() {
    let (clock, coder) = deployment(Some(3));
    let request =
        || http::Request::get("http://memory.test/api/v2/buildinfo").body(bytes::Bytes::new()).unwrap();
    let transport = coder.transport();
    let header = |answer: &http::Response<bytes::Bytes>, name: &str| {
        answer.headers().get(name).map(|it| it.to_str().unwrap().to_owned())
    };
    for remaining in ["2", "1", "0"] {
        let answer = transport.send(request()).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(header(&answer, "x-ratelimit-remaining").as_deref(), Some(remaining));
    }
    let refused = transport.send(request()).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "retry-after").as_deref(), Some("60"));
    clock.forward(120);
    assert_eq!(transport.send(request()).await.unwrap().status(), 200);
}
