//! What is asked of coderd, and how often; and revocations whose answer is lost.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use client::TransportError;
use engine::{
    Coder,
    keys::{
        Drive,
        coderd::{revoke, revoke_as_read},
    },
    secrets::{
        Around, Held, Holder, KeyMemory, KeySecrets, KeyStore, Names, Policy, Retiring, Revoked, Wanted,
    },
};
use http::Method;
use serde_json::json;
use sim::MemoryCluster;
use uuid::Uuid;

use super::model::{NAMESPACE, wanted};
use crate::{
    memory::{self, start, wait},
    wire::{Answered, Fault, Wire, answer},
};

/// The names of the keys that are not coderd's own.
fn keys(wire: &Wire) -> Vec<String> {
    let keys = wire.deployment.state().provisioner_keys;
    keys.into_values().filter(|it| !it.secret.is_empty()).map(|it| it.name).collect()
}

fn home() -> Uuid {
    memory::DEFAULT.parse().unwrap()
}

/// How many of these requests begin with one text and end with another.
fn count(asked: &[String], method: &str, last: &str) -> usize {
    asked.iter().filter(|it| it.starts_with(method) && it.ends_with(last)).count()
}

/// Objects with a key each, and the deployment and the cluster that they share.
struct Many {
    wire: Arc<Wire>,
    coder: Coder,
    cluster: MemoryCluster,
    memory: KeyMemory,
    objects: Vec<(Holder, Wanted)>,
}

impl Many {
    fn new(count: usize) -> Self {
        let wire = Wire::new(memory::licensed());
        let object = |number: usize| {
            let (name, uid) =
                (format!("key-{number}"), format!("{number:04}0000-0000-4000-8000-000000000000"));
            let mut wanted = wanted(Policy::Recreate);
            (wanted.names, wanted.organization_id) = (Names::new(&name, &uid), home());
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
        Self { coder: wire.coder(), wire, cluster, memory: KeyMemory::default(), objects }
    }

    /// One pass over each of them; returns the keys.
    fn pass(&self) -> Vec<Held> {
        self.pass_over(|| self.coder.clone())
    }

    /// The first pass, with a client each: one alone would take its time, as it should.
    fn make(&self) {
        self.pass_over(|| self.wire.coder());
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
    let costs = || {
        let asked = many.wire.asked();
        (count(&asked, "POST", ""), count(&asked, "GET", "/own"), count(&asked, "GET", "/daemons"))
    };
    let held = many.pass();
    assert_eq!(costs(), (20, 0, 1));
    assert!(held.iter().all(|it| it.is_ours && it.id.is_none()));
    // The next list tells the ids of all of them.
    let next = many.coder.anew();
    let held = many.pass_over(|| next.clone());
    assert!(held.iter().all(|it| it.is_ours && it.id.is_some()));
    many.pass();
    assert_eq!(costs(), (0, 0, 1));

    // A bare name is looked up before it is deleted, and what is gone is no trouble.
    let retiring = Retiring { held: held[3].clone(), ..Retiring::default() };
    for expected in [Revoked::Done, Revoked::Absent] {
        assert_eq!(wait(revoke(&many.coder, &retiring, false, start())).unwrap(), expected);
    }
    assert_eq!((count(&many.wire.asked(), "DELETE", ""), keys(&many.wire).len()), (1, 19));
}

#[test]
fn a_pass_with_nothing_to_do_asks_as_much_for_two_hundred_as_for_one_hundred_and_writes_nothing() {
    let asked = |count: usize| {
        let many = Many::new(count);
        many.make();
        many.wire.asked();
        let writes = many.cluster.writes();
        many.pass();
        assert_eq!(many.cluster.writes(), writes);
        many.wire.asked().len()
    };
    assert_eq!((asked(100), asked(200)), (1, 1));
}

/// A key of ours on its way out.
fn retiring(wire: &Wire, is_there: bool) -> Retiring {
    let home = home();
    let mut held = Held {
        name: "alpha".to_owned(),
        id: Some(Uuid::from_u128(2)),
        organization_id: Some(home),
        is_ours: true,
        ..Held::default()
    };
    if is_there {
        let owner = memory::owner(wire.deployment.transport());
        let value =
            wait(owner.create_provisioner_key(home, "alpha", &std::collections::BTreeMap::new())).unwrap();
        held.id = wait(owner.prove_provisioner_key(&value)).unwrap().map(|it| it.id);
    }
    Retiring { held, since: start(), lost: false }
}

#[test]
fn revocation_compares_with_a_list_as_recent_as_it_was_asked_for() {
    let wire = Wire::new(memory::licensed());
    let coder = wire.coder();
    wait(coder.keys(home(), start())).unwrap();
    let retiring = retiring(&wire, false);
    wait(revoke_as_read(&coder, &retiring, false, start())).unwrap();
    assert_eq!(count(&wire.asked(), "GET", "/daemons"), 1);
    wait(revoke(&coder, &retiring, false, start())).unwrap();
    assert_eq!(count(&wire.asked(), "GET", "/daemons"), 1, "the name may be another key's by now");
}

/// A deployment whose first answer to a deletion is this one.
fn losing(first: Option<fn() -> Answered>) -> Arc<Wire> {
    let is_lost = AtomicBool::default();
    Wire::failing(memory::coder(Arc::new(start), memory::licensed()), move |request| {
        let is_first = request.method() == Method::DELETE && !is_lost.swap(true, Ordering::Relaxed);
        first.filter(|_| is_first).map(|answer| Fault::Lost(answer()))
    })
}

#[test]
fn deletion_whose_answer_is_lost_counts_as_revocation() {
    let lost: fn() -> Answered = || Err(TransportError::Broken("lost".to_owned()));
    // As where a proxy has sent the request twice.
    let not_found: fn() -> Answered = || {
        Ok(answer(404, &json!({"message": "Resource not found or you do not have access to this resource"})))
    };
    for is_ours_by_name in [true, false] {
        for deletion in [None, Some(lost), Some(not_found)] {
            let wire = losing(deletion);
            let coder = wire.coder();
            let retiring = retiring(&wire, true);
            let attempt = || wait(revoke(&coder, &retiring, is_ours_by_name, start()));
            // A second attempt is made where the first fails.
            let first = attempt().ok();
            let done = first.unwrap_or_else(|| attempt().unwrap());
            assert_eq!((done, keys(&wire)), (Revoked::Done, Vec::new()));
        }
        let wire = losing(None);
        let retiring = retiring(&wire, false);
        let done = wait(revoke(&wire.coder(), &retiring, is_ours_by_name, start())).unwrap();
        assert_eq!(done, Revoked::Absent, "the key was never there");
    }
}
