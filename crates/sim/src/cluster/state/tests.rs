use super::*;

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn object(name: &str, metadata: &Value) -> Value {
    let mut object = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup",
        "metadata": {"name": name, "namespace": "n"}, "spec": {"name": name}});
    merge_patch(&mut object["metadata"], metadata);
    object
}

fn key(name: &str) -> Key {
    Key::of(&object(name, &json!({}))).unwrap()
}

fn created(state: &mut State, object: &Value) -> Value {
    state.write(Write::Create(object), start()).unwrap()
}

fn delete(state: &mut State, name: &str) {
    let uid = state.objects[&key(name)]["metadata"]["uid"].as_str().unwrap().to_owned();
    state.delete(&key(name), Only { uid: &uid, version: None }, start()).unwrap();
}

fn code<T: std::fmt::Debug>(answer: Result<T, ClusterError>) -> u16 {
    answer.unwrap_err().code().unwrap()
}

#[test]
fn same_seed_and_writes_give_the_same_objects() {
    let made = |seed: u64| {
        let mut state = State::new(seed);
        (created(&mut state, &object("a", &json!({}))), created(&mut state, &object("b", &json!({}))))
    };
    assert_eq!(made(1), made(1));
    let (one, two) = made(1);
    assert_ne!(one["metadata"]["uid"], two["metadata"]["uid"]);
    assert_ne!(one["metadata"]["uid"], made(2).0["metadata"]["uid"]);
    assert_eq!(one["metadata"]["creationTimestamp"], "2027-01-15T08:00:00Z");
}

#[test]
fn name_is_taken_until_the_object_is_gone() {
    let mut state = State::new(1);
    created(&mut state, &object("a", &json!({})));
    let again = state.write(Write::Create(&object("a", &json!({}))), start()).unwrap_err();
    assert!(again.is_conflict());
    delete(&mut state, "a");
    created(&mut state, &object("a", &json!({})));
}

#[test]
fn write_over_another_version_or_another_object_is_a_conflict() {
    let mut state = State::new(1);
    let first = created(&mut state, &object("a", &json!({})));
    let mut second = first.clone();
    second["spec"]["name"] = "other".into();
    let second = state.write(Write::Replace(&second), start()).unwrap();
    assert_ne!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    let mut other = second.clone();
    other["metadata"]["uid"] = "another".into();
    let patch = json!({"metadata": {"resourceVersion": "1"}, "status": {"id": "1"}});
    for write in [
        Write::Replace(&first),
        Write::Apply(&first),
        Write::Merge { key: &key("a"), patch: &patch },
        Write::ReplaceStatus(&first),
        Write::MergeStatus { key: &key("a"), patch: &patch },
        Write::Replace(&other),
    ] {
        assert_eq!(code(state.write(write, start())), 409, "{write:?}");
    }
    for (uid, version) in [("another", None), (second["metadata"]["uid"].as_str().unwrap(), Some("1"))] {
        assert_eq!(code(state.delete(&key("a"), Only { uid, version }, start())), 409);
    }
    assert_eq!(state.objects[&key("a")], second);
}

#[test]
fn update_names_the_version_and_the_object_that_it_changes() {
    let mut state = State::new(1);
    assert_eq!(code(state.write(Write::Replace(&object("a", &json!({}))), start())), 404);
    created(&mut state, &object("a", &json!({})));
    assert_eq!(code(state.write(Write::Replace(&object("a", &json!({}))), start())), 422);
}

#[test]
fn write_that_changes_nothing_makes_no_version() {
    let mut state = State::new(1);
    let stored = created(&mut state, &object("a", &json!({})));
    assert_eq!(state.write(Write::Replace(&stored), start()).unwrap(), stored);
    assert_eq!(state.writes, 2, "the write is counted all the same");
}

#[test]
fn status_and_spec_are_written_apart() {
    let mut state = State::new(1);
    let mut wanted = object("a", &json!({}));
    wanted["status"] = json!({"id": "0"});
    let mut stored = created(&mut state, &wanted);
    assert_eq!((&stored["status"], &stored["metadata"]["generation"]), (&Value::Null, &json!(1)));
    stored["status"] = json!({"id": "1"});
    stored["spec"]["name"] = "ignored".into();
    let mut stored = state.write(Write::ReplaceStatus(&stored), start()).unwrap();
    assert_eq!((&stored["status"]["id"], &stored["spec"]["name"]), (&json!("1"), &json!("a")));
    stored["status"] = json!({"id": "ignored"});
    stored["spec"]["name"] = "b".into();
    let stored = state.write(Write::Replace(&stored), start()).unwrap();
    assert_eq!((&stored["status"]["id"], &stored["spec"]["name"]), (&json!("1"), &json!("b")));
    assert_eq!(stored["metadata"]["generation"], 2);
    let patch = json!({"status": {"id": null, "more": 1}, "spec": {"name": "ignored"}});
    let stored = state.write(Write::MergeStatus { key: &key("a"), patch: &patch }, start()).unwrap();
    assert_eq!((&stored["status"], &stored["spec"]["name"]), (&json!({"more": 1}), &json!("b")));
}

#[test]
fn object_with_finalizers_stays_until_the_last_is_removed() {
    let mut state = State::new(1);
    created(&mut state, &object("a", &json!({"finalizers": ["x", "y"]})));
    delete(&mut state, "a");
    let deleted = state.objects[&key("a")].clone();
    assert_eq!(deleted["metadata"]["deletionTimestamp"], "2027-01-15T08:00:00Z");
    let set = |state: &mut State, finalizers: Value| {
        let patch = json!({"metadata": {"finalizers": finalizers, "deletionTimestamp": null}});
        state.write(Write::Merge { key: &key("a"), patch: &patch }, start())
    };
    assert_eq!(code(set(&mut state, json!(["x", "y", "z"]))), 422);
    assert!(is_terminating(&set(&mut state, json!(["y"])).unwrap()), "a deletion is not taken back");
    set(&mut state, json!([])).unwrap();
    assert!(state.objects.is_empty());
}

#[test]
fn dependents_go_with_their_last_owner() {
    let mut state = State::new(1);
    let owner = |state: &mut State, name: &str| {
        let uid = created(state, &object(name, &json!({})))["metadata"]["uid"].clone();
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "name": name, "uid": uid})
    };
    let (one, two) = (owner(&mut state, "one"), owner(&mut state, "two"));
    let both = created(&mut state, &object("both", &json!({"ownerReferences": [one, two]})));
    let of_both = json!([{"kind": "CoderGroup", "name": "both", "uid": both["metadata"]["uid"]}]);
    created(&mut state, &object("last", &json!({"ownerReferences": of_both, "finalizers": ["x"]})));
    delete(&mut state, "one");
    assert_eq!(state.objects.len(), 3);
    delete(&mut state, "two");
    let left: Vec<&str> = state.objects.keys().map(|it| it.name.as_str()).collect();
    assert_eq!(left, ["last"]);
    assert!(is_terminating(&state.objects[&key("last")]));
}

#[test]
fn data_of_an_immutable_secret_cannot_be_changed() {
    let mut state = State::new(1);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"},
        "data": {"a": "MQ=="}, "immutable": true});
    let mut stored = created(&mut state, &secret);
    stored["metadata"]["labels"] = json!({"x": "1"});
    let mut stored = state.write(Write::Replace(&stored), start()).unwrap();
    stored["data"]["a"] = "Mg==".into();
    assert_eq!(code(state.write(Write::Replace(&stored), start())), 422);
}

#[test]
fn namespace_that_is_terminating_takes_no_new_objects() {
    let mut state = State::new(1);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "n", "namespace": "", "deletionTimestamp": "2027-01-01T00:00:00Z"}});
    state.store(&Key::of(&namespace).unwrap(), namespace, start());
    assert_eq!(code(state.write(Write::Create(&object("a", &json!({}))), start())), 403);
}
