//! Leadership: of several operators that could act, one does.
//!
//! What to do is decided by [`decide`], which is pure. The [`Candidate`] around it reads and writes the Lease, every write on
//! the version that it read, so that of two who try one is refused. How long a Lease is good for is measured on our own clock
//! from when we saw it renewed: the clocks of machines differ. The rest of `run` sees an [`Election`].

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{cluster::fence::Fence, telemetry::admin::Progress};

/// How long others wait for a leader that is not heard of.
pub(crate) const DURATION: Duration = Duration::from_secs(15);
/// The longest duration of another holder that is obeyed. A longer one would keep everybody out for as long as it says.
const LONGEST: Duration = Duration::from_mins(2);
/// How often a leader renews.
const RENEW: Duration = Duration::from_secs(5);
/// When a leader that could not renew stops: well before anybody else may start.
const GIVE_UP: Duration = Duration::from_secs(10);
/// How often those who wait look.
const LOOK: Duration = Duration::from_secs(2);
/// How soon what failed is tried again, and how long one try may take: a leader has two before it gives up.
const RETRY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(3);

/// Where we stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leadership {
    /// Somebody else leads, or nobody yet.
    Blocked,
    Leading,
    /// We led, and may not any more. There is no way back from here but a new start.
    Lost,
}

/// What to do about a Lease.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// Take it: nobody has it, or who had it is gone.
    Acquire,
    /// It is ours, and due.
    Renew,
    /// Nothing for that long.
    Wait(Duration),
}

/// Decides what `me` does about a lease that has been as it is since `seen`.
fn decide(lease: Option<&LeaseSpec>, me: &str, seen: Instant, now: Instant) -> Decision {
    let Some(lease) = lease else { return Decision::Acquire };
    let age = now.saturating_duration_since(seen);
    let left = |limit: Duration| limit.checked_sub(age).filter(|it| !it.is_zero());
    match lease.holder_identity.as_deref().unwrap_or_default() {
        "" => Decision::Acquire,
        holder if holder == me => left(RENEW).map_or(Decision::Renew, Decision::Wait),
        _ => left(duration(lease)).map_or(Decision::Acquire, Decision::Wait),
    }
}

/// How long another holder is waited for. The holder says it, because its build may have another opinion than ours; a value that
/// is not a sane duration is replaced by our own.
fn duration(lease: &LeaseSpec) -> Duration {
    let told = lease.lease_duration_seconds.and_then(|it| u64::try_from(it).ok()).map(Duration::from_secs);
    told.filter(|it| !it.is_zero() && *it <= LONGEST).unwrap_or(DURATION)
}

/// The lease in our hands: what `me` writes to take or to keep it.
fn claimed(before: Option<&LeaseSpec>, me: &str, now: Timestamp) -> LeaseSpec {
    let before = before.cloned().unwrap_or_default();
    let is_ours = before.holder_identity.as_deref() == Some(me);
    let transitions = before.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: if is_ours { before.acquire_time } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if is_ours { transitions } else { transitions.saturating_add(1) }),
        ..before
    }
}

/// A lease that nobody holds, for the next one to take at once.
fn released(before: &LeaseSpec, now: Timestamp) -> LeaseSpec {
    LeaseSpec { holder_identity: Some(String::new()), renew_time: Some(MicroTime(now)), ..before.clone() }
}

/// The Lease that an election is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Our part in an election, from the first try to the release.
#[derive(Debug)]
pub(crate) struct Election {
    /// The name of the Lease.
    lease: String,
    leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
    candidate: JoinHandle<()>,
}

impl Election {
    /// Stands for a Lease.
    pub(crate) fn begin(client: Client, lease: LeaseRef, progress: Progress, fence: Fence) -> Self {
        let LeaseRef { namespace, name } = lease;
        let candidate = Candidate::new(client, &namespace, name.clone(), progress, fence);
        tracing::info!(me = candidate.me, namespace, lease = name, "waiting to lead");
        let leadership = candidate.leadership.subscribe();
        let stop = CancellationToken::new();
        let candidate = tokio::spawn(candidate.run(stop.clone()));
        Self { lease: name, leadership, stop, candidate }
    }

    /// Returns when we lead; or, with false, when the candidate is gone.
    pub(crate) async fn won(&mut self) -> bool {
        self.leadership.wait_for(|it| *it == Leadership::Leading).await.is_ok()
    }

    /// Returns when we led and may not any more. A candidate that is gone, for whatever reason, renews nothing.
    pub(crate) async fn lost(&mut self) {
        self.leadership.wait_for(|it| *it == Leadership::Lost).await.ok();
    }

    /// Stops standing, and releases the Lease if it is ours.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.candidate.await {
            tracing::warn!(lease = self.lease, "not released: {error}");
        }
    }
}

/// The Lease as we last saw it.
#[derive(Debug)]
struct Seen {
    lease: Option<Lease>,
    /// Since when it has been like that, as far as we know.
    at: Instant,
}

impl Seen {
    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.as_ref()?.spec.as_ref()
    }

    /// Takes in what was read. Only another spec is news: a label that somebody adds keeps no leader alive.
    fn look(&mut self, lease: Option<Lease>, now: Instant) {
        let before = self.spec().cloned();
        self.lease = lease;
        if self.spec() != before.as_ref() {
            self.at = now;
        }
    }
}

/// One operator that leads or would.
#[derive(Debug)]
struct Candidate {
    leases: Api<Lease>,
    /// The name of the Lease.
    name: String,
    me: String,
    seen: Seen,
    /// Whether what we saw has to be read again before it is written.
    is_stale: bool,
    leadership: watch::Sender<Leadership>,
    /// Told whenever the Lease could be read.
    progress: Progress,
    /// Open while nobody else may act.
    fence: Fence,
    /// What last went wrong, which is told once.
    trouble: Option<String>,
}

impl Candidate {
    /// A candidate for a Lease, with an identity that no other process has or will have.
    fn new(client: Client, namespace: &str, name: String, progress: Progress, fence: Fence) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| name.clone());
        Self {
            leases: Api::namespaced(client, namespace),
            name,
            me: format!("{host}_{}", Uuid::new_v4()),
            seen: Seen { lease: None, at: Instant::now() },
            is_stale: true,
            leadership: watch::Sender::new(Leadership::Blocked),
            progress,
            fence,
            trouble: None,
        }
    }

    /// Tries to lead, and leads, until told to stop or until leadership is lost. A Lease that is ours is released at the end.
    async fn run(mut self, stop: CancellationToken) {
        // When the last write that kept the Lease was sent: others count from its arrival, which is later.
        let mut held: Option<Instant> = None;
        while !stop.is_cancelled() {
            let patience = held.map_or(PATIENCE, |it| PATIENCE.min(GIVE_UP.saturating_sub(it.elapsed())));
            let sent = Instant::now();
            let taken = timeout(patience, self.step()).await;
            if let Ok(Ok(_)) = &taken
                && self.trouble.take().is_some()
            {
                tracing::info!(lease = self.name, "is within reach again");
            }
            let pause = match taken {
                Ok(Ok(Decision::Wait(left))) => left,
                Ok(Ok(Decision::Acquire | Decision::Renew)) => {
                    held = Some(sent);
                    self.fence.open_until(sent + GIVE_UP);
                    RENEW
                }
                Ok(Err(error)) => self.failed(error.to_string()),
                Err(_) => self.failed(format!("no answer within {PATIENCE:?}")),
            };
            if self.publish(held) == Leadership::Lost {
                return;
            }
            let limit = held.map_or(LOOK, |it| RENEW.min(GIVE_UP.saturating_sub(it.elapsed())));
            tokio::select! {
                () = tokio::time::sleep(pause.min(limit)) => {}
                () = stop.cancelled() => {}
            }
        }
        if timeout(PATIENCE, self.release()).await.is_err() {
            tracing::warn!(lease = self.name, "not released: no answer");
        }
    }

    /// A step that failed is taken again soon, and what is to be written is read before.
    fn failed(&mut self, words: String) -> Duration {
        self.is_stale = true;
        if self.trouble.as_ref() != Some(&words) {
            tracing::warn!(lease = self.name, "cannot be read or written: {words}");
            self.trouble = Some(words);
        }
        RETRY
    }

    /// Tells where we stand after a step.
    fn publish(&self, held: Option<Instant>) -> Leadership {
        let is_ours = self.holds();
        let next = match held {
            None => Leadership::Blocked,
            Some(at) if is_ours && at.elapsed() < GIVE_UP => Leadership::Leading,
            Some(_) => Leadership::Lost,
        };
        if next == Leadership::Lost {
            self.fence.open_until(Instant::now());
        }
        self.leadership.send_if_modified(|it| std::mem::replace(it, next) != next);
        next
    }

    fn holds(&self) -> bool {
        self.seen.spec().and_then(|it| it.holder_identity.as_deref()) == Some(self.me.as_str())
    }

    /// Looks, decides, and does it. What was not done because somebody was faster is looked at once more.
    async fn step(&mut self) -> kube::Result<Decision> {
        if self.is_stale || !self.holds() {
            self.look().await?;
        }
        loop {
            let decision = decide(self.seen.spec(), &self.me, self.seen.at, Instant::now());
            if matches!(decision, Decision::Wait(_)) {
                return Ok(decision);
            }
            match self.claim().await {
                Ok(lease) => {
                    self.progress.is_in_touch_until(Instant::now() + DURATION);
                    self.seen.look(Some(lease), Instant::now());
                    return Ok(decision);
                }
                Err(kube::Error::Api(status)) if status.code == 409 => self.look().await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn look(&mut self) -> kube::Result<()> {
        let lease = self.leases.get_opt(&self.name).await?;
        self.progress.is_in_touch_until(Instant::now() + DURATION);
        let before = self.seen.at;
        self.seen.look(lease, Instant::now());
        if self.holds() {
            // A write of ours that was not answered did arrive. It proves nothing about now: the next one is due as before.
            self.seen.at = before;
        }
        self.is_stale = false;
        Ok(())
    }

    /// Writes the Lease as ours, on the version that we saw.
    async fn claim(&self) -> kube::Result<Lease> {
        let spec = Some(claimed(self.seen.spec(), &self.me, Timestamp::now()));
        if let Some(lease) = &self.seen.lease {
            let lease = Lease { spec, ..lease.clone() };
            self.leases.replace(&self.name, &PostParams::default(), &lease).await
        } else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            self.leases.create(&PostParams::default(), &Lease { metadata, spec }).await
        }
    }

    /// Lets the Lease go, if it is ours. It is read first: a write that was not answered may have arrived.
    async fn release(&mut self) {
        let done = match self.look().await {
            Ok(()) if self.holds() => self.write_released().await,
            other => other,
        };
        if let Err(error) = done {
            tracing::warn!(lease = self.name, "not released, so others wait {DURATION:?}: {error}");
        }
    }

    async fn write_released(&self) -> kube::Result<()> {
        let Some(lease) = &self.seen.lease else { return Ok(()) };
        let spec = lease.spec.as_ref().map(|it| released(it, Timestamp::now()));
        let lease = Lease { spec, ..lease.clone() };
        self.leases.replace(&self.name, &PostParams::default(), &lease).await.map(drop)
    }
}
