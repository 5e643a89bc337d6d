//! What the controllers remember of objects between passes: how often they failed, and what had to be mended. It dies with
//! the process; nothing that has to last is here.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use engine::{contention::Mended, provisioner_keys::Proved};

use super::{metrics::KindName, pace, pass::About};

/// Which object: its kind, its namespace and its name.
type Key = (KindName, String, String);

/// What is remembered of one object.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// Another object of the same name starts anew.
    uid: String,
    /// How often its passes ended in a failure since one did not.
    failures: u32,
    /// How often they had no end of their own since one had.
    cuts: u32,
    pub(super) mended: Mended,
    /// Which key its Secret holds, as coderd said: asked once for every version.
    pub(super) proved: Option<Proved>,
}

/// What is remembered of all of them.
#[derive(Debug, Default)]
pub(super) struct Memory {
    objects: Mutex<HashMap<Key, Remembered>>,
}

impl Memory {
    /// How long to leave an object alone whose pass ended in a failure once more.
    pub(super) fn after_failure(&self, about: &About, wanted: Option<Duration>) -> Duration {
        self.with(about, |it| {
            it.failures = it.failures.saturating_add(1);
            pace::spread(pace::back_off(it.failures - 1, wanted), &about.uid)
        })
    }

    /// A pass ended as it should: failures before do not count any more.
    pub(super) fn succeeded(&self, about: &About) {
        self.with(about, |it| it.failures = 0);
    }

    /// How long to leave an object alone whose pass was cut short once more.
    pub(super) fn after_cut(&self, about: &About) -> Duration {
        self.with(about, |it| {
            it.cuts = it.cuts.saturating_add(1);
            pace::spread(pace::back_off(it.cuts - 1, None), &about.uid)
        })
    }

    /// A pass came to an end of its own, whichever.
    pub(super) fn ended(&self, about: &About) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        // An object that has just been let go is not remembered again.
        if let Some(remembered) = objects.get_mut(&key(about)) {
            remembered.cuts = 0;
        }
    }

    pub(super) fn with<T>(&self, about: &About, look: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = objects.entry(key(about)).or_default();
        if remembered.uid != about.uid {
            *remembered = Remembered { uid: about.uid.clone(), ..Remembered::default() };
        }
        look(remembered)
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
