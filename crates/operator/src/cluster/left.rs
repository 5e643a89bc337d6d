//! What deletions have named as left behind: each is named once.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

/// How many notes are remembered of one object. Where there are more, a note is repeated.
const MOST_NOTES: usize = 100;
/// The same for objects.
const MOST_OBJECTS: usize = 10_000;

/// Notes by the uid of the object that was deleted.
#[derive(Debug, Default)]
pub(crate) struct Left(Mutex<HashMap<String, BTreeSet<String>>>);

impl Left {
    /// Whether this is not yet named as left behind by that object. A deletion that is retried does not name it again.
    pub(crate) fn is_new(&self, uid: &str, note: &str) -> bool {
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if objects.len() >= MOST_OBJECTS && !objects.contains_key(uid) {
            objects.clear();
        }
        let notes = objects.entry(uid.to_owned()).or_default();
        if notes.len() >= MOST_NOTES {
            notes.clear();
        }
        notes.insert(note.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_new_once_for_each_object() {
        let left = Left::default();
        assert!(left.is_new("a", "key alpha"));
        assert!(!left.is_new("a", "key alpha"));
        assert!(left.is_new("a", "key beta"));
        assert!(left.is_new("b", "key alpha"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let left = Left::default();
        for number in 0..=MOST_OBJECTS {
            left.is_new(&number.to_string(), "key alpha");
            left.is_new("a", &number.to_string());
        }
        let objects = left.0.lock().unwrap();
        assert!(objects.len() <= MOST_OBJECTS && objects.values().all(|it| it.len() <= MOST_NOTES));
    }
}
