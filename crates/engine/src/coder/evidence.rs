//! The reads that a result rests on, as far as their age goes.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::{Freshness, shared::Read};

/// When the oldest read began that was used.
#[derive(Debug, Default)]
pub(super) struct Evidence(Mutex<Option<Instant>>);

impl Evidence {
    /// Records a read that is used.
    pub(super) fn record<T>(&self, read: &Read<T>) {
        let mut oldest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *oldest = Some(oldest.map_or(read.begun, |it| it.min(read.begun)));
    }

    /// Whether every read that was used is recent enough.
    pub(super) fn meets(&self, need: Freshness) -> bool {
        let oldest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        oldest.is_none_or(|begun| need.admits(begun, Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    #[test]
    fn the_oldest_read_decides() {
        let (evidence, now) = (Evidence::default(), Instant::now());
        let begun = |seconds| Read { value: Arc::new(()), begun: now + Duration::from_secs(seconds) };
        let event = Freshness::BegunAfter(now + Duration::from_secs(5));
        assert!(evidence.meets(event), "nothing was used that could be too old");
        evidence.record(&begun(7));
        assert!(evidence.meets(event));
        evidence.record(&begun(3));
        evidence.record(&begun(9));
        assert!(!evidence.meets(event));
    }
}
