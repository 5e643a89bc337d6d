//! The reads that a result rests on, as far as their age goes.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::{Freshness, shared::Read};

/// When the oldest and the latest read began that were used.
#[derive(Debug, Default)]
pub(super) struct Evidence(Mutex<Option<(Instant, Instant)>>);

impl Evidence {
    /// Records a read that is used.
    pub(super) fn record<T>(&self, read: &Read<T>) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = read.begun;
        *used = Some(used.map_or((begun, begun), |(oldest, latest)| (oldest.min(begun), latest.max(begun))));
    }

    /// Whether every read that was used is recent enough.
    pub(super) fn meets(&self, need: Freshness) -> bool {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.is_none_or(|(oldest, _)| need.admits(oldest, Instant::now()))
    }

    /// When the latest read began. `None` where nothing was read.
    pub(super) fn latest(&self) -> Option<Instant> {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.map(|(_, latest)| latest)
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
        assert_eq!(evidence.latest(), Some(now + Duration::from_secs(9)));
    }
}
