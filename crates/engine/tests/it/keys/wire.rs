//! What is asked of coderd, and how often; and revocations whose answer is lost.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::{Transport, TransportError, transport::BoxFuture};
use engine::{
    Coder,
    coder::Promises,
    keys::{
        Drive,
        coderd::{revoke, revoke_as_read},
    },
    secrets::{
        Around, Held, Holder, KeyMemory, KeySecrets, KeyStore, Names, Policy, Retiring, Revoked, Wanted,
    },
};
use http::{Method, Request, Response};
use sim::{MemoryCluster, state::State};
use uuid::Uuid;

use super::model::{NAMESPACE, wanted};
use crate::memory::{self, start, wait};

type Answered = Result<Response<Bytes>, TransportError>;

/// A deployment, with everything that it is asked written down.
#[derive(Debug)]
struct Watched {
    coder: sim::Coder,
    asked: Mutex<Vec<String>>,
    /// What becomes of the answer to the first deletion.
    deletion: fn(Answered) -> Answered,
}

impl Transport for Watched {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Answered> {
        Box::pin(async move {
            let (_, last) = request.uri().path().rsplit_once('/').unwrap();
            self.asked.lock().unwrap().push(format!("{} {last}", request.method()));
            let is_deletion = request.method() == Method::DELETE;
            let answer = self.coder.transport().send(request).await;
            let is_first = is_deletion && self.count("DELETE") == 1;
            if is_first { (self.deletion)(answer) } else { answer }
        })
    }
}

impl Watched {
    fn new(deletion: fn(Answered) -> Answered) -> Arc<Self> {
        let mut state: State = memory::licensed();
        state.issued += 1;
        let coder = memory::coder(Arc::new(start), state);
        Arc::new(Self { coder, asked: Mutex::default(), deletion })
    }

    /// A coder that has read nothing yet.
    fn coder(self: &Arc<Self>) -> Coder {
        Coder::new(memory::owner(Arc::clone(self) as _), Promises::default())
    }

    fn home(&self) -> Uuid {
        self.coder.state().default_organization
    }

    /// The names of the keys that are not coderd's own.
    fn keys(&self) -> Vec<String> {
        let keys = self.coder.state().provisioner_keys;
        keys.into_values().filter(|it| !it.secret.is_empty()).map(|it| it.name).collect()
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn count(&self, what: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|it| it.starts_with(what)).count()
    }
}

/// Objects with a key each, and the deployment and the cluster that they share.
struct Many {
    deployment: Arc<Watched>,
    coder: Coder,
    cluster: MemoryCluster,
    memory: KeyMemory,
    objects: Vec<(Holder, Wanted)>,
}

impl Many {
    fn new(count: usize) -> Self {
        let deployment = Watched::new(|it| it);
        let object = |number: usize| {
            let (name, uid) =
                (format!("key-{number}"), format!("{number:04}0000-0000-4000-8000-000000000000"));
            let mut wanted = wanted(Policy::Recreate);
            (wanted.names, wanted.organization_id) = (Names::new(&name, &uid), deployment.home());
            wanted.secret.name.clone_from(&name);
            let (namespace, labels) = (NAMESPACE.to_owned(), std::collections::BTreeMap::new());
            (
                Holder {
                    kind: "CoderProvisionerKey".into(),
                    namespace,
                    name,
                    uid,
                    labels,
                    owner: None,
                    verified: None,
                },
                wanted,
            )
        };
        let objects: Vec<(Holder, Wanted)> = (0..count).map(object).collect();
        let cluster = MemoryCluster::new(Arc::new(start), 1);
        for (holder, _) in &objects {
            cluster.set(&serde_json::json!({"apiVersion": "coder.com/v1alpha1", "kind": holder.kind,
                "metadata": {"name": holder.name, "namespace": NAMESPACE, "uid": holder.uid}}));
        }
        Self { coder: deployment.coder(), deployment, cluster, memory: KeyMemory::default(), objects }
    }

    /// One pass over each of them; returns the keys.
    fn pass(&self) -> Vec<Held> {
        self.pass_over(|| self.coder.clone())
    }

    /// The first pass, with a client each: one alone would take its time, as it should.
    fn make(&self) {
        self.pass_over(|| self.deployment.coder());
    }

    fn pass_over(&self, coder: impl Fn() -> Coder) -> Vec<Held> {
        let store = KeyStore { cluster: &self.cluster, memory: &self.memory, writes_status: true };
        let held = self.objects.iter().map(|(holder, wanted)| {
            let drive = Drive {
                wanted,
                coder: &coder(),
                secret: &KeySecrets::new(store, holder),
                around: &Around::new(store, holder, None),
                mirror: self.memory.record(holder).unwrap_or_default(),
                remembered: None,
                pods: None,
                now: start(),
            };
            wait(drive.run()).unwrap().rest.key.unwrap()
        });
        held.collect()
    }
}

#[test]
fn many_new_keys_and_their_end_share_one_list() {
    let many = Many::new(20);
    let held = many.pass();
    let deployment = &many.deployment;
    let count = |what: &str| deployment.count(what);
    assert_eq!((count("POST"), count("GET own"), count("GET daemons")), (20, 0, 1));
    assert!(held.iter().all(|it| it.is_ours && it.id.is_none()));
    // The next list tells the ids of all of them.
    let next = many.coder.anew();
    let held = many.pass_over(|| next.clone());
    assert!(held.iter().all(|it| it.is_ours && it.id.is_some()));
    many.pass();
    assert_eq!((count("POST"), count("GET own"), count("GET daemons")), (20, 0, 2));

    // A bare name is looked up before it is deleted, and what is gone is no trouble.
    let retiring = Retiring { held: held[3].clone(), ..Retiring::default() };
    for expected in [Revoked::Done, Revoked::Absent] {
        assert_eq!(wait(revoke(&many.coder, &retiring, false, start())).unwrap(), expected);
    }
    assert_eq!((count("DELETE"), deployment.keys().len()), (1, 19));
}

#[test]
fn a_pass_with_nothing_to_do_asks_as_much_for_two_hundred_as_for_one_hundred_and_writes_nothing() {
    let asked = |count: usize| {
        let many = Many::new(count);
        many.make();
        let (asked, writes) = (many.deployment.asked(), many.cluster.writes());
        many.pass();
        assert_eq!(many.cluster.writes(), writes);
        many.deployment.asked() - asked
    };
    assert_eq!((asked(100), asked(200)), (1, 1));
}

/// A key of ours on its way out.
fn retiring(deployment: &Arc<Watched>, is_there: bool) -> Retiring {
    let home = deployment.home();
    let mut held = Held {
        name: "alpha".to_owned(),
        id: Some(Uuid::from_u128(2)),
        organization_id: Some(home),
        is_ours: true,
        ..Held::default()
    };
    if is_there {
        let owner = memory::owner(deployment.coder.transport());
        let value =
            wait(owner.create_provisioner_key(home, "alpha", &std::collections::BTreeMap::new())).unwrap();
        held.id = wait(owner.prove_provisioner_key(&value)).unwrap().map(|it| it.id);
    }
    Retiring { held, since: start(), lost: false }
}

#[test]
fn revocation_compares_with_a_list_as_recent_as_it_was_asked_for() {
    let deployment = Watched::new(|it| it);
    let coder = deployment.coder();
    wait(coder.keys(deployment.home(), start())).unwrap();
    let retiring = retiring(&deployment, false);
    wait(revoke_as_read(&coder, &retiring, false, start())).unwrap();
    assert_eq!(deployment.count("GET daemons"), 1);
    wait(revoke(&coder, &retiring, false, start())).unwrap();
    assert_eq!(deployment.count("GET daemons"), 2, "the name may be another key's by now");
}

#[test]
fn deletion_whose_answer_is_lost_counts_as_revocation() {
    let lost: fn(Answered) -> Answered = |_| Err(TransportError::Broken("lost".to_owned()));
    // As where a proxy has sent the request twice.
    let not_found: fn(Answered) -> Answered = |it| {
        let body = r#"{"message": "Resource not found or you do not have access to this resource"}"#;
        it.map(|_| {
            Response::builder()
                .status(404)
                .header("x-coder-build-version", "v2.36.1")
                .body(body.into())
                .unwrap()
        })
    };
    for is_ours_by_name in [true, false] {
        for deletion in [(|it| it) as fn(Answered) -> Answered, lost, not_found] {
            let deployment = Watched::new(deletion);
            let coder = deployment.coder();
            let retiring = retiring(&deployment, true);
            let attempt = || wait(revoke(&coder, &retiring, is_ours_by_name, start()));
            // A second attempt is made where the first fails.
            let first = attempt().ok();
            let done = first.unwrap_or_else(|| attempt().unwrap());
            assert_eq!((done, deployment.keys()), (Revoked::Done, Vec::new()));
        }
        let deployment = Watched::new(|it| it);
        let retiring = retiring(&deployment, false);
        let done = wait(revoke(&deployment.coder(), &retiring, is_ours_by_name, start())).unwrap();
        assert_eq!(done, Revoked::Absent, "the key was never there");
    }
}
