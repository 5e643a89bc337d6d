//! Failures of watches: each is counted, and logged unless the same one was logged lately.

use std::time::{Duration, Instant};

use engine::ports::ClusterError;

use crate::{index::KindName, telemetry::metrics::Metrics};

/// How long the same complaint of a watch is not repeated.
const QUIET: Duration = Duration::from_mins(10);

/// What a watch last complained of, and when that was told.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Option<(String, Instant)>);

impl Complaints {
    /// Reports the errors of a watch.
    pub(crate) fn reported(kind: KindName, metrics: &Metrics) -> impl FnMut(&ClusterError) + Send {
        let mut complaints = Self::default();
        move |error| complaints.report(&kind, &error.to_string(), metrics)
    }

    /// Counts a watch that failed, and logs it unless the same was logged lately.
    pub(crate) fn report(&mut self, kind: &KindName, words: &str, metrics: &Metrics) {
        metrics.watch_failed(kind.clone());
        if self.is_due(words, Instant::now()) {
            tracing::warn!(%kind, "cannot watch what this kind needs, and goes on trying: {words}");
        }
    }

    fn is_due(&mut self, words: &str, now: Instant) -> bool {
        let is_told = self.0.as_ref().is_some_and(|(last, at)| last == words && now < *at + QUIET);
        if !is_told {
            self.0 = Some((words.to_owned(), now));
        }
        !is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_of_a_watch_is_logged_seldom() {
        let (mut complaints, now) = (Complaints::default(), Instant::now());
        assert!(complaints.is_due("forbidden", now));
        assert!(!complaints.is_due("forbidden", now + Duration::from_secs(30)));
        assert!(complaints.is_due("unreachable", now + Duration::from_secs(31)));
        assert!(complaints.is_due("forbidden", now + Duration::from_secs(32)));
        assert!(complaints.is_due("forbidden", now + Duration::from_secs(32) + QUIET));
    }
}
