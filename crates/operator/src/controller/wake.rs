//! What woke a reconcile, and how recent its reads have to be for that.

use std::time::Duration;

use api::annotation::{FLUX_REQUESTED_AT, RECONCILE_REQUESTED_AT};
use engine::Freshness;
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use crate::controller::predicate;

/// How old a list may be that a periodic reconcile compares with.
const LIST_AGE: Duration = Duration::from_secs(10);
/// What no event asks for.
pub(super) const PERIODIC: Freshness = Freshness::UpTo(LIST_AGE);

/// One wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wake {
    /// When the last change or request was noticed that no reconcile has answered yet; `None` for a periodic reconcile.
    event: Option<Instant>,
    /// When the reconcile began.
    began: Instant,
    /// Whether the reconcile before could not read what it needed.
    is_doubtful: bool,
}

impl Wake {
    pub(super) fn new(event: Option<Instant>, began: Instant) -> Self {
        Self { event, began, is_doubtful: false }
    }

    /// The same after a reconcile that could not read what it needed, or not.
    pub(super) fn doubtful(self, is_doubtful: bool) -> Self {
        Self { is_doubtful, ..self }
    }

    /// Whether the reconcile before could not read what it needed.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    pub(super) fn event(&self) -> Option<Instant> {
        self.event
    }

    /// The same for a manifest that came back from a write: it may carry a later change than the one that woke the
    /// reconcile.
    pub(super) fn of_written(self, read: &impl ResourceExt, written: &impl ResourceExt) -> Self {
        if predicate::version(read) == predicate::version(written) {
            return self;
        }
        Self { event: Some(Instant::now()), ..self }
    }

    /// How recent the reads have to be that the reconcile compares with: later than what it answers.
    pub(super) fn need(&self) -> Freshness {
        Freshness::since(self.event, LIST_AGE, self.began)
    }

    /// The same for a write: what is overwritten is what was there when the reconcile began, or later.
    pub(super) fn need_to_write(&self) -> Freshness {
        Freshness::BegunAfter(self.began)
    }

    /// Whether a status that is ready now, and was not before, needs more recent reads than the reconcile had.
    pub(super) fn is_too_old_for(&self, was_ready: bool, is_ready: bool) -> bool {
        is_ready && !was_ready && self.event.is_none()
    }
}

/// The reconcile request that the manifest carries: the later one, where both annotations are set.
///
/// It is acknowledged in `lastHandledReconcileAt` together with whatever the reconcile of just this manifest found. A
/// reconcile that could not read says so with `Ready=False`, so the acknowledgement claims nothing that was not seen, and
/// whoever waits for it, as Flux does, learns why at once. A control plane can be ready while its entitlements are not read:
/// it acknowledges the request once they are.
pub(super) fn requested(object: &impl ResourceExt) -> Option<String> {
    let annotations = object.annotations();
    let ours = annotations.get(RECONCILE_REQUESTED_AT);
    let flux = annotations.get(FLUX_REQUESTED_AT);
    let time = |it: &String| it.parse::<Timestamp>().ok();
    let is_later = match (ours, flux) {
        (Some(ours), Some(flux)) => time(flux) > time(ours),
        (ours, _) => ours.is_none(),
    };
    if is_later { flux } else { ours }.cloned()
}

#[cfg(test)]
mod tests {
    use api::CoderGroup;
    use serde_json::{Value, json};

    use super::*;

    fn second(start: Instant, number: u64) -> Instant {
        start + Duration::from_secs(number)
    }

    #[test]
    fn an_event_needs_reads_begun_after_it_and_a_timer_young_ones() {
        let start = Instant::now();
        let (event, began) = (second(start, 20), second(start, 25));
        assert_eq!(Wake::new(None, began).need(), Freshness::UpTo(LIST_AGE));
        assert_eq!(Wake::new(Some(event), began).need(), Freshness::BegunAfter(event));
        let old = second(start, 1);
        let oldest = second(start, 15);
        assert_eq!(
            Wake::new(Some(old), began).need(),
            Freshness::BegunAfter(oldest),
            "it waited for its turn"
        );
    }

    #[test]
    fn writes_rest_on_reads_of_this_very_reconcile() {
        let start = Instant::now();
        let began = second(start, 25);
        for event in [None, Some(start)] {
            assert_eq!(Wake::new(event, began).need_to_write(), Freshness::BegunAfter(began));
        }
    }

    #[test]
    fn only_a_first_ready_of_a_periodic_reconcile_is_looked_at_again() {
        let now = Instant::now();
        let (timer, event) = (Wake::new(None, now), Wake::new(Some(now), now));
        assert!(timer.is_too_old_for(false, true));
        assert!(!timer.is_too_old_for(true, true));
        assert!(!timer.is_too_old_for(false, false));
        assert!(!event.is_too_old_for(false, true), "its reads began after the event");
    }

    fn annotated(ours: Option<&str>, flux: Option<&str>) -> CoderGroup {
        let annotations = json!({RECONCILE_REQUESTED_AT: ours, FLUX_REQUESTED_AT: flux});
        let mut annotations: serde_json::Map<String, Value> = serde_json::from_value(annotations).unwrap();
        annotations.retain(|_, it| !it.is_null());
        serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1",
            "kind": "CoderGroup", "metadata": {"name": "a", "annotations": annotations},
            "spec": {"controlPlaneRef": {"name": "main"}}}))
        .unwrap()
    }

    #[test]
    fn a_request_that_came_back_from_a_write_is_an_event_of_its_own() {
        let start = Instant::now();
        let wake = Wake::new(Some(start), start);
        let read = annotated(None, None);
        assert_eq!(wake.of_written(&read, &read), wake);
        assert!(wake.of_written(&read, &annotated(Some("a"), None)).event() > Some(start));
    }

    #[test]
    fn the_later_of_two_requests_counts() {
        let asked = |ours: Option<&str>, flux: Option<&str>| requested(&annotated(ours, flux));
        let (early, late) = ("2026-01-01T10:00:00+02:00", "2026-01-01T09:00:00Z");
        for (ours, flux, expected) in [
            (None, None, None),
            (Some("a"), None, Some("a")),
            (None, Some("b"), Some("b")),
            (Some(early), Some(late), Some(late)),
            (Some(late), Some(early), Some(late)),
            (Some("now"), Some(early), Some(early)),
            (Some("now"), Some("then"), Some("now")),
        ] {
            assert_eq!(asked(ours, flux).as_deref(), expected, "{ours:?} {flux:?}");
        }
    }
}
