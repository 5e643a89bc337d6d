use serde_json::{Value, json};

use super::*;

fn pod(name: &str, created: &str, container: &Value) -> Pod {
    let mut status = json!({"name": "coder", "image": "", "imageID": "", "ready": false, "restartCount": 3});
    status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": name, "creationTimestamp": created},
        "status": {"containerStatuses": [status]}}))
    .unwrap()
}

fn crashing() -> Value {
    json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}})
}

#[test]
fn who_crashed_is_asked_for_the_life_that_is_over_and_who_is_not_ready_for_the_one_that_runs() {
    let at = |hour: u8| format!("2026-01-01T{hour:02}:00:00Z");
    let mut going = pod("going", &at(9), &crashing());
    going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
    let pods = [
        pod("old", &at(1), &crashing()),
        pod("new", &at(2), &json!({"state": {"running": {}}, "restartCount": 0})),
        pod("fine", &at(3), &json!({"state": {"running": {}}, "ready": true})),
        pod("pulling", &at(4), &json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}})),
        going,
    ];
    let asked: Vec<(String, bool)> = whom_to_ask(&pods).into_iter().map(|it| (it.pod, it.previous)).collect();
    assert_eq!(asked, [("new".to_owned(), false), ("old".to_owned(), true)]);
    let many: Vec<Pod> = (0..9).map(|it| pod(&format!("p{it}"), &at(it), &crashing())).collect();
    assert_eq!(whom_to_ask(&many).len(), MOST_PODS);
    assert_eq!(whom_to_ask(&many)[0].pod, "p8");
}

#[test]
fn who_crashes_is_asked_for_the_same_words_whatever_it_is_at() {
    let ended = json!({"terminated": {"exitCode": 1}});
    for (state, previous) in [
        (json!({"waiting": {"reason": "CrashLoopBackOff"}}), true),
        (json!({"running": {}}), true),
        // The life that is over is still the one that is shown.
        (ended.clone(), false),
    ] {
        let pod = pod("new", "2026-01-01T00:00:00Z", &json!({"state": state, "lastState": ended}));
        assert_eq!(whom_to_ask(&[pod])[0].previous, previous, "{state}");
    }
}

#[test]
fn an_init_container_that_crashes_is_asked_first() {
    let mut pod =
        pod("a", "2026-01-01T00:00:00Z", &json!({"state": {"waiting": {"reason": "PodInitializing"}}}));
    let init = json!([{"name": "init", "image": "", "imageID": "", "ready": false, "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    pod.status.as_mut().unwrap().init_container_statuses = serde_json::from_value(init).unwrap();
    assert_eq!(whom_to_ask(&[pod])[0].container, "init");
}

#[test]
fn every_secret_that_a_pod_reads_is_found() {
    let pod: Pod = serde_json::from_value(json!({"spec": {
        "containers": [{"name": "coder", "envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "map"}}],
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
                {"name": "B", "value": "postgres://u:hunter2@db/coder"}, {"name": "C", "value": "plain"}]}],
        "initContainers": [{"name": "init", "env": [{"name": "D", "valueFrom": {"secretKeyRef": {"name": "early", "key": "k"}}}]}],
        "volumes": [{"name": "v", "secret": {"secretName": "file"}},
            {"name": "w", "projected": {"sources": [{"secret": {"name": "part"}}]}}],
    }}))
    .unwrap();
    assert_eq!(secrets_read(&pod).into_iter().collect::<Vec<_>>(), ["all", "early", "file", "one", "part"]);
    assert_eq!(plain_values(&pod).collect::<Vec<_>>(), ["postgres://u:hunter2@db/coder"]);
}

#[test]
fn the_last_line_that_says_something_is_shown_without_its_time() {
    let shown = |log: &str| last_line(log.as_bytes(), &[]);
    assert_eq!(shown("one\ntwo\n\n  \n").as_deref(), Some("two"));
    let line = "2026-11-16 05:12:13.123 [error] coderd: no database";
    assert_eq!(shown(line).as_deref(), Some("[error] coderd: no database"));
    assert_eq!(shown("2026-11-16T05:12:13Z no database").as_deref(), Some("no database"));
    assert_eq!(shown("127 errors").as_deref(), Some("127 errors"));
    assert_eq!((shown(""), shown("\n \n")), (None, None));
    assert!(shown(&"word ".repeat(1000)).unwrap().chars().count() <= 300);
}

#[test]
fn no_value_of_a_secret_is_shown_in_any_spelling() {
    let url = "postgres://coder:p%40ss+wo/rd-7@db:5432/coder?sslmode=disable";
    let key = "-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n-----END KEY-----\n";
    let values = [url, key, "hunter2\n", "x"];
    for line in [
        format!("connect to {url}: refused"),
        format!("parse {url:?}: invalid port \":p%40ss+wo\" after host"),
        "user coder with p@ss+wo/rd-7 is refused".to_owned(),
        "user coder with p%40ss+wo/rd-7 is refused".to_owned(),
        "the key\nBgkqhkiG9w0B".to_owned(),
        format!("the key is {key}"),
        "a word: hunter2, x".to_owned(),
        "token=abc password: \"s3cr3t!\" at https://me:pa55@example.com".to_owned(),
    ] {
        let shown = last_line(line.as_bytes(), &values).unwrap();
        for secret in ["p%40ss", "p@ss", "rd-7", "MIIEvQ", "Bgkqhk", "hunter2", "s3cr3t", "pa55", "=abc"] {
            assert!(!shown.contains(secret), "{secret} of {line:?} is in {shown:?}");
        }
        assert!(shown.contains("[redacted]"), "{shown}");
    }
}

#[test]
fn a_secret_that_is_part_of_another_leaves_nothing_of_it() {
    let shown = last_line(b"got abcdefgh", &["abcd", "abcdefgh"]).unwrap();
    assert_eq!(shown, "got [redacted]");
}

#[test]
fn a_line_that_was_cut_off_is_not_shown() {
    let mut log = b"whole\n".to_vec();
    log.resize(usize::try_from(BYTES).unwrap(), b'x');
    assert_eq!(last_line(&log, &[]).as_deref(), Some("whole"));
    let one = vec![b'x'; usize::try_from(BYTES).unwrap()];
    assert_eq!(last_line(&one, &[]), None);
}
