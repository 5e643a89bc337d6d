//! Archives of other hosts as sources: read once, checked, and never read again while nothing changed.

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::Reason;
use bytes::Bytes;
use client::{AddressPolicy, Downloads, Transport, TransportError, transport::BoxFuture};
use engine::Door;
use http::{Request, Response};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::{SECRET, Scene, template};
use crate::support::{secret, subject};

/// A server on loopback with files, which writes down what it is asked.
struct Files {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    served: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Files {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let files = Self { url, asked: Arc::default(), served: Arc::default() };
        let (asked, served) = (Arc::clone(&files.asked), Arc::clone(&files.served));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).await.unwrap_or_default() == 0 {
                        break;
                    }
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                asked.lock().unwrap().push(head);
                let file = served.lock().unwrap().get(&path).cloned();
                let answer = match (path.strip_prefix("/to/"), file) {
                    (Some(target), _) => {
                        format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n")
                            .into_bytes()
                    }
                    (None, None) => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n".to_vec(),
                    (None, Some(file)) => {
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", file.len()).into_bytes()
                    }
                };
                let body = served.lock().unwrap().get(&path).cloned().unwrap_or_default();
                let whole = [&answer, &b"connection: close\r\n\r\n"[..], &body].concat();
                stream.write_all(&whole).await.ok();
            }
        });
        files
    }

    fn serve(&self, path: &str, bytes: &[u8]) {
        self.served.lock().unwrap().insert(path.to_owned(), bytes.to_vec());
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// A template whose source is a file of this server.
    fn template(&self, path: &str, bytes: &[u8]) -> Value {
        template(
            &json!({"source": {"archive": {"url": format!("{}{path}", self.url), "digest": digest(bytes)}}}),
        )
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", base16ct::lower::encode_string(&Sha256::digest(bytes)))
}

fn tar(files: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, kind, text) in files {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        if kind.is_file() {
            header.set_size(text.len() as u64);
        } else {
            header.set_size(0);
            header.set_link_name(text).unwrap();
        }
        header.set_cksum();
        archive.append(&header, if kind.is_file() { text.as_bytes() } else { &[] }).unwrap();
    }
    archive.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A good archive.
fn good(text: &str) -> Vec<u8> {
    gzip(&tar(&[("main.tf", tar::EntryType::Regular, text)]))
}

async fn scene(addresses: AddressPolicy) -> (Scene, Files) {
    let mut scene = Scene::new().await;
    scene.coder = scene.controller().downloading(Downloads::new(addresses).unwrap());
    (scene, Files::start().await)
}

#[tokio::test]
async fn archive_is_read_once_and_published() {
    let (scene, files) = scene(AddressPolicy::Any).await;
    let first = good("locals {}");
    files.serve("/x.tar.gz", &first);
    let mut manifest = files.template("/x.tar.gz", &first);
    scene.blocked(&mut manifest).await;
    assert_eq!(files.asked().len(), 1, "read for the plan and the upload");
    scene.build();
    scene.applied(&mut manifest).await;
    scene.equal(&mut manifest).await;
    // A file that is gone or another one by now is of no interest while its version is published.
    files.serve("/x.tar.gz", b"another");
    scene.equal(&mut manifest).await;
    assert_eq!(files.asked(), [""; 0], "an unchanged reconcile reads nothing");
    // Nor does a process that has just started, without a status.
    let mut fresh = Scene { coder: scene.command_line("owner"), ..scene };
    fresh.coder = fresh.coder.clone().downloading(Downloads::new(AddressPolicy::Any).unwrap());
    let mut again = manifest.clone();
    again["status"].as_object_mut().unwrap().remove("version");
    fresh.equal(&mut again).await;
    assert_eq!(files.asked(), [""; 0]);

    // The same files inline are the same content, and another digest is another version.
    let mut inline = manifest.clone();
    inline["spec"]["source"] = json!({"files": {"main.tf": "locals {}"}});
    fresh.equal(&mut inline).await;
    assert_eq!(fresh.versions(), 1);
    let second = good("locals { a = 1 }");
    files.serve("/y.tar.gz", &second);
    manifest["spec"]["source"] = files.template("/y.tar.gz", &second)["spec"]["source"].clone();
    fresh.published(&mut manifest).await;
    assert_eq!((fresh.versions(), files.asked().len()), (2, 1));
}

#[tokio::test]
async fn credentials_go_to_the_host_of_the_address_only() {
    let (scene, files) = scene(AddressPolicy::Any).await;
    let other = Files::start().await;
    let bytes = good("locals {}");
    other.serve("/x.tar.gz", &bytes);
    let mut manifest = files.template(&format!("/to/{}/x.tar.gz", other.url), &bytes);
    manifest["spec"]["source"]["archive"]["credentialsSecretRef"] = json!({"name": "files"});
    let waiting = scene.blocked(&mut manifest).await;
    assert_eq!(waiting.reason, Reason::SecretNotFound, "{}", waiting.message);
    scene.cluster.set(&secret("files", &json!({"token": SECRET})));
    scene.published(&mut manifest).await;
    let (first, second) = (files.asked(), other.asked());
    assert!(first[0].contains(&format!("authorization: Bearer {SECRET}")), "{first:?}");
    assert!(second.len() == 1 && !second[0].contains(SECRET), "{second:?}");
}

#[tokio::test]
async fn hostile_archives_are_refused_with_the_field() {
    use tar::EntryType as Type;
    let (scene, files) = scene(AddressPolicy::Any).await;
    let bomb = gzip(&vec![0; 17 * 1024 * 1024]);
    for (what, bytes) in [
        ("traversal", tar(&[("../main.tf", Type::Regular, "x")])),
        ("absolute", tar(&[("/etc/main.tf", Type::Regular, "x")])),
        ("symlink", tar(&[("main.tf", Type::Symlink, "/etc/passwd")])),
        ("hard link", tar(&[("a.tf", Type::Regular, "x"), ("main.tf", Type::Link, "a.tf")])),
        ("device", tar(&[("main.tf", Type::Char, "x")])),
        ("bomb", bomb),
        ("no archive", b"<html>please sign in</html>".to_vec()),
        ("empty", Vec::new()),
    ] {
        files.serve("/x", &bytes);
        let mut manifest = files.template("/x", &bytes);
        let refused = scene.blocked(&mut manifest).await;
        assert_eq!(refused.reason, Reason::SourceNotUsable, "{what}: {}", refused.message);
        assert!(refused.message.starts_with("spec.source.archive"), "{what}: {}", refused.message);
    }
    let mut wrong = files.template("/x", b"another file");
    let refused = scene.blocked(&mut wrong).await;
    assert!(
        refused.message.starts_with("spec.source.archive.digest: the file has the digest sha256:"),
        "{}",
        refused.message
    );
    let mut missing = files.template("/none", b"");
    let refused = scene.blocked(&mut missing).await;
    assert!(
        refused.message.starts_with("spec.source.archive.url: GET http://127.0.0.1"),
        "{}",
        refused.message
    );
    assert_eq!(scene.versions(), 0);
}

#[tokio::test]
async fn local_addresses_are_refused_to_a_controller() {
    let (scene, files) = scene(AddressPolicy::NotLocal).await;
    let bytes = good("locals {}");
    files.serve("/x", &bytes);
    for url in [
        format!("{}/x", files.url),
        files.url.replace("http://", "https://"),
        "https://169.254.169.254/x".to_owned(),
    ] {
        let mut manifest = files.template("/x", &bytes);
        manifest["spec"]["source"]["archive"]["url"] = json!(url);
        let refused = scene.blocked(&mut manifest).await;
        assert_eq!(refused.reason, Reason::SourceNotUsable);
        assert!(refused.message.contains("the address is not allowed"), "{}", refused.message);
    }
    assert_eq!((files.asked(), scene.versions()), (Vec::new(), 0));
    let mut invalid = files.template("/x", &bytes);
    invalid["spec"]["source"]["archive"]["digest"] = json!("sha256:0");
    let told = format!("{:?}", scene.reconcile(&mut invalid).await.outcome);
    assert!(told.contains("spec.source.archive.digest"), "{told}");
}

#[tokio::test]
async fn digest_alone_gives_no_right_to_an_archive() {
    let (scene, files) = scene(AddressPolicy::Any).await;
    let bytes = good("locals { private = true }");
    files.serve("/x", &bytes);
    scene.cluster.set(&secret("files", &json!({"token": SECRET})));
    let mut manifest = files.template("/x", &bytes);
    manifest["spec"]["source"]["archive"]["credentialsSecretRef"] = json!({"name": "files"});
    scene.published(&mut manifest).await;
    files.served.lock().unwrap().clear();
    let mut other_address = manifest.clone();
    other_address["spec"]["source"]["archive"]["url"] = json!(format!("{}/y", files.url));
    let mut without_token = files.template("/x", &bytes);
    let mut other_namespace = manifest.clone();
    other_namespace["metadata"]["namespace"] = json!("others");
    let mut theirs = secret("files", &json!({"token": "another-token-0123456789"}));
    theirs["metadata"]["namespace"] = json!("others");
    scene.cluster.set(&theirs);
    for other in [&mut other_address, &mut without_token, &mut other_namespace] {
        other["metadata"]["name"] = json!("copied");
        other.as_object_mut().unwrap().remove("status");
        let refused = scene.blocked(other).await;
        assert_eq!(refused.reason, Reason::SourceNotUsable, "{other}");
        assert!(refused.message.contains("the server answered 404"), "{}", refused.message);
    }
    assert_eq!(scene.versions(), 1);
}

/// A host with one archive for each address, which counts how many are read at a time.
#[derive(Debug, Default)]
struct Slow {
    at_once: Mutex<(usize, usize)>,
}

impl Transport for Slow {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let text = format!("locals {{ path = \"{}\" }}", request.uri().path());
        Box::pin(async move {
            {
                let mut at_once = self.at_once.lock().unwrap();
                at_once.0 += 1;
                at_once.1 = at_once.1.max(at_once.0);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.at_once.lock().unwrap().0 -= 1;
            Ok(Response::new(good(&text).into()))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn archives_of_many_templates_are_read_a_few_at_a_time() {
    let mut scene = Scene::new().await;
    let slow = Arc::new(Slow::default());
    scene.coder = scene.controller().downloading(Downloads::over(Arc::clone(&slow) as _, AddressPolicy::Any));
    let manifests: Vec<Value> = (0..6)
        .map(|number| {
            let digest = digest(&good(&format!("locals {{ path = \"/{number}\" }}")));
            let archive = json!({"url": format!("https://files.test/{number}"), "digest": digest});
            let mut manifest = template(&json!({"source": {"archive": archive}}));
            manifest["metadata"]["name"] = json!(format!("template-{number}"));
            manifest
        })
        .collect();
    let assess = |manifest: &Value| {
        let (coder, mut subject) = (scene.coder.clone(), subject(manifest));
        async move {
            let assessment = subject.assess(&coder, Door::Controller).await;
            // The plan is kept, as the command line keeps those of all manifests.
            (subject, assessment)
        }
    };
    let assessed = futures::future::join_all(manifests.iter().map(assess)).await;
    assert!(assessed.iter().all(|(_, it)| !it.plan.is_empty()));
    let (left, most) = *slow.at_once.lock().unwrap();
    assert_eq!((left, most), (0, 2));
    for (subject, assessment) in &assessed {
        let report = subject.carry_out(assessment, &scene.coder).await;
        assert_eq!(report.outcome.reason(), Reason::VersionBuilding, "{:?}", report.outcome);
    }
    assert_eq!(scene.versions(), 6);
}
