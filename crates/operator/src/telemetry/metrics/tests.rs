use std::collections::BTreeSet;

use client::{
    observer::{Attempted, CircuitState, Ending},
    routes::ROUTES,
};
use engine::{Change, Plan, PlanView, Step};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const GROUP: KindName = KindName::Borrowed("CoderGroup");

fn plane() -> PlaneName {
    ("platform".to_owned(), "main".to_owned())
}

fn plan() -> PlanView {
    let changes = vec![Change::new("secret", "hunter1", "hunter2")];
    let (action, impact) = (Action::Update, engine::Impact::Safe);
    Plan::of(Step { action, impact, reason: "the group differs".to_owned(), changes, effect: () })
        .view("group a")
}

#[track_caller]
fn shows(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.text().unwrap();
    for line in lines {
        assert!(text.lines().any(|it| it == *line), "{line} is not in:\n{text}");
    }
}

#[test]
fn a_pass_is_counted_with_its_steps_and_none_of_its_words() {
    let metrics = Metrics::default();
    let under_way = metrics.begins(GROUP);
    metrics.steps(&GROUP, &plan().steps[..1]);
    metrics.reconciled(GROUP, api::Reason::UpToDate, Duration::from_millis(20));
    shows(
        &metrics,
        &[
            "coder_operator_plan_steps_total{kind=\"CoderGroup\",action=\"Update\"} 1",
            "coder_operator_reconciles_total{kind=\"CoderGroup\",reason=\"UpToDate\"} 1",
            "coder_operator_reconcile_duration_seconds_bucket{le=\"0.05\",kind=\"CoderGroup\"} 1",
            "coder_operator_reconciles_under_way{kind=\"CoderGroup\"} 1",
            "coder_operator_leader 0",
        ],
    );
    let text = metrics.text().unwrap();
    assert!(!text.contains("hunter") && !text.contains("differs"), "{text}");
    drop(under_way);
    shows(&metrics, &["coder_operator_reconciles_under_way{kind=\"CoderGroup\"} 0"]);
}

#[test]
fn steps_that_were_not_reached_are_not_counted() {
    let metrics = Metrics::default();
    metrics.steps(&GROUP, &[]);
    assert!(!metrics.text().unwrap().contains("plan_steps_total{"));
}

#[test]
fn requests_are_counted_by_route_and_status_and_what_was_not_sent_took_no_time() {
    let metrics = Metrics::default();
    let observer = metrics.observer(&plane());
    let route = ROUTES.iter().find(|it| it.path().contains("{organization}/groups")).unwrap();
    let attempt = |ending| Attempted { route, ending, took: Duration::from_millis(20) };
    let limited = Ending::Answered("429".parse().unwrap());
    for ending in [limited, limited, Ending::TimedOut, Ending::CircuitOpen, Ending::ShareUsed] {
        observer.attempted(attempt(ending));
    }
    let requests = |status: &str, count: u64| {
        format!(
            "coder_operator_coder_requests_total{{namespace=\"platform\",name=\"main\",method=\"GET\",\
             route=\"/api/v2/organizations/{{organization}}/groups\",status=\"{status}\"}} {count}"
        )
    };
    let took = "coder_operator_coder_request_duration_seconds_count{namespace=\"platform\",name=\"main\"} 3";
    shows(
        &metrics,
        &[
            &requests("429", 2),
            &requests("timeout", 1),
            &requests("circuit_open", 1),
            &requests("share_used", 1),
            took,
        ],
    );
}

#[test]
fn a_circuit_is_in_one_of_three_states() {
    let metrics = Metrics::default();
    let observer = metrics.observer(&plane());
    assert!(!metrics.text().unwrap().contains("coder_circuit{"), "nothing is known before the first word");
    let circuit = |state: &str, is: u8| {
        format!("coder_operator_coder_circuit{{namespace=\"platform\",name=\"main\",state=\"{state}\"}} {is}")
    };
    observer.circuit(CircuitState::Closed);
    observer.circuit(CircuitState::Open);
    shows(&metrics, &[&circuit("closed", 0), &circuit("open", 1), &circuit("trial", 0)]);
}

#[test]
fn a_control_plane_that_fails_keeps_its_last_success_and_of_one_that_is_gone_nothing_stays() {
    let metrics = Metrics::default();
    let observer = metrics.observer(&plane());
    observer.circuit(CircuitState::Closed);
    metrics.tried(&plane(), true);
    metrics.tried(&plane(), false);
    shows(&metrics, &["coder_operator_control_plane_up{namespace=\"platform\",name=\"main\"} 0"]);
    let text = metrics.text().unwrap();
    assert!(text.contains("control_plane_last_success_timestamp_seconds{namespace"), "{text}");
    metrics.forget(&plane());
    // A request that was under way ends now.
    let ending = Ending::Abandoned;
    observer.attempted(Attempted { route: ROUTES[0], ending, took: Duration::ZERO });
    observer.circuit(CircuitState::Open);
    assert!(!metrics.text().unwrap().contains("platform"));
}

fn condition(kind: &str, status: &str, reason: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: "words".to_owned(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

#[test]
fn objects_are_counted_as_they_are_now() {
    let metrics = Metrics::default();
    let equal = [condition("Ready", "True", "UpToDate"), condition("Drifted", "False", "NoDrift")];
    let drifted = [condition("Ready", "False", "Observed"), condition("Drifted", "True", "DriftFound")];
    let coder = Arc::new(std::sync::Mutex::new(vec![equal.to_vec(), drifted.to_vec(), Vec::new()]));
    let shown = Arc::clone(&coder);
    metrics.objects.show(GROUP, move || shown.lock().unwrap().iter().map(|it| Seen::from(&**it)).collect());
    shows(
        &metrics,
        &[
            "coder_operator_objects{kind=\"CoderGroup\",reason=\"UpToDate\"} 1",
            "coder_operator_objects{kind=\"CoderGroup\",reason=\"Observed\"} 1",
            "coder_operator_objects{kind=\"CoderGroup\",reason=\"Unknown\"} 1",
            "coder_operator_drifted_objects{kind=\"CoderGroup\"} 1",
        ],
    );
    coder.lock().unwrap().clear();
    shows(&metrics, &["coder_operator_drifted_objects{kind=\"CoderGroup\"} 0"]);
    assert!(!metrics.text().unwrap().contains("operator_objects{"));
}

#[test]
fn every_kind_has_its_series_before_the_first_increment() {
    let metrics = Metrics::default();
    for crd in api::crds() {
        let kind = crd.spec.names.kind;
        for counter in ["left_behind", "undecodable_objects", "watch_errors"] {
            shows(&metrics, &[&format!("coder_operator_{counter}_total{{kind=\"{kind}\"}} 0")]);
        }
    }
}

/// The names of the series that the registry shows or declares.
fn names(metrics: &Metrics) -> BTreeSet<String> {
    let text = metrics.text().unwrap();
    let declared = text.lines().filter_map(|it| it.strip_prefix("# TYPE ")?.split_once(' '));
    let mut names = BTreeSet::new();
    for (name, kind) in declared {
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        names.extend(suffixes.iter().map(|it| format!("{name}{it}")));
    }
    names
}

#[test]
fn alerts_of_the_chart_use_metrics_of_the_registry() {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart/templates/prometheusrule.yaml");
    let rules = std::fs::read_to_string(chart).unwrap();
    let expressions: Vec<&str> =
        rules.lines().filter_map(|it| it.trim_start().strip_prefix("expr: ")).collect();
    assert_eq!(expressions.len(), rules.matches("- alert: ").count());
    let known = names(&Metrics::default());
    for expression in expressions {
        let words = expression.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        let used: Vec<&str> = words.filter(|it| it.starts_with("coder_")).collect();
        assert!(!used.is_empty(), "{expression}");
        for name in used {
            assert!(known.contains(name), "{name} of {expression} is not among {known:#?}");
        }
    }
}
