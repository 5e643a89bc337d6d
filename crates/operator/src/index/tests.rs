//! Whom a change wakes, how often, and with which event.

use api::{CoderGroup, CoderGroupSync};
use futures::{FutureExt as _, StreamExt as _};
use kube::ResourceExt as _;
use serde_json::json;

use super::*;

const NAMESPACE: &str = "platform";

fn plane(name: &str) -> Name {
    (NAMESPACE.to_owned(), name.to_owned())
}

fn group(name: &str, uid: &str) -> CoderGroup {
    serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid},
        "spec": {"controlPlaneRef": {"name": "main"}}}))
    .unwrap()
}

fn shown(version: u64, refs: Vec<Ref>) -> Shown {
    Shown { version, holding: None, targets: Targets::new(NAMESPACE, Some(&plane("main")), refs) }
}

/// What is known of manifests of `main` that refer to these.
fn refers(refs: Vec<Ref>) -> impl Fn(&CoderGroup) -> Shown {
    of_version(1, refs)
}

fn of_version(version: u64, refs: Vec<Ref>) -> impl Fn(&CoderGroup) -> Shown {
    move |_| shown(version, refs.clone())
}

/// The same for manifests that wait for another one of their kind.
fn waits(_: &CoderGroup) -> Shown {
    let mut shown = shown(1, vec![]);
    shown.targets.add(Target::Rival(CoderGroup::kind(&())));
    shown
}

/// The same for manifests that have the object of that id.
fn has(id: &str) -> impl Fn(&CoderGroup) -> Shown {
    move |_| Shown { holding: Some((id.to_owned(), None)), ..shown(1, vec![]) }
}

/// An index with a listener to groups.
struct Listening {
    index: Arc<Index>,
    woken: futures::stream::BoxStream<'static, Woken>,
}

impl Listening {
    fn new() -> Self {
        let index = Arc::<Index>::default();
        let woken = index.listen(CoderGroup::kind(&())).boxed();
        Self { index, woken }
    }

    /// Enters a manifest that refers to these.
    fn apply(&self, name: &str, refs: Vec<Ref>) {
        self.index.follow(&Event::Apply(group(name, name)), refers(refs));
    }

    fn taken(&mut self) -> Vec<Woken> {
        std::iter::from_fn(|| self.woken.next().now_or_never().flatten()).collect()
    }

    fn names(&mut self) -> Vec<String> {
        self.taken().into_iter().map(|it| it.name.1).collect()
    }
}

fn secret(name: &str) -> Ref {
    Ref::Secret(name.to_owned())
}

fn target(name: &str) -> Target {
    Target::Secret((NAMESPACE.to_owned(), name.to_owned()))
}

#[test]
fn change_wakes_exactly_those_who_refer_to_it() {
    let mut listening = Listening::new();
    listening.apply("a", vec![secret("one")]);
    listening.apply("b", vec![secret("two")]);
    listening.apply("c", vec![Ref::ConfigMap("one".to_owned())]);
    listening.index.changed(&target("one"));
    assert_eq!(listening.names(), ["a"]);
    listening.index.changed(&Target::Secret(("elsewhere".to_owned(), "one".to_owned())));
    assert!(listening.names().is_empty(), "another namespace");
    listening.index.changed(&Target::ControlPlane(plane("main")));
    assert_eq!(listening.names(), ["a", "b", "c"]);
    listening.index.changed(&Target::ControlPlane(plane("other")));
    assert!(listening.names().is_empty());
}

#[test]
fn manifest_that_is_woken_twice_is_taken_once_with_the_later_event() {
    let mut listening = Listening::new();
    listening.apply("a", vec![secret("one"), Ref::ControlPlaneStatus("main".to_owned())]);
    listening.index.changed(&Target::ControlPlane(plane("main")));
    let between = Instant::now();
    listening.index.changed(&Target::ControlPlaneStatus(plane("main")));
    // A Secret is read by every reconcile: it does not take the event away.
    listening.index.changed(&target("one"));
    let [woken] = listening.taken().try_into().unwrap();
    let (uid, noticed) = woken.event.unwrap();
    assert_eq!((uid.as_str(), noticed >= between), ("a", true));
    listening.index.changed(&target("one"));
    assert_eq!(listening.taken(), [Woken { name: plane("a"), event: None }]);
}

#[test]
fn earlier_change_does_not_take_the_place_of_a_later_one() {
    let mut listening = Listening::new();
    listening.apply("waits", vec![]);
    // A rival has changed before the control plane did.
    listening.index.rival_changed(&CoderGroup::kind(&()), Some("other"));
    let between = Instant::now();
    listening.index.changed(&Target::ControlPlane(plane("main")));
    listening.index.follow(&Event::Apply(group("waits", "waits")), waits);
    let [woken] = listening.taken().try_into().unwrap();
    assert!(woken.event.unwrap().1 >= between);
}

#[test]
fn object_of_a_deployment_wakes_those_who_refer_to_it_by_any_of_its_names() {
    let mut listening = Listening::new();
    let user = |name: &str, email: Option<&str>| RemoteName::User {
        name: name.to_owned(),
        email: email.map(str::to_owned),
    };
    listening.apply("by-name", vec![Ref::Remote(user("bob", None))]);
    listening.apply("by-email", vec![Ref::Remote(user("bob@coder.test", None))]);
    listening.apply("of-another", vec![Ref::Remote(user("eve", None)), Ref::organization("bob")]);
    listening.index.remote_changed(&plane("main"), &user("bob", Some("bob@coder.test")));
    assert_eq!(listening.names(), ["by-email", "by-name"]);
    listening.index.remote_changed(&plane("other"), &user("bob", None));
    assert!(listening.names().is_empty(), "the same name in another deployment");
}

#[test]
fn manifest_for_which_we_changed_something_is_not_woken_by_that() {
    let mut listening = Listening::new();
    listening.apply("a", vec![secret("one")]);
    listening.apply("b", vec![secret("one")]);
    listening.index.changed_for(&target("one"), "a");
    assert_eq!(listening.names(), ["b"]);
}

#[test]
fn manifest_that_refers_to_something_else_now_is_woken_by_that_alone() {
    let mut listening = Listening::new();
    listening.apply("a", vec![secret("one")]);
    listening.apply("a", vec![secret("two")]);
    listening.index.changed(&target("one"));
    assert!(listening.names().is_empty());
    listening.index.changed(&target("two"));
    assert_eq!(listening.names(), ["a"]);
    listening.index.follow(&Event::Delete(group("a", "a")), refers(vec![]));
    assert_eq!(listening.names(), ["a"], "its controller forgets it");
    listening.index.changed(&target("two"));
    assert!(listening.names().is_empty(), "it is gone");
}

#[test]
fn list_that_begins_anew_takes_the_place_of_what_was_known() {
    let mut listening = Listening::new();
    listening.apply("gone", vec![secret("one")]);
    listening.apply("stays", vec![secret("one")]);
    let refers = refers(vec![secret("one")]);
    listening.index.follow(&Event::Init, &refers);
    listening.index.follow(&Event::InitApply(group("stays", "stays")), &refers);
    listening.index.changed(&target("one"));
    assert_eq!(listening.names(), ["gone", "stays"], "the list is not complete");
    listening.index.follow(&Event::InitDone, &refers);
    assert_eq!(listening.names(), ["gone"], "its controller forgets it");
    listening.index.changed(&target("one"));
    assert_eq!(listening.names(), ["stays"]);
}

#[test]
fn list_that_begins_anew_wakes_what_changed_before_it() {
    let mut listening = Listening::new();
    let list = |listening: &Listening, shown: &[(&str, u64)]| {
        listening.index.follow(&Event::Init, refers(vec![]));
        for (name, version) in shown {
            listening.index.follow(&Event::InitApply(group(name, name)), of_version(*version, vec![]));
        }
        listening.index.follow(&Event::InitDone, refers(vec![]));
    };
    list(&listening, &[("same", 1), ("changed", 1)]);
    assert!(listening.names().is_empty(), "the controller takes the first list itself");
    list(&listening, &[("same", 1), ("changed", 2), ("new", 1)]);
    assert_eq!(listening.names(), ["changed", "new"]);
}

#[test]
fn manifest_that_waits_for_another_one_is_woken_when_that_one_changes_or_is_gone() {
    let mut listening = Listening::new();
    let kind = CoderGroup::kind(&());
    listening.index.follow(&Event::Apply(group("waits", "waits")), waits);
    listening.apply("has-it", vec![]);
    assert!(listening.names().is_empty());
    listening.index.rival_changed(&kind, Some("has-it"));
    assert_eq!(listening.names(), ["waits"]);
    listening.index.rival_changed(&kind, Some("waits"));
    assert!(listening.names().is_empty(), "its own change");
    listening.index.follow(&Event::Delete(group("has-it", "has-it")), refers(vec![]));
    assert_eq!(listening.names(), ["has-it", "waits"]);

    // The same, where no watch shows the deletion.
    listening.apply("has-it", vec![]);
    listening.index.follow(&Event::Init, refers(vec![]));
    listening.index.follow(&Event::InitApply(group("waits", "waits")), waits);
    listening.index.follow(&Event::InitDone, refers(vec![]));
    assert_eq!(listening.names(), ["has-it", "waits"]);
}

#[test]
fn manifest_that_waits_is_woken_when_the_status_of_another_one_has_another_object() {
    let mut listening = Listening::new();
    listening.index.follow(&Event::Apply(group("waits", "waits")), waits);
    for (id, woken) in [("one", false), ("one", false), ("two", true)] {
        listening.index.follow(&Event::Apply(group("has-it", "has-it")), has(id));
        assert_eq!(!listening.names().is_empty(), woken, "{id}");
    }
}

#[test]
fn change_between_a_comparison_and_the_status_that_waits_is_not_missed() {
    let mut listening = Listening::new();
    listening.apply("waits", vec![]);
    listening.apply("has-it", vec![]);
    // It is being compared, and its status does not say yet that it waits.
    listening.index.follow(&Event::Delete(group("has-it", "has-it")), refers(vec![]));
    assert_eq!(listening.names(), ["has-it"]);
    listening.index.follow(&Event::Apply(group("waits", "waits")), waits);
    assert_eq!(listening.names(), ["waits"]);
    listening.index.follow(&Event::Apply(group("waits", "waits")), waits);
    assert!(listening.names().is_empty(), "once");
}

#[test]
fn event_of_a_manifest_that_is_gone_is_none_of_its_successor() {
    let mut listening = Listening::new();
    listening.apply("a", vec![secret("one")]);
    listening.index.changed(&Target::ControlPlane(plane("main")));
    listening.index.follow(&Event::Delete(group("a", "a")), refers(vec![]));
    listening.index.follow(&Event::Apply(group("a", "b")), refers(vec![]));
    assert_eq!(listening.taken(), [Woken { name: plane("a"), event: None }]);
}

#[test]
fn kinds_are_woken_each_at_their_own_controller() {
    let mut listening = Listening::new();
    let sync: CoderGroupSync = serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1",
        "kind": "CoderGroupSync", "metadata": {"name": "a", "namespace": NAMESPACE, "uid": "s"},
        "spec": {"controlPlaneRef": {"name": "main"}}}))
    .unwrap();
    let refers = |_: &CoderGroupSync| shown(1, vec![secret("one")]);
    listening.apply("a", vec![secret("one")]);
    listening.index.follow(&Event::Apply(sync.clone()), refers);
    // No controller of that kind runs yet.
    listening.index.changed(&target("one"));
    assert_eq!(listening.names(), ["a"]);
    let mut syncs = listening.index.listen(CoderGroupSync::kind(&())).boxed();
    assert_eq!(syncs.next().now_or_never(), None);
    listening.index.owned_changed(&CoderGroupSync::kind(&()), NAMESPACE, &sync.name_any());
    let woken = syncs.next().now_or_never().flatten();
    assert_eq!(woken, Some(Woken { name: plane("a"), event: None }));
    assert!(listening.names().is_empty());
}

#[tokio::test]
async fn listener_that_waits_hears_of_a_change() {
    let mut listening = Listening::new();
    listening.apply("a", vec![secret("one")]);
    let index = Arc::clone(&listening.index);
    let changes = async move {
        tokio::task::yield_now().await;
        index.changed(&target("one"));
    };
    let (woken, ()) = tokio::join!(listening.woken.next(), changes);
    assert_eq!(woken.unwrap().name, plane("a"));
}
