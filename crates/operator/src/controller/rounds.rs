//! Rounds: deletions that happen at the same time share the reads that they need before they revoke a key.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Instant, sleep_until},
};

/// How far apart rounds begin.
const APART: Duration = Duration::from_millis(500);

/// The last list of the pods of a namespace.
type LastList = Arc<AsyncMutex<Option<PodList>>>;

/// The rounds of a process, and the pods that were listed in them.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// When the last round began, or the next one will.
    last: Mutex<Option<Instant>>,
    pods: Mutex<HashMap<String, LastList>>,
}

/// When a round began. Whatever joined it happened before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Round(Instant);

#[derive(Debug)]
struct PodList {
    begun: Instant,
    pods: Arc<Vec<Pod>>,
}

impl Round {
    /// A read for this round begins after this instant.
    pub(super) fn began(self) -> Instant {
        self.0
    }
}

impl Rounds {
    /// Waits for a round that begins after this call: at once, unless another round has just begun.
    pub(super) async fn join(&self) -> Round {
        let began = self.next(Instant::now());
        sleep_until(began).await;
        Round(began)
    }

    fn next(&self, now: Instant) -> Instant {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match *last {
            Some(next) if next > now => next,
            Some(last) if now < last + APART => last + APART,
            _ => now,
        };
        if *last != Some(next) {
            // Nobody needs the lists of earlier rounds but those who are using them.
            self.lists().retain(|_, it| Arc::strong_count(it) > 1);
            *last = Some(next);
        }
        next
    }

    /// The pods of a namespace, from one list for everybody in a round. Only their metadata and grace periods are there.
    pub(super) async fn pods<E, F>(
        &self,
        round: Round,
        namespace: &str,
        list: impl FnOnce() -> F,
    ) -> Result<Arc<Vec<Pod>>, E>
    where
        F: Future<Output = Result<Vec<Pod>, E>>,
    {
        let last = Arc::clone(self.lists().entry(namespace.to_owned()).or_default());
        let mut last = last.lock().await;
        if let Some(known) = last.as_ref().filter(|it| it.begun > round.began()) {
            return Ok(Arc::clone(&known.pods));
        }
        let begun = Instant::now();
        let pods = Arc::new(list().await?.into_iter().map(bare).collect());
        *last = Some(PodList { begun, pods: Arc::clone(&pods) });
        Ok(pods)
    }

    fn lists(&self) -> std::sync::MutexGuard<'_, HashMap<String, LastList>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pod without the fields that a deletion does not read.
fn bare(pod: Pod) -> Pod {
    let ObjectMeta { name, namespace, labels, deletion_timestamp, .. } = pod.metadata;
    let metadata = ObjectMeta { name, namespace, labels, deletion_timestamp, ..ObjectMeta::default() };
    let termination_grace_period_seconds = pod.spec.and_then(|it| it.termination_grace_period_seconds);
    let spec = Some(PodSpec { termination_grace_period_seconds, ..PodSpec::default() });
    Pod { metadata, spec, status: None }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures::future::join_all;
    use tokio::time::{advance, sleep};

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Counts lists that take a while.
    #[derive(Default)]
    struct Lists(AtomicUsize);

    impl Lists {
        async fn list(&self) -> Result<Vec<Pod>, Infallible> {
            self.0.fetch_add(1, Ordering::SeqCst);
            sleep(20 * MILLISECOND).await;
            Ok(Vec::new())
        }

        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn single_deletion_does_not_wait_for_a_round() {
        let rounds = Rounds::default();
        let started = Instant::now();
        assert_eq!(rounds.join().await.began(), started);
        advance(APART).await;
        assert_eq!(rounds.join().await.began(), started + APART);
    }

    #[tokio::test(start_paused = true)]
    async fn round_begins_after_everybody_who_joins_it() {
        let rounds = Rounds::default();
        let first = rounds.join().await;
        advance(MILLISECOND).await;
        let joined = Instant::now();
        let later = join_all((0..200).map(|_| rounds.join())).await;
        assert!(later.iter().all(|it| it.began() > joined && it.began() == first.began() + APART));
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_of_a_round_share_one_list_of_each_namespace() {
        let (rounds, lists) = (Rounds::default(), Lists::default());
        rounds.join().await;
        let pods = |namespace: &'static str| {
            let (rounds, lists) = (&rounds, &lists);
            async move {
                let round = rounds.join().await;
                advance(MILLISECOND).await;
                rounds.pods(round, namespace, || lists.list()).await.unwrap();
            }
        };
        join_all((0..100).map(|_| pods("one"))).await;
        assert_eq!(lists.count(), 1);
        join_all((0..100).map(|number| pods(if number % 2 == 0 { "one" } else { "two" }))).await;
        assert_eq!(lists.count(), 3, "a later round lists again");
        assert_eq!(rounds.lists().len(), 2);
        advance(APART).await;
        rounds.join().await;
        assert_eq!(rounds.lists().len(), 0, "lists of earlier rounds are dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn list_that_fails_is_not_shared() {
        let rounds = Rounds::default();
        let round = rounds.join().await;
        advance(MILLISECOND).await;
        assert_eq!(rounds.pods(round, "one", async || Err("unreachable")).await, Err("unreachable"));
        assert_eq!(rounds.pods(round, "one", async || Ok::<_, &str>(Vec::new())).await, Ok(Arc::default()));
    }
}
