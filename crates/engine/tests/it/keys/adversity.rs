//! What coderd, others and the cluster do to us at the worst of times: nothing of anybody else's is touched, and nothing is
//! asked over and over.

use api::Reason;
use engine::{
    keys::coderd::revoke,
    pipeline::outcome::{Blocked, Trouble},
    secrets::{Policy, Retiring, Revoked},
};
use jiff::{SignedDuration, Timestamp};

use super::{
    Shared,
    cases::{after, brought, pass, settled},
    disturb::{Disturbance, disturb},
    ends_well,
    model::{Ailing, Fault, GRACE, Model, UID},
    run::Process,
    secret::{is_owned, set_owner},
};
use crate::memory::wait;

fn foreign_keys(model: &Shared) -> usize {
    model.lock().unwrap().rows.iter().filter(|it| it.is_foreign).count()
}

/// Somebody makes a key of our name, with our tags, which has no daemons yet.
fn twin(model: &Shared) {
    let mut model = model.lock().unwrap();
    let (name, tags) = (model.wanted.names.base.clone(), model.wanted.tags.clone());
    model.foreign(&name, &tags, false);
}

fn words(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Blocked(it) => it.message.clone(),
        Trouble::Remote(error) => error.words(),
        Trouble::Cluster(_) | Trouble::Stale => panic!("{trouble:?}"),
    }
}

fn advance(model: &Shared, by: SignedDuration) {
    model.lock().unwrap().advance(by);
}

#[test]
fn a_name_that_somebody_takes_at_any_moment_stays_theirs() {
    let mut taken = 0;
    for stop in 0.. {
        let model = Model::new(Policy::Recreate);
        let mut process = Process::new("we", &model);
        process.begin();
        process.steps(stop);
        if !process.is_busy() {
            break;
        }
        twin(&model);
        taken += foreign_keys(&model);
        let before = foreign_keys(&model);
        while process.is_busy() {
            process.step();
        }
        ends_well(&model);
        assert_eq!(foreign_keys(&model), before);
    }
    assert!(taken > 6, "{taken}");
}

#[test]
fn a_name_that_somebody_takes_after_we_were_refused_stays_theirs() {
    let model = Model::new(Policy::Recreate);
    model.lock().unwrap().ailing = Some(Ailing::Refuses);
    let mut process = Process::new("we", &model);
    process.pass().0.unwrap_err();
    twin(&model);
    model.lock().unwrap().ailing = None;
    let driven = process.pass().0.unwrap();
    assert_eq!(driven.rest.key.unwrap().name, "alpha-1a2b-2");
    ends_well(&model);
    assert_eq!(foreign_keys(&model), 1);
}

#[test]
fn a_refusal_does_not_cost_the_declared_name_and_writes_nothing_when_it_is_repeated() {
    let model = Model::new(Policy::Recreate);
    model.lock().unwrap().ailing = Some(Ailing::Refuses);
    let mut process = Process::new("we", &model);
    process.pass().0.unwrap_err();
    let writes = model.lock().unwrap().writes;
    for _ in 0..3 {
        process.pass().0.unwrap_err();
    }
    assert_eq!(model.lock().unwrap().writes, writes);
    model.lock().unwrap().ailing = None;
    assert_eq!(process.pass().0.unwrap().rest.key.unwrap().name, "alpha");
}

#[test]
fn two_holders_with_one_name_and_old_lists_leave_each_other_their_keys() {
    for (one, two) in (0..30).flat_map(|one| (0..30).map(move |two| (one, two))) {
        // The same manifest in two clusters that share a deployment.
        let model = Model::new(Policy::Recreate);
        model.lock().unwrap().disturbances = 3;
        let other = model.lock().unwrap().beside("ffff0000-0000-0000-0000-000000000000");
        let (mut a, mut b) = (Process::new("a", &model), Process::new("b", &other));
        for (process, model) in [(&a, &model), (&b, &other)] {
            let (organization, now) = {
                let model = model.lock().unwrap();
                (model.wanted.organization_id, model.now())
            };
            wait(process.operator.here().keys(organization, now)).unwrap();
        }
        a.begin();
        a.steps(one);
        b.begin();
        b.steps(two);
        while a.is_busy() {
            a.step();
        }
        while b.is_busy() {
            b.step();
        }
        // Both have a key each, and go one after the other.
        assert!([&model, &other].iter().all(|it| it.lock().unwrap().live().is_some()));
        ends_well(&other);
        ends_well(&model);
    }
}

#[test]
fn a_mint_that_fails_is_asked_once_a_pass_and_its_trouble_is_told() {
    let model = Model::new(Policy::Recreate);
    model.lock().unwrap().ailing = Some(Ailing::Fails);
    let mut process = Process::new("we", &model);
    for posts in 1..4 {
        let writes = model.lock().unwrap().writes;
        let trouble = process.pass().0.unwrap_err();
        let model = model.lock().unwrap();
        assert!(words(&trouble).contains("500"), "{trouble:?}");
        assert_eq!(model.posts, posts);
        // The first retry writes the intent into a Secret: the key may have been made.
        assert!(posts <= 2 || model.writes == writes, "a Secret that is written wakes us up again");
    }
    model.lock().unwrap().ailing = None;
    process.pass().0.unwrap();
    ends_well(&model);
}

#[test]
fn a_key_whose_list_is_not_shown_is_not_taken_for_gone() {
    for is_ours_by_name in [false, true] {
        let model = after(Policy::Recreate, if is_ours_by_name { &[Disturbance::Rotate] } else { &[] });
        pass(&model);
        let (held, organization, now) = {
            let model = model.lock().unwrap();
            (model.status().current.unwrap(), model.wanted.organization_id, model.now())
        };
        let retiring = Retiring { held, since: now, lost: false };
        let coder = Process::new("end", &model).operator.here();
        model.lock().unwrap().unreadable.insert(organization);
        let refused = wait(revoke(&coder, &retiring, is_ours_by_name, now)).unwrap_err();
        assert!(words(&refused).contains("may not list the keys"), "{refused:?}");
        // Nobody shows the organization either: it is named, and nothing waits for it.
        model.lock().unwrap().hide_organization();
        let left = wait(revoke(&coder, &retiring, is_ours_by_name, now)).unwrap();
        assert_eq!(left, Revoked::OutOfReach);
        assert!(model.lock().unwrap().live().is_some());
    }
}

fn again_at(model: &Shared) -> Option<Timestamp> {
    Process::new("", model).pass().0.unwrap().rest.again_at
}

#[test]
fn nothing_that_we_may_not_do_is_waited_for() {
    // A person's Secret is not rotated.
    let model = Model::new(Policy::Recreate);
    let tags = model.lock().unwrap().wanted.tags.clone();
    let right = model.lock().unwrap().foreign("right", &tags, true);
    model.lock().unwrap().wanted.rotate_every = Some(SignedDuration::from_hours(1));
    brought(&model, right.as_deref());
    assert_eq!(again_at(&model), None);
    advance(&model, SignedDuration::from_hours(2));
    assert_eq!(again_at(&model), None);
    // A person's Secret that is no good ends no key.
    let model = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&model);
    brought(&model, Some("spoilt"));
    let due = model.lock().unwrap().now() + GRACE;
    assert_eq!(again_at(&model), Some(due));
    advance(&model, GRACE);
    assert_eq!(again_at(&model), None);
    // Without a Secret there is no fence, and nothing is revoked.
    let model = after(Policy::OnRequest, &[Disturbance::Rotate]);
    pass(&model);
    disturb(&model, Disturbance::DeleteSecret);
    advance(&model, GRACE);
    assert_eq!(again_at(&model), None);
}

#[test]
fn a_name_that_may_still_come_costs_no_list_and_is_found_when_it_does() {
    let model = Model::new(Policy::Recreate);
    {
        let mut model = model.lock().unwrap();
        model.ailing = Some(Ailing::Mute);
        model.disturbances += 1;
    }
    let mut process = Process::new("we", &model);
    process.pass().0.unwrap();
    model.lock().unwrap().roll();
    // A list tells the id of the key that was made in the end.
    process.operator.forget_lists();
    process.pass().0.unwrap();
    let (calls, now) = {
        let model = model.lock().unwrap();
        assert_eq!(model.status().retiring.len(), 1);
        (model.log.len(), model.now())
    };
    let rest = process.pass().0.unwrap().rest;
    assert_eq!(model.lock().unwrap().log[calls..], [""; 0]);
    assert_eq!(rest.again_at, now.checked_add(SignedDuration::from_mins(1)).ok());
    assert!(!rest.is_rotating());
    // Somebody slow comes with the request after all.
    twin(&model);
    model.lock().unwrap().rows.iter_mut().for_each(|it| it.is_foreign = false);
    process.operator.forget_lists();
    process.pass().0.unwrap();
    assert_eq!(model.lock().unwrap().ours().count(), 1);
    ends_well(&model);
}

#[test]
fn key_of_a_request_that_was_sent_twice_is_named_and_left() {
    let model = Model::new(Policy::Recreate);
    {
        let mut model = model.lock().unwrap();
        model.ailing = Some(Ailing::Twice);
        model.disturbances += 1;
    }
    let driven = Process::new("we", &model).pass().0.unwrap();
    assert_eq!(driven.rest.key.unwrap().name, "alpha-1a2b-2");
    let is_named = |it: &&String| {
        it.starts_with("revoked Alpha doubtful: ") && it.contains("appeared in Coder while the operator")
    };
    assert_eq!(model.lock().unwrap().log.iter().filter(is_named).count(), 1);
    ends_well(&model);
    assert!(model.lock().unwrap().rows.iter().any(|it| it.key.name == "alpha" && it.is_left));
}

#[test]
fn lost_key_of_another_clock_is_named_and_left() {
    for minutes in [20, -20] {
        let model = Model::new(Policy::Recreate);
        {
            let mut model = model.lock().unwrap();
            model.ailing = Some(Ailing::Mute);
            model.set_ahead(SignedDuration::from_mins(minutes));
            model.disturbances += 1;
        }
        let mut process = Process::new("we", &model);
        process.pass().0.unwrap();
        model.lock().unwrap().roll();
        advance(&model, SignedDuration::from_mins(16));
        process.operator.forget_lists();
        process.pass().0.unwrap();
        let is_named = |it: &&String| it.to_lowercase().starts_with("revoked alpha doubtful");
        assert_eq!(model.lock().unwrap().log.iter().filter(is_named).count(), 1);
        ends_well(&model);
        assert!(model.lock().unwrap().rows.iter().any(|it| it.key.name == "alpha" && it.is_left));
    }
}

#[test]
fn no_key_is_minted_for_a_secret_that_takes_no_value() {
    let model = after(Policy::Recreate, &[Disturbance::Rotate]);
    model.lock().unwrap().edit_secret(|it| it["immutable"] = true.into());
    for _ in 0..2 {
        assert_eq!(pass(&model), [api::Reason::SecretNotWritten.as_str()]);
    }
    assert_eq!(model.lock().unwrap().posts, 1);
    disturb(&model, Disturbance::DeleteSecret);
    assert_eq!(pass(&model).last().unwrap(), "alpha-1a2b-2 is ours");
}

#[test]
fn pods_that_may_take_longer_than_is_declared_now_keep_their_key_that_long() {
    let model = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&model);
    model.lock().unwrap().pods_grace = GRACE * 2;
    advance(&model, GRACE * 2 - SignedDuration::from_secs(1));
    assert!(!pass(&model).iter().any(|it| it.starts_with("delete")));
    advance(&model, SignedDuration::from_secs(1));
    assert!(pass(&model).contains(&"delete alpha".to_owned()));
}

#[test]
fn a_settled_model_says_that_it_does_not_rotate() {
    let model = settled(Policy::Recreate);
    assert!(!Process::new("", &model).pass().0.unwrap().rest.is_rotating());
    disturb(&model, Disturbance::Rotate);
    assert!(Process::new("", &model).pass().0.unwrap().rest.is_rotating());
    assert!(is_owned(&model.lock().unwrap().secret().unwrap(), UID));
}

#[test]
fn lost_key_is_revoked_while_the_secret_is_anothers() {
    let model = Model::new(Policy::Recreate);
    let mut process = Process::new("we", &model);
    process.begin();
    while model.lock().unwrap().minted == 0 {
        process.step();
    }
    // Another object writes its Secret first.
    brought(&model, None);
    model.lock().unwrap().edit_secret(|it| set_owner(it, Some("another")));
    let mut ended = None;
    while process.is_busy() {
        ended = process.step();
    }
    let rest = ended.unwrap().unwrap().rest;
    assert_eq!(rest.key.unwrap_err().reason, Reason::HeldByOther);
    assert_eq!(model.lock().unwrap().ours().count(), 0, "the value was in no Secret");
    // While a request of ours may still arrive the name stays on record.
    let is_named = |model: &Shared| !model.lock().unwrap().status().retiring.is_empty();
    assert!(is_named(&model));
    advance(&model, SignedDuration::from_mins(16));
    process.operator.forget_lists();
    process.pass().0.unwrap();
    assert!(!is_named(&model));
}

/// A process that has written down the next key of a rotation, and a model whose manifest asks for none any more.
fn begun_rotation() -> (Shared, Process) {
    let model = settled(Policy::Recreate);
    let request = model.lock().unwrap().wanted.rotate_request.clone();
    disturb(&model, Disturbance::Rotate);
    let mut slow = Process::new("slow", &model);
    slow.begin();
    while model.lock().unwrap().status().intent.is_none() {
        slow.step();
    }
    model.lock().unwrap().wanted.rotate_request = request;
    (model, slow)
}

#[test]
fn fresh_intent_of_another_process_is_left_alone() {
    let (model, mut slow) = begun_rotation();
    assert_eq!(pass(&model), ["alpha is ours"]);
    while slow.is_busy() {
        slow.step();
    }
    let live = model.lock().unwrap().live().unwrap().key.name.clone();
    assert_eq!((live.as_str(), model.lock().unwrap().minted), ("alpha-1a2b-2", 2));
    ends_well(&model);
}

#[test]
fn stale_intent_of_a_process_that_died_is_given_up() {
    let (model, mut dead) = begun_rotation();
    dead.crash();
    let rest = Process::new("next", &model).pass().0.unwrap().rest;
    let again = rest.again_at.unwrap().duration_since(model.lock().unwrap().now());
    assert!(again > SignedDuration::from_mins(4) && again < SignedDuration::from_mins(6), "{again:?}");
    advance(&model, SignedDuration::from_mins(6));
    assert_eq!(
        pass(&model).first().unwrap(),
        "write - intent None current Some(\"alpha\") retiring [\"Alpha-1a2b-2\"]"
    );
    ends_well(&model);
}

/// A plan that waits for an approval.
fn held_back() -> Blocked {
    Blocked { reason: Reason::ApprovalRequired, message: "approve the plan".to_owned() }
}

#[test]
fn intent_for_another_key_does_not_lift_what_is_held_back() {
    for disturbance in [Disturbance::Tags, Disturbance::Name, Disturbance::Plane] {
        let (model, mut dead) = begun_rotation();
        dead.crash();
        disturb(&model, disturbance);
        model.lock().unwrap().wanted.held_back = Some(held_back());
        let posts = model.lock().unwrap().posts;
        for _ in 0..2 {
            let done = pass(&model);
            assert!(!done.iter().any(|it| it.starts_with("mint")), "{disturbance:?}: {done:?}");
            advance(&model, SignedDuration::from_mins(6));
        }
        assert_eq!(model.lock().unwrap().posts, posts, "{disturbance:?}");
        assert!(model.lock().unwrap().status().intent.is_none(), "{disturbance:?}: it is given up");
        model.lock().unwrap().wanted.held_back = None;
        ends_well(&model);
    }
}

#[test]
fn key_that_was_begun_is_minted_although_the_plan_is_held_back_by_now() {
    let (model, mut dead) = begun_rotation();
    dead.crash();
    disturb(&model, Disturbance::Rotate);
    model.lock().unwrap().wanted.held_back = Some(held_back());
    assert_eq!(pass(&model).last().unwrap(), "alpha-1a2b-2 is ours");
}

#[test]
fn key_that_was_begun_is_not_minted_where_keys_are_only_revoked() {
    let (model, mut dead) = begun_rotation();
    dead.crash();
    disturb(&model, Disturbance::Rotate);
    {
        let mut model = model.lock().unwrap();
        model.wanted.held_back = Some(held_back());
        model.wanted.leaves_begun = true;
    }
    let posts = model.lock().unwrap().posts;
    for _ in 0..2 {
        let done = pass(&model);
        assert!(!done.iter().any(|it| it.starts_with("mint")), "{done:?}");
        advance(&model, SignedDuration::from_mins(6));
    }
    assert_eq!(model.lock().unwrap().posts, posts);
    {
        let mut model = model.lock().unwrap();
        (model.wanted.held_back, model.wanted.leaves_begun) = (None, false);
    }
    ends_well(&model);
}

#[test]
fn many_keys_that_are_due_at_once_go_in_one_reconcile() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        let model = settled(policy);
        for _ in 0..30 {
            disturb(&model, Disturbance::Rotate);
            pass(&model);
        }
        assert_eq!(model.lock().unwrap().status().retiring.len(), 30);
        advance(&model, GRACE);
        let done = pass(&model);
        assert_eq!(done.iter().filter(|it| it.starts_with("delete ")).count(), 30, "{done:?}");
        assert!(model.lock().unwrap().status().retiring.is_empty());
        ends_well(&model);
    }
}

/// A person's Secret with a key that would do takes the place of ours, and a stranger makes a key of our name.
fn brought_beside_a_twin(model: &Shared) {
    let tags = model.lock().unwrap().wanted.tags.clone();
    let right = model.lock().unwrap().foreign("right", &tags, true);
    brought(model, right.as_deref());
    twin(model);
}

#[test]
fn key_of_a_stranger_is_not_taken_for_one_that_coderd_refused_to_make() {
    let model = Model::new(Policy::Recreate);
    model.lock().unwrap().ailing = Some(Ailing::Refuses);
    let mut process = Process::new("we", &model);
    process.pass().0.unwrap_err();
    assert!(model.lock().unwrap().status().intent.is_some());
    model.lock().unwrap().ailing = None;
    brought_beside_a_twin(&model);
    process.operator.forget_lists();
    assert_eq!(process.pass().0.unwrap().rest.key.unwrap().name, "right");
    assert_eq!(foreign_keys(&model), 2);
    let status = model.lock().unwrap().status();
    assert!(status.intent.is_none() && status.retiring.is_empty(), "{status:?}");
}

#[test]
fn key_of_a_stranger_whose_name_was_taken_before_is_not_revoked() {
    let model = Model::new(Policy::Recreate);
    let mut process = Process::new("we", &model);
    process.begin();
    while model.lock().unwrap().status().intent.is_none() {
        process.step();
    }
    twin(&model);
    while model.lock().unwrap().posts == 0 {
        process.step();
    }
    // The name is taken, and another one cannot be written down.
    let calls = model.lock().unwrap().calls;
    model.lock().unwrap().faults.extend((1..10).map(|it| (calls + it, Fault::Refused)));
    while process.is_busy() {
        process.step();
    }
    model.lock().unwrap().faults.clear();
    brought_beside_a_twin(&model);
    process.operator.forget_lists();
    assert_eq!(process.pass().0.unwrap().rest.key.unwrap().name, "right");
    assert_eq!(foreign_keys(&model), 2);
    let status = model.lock().unwrap().status();
    assert!(status.intent.is_none() && status.retiring.is_empty(), "{status:?}");
}

#[test]
fn lost_key_of_unknown_holder_does_not_hold_up_the_next_one() {
    let model = Model::new(Policy::Recreate);
    let mut dead = Process::new("dead", &model);
    dead.begin();
    while model.lock().unwrap().minted == 0 {
        dead.step();
    }
    dead.crash();
    {
        let mut model = model.lock().unwrap();
        model.disturbances += 1;
        model.refused_list = Some(503);
    }
    let mut process = Process::new("we", &model);
    let driven = process.pass().0.unwrap();
    assert_eq!(driven.rest.key.unwrap().name, "alpha-1a2b-2");
    assert!(words(&driven.trouble.unwrap()).contains("cannot determine which object owns"), "it is retried");
    assert_eq!(model.lock().unwrap().ours().count(), 2, "the lost key may be another object's");
    model.lock().unwrap().refused_list = None;
    ends_well(&model);
}
