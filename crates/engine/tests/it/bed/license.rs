//! Licences on a real coderd that takes the ones its harness signs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use api::Reason;
use bytes::Bytes;
use client::{
    Client, ClientOptions, HttpOptions, HttpTransport, Transport, TransportError, licenses::License,
    transport::BoxFuture,
};
use engine::{
    Coder,
    coder::Promises,
    kinds::control_plane::{
        entitlements::{Entitlement, Summary, Tier},
        license::{
            self, Claims, Declared, Done, Jwt, LicenseEffect, LicenseRecord, LicenseVerdict, LicenseView,
            Observed, Phase, verdict,
        },
    },
};
use http::{Method, Request, Response};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use testbed::{Coderd, Flavour, coderd::sign_license};

fn coder(client: &Client) -> Coder {
    Coder::new(client.clone(), Promises::default())
}

/// The wire, which can be made to lose the answer to an upload that was done.
#[derive(Debug)]
struct Lossy {
    wire: HttpTransport,
    loses: AtomicBool,
}

impl Transport for Lossy {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let is_upload = request.method() == Method::POST && request.uri().path().ends_with("/licenses");
        let answer = self.wire.send(request);
        Box::pin(async move {
            let answer = answer.await?;
            if is_upload && self.loses.swap(false, Ordering::Relaxed) {
                let body = Bytes::from_static(br#"{"message":"Failed to update entitlements"}"#);
                return Ok(Response::builder().status(500).body(body).unwrap());
            }
            Ok(answer)
        })
    }
}

/// A deployment that takes licences, and what we remember of it.
struct Stage {
    coderd: Coderd,
    wire: Arc<Lossy>,
    client: Client,
    record: LicenseRecord,
    deletes: bool,
}

impl Stage {
    async fn set() -> Self {
        let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
        let wire = HttpTransport::new(HttpOptions::default()).unwrap();
        let wire = Arc::new(Lossy { wire, loses: AtomicBool::new(false) });
        let transport: Arc<dyn Transport> = Arc::clone(&wire) as _;
        let token = Some(SecretString::from(coderd.owner.token.clone()));
        let url = coderd.owner.url.parse().unwrap();
        let client = Client::new(ClientOptions { url, token, transport }).unwrap();
        Self { coderd, wire, client, record: LicenseRecord::default(), deletes: false }
    }

    async fn sign(&self, wanted: Value) -> Declared {
        let jwt = sign_license(self.coderd.licenses.as_ref().unwrap(), &wanted).await.unwrap();
        declare(&jwt)
    }

    async fn premium(&self, account: &str) -> Declared {
        self.sign(json!({"feature_set": "premium", "account_id": account, "term": "valid"})).await
    }

    async fn live(&self) -> Vec<License> {
        self.client.list_licenses().await.unwrap()
    }

    /// One pass: what was done, and what the condition says after it.
    async fn pass(&mut self, declared: &[Declared]) -> (Vec<Done>, LicenseVerdict) {
        let deployment = self.client.build_info().await.unwrap().deployment_id;
        let before = Summary::of(&self.client.entitlements().await.unwrap());
        let (live, now) = (self.live().await, Timestamp::now());
        self.record = self.record.settled(deployment, declared, &live, self.deletes);
        let record = self.record.clone();
        let observed = Observed { deployment, live: &live, record: &record, errors: &before.errors, now };
        let plan = license::plan(declared, &observed, self.deletes);
        license::apply::intend(&plan.steps, &mut self.record);
        let mut done = Vec::new();
        for step in &plan.steps {
            done.push(
                license::apply(&step.effect, declared, &coder(&self.client), &mut self.record).await.unwrap(),
            );
        }
        let after = Summary::of(&self.client.entitlements().await.unwrap());
        let live = self.live().await;
        let observed = Observed { deployment, live: &live, record: &self.record, errors: &after.errors, now };
        (done, verdict(declared, &observed, Some(&after)))
    }

    /// Passes until nothing is done, and the last word.
    async fn converge(&mut self, declared: &[Declared]) -> LicenseVerdict {
        for _ in 0..5 {
            let (done, verdict) = self.pass(declared).await;
            if done.is_empty() {
                return verdict;
            }
        }
        panic!("it does not come to an end")
    }

    async fn accounts(&self) -> Vec<String> {
        let live = self.live().await;
        live.iter().map(|it| it.claims["account_id"].as_str().unwrap().to_owned()).collect()
    }
}

fn declare(jwt: &str) -> Declared {
    let jwt = Jwt::new(&SecretString::from(format!("{jwt}\n")));
    Declared { slot: "licenseSecretRef".to_owned(), jwt }
}

#[tokio::test]
async fn a_licence_is_installed_once_and_known_by_what_it_says() {
    let mut stage = Stage::set().await;
    let declared = [stage.premium("a").await];
    let (done, verdict) = stage.pass(&declared).await;
    assert_eq!(done, [Done::Uploaded]);
    assert_eq!((verdict.status, verdict.reason), (Some(true), Reason::Applied), "{}", verdict.message);
    assert_eq!(stage.pass(&declared).await.0, []);
    let live = stage.live().await;
    assert_eq!(live.len(), 1);
    assert_eq!(Claims::of(&live[0]).identity(), declared[0].identity().unwrap());
    let view = LicenseView::of(&live[0], Timestamp::now());
    assert_eq!((view.phase, view.feature_set.as_str()), (Phase::Valid, "premium"));
    assert!(view.days_left.is_some_and(|it| it > 7), "{view:?}");
    let summary = Summary::of(&stage.client.entitlements().await.unwrap());
    assert_eq!(summary.tier, Tier::Premium);
    assert_eq!(summary.external_provisioner_daemons, Entitlement::Entitled);
    assert!(summary.compact().contains(&"custom_roles=entitled,enabled".to_owned()), "{summary:?}");
}

#[tokio::test]
async fn renewals_back_and_forth_leave_what_is_declared_and_what_others_installed() {
    let mut stage = Stage::set().await;
    let foreign = stage.premium("foreign").await;
    stage.client.add_license(foreign.jwt.as_ref().unwrap().secret()).await.unwrap();
    let (a, b) = (stage.premium("a").await, stage.premium("b").await);
    for (declared, account) in [(&a, "a"), (&b, "b"), (&a, "a")] {
        let verdict = stage.converge(std::slice::from_ref(declared)).await;
        assert_eq!(verdict.reason, Reason::Applied);
        assert_eq!(stage.accounts().await, ["foreign", account]);
    }
    stage.converge(&[]).await;
    assert_eq!(stage.accounts().await, ["foreign", "a"], "the policy is to retain");
    stage.converge(std::slice::from_ref(&a)).await;
    stage.deletes = true;
    stage.converge(&[]).await;
    assert_eq!(stage.accounts().await, ["foreign", "a"], "it was let go and found: it is nobody's");
    stage.converge(std::slice::from_ref(&b)).await;
    stage.converge(&[]).await;
    assert_eq!(stage.accounts().await, ["foreign", "a"], "and what we uploaded goes");
}

#[tokio::test]
async fn a_failure_that_did_commit_is_recognised_by_looking() {
    let mut stage = Stage::set().await;
    let (a, b) = (stage.premium("a").await, stage.premium("b").await);
    stage.wire.loses.store(true, Ordering::Relaxed);
    let (done, verdict) = stage.pass(std::slice::from_ref(&a)).await;
    assert_eq!((done, verdict.reason), (vec![Done::Uploaded], Reason::Applied));
    let effect = LicenseEffect::Upload { slot: a.slot.clone(), identity: a.identity().unwrap() };
    let declared = [a];
    let again = license::apply(&effect, &declared, &coder(&stage.client), &mut stage.record).await;
    assert!(matches!(again, Ok(Done::Uploaded)), "coderd answers a second upload with a 500: {again:?}");
    assert_eq!(stage.accounts().await, ["a"]);
    stage.converge(&[b]).await;
    assert_eq!(stage.accounts().await, ["b"], "it was ours to retire");
}

#[tokio::test]
async fn what_coderd_refuses_is_told_in_its_words_and_not_sent_again() {
    let mut stage = Stage::set().await;
    let elsewhere = stage.sign(json!({"feature_set": "premium", "deployment_ids": ["somewhere-else"]})).await;
    let (done, verdict) = stage.pass(std::slice::from_ref(&elsewhere)).await;
    assert_eq!((done, verdict.reason), (vec![Done::Refused], Reason::Invalid));
    assert!(verdict.message.contains("cannot be used on this deployment"), "{}", verdict.message);
    assert_eq!(stage.pass(std::slice::from_ref(&elsewhere)).await.0, []);

    let good = stage.premium("a").await;
    let text = good.jwt.as_ref().unwrap().secret().expose_secret().to_owned();
    let (head, _) = text.rsplit_once('.').unwrap();
    let forged = declare(&format!("{head}.{}", "A".repeat(86)));
    let (done, verdict) = stage.pass(&[forged]).await;
    assert_eq!((done, verdict.reason), (vec![Done::Refused], Reason::Invalid));
    let told = format!("{} {}", verdict.message, serde_json::to_string(&stage.record).unwrap());
    assert!(!told.contains(head) && !told.contains("eyJ"), "{told}");
    let verdict = stage.converge(&[good]).await;
    assert_eq!(verdict.reason, Reason::Applied, "another licence in the Secret is tried");
    assert_eq!(stage.record.refused, []);
}

#[tokio::test]
async fn each_term_has_its_reason_and_only_one_that_counts_replaces_another() {
    let mut stage = Stage::set().await;
    let term = |term: &str| json!({"feature_set": "premium", "account_id": term, "term": term});
    let expired = stage.sign(term("expired")).await;
    let (done, verdict) = stage.pass(&[expired]).await;
    assert_eq!((done, verdict.reason), (Vec::new(), Reason::Expired), "it is not even sent");
    let valid = stage.premium("valid").await;
    stage.converge(&[valid]).await;
    let future = stage.sign(term("future")).await;
    let verdict = stage.converge(&[future]).await;
    assert_eq!((verdict.status, verdict.reason), (Some(true), Reason::Applied));
    assert!(verdict.message.contains("counts from"), "{}", verdict.message);
    assert!(verdict.message.contains("the one before it stays"), "{}", verdict.message);
    assert_eq!(stage.accounts().await, ["valid", "future"], "the one that counts stays meanwhile");
    let grace = stage.sign(term("grace")).await;
    let verdict = stage.converge(&[grace]).await;
    assert_eq!((verdict.status, verdict.reason), (Some(true), Reason::GracePeriod));
    assert!(!verdict.message.contains("the one before it stays"), "{}", verdict.message);
    let summary = Summary::of(&stage.client.entitlements().await.unwrap());
    assert_eq!(summary.external_provisioner_daemons, Entitlement::GracePeriod);
    assert_eq!(summary.verdict().reason, api::Reason::GracePeriod);
    assert_eq!(stage.accounts().await, ["grace"]);
}

#[tokio::test]
async fn several_licences_are_installed_and_renewed_each_in_its_place() {
    let mut stage = Stage::set().await;
    let premium = stage.premium("a").await;
    let addon = |users: i64| {
        json!({"feature_set": "premium", "account_id": "addon", "addons": ["ai_governance"],
            "features": {"ai_governance_user_limit": users}})
    };
    let further = |declared: Declared| Declared { slot: "addons/license".to_owned(), ..declared };
    let small = further(stage.sign(addon(5)).await);
    stage.converge(&[premium.clone(), small]).await;
    let large = further(stage.sign(addon(50)).await);
    let verdict = stage.converge(&[premium, large]).await;
    assert_eq!(verdict.reason, Reason::Applied);
    assert_eq!(stage.accounts().await, ["a", "addon"]);
    let live = stage.live().await;
    assert_eq!(LicenseView::of(&live[1], Timestamp::now()).addons, ["ai_governance"]);
    assert_eq!(live[1].claims["features"]["ai_governance_user_limit"], 50);
}

#[tokio::test]
async fn an_account_that_may_not_is_forbidden() {
    let mut stage = Stage::set().await;
    let password = SecretString::from(format!("Member-{}", uuid::Uuid::new_v4()));
    let member = client::users::CreateUser {
        username: "member".to_owned(),
        email: "member@bed.test".to_owned(),
        password: Some(password.clone()),
        organization_ids: vec![uuid::Uuid::nil()],
        ..Default::default()
    };
    stage.client.create_user(&member).await.unwrap();
    let session = stage.client.login("member@bed.test", &password).await.unwrap();
    let declared = [stage.premium("a").await];
    let effect = LicenseEffect::Upload { slot: String::new(), identity: declared[0].identity().unwrap() };
    let client = stage.client.with_token(session).unwrap();
    let error = license::apply(&effect, &declared, &coder(&client), &mut stage.record).await.unwrap_err();
    let engine::Trouble::Remote(error) = error else { panic!("{error:?}") };
    assert_eq!(LicenseVerdict::failed(&error).reason, Reason::Forbidden, "{error}");
}
