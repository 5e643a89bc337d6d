//! Runs operators over the model: one or two at a time, ended or interrupted wherever a test says so.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use engine::{
    pipeline::outcome::Trouble,
    secrets::{
        Coderd as _, Drive, Driven, HeldKeys, Record, Surroundings as _, coderd::revoke, keys_to_revoke,
    },
};

use super::model::{GRACE, Operator, Shared};

type Pass = Pin<Box<dyn Future<Output = Result<Driven, Trouble>> + Send>>;

/// An operator and what it is doing.
pub(crate) struct Process {
    pub(crate) operator: Operator,
    pass: Option<Pass>,
}

impl Process {
    pub(crate) fn new(name: &'static str, coder: &Shared) -> Self {
        Self { operator: Operator::new(name, coder), pass: None }
    }

    /// Begins a pass, as a controller does: reads the object, drives, writes the status where it differs.
    pub(crate) fn begin(&mut self) {
        let mut operator = self.operator.clone();
        let (wanted, mirror, version, now) = {
            let coder = operator.lock();
            (coder.wanted.clone(), coder.status.clone(), coder.status_version, coder.now)
        };
        operator.deployment = wanted.place.deployment_id.unwrap();
        if operator.deployment != self.operator.deployment {
            // Another deployment has another coder.
            self.operator.cache.lock().unwrap().clear();
            self.operator.deployment = operator.deployment;
        }
        *operator.status_version.lock().unwrap() = version;
        let pods = operator.pods();
        let remembered = operator.memory.lock().unwrap().clone();
        self.pass = Some(Box::pin(async move {
            let drive = Drive {
                wanted: &wanted,
                coderd: &operator,
                secret: &operator,
                around: &operator,
                mirror,
                remembered,
                pods,
                now,
            };
            let driven = drive.run().await?;
            assert!(driven.rest.again_at.is_none_or(|it| it > now), "a hot loop: {driven:#?}");
            let is_same = operator.lock().status == driven.rest.record;
            if !is_same {
                operator.mirror(&driven.rest.record).await?;
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
        (self.operator.cache, self.operator.own) = (Arc::default(), Arc::default());
        (self.operator.memory, self.operator.reads) = (Arc::default(), Arc::default());
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
pub(crate) fn settle(coder: &Shared) -> Driven {
    coder.lock().unwrap().faults.clear();
    let mut process = Process::new("last", coder);
    for _ in 0..8 {
        let before = coder.lock().unwrap().writes;
        process.operator.cache.lock().unwrap().clear();
        let (ended, _) = process.pass();
        let driven = ended.unwrap_or_else(|it| panic!("{it:?}\n{:#?}", coder.lock().unwrap()));
        assert!(driven.trouble.is_none(), "{:?}", driven.trouble);
        let mut coder = coder.lock().unwrap();
        let Record { retiring, former, .. } = &driven.rest.record;
        if coder.writes == before && retiring.is_empty() && former.is_empty() {
            drop(coder);
            quiet(&mut process);
            return driven;
        }
        coder.roll();
        coder.now = coder.now.checked_add(GRACE).unwrap();
    }
    panic!("it does not come to rest\n{:#?}", coder.lock().unwrap());
}

/// A pass over what is as it should be reads the Secret, and asks coderd nothing that is not shared by all.
fn quiet(process: &mut Process) {
    let (writes, calls) = {
        let coder = process.operator.lock();
        (coder.writes, coder.calls)
    };
    process.pass().0.unwrap();
    let coder = process.operator.lock();
    assert_eq!(coder.writes, writes, "{coder:#?}");
    assert!(coder.calls <= calls + 2, "{} calls\n{coder:#?}", coder.calls - calls);
}

/// Waits for something that nobody else has to do anything for.
pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut work = Box::pin(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

/// Deletes the manifest: every key of ours goes, and no other.
pub(crate) fn finish(coder: &Shared) {
    let operator = Operator::new("end", coder);
    let (names, place, records, now, organization) = {
        let coder = operator.lock();
        let wanted = &coder.wanted;
        let records: Vec<Record> =
            coder.record().cloned().into_iter().chain([coder.status.clone()]).collect();
        (wanted.names.clone(), wanted.place.clone(), records, coder.now, wanted.organization_id)
    };
    // The pods go first.
    operator.lock().carried.clear();
    let work = async {
        let listing = operator.list(organization, true, now).await?;
        let listed = Some((listing.keys.as_slice(), &place));
        for step in keys_to_revoke(&HeldKeys { names: &names, records: &records, listed }) {
            if step.held.place.is_same(&place) {
                revoke(&operator, &step, names.is_ours(&step.held.name), now).await?;
            } else {
                operator.revoke_elsewhere(&step).await?;
            }
        }
        Ok::<_, Trouble>(())
    };
    // The value in the Secret is dead from here on, and should be.
    operator.lock().secrets.values_mut().for_each(|it| it.data.clear());
    operator.lock().newest = None;
    wait(work).unwrap();
}
