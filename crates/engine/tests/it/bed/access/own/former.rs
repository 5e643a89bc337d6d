//! Accounts that were ours before and that Coder does not let go.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use bytes::Bytes;
use client::{Client, ClientOptions, HttpOptions, HttpTransport, Transport, TransportError};
use engine::kinds::control_plane::access::{
    AccessOutcome, Account, Former, FromSecret, Job, Left, TokenRecord,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use secrecy::SecretString;
use testbed::Flavour;
use uuid::Uuid;

use super::{NAME, Stage, create_admin_user, later, owner};

/// Passes everything on but the deletion of accounts, which gets this status; nothing does where it is zero.
#[derive(Debug)]
struct Refusing(HttpTransport, AtomicU16);

impl Transport for Refusing {
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, TransportError>> {
        let (status, path) = (self.1.load(Ordering::Relaxed), request.uri().path());
        let is_it = request.method() == http::Method::DELETE && !path.contains("/keys/");
        if status == 0 || !is_it {
            return self.0.send(request);
        }
        let body = Bytes::from_static(br#"{"message": "not now"}"#);
        let answer = http::Response::builder().status(status).header("x-coder-build-version", "v2.36.1");
        Box::pin(async move { Ok(answer.body(body).unwrap()) })
    }
}

/// Lets the Job make the next account of ours, and takes it.
async fn enter_by_job(stage: &mut Stage, database: &str) {
    stage.job = Job::NotStarted;
    let AccessOutcome::RunAdminJob { username, email } = stage.pass(Timestamp::now()).await.unwrap() else {
        panic!("there is another way")
    };
    let password = SecretString::from(format!("Job-{}", Uuid::new_v4()));
    create_admin_user(database, &username, &email, &password).await;
    stage.job = Job::Done(Account { email, password });
    assert_eq!(stage.granted(Timestamp::now()).await.user.username, username);
    stage.job = Job::NotStarted;
}

#[tokio::test]
async fn an_account_of_before_that_cannot_go_is_said_holds_up_nothing_and_goes_when_it_can() {
    let (mut stage, coderd) = Stage::with_admin(Flavour::Shipped).await;
    let real = HttpTransport::new(HttpOptions::default()).unwrap();
    let refusing = Arc::new(Refusing(real, AtomicU16::new(0)));
    let (url, transport) = (coderd.owner.url.parse().unwrap(), Arc::clone(&refusing) as Arc<dyn Transport>);
    stage.client = Client::new(ClientOptions { url, token: None, transport }).unwrap();
    let owner = owner(&stage.client, &coderd);
    let admin = std::mem::replace(&mut stage.admin, FromSecret::NotDeclared);
    enter_by_job(&mut stage, &coderd.database).await;
    let first = owner.user(NAME).await.unwrap();
    owner.delete_token(NAME, &stage.secret.id().unwrap()).await.unwrap();
    enter_by_job(&mut stage, &coderd.database).await;
    let before = Former { user_id: first.id, token: None };
    assert_eq!(stage.secret.record().former, std::slice::from_ref(&before));

    for status in [400, 403, 409, 500] {
        refusing.1.store(status, Ordering::Relaxed);
        // A token that is gone does not wait for it.
        let token = Former { token: Some("0123456789".to_owned()), ..before.clone() };
        let former = [stage.secret.record().former, vec![token]].concat();
        stage.secret.set_record(&TokenRecord { former, ..stage.secret.record() });
        let now = Timestamp::now();
        let granted = stage.granted(now).await;
        assert_eq!(granted.user.username, format!("{NAME}-2"), "{status}");
        let [said] = granted.stays.as_slice() else { panic!("{status}: {:?}", granted.stays) };
        assert!(said.contains(&first.id.to_string()) && said.contains("not now"), "{said}");
        assert!(granted.next < later(now, 2), "it is tried again soon, and not when the token is renewed");
        assert!(granted.next > now, "and not at once");
        assert_eq!(stage.secret.record().former, std::slice::from_ref(&before), "{status}");
    }
    assert_eq!(owner.user_named(NAME).await.unwrap().map(|it| it.id), Some(first.id));

    // Access is given up all the same, and the account is named, whether somebody lends us rights for it or not.
    for borrowed in [admin, FromSecret::NotDeclared] {
        refusing.1.store(409, Ordering::Relaxed);
        let kept = stage.secret.record();
        stage.admin = borrowed;
        let Left { items } = stage.end().await;
        assert!(items.iter().any(|it| it.contains(&first.id.to_string())), "{items:?}");

        stage.admin = FromSecret::NotDeclared;
        stage.secret.set_record(&kept);
        stage.secret.set_token(None);
        enter_by_job(&mut stage, &coderd.database).await;
    }
    refusing.1.store(0, Ordering::Relaxed);
    assert_eq!(stage.granted(Timestamp::now()).await.stays, [""; 0]);
    assert_eq!(stage.secret.record().former, []);
    assert_eq!(owner.user_named(NAME).await.unwrap(), None, "it is gone");
}
