//! Which endings are news: those that are another than the last one of the same object.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many endings are remembered. An object that is deleted while it is in trouble may leave its own behind; when there
/// are too many all are forgotten, which costs a repeated line each.
const MOST: usize = 10_000;

/// The last ending of every object that was not as it should be, by uid. What is ready is not remembered: an object that was
/// never told of counts as ready, so that those who start with everything in order say nothing.
#[derive(Debug, Default)]
pub(super) struct News(Mutex<HashMap<String, u64>>);

impl News {
    /// Whether this ending is another than the last one.
    pub(super) fn is_new(&self, uid: &str, is_ready: bool, words: &[&str]) -> bool {
        let mut last = self.lock();
        if is_ready {
            return last.remove(uid).is_some();
        }
        if last.len() >= MOST && !last.contains_key(uid) {
            last.clear();
        }
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        let now = hasher.finish();
        last.insert(uid.to_owned(), now) != Some(now)
    }

    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_ending_is_news() {
        let news = News::default();
        assert!(!news.is_new("a", true, &["UpToDate"]), "a first look at what is in order");
        assert!(news.is_new("a", false, &["Unreachable", "refused"]));
        assert!(!news.is_new("a", false, &["Unreachable", "refused"]));
        assert!(news.is_new("a", false, &["Unreachable", "timeout"]), "the same reason for another cause");
        assert!(news.is_new("b", false, &["Unreachable", "timeout"]), "another object");
        assert!(news.is_new("a", true, &["UpToDate"]));
        assert!(!news.is_new("a", true, &["UpToDate"]));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let news = News::default();
        for number in 0..=MOST * 2 {
            news.is_new(&number.to_string(), false, &["Unreachable"]);
        }
        assert!(news.lock().len() <= MOST);
    }
}
