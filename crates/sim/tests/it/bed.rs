//! The suite on the test bed: the memory coderd answers as the real one.

use std::sync::Arc;

use client::{HttpOptions, HttpTransport, Transport, transport::BoxFuture};
use serde_json::{Value, json};
use testbed::{BedInfo, Flavour, FreshCoderd, Session, coderd::sign_license};

use crate::{
    cases::CASES,
    memory,
    side::{Host, PASSWORD, Side},
    transcript::difference,
};

/// The versions that the memory coderd answers like.
const VERSION: &str = "v2.36.";

/// A coderd of the bed.
struct Real {
    licenses: String,
}

impl Host for Real {
    fn sign_license(&self, wanted: Value) -> BoxFuture<'_, String> {
        Box::pin(async move { sign_license(&self.licenses, &wanted).await.unwrap() })
    }
}

/// The bed. `None` where it runs another version of Coder than the one that is compared.
fn bed() -> Option<&'static BedInfo> {
    let bed = testbed::shared().unwrap();
    bed.coder_version.starts_with(VERSION).then_some(bed)
}

fn real(coderd: &FreshCoderd, version: &str) -> Side {
    let transport = Arc::new(HttpTransport::new(HttpOptions::default()).unwrap());
    let host = Real { licenses: coderd.licenses.clone().unwrap_or_default() };
    Side::new(&coderd.url, version, transport, Arc::new(host))
}

// A coderd of its own: the suite begins before there is a user, and changes licences and documents of the deployment.
#[tokio::test]
async fn memory_answers_as_the_real_coderd() {
    let Some(bed) = bed() else { return };
    let coderd = bed.fresh_coderd(Flavour::Licensed).await.unwrap();
    let mut real = real(&coderd, &bed.coder_version);
    let mut memory = memory::side(&memory::unlimited());
    let mut differences = Vec::new();
    for case in CASES {
        (case.run)(&mut real).await;
        (case.run)(&mut memory).await;
        let real = real.begin();
        let memory = memory.begin();
        let difference = difference(&real.entries, &memory.entries);
        differences.extend(difference.map(|it| format!("{}:\n{it}", case.name)));
    }
    assert!(differences.is_empty(), "- real\n+ memory\n{}", differences.join("\n"));
}

/// What a caller sees of the rate limit of one path: the headers of the first answer and the whole refusal.
async fn limited(transport: &dyn Transport, url: &str, token: &str) -> Value {
    let path = format!("{}/api/v2/users/me", url.trim_end_matches('/'));
    let request =
        || http::Request::get(&path).header("coder-session-token", token).body(bytes::Bytes::new()).unwrap();
    let header = |answer: &http::Response<bytes::Bytes>, name: &str| {
        answer.headers().get(name).map(|it| it.to_str().unwrap().to_owned())
    };
    let first = transport.send(request()).await.unwrap();
    let first = ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|it| header(&first, it));
    // The window may end while this runs, which allows for a second one.
    for _ in 0..1100 {
        let answer = transport.send(request()).await.unwrap();
        if answer.status() == 429 {
            let body: Value = serde_json::from_slice(answer.body()).unwrap();
            let has_reset = header(&answer, "x-ratelimit-reset").is_some();
            return json!({"first": first, "body": body, "retry after": header(&answer, "retry-after"),
                "remaining": header(&answer, "x-ratelimit-remaining"), "has reset": has_reset});
        }
    }
    panic!("no answer was a refusal");
}

#[tokio::test]
async fn rate_limit_is_the_same() {
    let Some(bed) = bed() else { return };
    let coder = bed.coder.as_ref().unwrap();
    // The limit counts by account: one of this test's own leaves the others alone.
    let name = format!("limited-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let email = format!("{name}@bed.test");
    let user = json!({"username": name, "email": email, "password": PASSWORD,
        "organization_ids": [uuid::Uuid::nil()]});
    let owner = Session::new(reqwest::Client::new(), &coder.url, &coder.token);
    let (status, answer) = owner.request(reqwest::Method::POST, "/api/v2/users", Some(&user)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    let member = Session::sign_in(reqwest::Client::new(), &coder.url, &email, PASSWORD).await.unwrap();
    let transport = HttpTransport::new(HttpOptions::default()).unwrap();
    let real = limited(&transport, &coder.url, &member.token).await;
    let (status, answer) =
        owner.request(reqwest::Method::DELETE, &format!("/api/v2/users/{name}"), None).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let (memory, url, token) = memory::limited().await;
    assert_eq!(real, limited(&*memory, &url, &token).await);
}
