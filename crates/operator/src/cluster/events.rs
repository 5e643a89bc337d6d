//! Events: every change is an Event of its own, and the same words again are a series.
//!
//! kube's recorder joins Events by their reason and keeps the words of the first, so that the second change of a field, or the
//! second key that was revoked, is never read. Here the note is part of what makes two Events the same.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use api::Reason;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::Patch, runtime::events::EventType};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::{patches, writes};

/// As whom we write Events.
const CONTROLLER: &str = "coder-operator";
/// The longest note in bytes. Kubernetes takes 1024.
const LONGEST_NOTE: usize = 1000;
/// The longest part of an Event's name that is the object's name; a number follows.
const LONGEST_NAME: usize = 220;
/// After this time without a repetition the same words are a new Event.
const SERIES_ENDS: SignedDuration = SignedDuration::from_mins(6);
/// How many writes there may be at once for one object.
const BURST: u32 = 25;
/// After that, one write in this time.
const REFILL: SignedDuration = SignedDuration::from_secs(30);
/// How many Events are written at once.
const AT_ONCE: usize = 16;
/// How many Events may wait to be written.
const MOST_WAITING: usize = 4096;
/// How many Events are remembered to be repeated.
const MOST_REMEMBERED: usize = 2048;

/// What an Event says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) type_: EventType,
    pub(crate) reason: Reason,
    pub(crate) action: &'a str,
    pub(crate) note: &'a str,
}

/// Whether an Event counts against what may be written for its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    PerObject,
    /// What is left behind, and what was revoked, is named in any case.
    Unlimited,
}

/// Writes Events.
pub(crate) struct Events {
    writer: Arc<Writer>,
    under_way: TaskTracker,
}

struct Writer {
    client: Client,
    instance: String,
    known: Mutex<Known>,
    /// How many Events are written at once.
    at_once: Semaphore,
}

/// Which Event it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    object: String,
    is_warning: bool,
    reason: String,
    action: String,
    note: String,
}

/// An Event that may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Series {
    name: String,
    count: i32,
    last: Timestamp,
}

/// What may be written for one object.
#[derive(Debug)]
struct Budget {
    left: u32,
    since: Timestamp,
    skipped: u32,
}

/// What is known of earlier Events. Pure: the time is an argument.
#[derive(Debug, Default)]
struct Known {
    series: HashMap<Key, Series>,
    budgets: HashMap<String, Budget>,
}

/// What becomes of an Event.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// It is new. So many others of its object were skipped before it.
    Create {
        skipped: u32,
    },
    Repeat(Series),
    Skip,
}

impl Known {
    fn turn(&mut self, key: &Key, limit: Limit, now: Timestamp) -> Turn {
        let is_recent = |it: Timestamp| now.duration_since(it) < SERIES_ENDS;
        self.series.retain(|_, it| is_recent(it.last));
        self.budgets.retain(|_, it| it.refilled(now) < BURST || it.skipped > 0);
        let budget = self.budgets.entry(key.object.clone()).or_insert_with(|| Budget::new(now));
        let may_write = limit == Limit::Unlimited || budget.take(now);
        if let Some(series) = self.series.get_mut(key) {
            (series.count, series.last) = (series.count.saturating_add(1), now);
            return if may_write { Turn::Repeat(series.clone()) } else { Turn::Skip };
        }
        if !may_write {
            budget.skipped = budget.skipped.saturating_add(1);
            return Turn::Skip;
        }
        Turn::Create { skipped: std::mem::take(&mut budget.skipped) }
    }

    fn created(&mut self, key: Key, name: String, now: Timestamp) {
        if self.series.len() >= MOST_REMEMBERED
            && let Some(oldest) = self.series.iter().min_by_key(|it| it.1.last).map(|it| it.0.clone())
        {
            self.series.remove(&oldest);
        }
        self.series.insert(key, Series { name, count: 1, last: now });
    }
}

impl Budget {
    fn new(now: Timestamp) -> Self {
        Self { left: BURST, since: now, skipped: 0 }
    }

    /// What may be written now.
    fn refilled(&self, now: Timestamp) -> u32 {
        let periods = now.duration_since(self.since).as_secs() / REFILL.as_secs();
        self.left.saturating_add(u32::try_from(periods).unwrap_or_default()).min(BURST)
    }

    fn take(&mut self, now: Timestamp) -> bool {
        let refilled = self.refilled(now);
        if refilled > self.left {
            (self.left, self.since) = (refilled, now);
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

impl Events {
    pub(crate) fn new(client: Client) -> Self {
        let instance = std::env::var("POD_NAME").ok().filter(|it| !it.is_empty());
        let instance = instance.unwrap_or_else(|| CONTROLLER.to_owned());
        let at_once = Semaphore::new(AT_ONCE);
        let writer = Arc::new(Writer { client, instance, known: Mutex::default(), at_once });
        Self { writer, under_way: TaskTracker::new() }
    }

    /// Writes an Event in the background, without delaying the caller.
    pub(crate) fn send(
        &self,
        about: ObjectReference,
        type_: EventType,
        (reason, action): (Reason, &'static str),
        note: String,
    ) {
        if self.under_way.len() >= MOST_WAITING {
            tracing::debug!(%reason, "an Event is not written: too many wait for the API server");
            return;
        }
        let writer = Arc::clone(&self.writer);
        self.under_way.spawn(async move {
            let _permit = writer.at_once.acquire().await;
            let words = Words { type_, reason, action, note: &note };
            writer.publish(&about, words, Limit::PerObject).await.ok()
        });
    }

    /// Returns when no Event is under way.
    pub(crate) async fn flush(&self) {
        self.under_way.close();
        self.under_way.wait().await;
    }

    /// Writes an Event that must not be skipped. A namespace that is being deleted takes no Event; it is then about `instead`.
    pub(crate) async fn publish_surely(
        &self,
        about: &ObjectReference,
        words: Words<'_>,
        instead: Option<&ObjectReference>,
    ) {
        if self.writer.publish(about, words, Limit::Unlimited).await.is_err()
            && let Some(instead) = instead
        {
            self.writer.publish(instead, words, Limit::Unlimited).await.ok();
        }
    }
}

impl Writer {
    /// Writes an Event about an object.
    async fn publish(
        &self,
        about: &ObjectReference,
        words: Words<'_>,
        limit: Limit,
    ) -> Result<(), kube::Error> {
        let key = key(about, words);
        let now = Timestamp::now();
        let turn = self.with(|it| it.turn(&key, limit, now));
        let events = Api::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or("default"));
        let skipped = match turn {
            Turn::Skip => return Ok(()),
            Turn::Create { skipped } => skipped,
            Turn::Repeat(Series { name, count, last }) => {
                let series = EventSeries { count, last_observed_time: MicroTime(last) };
                let patch = Patch::Merge(json!({"series": series}));
                match events.patch(&name, &patches(), &patch).await {
                    // Kubernetes forgets Events after a while.
                    Err(kube::Error::Api(status)) if status.code == 404 => 0,
                    done => return done.map(drop),
                }
            }
        };
        let event = self.event(about, words, skipped, now);
        let name = event.metadata.name.clone().unwrap_or_default();
        events.create(&writes(), &event).await?;
        self.with(|it| it.created(key, name, now));
        Ok(())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn event(&self, about: &ObjectReference, words: Words<'_>, skipped: u32, now: Timestamp) -> Event {
        let name = about.name.as_deref().unwrap_or(CONTROLLER);
        let name = cut(name, LONGEST_NAME).trim_end_matches(['-', '.']);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: about.namespace.clone(),
                ..ObjectMeta::default()
            },
            action: Some(words.action.to_owned()),
            reason: Some(words.reason.as_str().to_owned()),
            note: Some(noted(words.note, skipped)),
            type_: Some(if words.type_ == EventType::Warning { "Warning" } else { "Normal" }.to_owned()),
            event_time: Some(MicroTime(now)),
            regarding: Some(about.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

fn key(about: &ObjectReference, words: Words<'_>) -> Key {
    let named = || format!("{:?}/{:?}/{:?}", about.kind, about.namespace, about.name);
    Key {
        object: about.uid.clone().unwrap_or_else(named),
        is_warning: words.type_ == EventType::Warning,
        reason: words.reason.as_str().to_owned(),
        action: words.action.to_owned(),
        note: words.note.to_owned(),
    }
}

/// The note, and how many Events were skipped before it.
fn noted(note: &str, skipped: u32) -> String {
    if skipped == 0 {
        return cut(note, LONGEST_NOTE).to_owned();
    }
    let end = format!(" ({skipped} more Events were skipped before: see the operator's log)");
    format!("{}{end}", cut(note, LONGEST_NOTE - end.len()))
}

/// The beginning of a text, in that many bytes.
fn cut(text: &str, longest: usize) -> &str {
    let mut end = text.len().min(longest);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        http::{StatusCode, Uri, header::CONTENT_TYPE},
    };

    use super::*;

    /// A cluster that takes Events in every namespace but `leaving`, and the namespaces of those that it took.
    async fn cluster() -> (Client, Arc<Mutex<Vec<String>>>) {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&taken);
        let answer = move |uri: Uri, body: String| {
            let namespace = uri.path().split('/').nth(5).unwrap_or_default().to_owned();
            let is_refused = namespace == "leaving";
            let refusal = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"});
            if !is_refused {
                notes.lock().unwrap().push(namespace);
            }
            let answer = if is_refused {
                (StatusCode::FORBIDDEN, refusal.to_string())
            } else {
                (StatusCode::CREATED, body)
            };
            async move { (answer.0, [(CONTENT_TYPE, "application/json")], answer.1) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
        (Client::try_from(kube::Config::new(url)).unwrap(), taken)
    }

    #[tokio::test]
    async fn event_that_must_not_be_skipped_is_written_somewhere() {
        let (client, taken) = cluster().await;
        let events = Events::new(client);
        let about = |namespace: &str| ObjectReference {
            name: Some("alpha".to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectReference::default()
        };
        let pod = about("operator");
        let action = "Delete";
        for number in 0..40 {
            let note = format!("provisioner key {number} was revoked");
            let words = Words { type_: EventType::Normal, reason: Reason::KeyRevoked, action, note: &note };
            events.publish_surely(&about("platform"), words, Some(&pod)).await;
        }
        let words =
            Words { type_: EventType::Normal, reason: Reason::KeyRevoked, action, note: "the last one" };
        events.publish_surely(&about("leaving"), words, Some(&pod)).await;
        let mut expected = vec!["platform"; 40];
        expected.push("operator");
        assert_eq!(*taken.lock().unwrap(), expected);
    }

    fn key_of(note: &str) -> Key {
        let about = ObjectReference { uid: Some("1".to_owned()), ..ObjectReference::default() };
        key(&about, Words { type_: EventType::Normal, reason: Reason::Updated, action: "Update", note })
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn another_note_is_an_event_of_its_own_and_the_same_one_is_a_series() {
        let mut known = Known::default();
        let create = || Turn::Create { skipped: 0 };
        for (seconds, note) in [(0, "20 -> 1"), (1, "20 -> 2")] {
            assert_eq!(known.turn(&key_of(note), Limit::PerObject, at(seconds)), create());
            known.created(key_of(note), format!("event-{seconds}"), at(seconds));
        }
        let repeated =
            |count, seconds| Turn::Repeat(Series { name: "event-0".to_owned(), count, last: at(seconds) });
        assert_eq!(known.turn(&key_of("20 -> 1"), Limit::PerObject, at(2)), repeated(2, 2));
        assert_eq!(known.turn(&key_of("20 -> 1"), Limit::PerObject, at(300)), repeated(3, 300));
        assert_eq!(known.turn(&key_of("20 -> 1"), Limit::PerObject, at(660)), create(), "the series ended");
    }

    #[test]
    fn events_of_one_object_are_bounded_and_the_next_one_counts_the_skipped() {
        let mut known = Known::default();
        let mut turn =
            |number: i64, seconds| known.turn(&key_of(&number.to_string()), Limit::PerObject, at(seconds));
        let turns: Vec<Turn> = (0..100).map(|it| turn(it, 0)).collect();
        assert_eq!(turns.iter().filter(|it| **it != Turn::Skip).count(), 25);
        assert_eq!(turn(100, 31), Turn::Create { skipped: 75 });
        assert_eq!(turn(101, 32), Turn::Skip);
        let left_behind = key_of("left behind");
        assert!(known.turn(&left_behind, Limit::Unlimited, at(32)) != Turn::Skip);
        let hour: Vec<Turn> = (0..3600)
            .map(|it| known.turn(&key_of(&format!("later {it}")), Limit::PerObject, at(33 + it)))
            .collect();
        let written = hour.iter().filter(|it| **it != Turn::Skip).count();
        assert!((100..=121).contains(&written), "{written}");
    }

    #[test]
    fn a_repeated_event_that_is_skipped_still_counts() {
        let mut known = Known::default();
        let key = key_of("same");
        known.turn(&key, Limit::PerObject, at(0));
        known.created(key.clone(), "event".to_owned(), at(0));
        (0..40).for_each(|_| drop(known.turn(&key, Limit::PerObject, at(1))));
        let Turn::Repeat(series) = known.turn(&key, Limit::PerObject, at(61)) else { panic!() };
        assert_eq!(series.count, 42);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut known = Known::default();
        for number in 0..5000 {
            let key = Key { object: number.to_string(), ..key_of("note") };
            known.turn(&key, Limit::PerObject, at(0));
            known.created(key, String::new(), at(number % 100));
        }
        assert_eq!(known.series.len(), MOST_REMEMBERED);
        known.turn(&key_of("much later"), Limit::PerObject, at(5000));
        assert!(known.series.is_empty() && known.budgets.len() == 1);
    }

    #[test]
    fn a_note_fits_whatever_it_is_written_in() {
        assert_eq!(noted("short", 0), "short");
        let long = "ü".repeat(2000);
        assert!(noted(&long, 0).len() <= LONGEST_NOTE && noted(&long, 7).len() <= LONGEST_NOTE);
        assert!(noted(&long, 7).contains("(7 more Events were skipped before"));
    }
}
