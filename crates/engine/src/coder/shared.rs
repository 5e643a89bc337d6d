//! Reads that are shared by everybody who needs no later one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as SyncMutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};
use uuid::Uuid;

use super::Freshness;

/// How long the read of an organization is kept that nobody asks for any more.
const KEPT: Duration = Duration::from_mins(10);

/// The last read of something.
#[derive(Debug)]
pub(super) struct Shared<T>(Mutex<Option<Read<T>>>);

/// A value and when the request for it was sent.
#[derive(Debug)]
pub(super) struct Read<T> {
    pub(super) value: Arc<T>,
    pub(super) begun: Instant,
}

impl<T> Clone for Read<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), begun: self.begun }
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Shared<T> {
    /// Returns the last read if it is recent enough, else reads. One read is under way at a time: whoever asks meanwhile
    /// waits for its end, and of those for whom it began too early the first reads for all of them.
    pub(super) async fn get<E, F>(&self, need: Freshness, read: impl FnOnce() -> F) -> Result<Read<T>, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut last = self.0.lock().await;
        let begun = Instant::now();
        if let Some(known) = last.as_ref().filter(|it| need.admits(it.begun, begun)) {
            return Ok(known.clone());
        }
        let read = Read { value: Arc::new(read().await?), begun };
        *last = Some(read.clone());
        Ok(read)
    }

    /// Drops what was read: it is unknown what a write of ours has done to it.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }

    /// Enters the answer to a write of ours. A read that began after the answer has it already, and may know better.
    pub(super) async fn note(&self, answered: Instant, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        if let Some(read) = self.0.lock().await.as_mut().filter(|it| it.begun <= answered) {
            change(Arc::make_mut(&mut read.value));
        }
    }

    /// Whether somebody reads it now, or has lately.
    fn is_used(&self, now: Instant) -> bool {
        let Ok(last) = self.0.try_lock() else { return true };
        last.as_ref().is_some_and(|it| now.saturating_duration_since(it.begun) < KEPT)
    }
}

/// Puts an item into a list, in place of an earlier version of it.
pub(super) fn enter<T: Clone>(list: &mut Vec<T>, item: &T, id: impl Fn(&T) -> Uuid) {
    match list.iter_mut().find(|it| id(it) == id(item)) {
        Some(known) => known.clone_from(item),
        None => list.push(item.clone()),
    }
}

/// The last read of every organization. A slow one delays no other.
#[derive(Debug)]
pub(super) struct PerOrganization<T>(SyncMutex<BTreeMap<Uuid, Arc<Shared<T>>>>);

impl<T> Default for PerOrganization<T> {
    fn default() -> Self {
        Self(SyncMutex::default())
    }
}

impl<T> PerOrganization<T> {
    pub(super) fn of(&self, organization: Uuid) -> Arc<Shared<T>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(&organization) {
            let now = Instant::now();
            // Organizations come and go.
            all.retain(|_, it| Arc::strong_count(it) > 1 || it.is_used(now));
        }
        Arc::clone(all.entry(organization).or_default())
    }
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

    const READ_TAKES: Duration = Duration::from_millis(20);
    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Something that can be read, and counts how often it was.
    #[derive(Default)]
    struct Source {
        shared: Shared<usize>,
        reads: AtomicUsize,
    }

    impl Source {
        async fn get(&self, need: Freshness) -> usize {
            let read = async || {
                let number = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
                sleep(READ_TAKES).await;
                Ok::<_, Infallible>(number)
            };
            let Ok(read) = self.shared.get(need, read).await;
            *read.value
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_hundred_who_ask_after_one_event_share_one_read() {
        let source = Source::default();
        source.get(Freshness::UpTo(Duration::MAX)).await;
        let event = Instant::now();
        advance(MILLISECOND).await;
        let answers = join_all((0..200).map(|_| source.get(Freshness::BegunAfter(event)))).await;
        assert_eq!(source.reads(), 2);
        assert!(answers.iter().all(|it| *it == 2), "nobody gets the read from before the event");
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_during_a_read_that_began_too_early_share_the_next_one() {
        let source = Source::default();
        let asked = |number: u32| {
            let source = &source;
            async move {
                // All of them while the first read is under way.
                sleep(READ_TAKES / 400 * number).await;
                let event = Instant::now();
                sleep(MILLISECOND).await;
                source.get(Freshness::BegunAfter(event)).await
            }
        };
        let answers = join_all((0..200).map(asked)).await;
        assert_eq!(source.reads(), 2, "{answers:?}");
        assert_eq!(answers[199], 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_young_read_serves_those_who_name_no_event() {
        let source = Source::default();
        let need = Freshness::UpTo(Duration::from_secs(10));
        assert_eq!(source.get(need).await, 1);
        advance(Duration::from_secs(9)).await;
        assert_eq!(source.get(need).await, 1);
        advance(Duration::from_secs(1)).await;
        assert_eq!(source.get(need).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_read_leaves_the_one_before_to_those_whom_it_serves() {
        let shared = Shared::default();
        let any = Freshness::UpTo(Duration::MAX);
        assert_eq!(shared.get(any, async || Ok::<_, &str>(1)).await.map(|it| *it.value), Ok(1));
        let after = Freshness::BegunAfter(Instant::now());
        assert_eq!(
            shared.get(after, async || Err("unreachable")).await.map(|it| *it.value),
            Err("unreachable")
        );
        assert_eq!(shared.get(any, async || Err("not asked")).await.map(|it| *it.value), Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_entered_into_reads_that_cannot_have_it_and_no_others() {
        let shared = Shared::default();
        let any = Freshness::UpTo(Duration::MAX);
        shared.get(any, async || Ok::<_, Infallible>(1)).await.unwrap();
        advance(MILLISECOND).await;
        let answered = Instant::now();
        shared.note(answered, |it| *it = 2).await;
        assert_eq!(*shared.get(any, async || Ok::<_, Infallible>(0)).await.unwrap().value, 2);
        advance(MILLISECOND).await;
        let later = Freshness::BegunAfter(answered);
        assert_eq!(*shared.get(later, async || Ok::<_, Infallible>(3)).await.unwrap().value, 3);
        shared.note(answered, |it| *it = 2).await;
        assert_eq!(*shared.get(any, async || Ok::<_, Infallible>(0)).await.unwrap().value, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn organizations_that_nobody_asks_for_are_forgotten() {
        let all = PerOrganization::<usize>::default();
        for number in 0..100 {
            let read = async || Ok::<_, Infallible>(1);
            all.of(Uuid::from_u128(number)).get(Freshness::UpTo(KEPT), read).await.unwrap();
        }
        assert_eq!(all.0.lock().unwrap().len(), 100);
        advance(KEPT).await;
        all.of(Uuid::from_u128(200));
        assert_eq!(all.0.lock().unwrap().len(), 1);
    }
}
