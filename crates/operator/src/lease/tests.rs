//! The decision as a table, and what is written.

use super::*;

const ME: &str = "me";

fn held_by(holder: &str) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        lease_transitions: Some(4),
        ..LeaseSpec::default()
    }
}

#[test]
fn a_decision_depends_on_the_holder_and_on_how_long_we_have_seen_nothing_new() {
    let seconds = Duration::from_secs;
    let lasting = |seconds| LeaseSpec { lease_duration_seconds: Some(seconds), ..held_by("other") };
    let nameless = LeaseSpec { holder_identity: None, ..held_by("") };
    let brief = LeaseSpec { lease_duration_seconds: Some(1), ..held_by("other") };
    let endless = LeaseSpec { lease_duration_seconds: None, ..held_by("other") };
    let absurd = LeaseSpec { lease_duration_seconds: Some(-1), ..held_by("other") };
    let table = [
        ("absent", None, 0, Decision::Acquire),
        ("without a holder", Some(nameless), 0, Decision::Acquire),
        ("released", Some(held_by("")), 0, Decision::Acquire),
        ("ours, fresh", Some(held_by(ME)), 0, Decision::Wait(seconds(5))),
        ("ours, not yet due", Some(held_by(ME)), 4, Decision::Wait(seconds(1))),
        ("ours, due", Some(held_by(ME)), 5, Decision::Renew),
        ("ours, long expired", Some(held_by(ME)), 500, Decision::Renew),
        ("another's, fresh", Some(held_by("other")), 0, Decision::Wait(seconds(15))),
        ("another's, not renewed for a while", Some(held_by("other")), 14, Decision::Wait(seconds(1))),
        ("another's, expired", Some(held_by("other")), 15, Decision::Acquire),
        ("another's, with its own duration", Some(brief), 1, Decision::Acquire),
        ("another's, without a duration", Some(endless), 14, Decision::Wait(seconds(1))),
        ("another's, with a duration that means nothing", Some(absurd), 14, Decision::Wait(seconds(1))),
        ("another's, with a longer duration", Some(lasting(120)), 119, Decision::Wait(seconds(1))),
        ("another's, with a duration beyond all measure", Some(lasting(121)), 14, Decision::Wait(seconds(1))),
        ("another's, with the longest duration there is", Some(lasting(i32::MAX)), 15, Decision::Acquire),
        ("another's, with no duration at all", Some(lasting(0)), 14, Decision::Wait(seconds(1))),
        ("of one whose name begins with ours", Some(held_by("me2")), 6, Decision::Wait(seconds(9))),
    ];
    let seen = Instant::now();
    for (what, lease, age, expected) in table {
        assert_eq!(decide(lease.as_ref(), ME, seen, seen + seconds(age)), expected, "{what}");
    }
}

#[test]
fn a_clock_that_seems_to_run_backwards_makes_nobody_a_leader() {
    let now = Instant::now();
    let lease = held_by("other");
    assert_eq!(decide(Some(&lease), ME, now + RENEW, now), Decision::Wait(DURATION));
}

#[test]
fn a_leader_gives_up_before_others_may_start_and_has_two_tries_until_then() {
    assert!(GIVE_UP + PATIENCE < DURATION);
    assert!(RENEW + PATIENCE + RETRY < GIVE_UP);
}

#[test]
fn only_a_renewal_keeps_another_leader_alive() {
    let start = Instant::now();
    let later = start + Duration::from_secs(10);
    let lease = |renewed: i64, label: &str| Lease {
        metadata: ObjectMeta {
            labels: Some([("label".to_owned(), label.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            renew_time: Timestamp::from_second(renewed).ok().map(MicroTime),
            ..held_by("other")
        }),
    };
    let mut seen = Seen { lease: Some(lease(1, "a")), at: start };
    seen.look(Some(lease(1, "b")), later);
    assert_eq!(seen.at, start, "a label is no renewal");
    // Whatever the other's clock says: a time before ours, or after it.
    seen.look(Some(lease(0, "b")), later);
    assert_eq!(seen.at, later);
}

#[test]
fn taking_counts_as_a_transition_and_renewing_does_not() {
    let (first, second) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
    let taken = claimed(Some(&held_by("other")), ME, first);
    assert_eq!((taken.lease_transitions, taken.lease_duration_seconds), (Some(5), Some(15)));
    let renewed = claimed(Some(&taken), ME, second);
    assert_eq!(renewed.lease_transitions, Some(5));
    assert_eq!(renewed.acquire_time, Some(MicroTime(first)));
    assert_eq!(renewed.renew_time, Some(MicroTime(second)));
    let free = released(&renewed, second);
    assert_eq!(free.holder_identity.as_deref(), Some(""));
    assert_eq!(decide(Some(&free), "other", Instant::now(), Instant::now()), Decision::Acquire);
}
