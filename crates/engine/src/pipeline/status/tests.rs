use serde_json::json;

use super::*;
use crate::pipeline::plan::{Action, Impact, Plan, Step};

fn plan() -> PlanView {
    Plan::of(Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: "the group differs".to_owned(),
        changes: vec![Change::new("quotaAllowance", 3, 20)],
        effect: (),
    })
    .view("group alpha/developers")
}

/// A pass over an object that we hold and that is as declared.
fn held(plan: &PlanView) -> StatusInput<'_> {
    StatusInput {
        generation: Some(2),
        contact: Some(Contact::Held),
        plan,
        target: "group alpha/developers",
        outcome: &Outcome::Equal,
        unsupported: None,
        attributions: &[],
        own_changes: &[],
        facts: &[],
        stalls: false,
        ready: None,
        id: Some("id".to_owned()),
        deployment: Some(Uuid::nil()),
        changed: false,
        requested: None,
        now: Timestamp::UNIX_EPOCH,
    }
}

fn pass(before: Option<&Status>, outcome: &Outcome, plan: &PlanView, second: i64) -> Status {
    let now = Timestamp::from_second(second).unwrap();
    next(before, &StatusInput { outcome, changed: matches!(outcome, Outcome::Applied), now, ..held(plan) })
}

fn condition<'a>(status: &'a Status, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|it| it.type_ == kind)
}

#[test]
fn a_pass_that_finds_nothing_new_leaves_the_status_as_it_is() {
    let empty = Plan::<()>::empty().view("group alpha/developers");
    let first = pass(None, &Outcome::Applied, &empty, 100);
    assert_eq!(pass(Some(&first), &Outcome::Equal, &empty, 500), first);
    assert_eq!(first.last_applied_time.as_ref().unwrap().0.as_second(), 100);
}

#[test]
fn approval_ends_once_its_plan_is_done_also_beside_unsupported_fields() {
    let empty = Plan::<()>::empty().view("t");
    let approved = api::ApprovedPlan { hash: "h".to_owned(), generation: Some(2), steps: Vec::new() };
    let before = Status { approved: Some(approved), ..Status::default() };
    let waiting = |reason| Blocked { reason, message: String::new() };
    let during = pass(Some(&before), &Outcome::Blocked(waiting(Reason::Progressing)), &plan(), 1);
    assert!(during.approved.is_some(), "another round follows");
    for done in [Outcome::Equal, Outcome::Unsupported(waiting(Reason::NotEntitled))] {
        assert_eq!(pass(Some(&before), &done, &empty, 1).approved, None, "{done:?}");
    }
}

#[test]
fn ready_is_there_always_and_the_others_only_while_they_are_true() {
    let empty = Plan::<()>::empty().view("t");
    let equal = pass(None, &Outcome::Equal, &empty, 1);
    assert_eq!(condition(&equal, "Ready").unwrap().status, "True");
    assert!(condition(&equal, "Stalled").is_none() && condition(&equal, "Reconciling").is_none());
    let refused = pass(None, &Outcome::Refused(Refusal::NotApproved), &plan(), 1);
    assert_eq!(condition(&refused, "Ready").unwrap().status, "False");
    assert_eq!(condition(&refused, "Stalled").unwrap().reason, "ApprovalRequired");
}

#[test]
fn drift_that_is_only_observed_is_shown_field_by_field() {
    let observed = pass(None, &Outcome::Observed, &plan(), 1);
    let expected = Difference {
        field: "quotaAllowance".to_owned(),
        expected: Some("20".to_owned()),
        found: Some("3".to_owned()),
        changed_by: None,
        changed_at: None,
    };
    assert_eq!(observed.drift, [expected]);
    assert_eq!(condition(&observed, "Drifted").unwrap().status, "True");
    assert_eq!(observed.plan.unwrap().hash, plan().hash);
}

#[test]
fn drift_names_who_made_it_and_a_status_that_does_is_enough() {
    let at = "2026-11-17T12:04:33Z".parse().unwrap();
    let by = |name: &str, at| Attribution { field: "quotaAllowance".to_owned(), by: name.to_owned(), at };
    let alice = [by("alice", Some(at))];
    let plan = plan();
    let input = StatusInput { outcome: &Outcome::Observed, attributions: &alice, ..held(&plan) };
    let drifted = next(None, &input);
    assert_eq!(drifted.drift[0].changed_by.as_deref(), Some("alice"));
    assert_eq!(drifted.drift[0].changed_at, Some(Time(at)));
    let words = "1 to update; quotaAllowance 20 -> 3 by alice at 2026-11-17T12:04:33Z";
    assert_eq!(condition(&drifted, "Drifted").unwrap().message, words);
    assert_eq!(drift_lines(&plan, &[by("unknown", None)]), ["quotaAllowance 20 -> 3 by unknown"]);

    assert_eq!(known(&plan, &drifted.drift), alice);
    let other = |change: &dyn Fn(&mut Difference)| {
        let mut drift = drifted.drift.clone();
        change(&mut drift[0]);
        known(&plan, &drift)
    };
    assert_eq!(other(&|it| it.changed_by = None), []);
    assert_eq!(other(&|it| it.found = Some("4".to_owned())), [], "it has changed again");
}

#[test]
fn an_approval_says_what_to_annotate() {
    let refused = pass(None, &Outcome::Refused(Refusal::NotApproved), &plan(), 1);
    let message = &condition(&refused, "Ready").unwrap().message;
    assert!(message.contains(&plan().hash) && message.contains("coder.com/approved-plan"), "{message}");
}

#[test]
fn an_id_that_was_recorded_stays_through_a_failure() {
    let waiting = Outcome::Blocked(crate::pipeline::outcome::Blocked {
        reason: api::Reason::NotEntitled,
        message: "needs".to_owned(),
    });
    let empty = Plan::<()>::empty().view("t");
    let held = pass(None, &Outcome::Applied, &empty, 1);
    let mut lost = next(
        Some(&held),
        &StatusInput {
            id: None,
            ..StatusInput {
                generation: Some(2),
                contact: None,
                plan: &empty,
                target: "t",
                outcome: &waiting,
                unsupported: None,
                attributions: &[],
                own_changes: &[],
                facts: &[],
                stalls: false,
                ready: None,
                id: None,
                deployment: None,
                changed: false,
                requested: None,
                now: Timestamp::from_second(2).unwrap(),
            }
        },
    );
    assert_eq!(lost.id.take().as_deref(), Some("id"));
}

#[test]
fn where_nothing_was_found_out_nothing_is_claimed_of_drift() {
    let empty = Plan::<()>::empty().view("t");
    let waiting =
        Outcome::Blocked(crate::Blocked { reason: api::Reason::NotEntitled, message: String::new() });
    let stopped = StatusInput { contact: None, outcome: &waiting, ..held(&empty) };
    assert_eq!(condition(&next(None, &stopped), "Drifted").unwrap().status, "Unknown");
    assert_eq!(condition(&next(None, &held(&empty)), "Drifted").unwrap().status, "False");
}

#[test]
fn an_object_does_not_seem_healthy_before_anybody_has_looked() {
    let begun_now = |before| begun(before, Some(1), &[], Timestamp::UNIX_EPOCH);
    let first = begun_now(None).unwrap();
    assert_eq!(condition(&first, "Ready").unwrap().status, "Unknown");
    assert_eq!(condition(&first, "Reconciling").unwrap().status, "True");
    assert_eq!(begun_now(Some(&first)), None);
    // A backup may bring back an id alone: it is kept.
    let restored = Status { id: Some("id".to_owned()), ..Status::default() };
    assert_eq!(begun_now(Some(&restored)).unwrap().id.as_deref(), Some("id"));
}

#[test]
fn a_suspended_object_claims_nothing_and_keeps_what_it_holds() {
    let before = pass(None, &Outcome::Observed, &plan(), 1);
    let now = Timestamp::from_second(2).unwrap();
    let after = suspended(Some(&before), Some(3), &[], now);
    assert_eq!(condition(&after, "Ready").unwrap().status, "Unknown");
    assert_eq!(condition(&after, "Ready").unwrap().reason, "Suspended");
    assert_eq!((after.observed_generation, after.id.as_deref()), (Some(3), Some("id")));
    assert_eq!(suspended(Some(&after), Some(3), &[], Timestamp::from_second(99).unwrap()), after);
}

#[test]
fn an_unfinished_creation_is_remembered_until_its_end_is_known() {
    let empty = Plan::<()>::empty().view("t");
    let before = Status { creating: Some("rest".to_owned()), ..Status::default() };
    let made = next(Some(&before), &held(&empty));
    assert_eq!(made.creating, None);
    let waiting =
        Outcome::Blocked(crate::Blocked { reason: api::Reason::NotEntitled, message: String::new() });
    let refused = next(Some(&before), &StatusInput { id: None, outcome: &waiting, ..held(&empty) });
    assert_eq!(refused.creating, None);
    let unlooked = StatusInput { id: None, contact: None, outcome: &waiting, ..held(&empty) };
    assert_eq!(next(Some(&before), &unlooked).creating.as_deref(), Some("rest"));
}

#[test]
fn deployment_of_the_remote_object_is_recorded_with_its_id() {
    let empty = Plan::<()>::empty().view("t");
    let first = pass(None, &Outcome::Applied, &empty, 1);
    assert_eq!(first.remote_deployment_id, Some(Uuid::nil().to_string()));
    let other = Some(Uuid::from_u128(1));
    let unread = StatusInput { id: None, contact: None, deployment: other, ..held(&empty) };
    assert_eq!(next(Some(&first), &unread).remote_deployment_id, first.remote_deployment_id);
    let before = Status { remote_deployment_id: None, ..first.clone() };
    assert_eq!(next(Some(&before), &held(&empty)), first, "a status from before the field");
    let moved = next(Some(&first), &StatusInput { deployment: other, ..held(&empty) });
    assert_eq!(moved.remote_deployment_id, other.map(|it| it.to_string()));
}

#[test]
fn long_values_are_cut_and_the_plan_stays_the_same() {
    let long = "ä".repeat(1_000_000);
    let plan = |value: &str| {
        let change = Change::new("displayName", value, json!([value]));
        let reason = "the group differs".to_owned();
        Plan::of(Step {
            action: Action::Update,
            impact: Impact::Safe,
            reason,
            changes: vec![change],
            effect: (),
        })
        .view("t")
    };
    let observed = pass(None, &Outcome::Observed, &plan(&long), 1);
    let shown = observed.plan.unwrap();
    assert_eq!(shown.hash, plan(&long).hash);
    assert_ne!(shown.hash, plan(&format!("{long}b")).hash);
    for value in [&shown.steps[0].before, &shown.steps[0].after, &observed.drift[0].found] {
        assert!(value.as_ref().is_some_and(|it| it.len() <= 1024 && it.ends_with('…')), "{value:?}");
    }
    assert!(line(plan(&long).changes().next().unwrap()).len() < 2_100);
}

#[test]
fn unsupported_field_is_named_whatever_else_the_status_says() {
    let blocked = crate::Blocked {
        reason: api::Reason::VersionNotSupported,
        message: "spec.icon needs Coder >= 2.36".to_owned(),
    };
    let applied = Outcome::Applied.with_unsupported(Some(&blocked));
    let partly = next(None, &StatusInput { outcome: &applied, unsupported: Some(&blocked), ..held(&plan()) });
    let ready = condition(&partly, "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "VersionNotSupported"));
    assert_eq!(condition(&partly, "Drifted").unwrap().status, "False");
    assert!(partly.plan.is_none() && partly.drift.is_empty(), "the other fields are as declared: {partly:?}");
    let refused = Outcome::Refused(Refusal::NotApproved).with_unsupported(Some(&blocked));
    let refused =
        next(None, &StatusInput { outcome: &refused, unsupported: Some(&blocked), ..held(&plan()) });
    let ready = condition(&refused, "Ready").unwrap();
    assert_eq!(ready.reason, "ApprovalRequired");
    assert!(ready.message.contains("Also: spec.icon needs"), "{}", ready.message);
}

#[test]
fn unknown_author_is_replaced_by_a_known_one_and_not_the_other_way() {
    let plan = plan();
    let by = |who: &str| {
        let fields = attribution::differences(&plan).map(|it| it.field.clone());
        let made: Vec<Attribution> =
            fields.map(|field| Attribution { field, by: who.to_owned(), at: None }).collect();
        let input = StatusInput { outcome: &Outcome::Observed, attributions: &made, ..held(&plan) };
        known(&plan, &next(None, &input).drift)
    };
    assert_eq!(by("unknown"), [], "the log is read again");
    assert_eq!(by("alice").len(), attribution::differences(&plan).count());
}

#[test]
fn change_of_what_the_manifest_refers_to_is_no_drift() {
    let plan = plan();
    let fields: Vec<&str> = plan.changes().map(|it| it.field.as_str()).collect();
    let status =
        next(None, &StatusInput { outcome: &Outcome::Observed, own_changes: &fields, ..held(&plan) });
    assert_eq!(status.drift, []);
    assert_eq!(condition(&status, DRIFTED).unwrap().status, "False");
    assert!(status.plan.is_some());
}
