use serde_json::json;

use super::*;

const NOW: i64 = 1_000_000;

fn pod(restart_policy: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"restartPolicy": restart_policy, "containers": [{"name": "a"}, {"name": "b"}]},
    }))
    .unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn ended(exit_code: i32, message: &str) -> Termination {
    let message = message.to_owned();
    Termination { exit_code, signal: None, message, started: at(1), finished: at(2), process: 7 }
}

fn running(ready: bool) -> View {
    let state = State::Running { since: at(3), process: 8 };
    View { state, last: None, restarts: 0, started: true, ready }
}

fn finished(exit_code: i32) -> View {
    let termination = ended(exit_code, "");
    View { state: State::Ended(termination.clone()), last: Some(termination), ..running(false) }
}

fn status(pod: &Pod, a: View, b: View, before: Option<&PodStatus>, now: i64) -> PodStatus {
    let views = Views::from([("a".to_owned(), a), ("b".to_owned(), b)]);
    let moment = Moment { address: Ipv4Addr::new(127, 9, 0, 4), host: "127.9.0.1", before, now: at(now) };
    pod_status(pod, &views, &moment)
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a PodCondition {
    status.conditions.iter().flatten().find(|it| it.type_ == kind).unwrap()
}

#[test]
fn a_pod_is_ready_only_when_every_container_is() {
    let pod = pod("Always");
    let half = status(&pod, running(true), running(false), None, NOW);
    assert_eq!(half.phase.as_deref(), Some("Running"));
    assert_eq!(condition(&half, "Ready").status, "False");
    assert_eq!(condition(&half, "Ready").message.as_deref(), Some("containers with unready status: [b]"));
    let whole = status(&pod, running(true), running(true), None, NOW);
    assert_eq!(condition(&whole, "Ready").status, "True");
}

#[test]
fn the_phase_follows_the_restart_policy() {
    let phase = |policy: &str, a: View, b: View| status(&pod(policy), a, b, None, NOW).phase.unwrap();
    assert_eq!(phase("Never", finished(0), finished(0)), "Succeeded");
    assert_eq!(phase("Never", finished(0), finished(1)), "Failed");
    assert_eq!(phase("Never", finished(0), running(true)), "Running");
    assert_eq!(phase("OnFailure", finished(0), finished(1)), "Running");
    assert_eq!(phase("Always", finished(0), finished(0)), "Running");
    let waiting = || View::waiting("ContainerCreating", "");
    assert_eq!(phase("Always", waiting(), waiting()), "Pending");
}

#[test]
fn a_crashed_container_shows_how_it_ended_last() {
    let mut crashed = View::waiting("CrashLoopBackOff", "back-off 10s");
    crashed.last = Some(ended(3, "no database"));
    let status = status(&pod("Always"), crashed, running(true), None, NOW);
    let shown = &status.container_statuses.unwrap()[0];
    let last = shown.last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.message.as_deref()), (3, Some("no database")));
    assert_eq!(shown.state.clone().unwrap().waiting.unwrap().reason.as_deref(), Some("CrashLoopBackOff"));
}

#[test]
fn a_conditions_time_moves_only_when_the_condition_does() {
    let pod = pod("Always");
    let first = status(&pod, running(true), running(false), None, NOW);
    let later = status(&pod, running(true), running(true), Some(&first), NOW + 60);
    let since = |status: &PodStatus, kind| condition(status, kind).last_transition_time.clone().unwrap().0;
    assert_eq!(since(&later, "PodScheduled"), at(NOW));
    assert_eq!(since(&later, "Ready"), at(NOW + 60));
}

#[test]
fn what_a_condition_no_longer_says_is_taken_back() {
    let ready = status(&pod("Always"), running(true), running(true), None, NOW);
    assert!(patch_of(&ready)["conditions"][3]["reason"].is_null());
    assert!(patch_of(&ready)["conditions"][3].as_object().unwrap().contains_key("reason"));
}
