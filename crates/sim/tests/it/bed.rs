//! The suite on the test bed: the memory coderd answers as the real one.

use std::sync::Arc;

use client::{HttpOptions, HttpTransport, transport::BoxFuture};
use serde_json::Value;
use testbed::{Flavour, FreshCoderd, coderd::sign_license};

use crate::{
    cases::CASES,
    memory,
    side::{Host, Side},
    transcript::difference,
};

/// The version that the memory coderd is an image of.
const VERSION: &str = "v2.36.";

/// A coderd of the bed.
struct Real {
    url: String,
    licenses: String,
}

impl Host for Real {
    fn sign_license(&self, wanted: Value) -> BoxFuture<'_, String> {
        Box::pin(async move { sign_license(&self.licenses, &wanted).await.unwrap() })
    }

    fn connect_daemon<'a>(&'a self, key: &'a str, name: &'a str, version: &'a str) -> BoxFuture<'a, ()> {
        let path = "api/v2/organizations/default/provisionerdaemons/serve";
        let url = format!("{}/{path}?name={name}&provisioner=terraform&version=1.18", self.url);
        let request = http::Request::get(url)
            .header("coder-provisioner-daemon-key", key)
            .header("x-coder-build-version", version)
            .body(bytes::Bytes::new());
        Box::pin(async {
            let transport = HttpTransport::new(HttpOptions::default()).unwrap();
            let answer = client::Transport::send(&transport, request.unwrap()).await.unwrap();
            // coderd stores the daemon before it finds that the connection is no websocket.
            assert_eq!(answer.status(), 426);
        })
    }
}

fn real(coderd: &FreshCoderd, version: &str) -> Side {
    let transport = Arc::new(HttpTransport::new(HttpOptions::default()).unwrap());
    let host = Real { url: coderd.url.clone(), licenses: coderd.licenses.clone().unwrap_or_default() };
    Side::new(&coderd.url, version, transport, Arc::new(host))
}

// A coderd of its own: the suite begins before there is a user, and changes licences and documents of the deployment.
#[tokio::test]
async fn memory_answers_as_the_real_coderd() {
    let bed = testbed::shared().unwrap();
    if !bed.coder_version.starts_with(VERSION) {
        return;
    }
    let coderd = bed.fresh_coderd(Flavour::Licensed).await.unwrap();
    let mut real = real(&coderd, &bed.coder_version);
    let mut memory = memory::side(&memory::unlimited());
    let mut differences = Vec::new();
    for case in CASES {
        (case.run)(&mut real).await;
        (case.run)(&mut memory).await;
        let (real, memory) = (real.begin(), memory.begin());
        let difference = difference(&real.entries, &memory.entries);
        differences.extend(difference.map(|it| format!("{}:\n{it}", case.name)));
    }
    assert!(differences.is_empty(), "- real\n+ memory\n{}", differences.join("\n"));
}
