//! Versions of manifests that this operator has written and the watch has yet to show.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;

/// How long the watch may take to show what we wrote.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// The last version of each object that we wrote, by uid, and when.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites(Mutex<HashMap<String, (u64, Instant)>>);

impl OwnWrites {
    /// Enters a version that we wrote.
    pub(crate) fn note(&self, written: &ObjectMeta) {
        let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        versions.retain(|_, (_, at)| at.elapsed() < SHOWN_WITHIN);
        if let (Some(uid), Some(version)) = (&written.uid, version(written)) {
            versions.insert(uid.clone(), (version, Instant::now()));
        }
    }

    /// Whether the watch has yet to show what we wrote. A reconcile of the version before would end in a conflict with ourselves.
    pub(crate) fn are_later_than(&self, shown: &ObjectMeta) -> bool {
        let versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = shown.uid.as_ref().and_then(|uid| versions.get(uid));
        let is_awaited =
            |shown: u64| written.is_some_and(|(version, at)| shown < *version && at.elapsed() < SHOWN_WITHIN);
        version(shown).is_some_and(is_awaited)
    }
}

/// The version as a number. `None` where it cannot be compared.
fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(version: Option<&str>) -> ObjectMeta {
        let version = version.map(str::to_owned);
        ObjectMeta { uid: Some("u".to_owned()), resource_version: version, ..ObjectMeta::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn watch_that_is_behind_our_own_write_is_waited_for() {
        let writes = OwnWrites::default();
        assert!(!writes.are_later_than(&metadata(Some("7"))));
        writes.note(&metadata(Some("8")));
        assert!(writes.are_later_than(&metadata(Some("7"))) && !writes.are_later_than(&metadata(Some("8"))));
        assert!(
            !writes.are_later_than(&metadata(None)),
            "a version that cannot be compared is used as it is"
        );
        tokio::time::advance(SHOWN_WITHIN).await;
        assert!(!writes.are_later_than(&metadata(Some("7"))), "not for ever");
    }
}
