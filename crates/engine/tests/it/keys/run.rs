//! Runs operators over the model: one or two at a time, ended or interrupted wherever a test says so.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use engine::{
    Cluster as _, Coder,
    coder::Promises,
    keys::{Drive, Driven, coderd::revoke},
    objects::Live,
    pipeline::outcome::Trouble,
    secrets::{
        Around, HeldKeys, Holder, KeyMemory, KeySecrets, KeyStore, Record, Retiring, Revoked, keys_to_revoke,
    },
};
use futures::{FutureExt as _, future::BoxFuture};
use sim::MemoryCluster;
use uuid::Uuid;

use super::{
    calls::{ClusterCalls, Wire},
    model::{GRACE, KIND, NAMESPACE, OBJECT, Shared},
    secret::set_owner,
};
use crate::memory::{self, wait};

type Pass = Pin<Box<dyn Future<Output = Result<Driven, Trouble>> + Send>>;

/// What one process of the operator knows.
#[derive(Clone)]
pub(crate) struct Operator {
    who: &'static str,
    model: Shared,
    /// The deployments with the lists that were read, of whichever age.
    coders: Arc<Mutex<BTreeMap<Uuid, Coder>>>,
    memory: Arc<KeyMemory>,
    cluster: MemoryCluster,
    lags: bool,
}

impl Operator {
    fn new(who: &'static str, model: &Shared, lags: bool) -> Self {
        let cluster = model.lock().unwrap().cluster.intercepted_by(ClusterCalls::new(who, model));
        let cluster = if lags { cluster.lagging() } else { cluster };
        let (coders, memory) = (Arc::default(), Arc::default());
        Self { who, model: Arc::clone(model), coders, memory, cluster, lags }
    }

    fn coder(&self, deployment: Uuid) -> Coder {
        let mut coders = self.coders.lock().unwrap();
        let new = || {
            let wire = Wire { who: self.who, model: Arc::clone(&self.model), deployment };
            Coder::new(memory::owner(Arc::new(wire)), Promises::default())
        };
        coders.entry(deployment).or_insert_with(new).clone()
    }

    /// The deployment where the key is wanted.
    pub(crate) fn here(&self) -> Coder {
        let deployment = self.model.lock().unwrap().wanted.place.deployment_id;
        self.coder(deployment.unwrap())
    }

    /// What was listed before is not used any more.
    pub(crate) fn forget_lists(&self) {
        self.coders.lock().unwrap().values_mut().for_each(|it| *it = it.anew());
    }

    /// The watch catches up with everything that has happened.
    pub(crate) fn catch_up(&mut self) {
        self.cluster = Self::new(self.who, &self.model, self.lags).cluster;
    }

    /// The newest record that this process knows.
    pub(crate) fn remembered(&self) -> Option<Record> {
        self.memory.record(&self.holder())
    }

    /// Whether the declared Secret is as this process has last read or written it.
    pub(crate) fn is_up_to_date(&self) -> bool {
        let name = self.model.lock().unwrap().wanted.secret.name.clone();
        let shown = self.cluster.secret_metadata(NAMESPACE, &name).now_or_never().unwrap().unwrap();
        let now = self.model.lock().unwrap().secret();
        let version = now.and_then(|it| it["metadata"]["resourceVersion"].as_str().map(str::to_owned));
        shown.and_then(|it| it.resource_version) == version
    }

    fn holder(&self) -> Holder {
        let uid = self.model.lock().unwrap().wanted.names.uid.clone();
        let mut owned = serde_json::json!({});
        set_owner(&mut owned, Some(&uid));
        let owner = serde_json::from_value(owned["metadata"]["ownerReferences"][0].clone()).unwrap();
        let (namespace, name) = (NAMESPACE.to_owned(), OBJECT.to_owned());
        Holder {
            kind: KIND.into(),
            namespace,
            name,
            uid,
            labels: BTreeMap::new(),
            owner: Some(owner),
            verified: None,
        }
    }

    async fn revoke_elsewhere(&self, retiring: Retiring) -> Result<Revoked, Trouble> {
        let Some(deployment) = retiring.held.place.deployment_id else { return Ok(Revoked::OutOfReach) };
        let (now, is_ours) = {
            let model = self.model.lock().unwrap();
            (model.now(), model.wanted.names.is_ours(&retiring.held.name))
        };
        revoke(&self.coder(deployment).anew(), &retiring, is_ours, now).await
    }
}

/// An operator and what it is doing.
pub(crate) struct Process {
    pub(crate) operator: Operator,
    pass: Option<Pass>,
    deployment: Option<Uuid>,
}

impl Process {
    pub(crate) fn new(who: &'static str, model: &Shared) -> Self {
        Self { operator: Operator::new(who, model, false), pass: None, deployment: None }
    }

    /// The same with a watch of the cluster that is behind.
    pub(crate) fn lagging(who: &'static str, model: &Shared) -> Self {
        Self { operator: Operator::new(who, model, true), pass: None, deployment: None }
    }

    /// Begins a pass, as a controller does: reads the object, drives, writes the status where it differs.
    pub(crate) fn begin(&mut self) {
        let (wanted, mirror, object, pods, now) = {
            let model = self.operator.model.lock().unwrap();
            let object = model.cluster.find(KIND, OBJECT).and_then(Live::new);
            (model.wanted.clone(), model.status(), object, model.pods(), model.now())
        };
        if self.deployment.is_some_and(|it| wanted.place.deployment_id != Some(it)) {
            self.operator.forget_lists();
        }
        self.deployment = wanted.place.deployment_id;
        let operator = self.operator.clone();
        let (coder, holder) = (operator.here(), operator.holder());
        self.pass = Some(Box::pin(async move {
            let store =
                KeyStore { cluster: &operator.cluster, memory: &operator.memory, writes_status: true };
            let secrets = KeySecrets::new(store, &holder);
            let elsewhere = |retiring: Retiring| -> BoxFuture<'_, Result<Revoked, Trouble>> {
                Box::pin(operator.revoke_elsewhere(retiring))
            };
            let mut around = Around::new(store, &holder, object);
            around.elsewhere = Some(&elsewhere);
            let drive = Drive {
                wanted: &wanted,
                coder: &coder,
                secret: &secrets,
                around: &around,
                mirror,
                remembered: around.remembered(),
                pods,
                now,
            };
            let (_, looked) = drive.look_first().await?;
            let driven = drive.run_after(looked, None).await?;
            assert!(driven.rest.again_at.is_none_or(|it| it > now), "a hot loop: {driven:#?}");
            let is_same = operator.model.lock().unwrap().status() == driven.rest.record;
            if !is_same {
                around.mirror(&driven.rest.record).await?;
            }
            Ok(driven)
        }));
    }

    /// Goes on to the next stop. Gives the end of the pass, if it ended.
    pub(crate) fn step(&mut self) -> Option<Result<Driven, Trouble>> {
        let pass = self.pass.as_mut()?;
        match pass.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => None,
            Poll::Ready(ended) => {
                self.pass = None;
                Some(ended)
            }
        }
    }

    /// Goes on for that many stops, or to the end.
    pub(crate) fn steps(&mut self, stops: usize) {
        (0..stops).take_while(|_| self.step().is_none()).for_each(drop);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.pass.is_some()
    }

    /// The process dies where it is; the one after it knows nothing.
    pub(crate) fn crash(&mut self) {
        self.pass = None;
        self.operator = Operator::new(self.operator.who, &self.operator.model, self.operator.lags);
    }

    /// A whole pass. Gives how many stops it had.
    pub(crate) fn pass(&mut self) -> (Result<Driven, Trouble>, usize) {
        self.begin();
        for stops in 0..10_000 {
            if let Some(ended) = self.step() {
                return (ended, stops);
            }
        }
        panic!("a pass does not end");
    }
}

/// Lets time go by and passes be done until nothing happens any more, and looks at what is left.
pub(crate) fn settle(model: &Shared) -> Driven {
    model.lock().unwrap().faults.clear();
    let mut process = Process::new("last", model);
    for _ in 0..8 {
        let before = model.lock().unwrap().writes;
        process.operator.forget_lists();
        let (ended, _) = process.pass();
        let driven = ended.unwrap_or_else(|it| panic!("{it:?}\n{:#?}", model.lock().unwrap()));
        assert!(driven.trouble.is_none(), "{:?}", driven.trouble);
        let mut model = model.lock().unwrap();
        let Record { intent, retiring, former, .. } = &driven.rest.record;
        let is_settled = intent.is_none() && retiring.is_empty() && former.is_empty();
        if model.writes == before && is_settled {
            drop(model);
            quiet(&mut process);
            return driven;
        }
        model.roll();
        model.advance(GRACE);
    }
    panic!("it does not come to rest\n{:#?}", model.lock().unwrap());
}

/// A pass over what is as it should be reads the Secret, and asks coderd nothing that is not shared by all.
fn quiet(process: &mut Process) {
    let model = Arc::clone(&process.operator.model);
    let (writes, calls) = {
        let model = model.lock().unwrap();
        (model.writes, model.calls)
    };
    process.pass().0.unwrap();
    let model = model.lock().unwrap();
    assert_eq!(model.writes, writes, "{model:#?}");
    assert!(model.calls <= calls + 2, "{} calls\n{model:#?}", model.calls - calls);
}

/// Deletes the manifest: every key of ours goes, and no other.
pub(crate) fn finish(model: &Shared) {
    let operator = Operator::new("end", model, false);
    let (wanted, records, now) = {
        let mut model = model.lock().unwrap();
        let records: Vec<Record> = model.record().into_iter().chain([model.status()]).collect();
        // The pods go first.
        model.carried.clear();
        // The value in the Secret is dead from here on, and should be.
        for mut secret in model.cluster.all("Secret") {
            secret["data"] = serde_json::json!({});
            model.cluster.set(&secret);
        }
        model.newest = None;
        (model.wanted.clone(), records, model.now())
    };
    let (names, place, coder) = (&wanted.names, &wanted.place, operator.here());
    let work = async {
        let listing = coder.list_keys(wanted.organization_id, true, now).await?;
        let listed = Some((listing.keys.as_slice(), place));
        for step in keys_to_revoke(&HeldKeys { names, records: &records, listed }) {
            if step.held.place.is_same(place) {
                revoke(&coder, &step, names.is_ours(&step.held.name), now).await?;
            } else {
                operator.revoke_elsewhere(step).await?;
            }
        }
        Ok::<_, Trouble>(())
    };
    wait(work).unwrap();
}
