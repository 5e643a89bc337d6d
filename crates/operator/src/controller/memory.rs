//! What the controllers remember of objects between reconciles: how often they failed, and what had to be mended. It dies with
//! the process; nothing that has to last is here.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use api::Reason;
use engine::pipeline::contention::Mended;
use tokio::time::Instant;

use super::wake::Wake;
use crate::{
    controller::{about::About, backoff},
    index::KindName,
};

/// How long a deletion that is done is remembered: the watch shows the object for a moment more.
const RELEASED_FOR: Duration = Duration::from_mins(1);

/// Which object: its kind, its namespace and its name.
type Key = (KindName, String, String);

/// What is remembered of one object.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// Another object of the same name starts anew.
    uid: String,
    /// How often its reconciles ended in a failure since one did not.
    failures: u32,
    /// How often they had no end of their own since one had.
    cuts: u32,
    /// Which version of the manifest was last reconciled; see [`crate::controller::predicate::version`].
    version: Option<u64>,
    /// When the last change or request was noticed that no reconcile has answered yet.
    event: Option<Instant>,
    /// Whether the last reconcile could not read what it needed: a read from before may be older than the failure.
    is_doubtful: bool,
    pub(super) mended: Mended,
    /// When its deletion first tried to take back what the operator made.
    pub(super) cleanup_since: Option<Instant>,
    /// What its deletion has left in Coder. `None` until everything that can be taken back there is.
    pub(super) left_in_coder: Option<Vec<(Reason, String)>>,
}

/// What is remembered of all of them.
#[derive(Debug, Default)]
pub(super) struct Memory {
    objects: Mutex<HashMap<Key, Remembered>>,
    /// The uids of objects whose finalizer was removed, and when.
    released: Mutex<HashMap<String, Instant>>,
}

impl Memory {
    /// How long to leave an object alone whose reconcile ended in a failure once more.
    pub(super) fn after_failure(&self, about: &About, wanted: Option<Duration>) -> Duration {
        self.with(about, |it| {
            it.failures = it.failures.saturating_add(1);
            backoff::spread(backoff::back_off(it.failures - 1, wanted), &about.uid)
        })
    }

    /// A reconcile ended as it should: failures before do not count any more.
    pub(super) fn succeeded(&self, about: &About) {
        self.with(about, |it| it.failures = 0);
    }

    /// How long to leave an object alone whose reconcile was cut short once more.
    pub(super) fn after_cut(&self, about: &About) -> Duration {
        self.with(about, |it| {
            it.cuts = it.cuts.saturating_add(1);
            backoff::spread(backoff::back_off(it.cuts - 1, None), &about.uid)
        })
    }

    /// A reconcile came to an end of its own, whichever.
    pub(super) fn ended(&self, about: &About) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        // An object that has just been let go is not remembered again.
        if let Some(remembered) = objects.get_mut(&key(about)) {
            remembered.cuts = 0;
        }
    }

    /// A reconcile of this version of the manifest begins, which was noticed at `noticed`.
    pub(super) fn wake(&self, about: &About, version: u64, noticed: Instant) -> Wake {
        self.with(about, |it| {
            if it.version.replace(version) != Some(version) {
                it.event = it.event.max(Some(noticed));
            }
            Wake::new(it.event, Instant::now()).doubtful(it.is_doubtful)
        })
    }

    /// A write of ours has left this version of the manifest: nobody else asks for anything with it.
    pub(super) fn wrote(&self, about: &About, version: u64) {
        self.with(about, |it| it.version = Some(version));
    }

    /// Whether the last reconcile, or one that is under way, is of this version of the manifest.
    pub(super) fn is_reconciled(&self, about: &About, version: u64) -> bool {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.get(&key(about)).is_some_and(|it| it.uid == about.uid && it.version == Some(version))
    }

    /// Something that the object refers to has changed.
    pub(super) fn reference_changed(&self, about: &About, noticed: Instant) {
        self.with(about, |it| it.event = it.event.max(Some(noticed)));
    }

    /// A reconcile has answered what woke it. What came meanwhile is still to be answered.
    pub(super) fn answered(&self, about: &About, wake: &Wake) {
        self.with(about, |it| {
            it.event = it.event.filter(|_| it.event != wake.event());
            it.is_doubtful = false;
        });
    }

    /// A reconcile could not read what it needed.
    pub(super) fn unanswered(&self, about: &About) {
        self.with(about, |it| it.is_doubtful = true);
    }

    pub(super) fn with<T>(&self, about: &About, look: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = objects.entry(key(about)).or_default();
        if remembered.uid != about.uid {
            *remembered = Remembered { uid: about.uid.clone(), ..Remembered::default() };
        }
        look(remembered)
    }

    /// The finalizer of an object that is being deleted was removed: its deletion is done.
    pub(super) fn released(&self, about: &About) {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        released.retain(|_, it| it.elapsed() < RELEASED_FOR);
        released.insert(about.uid.clone(), Instant::now());
    }

    /// Whether the deletion of an object is done, whatever the watch shows of it.
    pub(super) fn is_released(&self, about: &About) -> bool {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&about.uid)
    }

    pub(super) fn forget(&self, kind: KindName, namespace: &str, name: &str) {
        let key = (kind, namespace.to_owned(), name.to_owned());
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }
}

fn key(about: &About) -> Key {
    (about.kind.clone(), about.namespace.clone(), about.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(uid: &str) -> About {
        let (kind, namespace, name) = ("CoderGroup".into(), "platform".to_owned(), "alpha".to_owned());
        About { kind, namespace, name, uid: uid.to_owned(), generation: Some(1) }
    }

    #[tokio::test(start_paused = true)]
    async fn deletion_that_is_done_is_remembered_for_a_while() {
        let memory = Memory::default();
        memory.released(&about("a"));
        assert!(memory.is_released(&about("a")) && !memory.is_released(&about("b")));
        tokio::time::advance(RELEASED_FOR).await;
        memory.released(&about("b"));
        assert!(!memory.is_released(&about("a")) && memory.is_released(&about("b")));
    }

    #[test]
    fn an_event_counts_until_a_reconcile_has_answered_it() {
        let (memory, about, start) = (Memory::default(), about("a"), Instant::now());
        let later = start + Duration::from_secs(1);
        let first = memory.wake(&about, 1, start);
        assert_eq!(first.event(), Some(start), "nobody has reconciled this version");
        assert_eq!(memory.wake(&about, 1, later).event(), Some(start), "a retry answers the same event");
        memory.answered(&about, &first);
        assert_eq!(memory.wake(&about, 1, later).event(), None, "the timer");
        assert_eq!(memory.wake(&about, 2, later).event(), Some(later), "another version");
    }

    #[test]
    fn only_another_version_than_the_last_one_asks_for_a_reconcile() {
        let (memory, object, start) = (Memory::default(), about("a"), Instant::now());
        assert!(!memory.is_reconciled(&object, 1), "a start knows nothing");
        memory.wake(&object, 1, start);
        memory.wrote(&object, 2);
        assert!(memory.is_reconciled(&object, 2) && !memory.is_reconciled(&object, 1));
        assert!(!memory.is_reconciled(&about("b"), 2), "another object of that name");
    }

    #[test]
    fn version_that_we_wrote_is_no_event() {
        let (memory, about, start) = (Memory::default(), about("a"), Instant::now());
        let wake = memory.wake(&about, 1, start);
        memory.wrote(&about, 2);
        memory.answered(&about, &wake);
        assert_eq!(memory.wake(&about, 2, start).event(), None);
        assert!(memory.wake(&about, 3, start).event().is_some());
    }

    #[test]
    fn reads_are_doubtful_from_a_failed_reconcile_to_one_that_read() {
        let (memory, about, start) = (Memory::default(), about("a"), Instant::now());
        let wake = memory.wake(&about, 1, start);
        memory.answered(&about, &wake);
        assert!(!memory.wake(&about, 1, start).is_doubtful());
        memory.unanswered(&about);
        let wake = memory.wake(&about, 1, start);
        assert!(wake.is_doubtful());
        memory.answered(&about, &wake);
        assert!(!memory.wake(&about, 1, start).is_doubtful());
    }

    #[test]
    fn an_event_that_comes_during_a_reconcile_is_left_to_the_next_one() {
        let (memory, about, start) = (Memory::default(), about("a"), Instant::now());
        let first = memory.wake(&about, 1, start);
        memory.reference_changed(&about, Instant::now());
        memory.answered(&about, &first);
        let second = memory.wake(&about, 1, start);
        assert!(second.event() > Some(start));
        memory.answered(&about, &second);
        assert_eq!(memory.wake(&about, 1, start).event(), None);
        assert!(memory.wake(&self::about("b"), 1, start).event().is_some(), "another object of that name");
    }

    #[test]
    fn failures_add_up_until_one_pass_succeeds_or_another_object_takes_the_name() {
        let memory = Memory::default();
        let fail = |uid: &str| memory.after_failure(&about(uid), None);
        let first = fail("a");
        assert!(fail("a") > first);
        assert_eq!(fail("b"), Memory::default().after_failure(&about("b"), None));
        fail("a");
        memory.succeeded(&about("a"));
        assert_eq!(fail("a"), first);
    }

    #[test]
    fn a_pass_that_ends_in_a_failure_is_not_one_that_was_cut_short() {
        let memory = Memory::default();
        let first = memory.after_cut(&about("a"));
        memory.after_failure(&about("a"), None);
        memory.ended(&about("a"));
        assert_eq!(memory.after_cut(&about("a")), first);
        assert!(memory.after_failure(&about("a"), None) > first);
    }
}
