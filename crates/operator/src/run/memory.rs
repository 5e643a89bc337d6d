//! What a controller remembers of objects between passes: how often they failed, and what it had to mend. It dies with the
//! process; nothing that has to last is here.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use engine::contention::Mended;

use super::pace;

/// Which object: its namespace and its name.
pub(super) type ObjectName = (String, String);

/// What is remembered of one object.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// Another object of the same name starts anew.
    uid: String,
    failures: u32,
    pub(super) mended: Mended,
}

/// What is remembered of the objects of one kind.
#[derive(Debug, Default)]
pub(super) struct Memory {
    objects: Mutex<HashMap<ObjectName, Remembered>>,
}

impl Memory {
    /// How long to leave an object alone that failed once more.
    pub(super) fn after_failure(&self, name: &ObjectName, uid: &str, wanted: Option<Duration>) -> Duration {
        self.with(name, uid, |it| {
            let delay = pace::back_off(it.failures, wanted);
            it.failures = it.failures.saturating_add(1);
            pace::spread(delay, uid)
        })
    }

    /// An object came to an end of its own: its failures do not count any more.
    pub(super) fn succeeded(&self, name: &ObjectName, uid: &str) {
        self.with(name, uid, |it| it.failures = 0);
    }

    pub(super) fn with<T>(&self, name: &ObjectName, uid: &str, look: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = objects.entry(name.clone()).or_default();
        if remembered.uid != uid {
            *remembered = Remembered { uid: uid.to_owned(), ..Remembered::default() };
        }
        look(remembered)
    }

    pub(super) fn forget(&self, name: &ObjectName) {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_add_up_until_one_pass_succeeds_or_another_object_takes_the_name() {
        let (memory, name) = (Memory::default(), ("platform".to_owned(), "alpha".to_owned()));
        let fail = |uid: &str| memory.after_failure(&name, uid, None);
        let first = fail("a");
        assert!(fail("a") > first);
        assert_eq!(fail("b"), Memory::default().after_failure(&name, "b", None));
        fail("a");
        memory.succeeded(&name, "a");
        assert_eq!(fail("a"), first);
    }
}
