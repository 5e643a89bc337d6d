//! What coderd, others and the cluster do to us at the worst of times: nothing of anybody else's is touched, and nothing is
//! asked over and over.

use std::collections::{BTreeMap, BTreeSet};

use engine::{
    pipeline::outcome::Trouble,
    secrets::{
        Names, Owner, Policy, Record, Revoked, SecretPlace, Wanted,
        coderd::{Listing, revoke},
        record::Retiring,
    },
};
use jiff::{SignedDuration, Timestamp};

use super::{
    Shared,
    cases::{after, brought, pass, settled},
    disturb::{Disturbance, disturb},
    ends_well,
    model::{Ailing, Coder, GRACE, Operator, Stored},
    run::{Process, wait},
};

fn foreign_keys(coder: &Shared) -> usize {
    coder.lock().unwrap().rows.iter().filter(|it| it.is_foreign).count()
}

/// Somebody makes a key of our name, with our tags, which has no daemons yet.
fn twin(coder: &Shared) {
    let mut coder = coder.lock().unwrap();
    let (name, tags) = (coder.wanted.names.base.clone(), coder.wanted.tags.clone());
    coder.foreign(&name, &tags, 0);
}

fn words(trouble: &Trouble) -> &str {
    match trouble {
        Trouble::Blocked(it) => &it.message,
        other => panic!("{other:?}"),
    }
}

fn advance(coder: &Shared, by: SignedDuration) {
    let mut coder = coder.lock().unwrap();
    coder.now = coder.now.checked_add(by).unwrap();
}

#[test]
fn a_name_that_somebody_takes_at_any_moment_stays_theirs() {
    let mut taken = 0;
    for stop in 0.. {
        let coder = Coder::new(Policy::Recreate);
        let mut process = Process::new("we", &coder);
        process.begin();
        process.steps(stop);
        if !process.is_busy() {
            break;
        }
        twin(&coder);
        taken += foreign_keys(&coder);
        let before = foreign_keys(&coder);
        while process.is_busy() {
            process.step();
        }
        ends_well(&coder);
        assert_eq!(foreign_keys(&coder), before);
    }
    assert!(taken > 6, "{taken}");
}

#[test]
fn a_name_that_somebody_takes_after_we_were_refused_stays_theirs() {
    let coder = Coder::new(Policy::Recreate);
    coder.lock().unwrap().ailing = Some(Ailing::Refuses);
    let mut process = Process::new("we", &coder);
    process.pass().0.unwrap_err();
    twin(&coder);
    coder.lock().unwrap().ailing = None;
    let driven = process.pass().0.unwrap();
    assert_eq!(driven.rest.key.unwrap().name, "alpha-1a2b-2");
    ends_well(&coder);
    assert_eq!(foreign_keys(&coder), 1);
}

#[test]
fn a_refusal_does_not_cost_the_declared_name_and_writes_nothing_when_it_is_repeated() {
    let coder = Coder::new(Policy::Recreate);
    coder.lock().unwrap().ailing = Some(Ailing::Refuses);
    let mut process = Process::new("we", &coder);
    process.pass().0.unwrap_err();
    let writes = coder.lock().unwrap().writes;
    for _ in 0..3 {
        process.pass().0.unwrap_err();
    }
    assert_eq!(coder.lock().unwrap().writes, writes);
    coder.lock().unwrap().ailing = None;
    assert_eq!(process.pass().0.unwrap().rest.key.unwrap().name, "alpha");
}

/// What belongs to one of two holders that share a deployment: the same manifest in two clusters.
struct Holder {
    wanted: Wanted,
    secrets: BTreeMap<String, Stored>,
    status: Record,
    status_version: u64,
    carried: BTreeSet<String>,
    read: BTreeSet<SecretPlace>,
}

/// It is the other one's turn. What was ours is foreign from there.
fn take_turns(coder: &Shared, other: &mut Holder) {
    let coder = &mut *coder.lock().unwrap();
    std::mem::swap(&mut coder.wanted, &mut other.wanted);
    std::mem::swap(&mut coder.secrets, &mut other.secrets);
    std::mem::swap(&mut coder.status, &mut other.status);
    std::mem::swap(&mut coder.status_version, &mut other.status_version);
    std::mem::swap(&mut coder.carried, &mut other.carried);
    std::mem::swap(&mut coder.read, &mut other.read);
    coder.newest = None;
    coder.rows.iter_mut().for_each(|it| it.is_foreign = !it.is_foreign);
}

#[test]
fn two_holders_with_one_name_and_old_lists_leave_each_other_their_keys() {
    for (one, two) in (0..30).flat_map(|one| (0..30).map(move |two| (one, two))) {
        let coder = Coder::new(Policy::Recreate);
        coder.lock().unwrap().disturbances = 3;
        let mut wanted = coder.lock().unwrap().wanted.clone();
        wanted.names = Names::new("Alpha", "ffff0000-0000-0000-0000-000000000000");
        let mut other = Holder {
            wanted,
            secrets: BTreeMap::default(),
            status: Record::default(),
            status_version: 0,
            carried: BTreeSet::new(),
            read: BTreeSet::new(),
        };
        let (mut a, mut b) = (Process::new("a", &coder), Process::new("b", &coder));
        let (organization, at) = {
            let coder = coder.lock().unwrap();
            (coder.wanted.organization_id, coder.now)
        };
        for process in [&a, &b] {
            let old = Listing { keys: Vec::new(), at, is_shown: true };
            process.operator.cache.lock().unwrap().insert(organization, old);
        }
        a.begin();
        a.steps(one);
        take_turns(&coder, &mut other);
        b.begin();
        b.steps(two);
        take_turns(&coder, &mut other);
        while a.is_busy() {
            a.step();
        }
        take_turns(&coder, &mut other);
        while b.is_busy() {
            b.step();
        }
        ends_for(&coder, &mut other);
    }
}

/// Both have a key each, and go one after the other.
fn ends_for(coder: &Shared, other: &mut Holder) {
    assert!(coder.lock().unwrap().live().is_some());
    take_turns(coder, other);
    assert!(coder.lock().unwrap().live().is_some());
    ends_well(coder);
    take_turns(coder, other);
    ends_well(coder);
}

#[test]
fn a_mint_that_fails_is_asked_once_a_pass_and_its_trouble_is_told() {
    let coder = Coder::new(Policy::Recreate);
    coder.lock().unwrap().ailing = Some(Ailing::Fails);
    let mut process = Process::new("we", &coder);
    for posts in 1..4 {
        let writes = coder.lock().unwrap().writes;
        let trouble = process.pass().0.unwrap_err();
        let coder = coder.lock().unwrap();
        assert_eq!((words(&trouble), coder.posts), ("500", posts));
        assert!(posts == 1 || coder.writes == writes, "a Secret that is written wakes us up again");
    }
    coder.lock().unwrap().ailing = None;
    process.pass().0.unwrap();
    ends_well(&coder);
}

#[test]
fn a_key_whose_list_is_not_shown_is_not_taken_for_gone() {
    for is_ours_by_name in [false, true] {
        let coder = after(Policy::Recreate, if is_ours_by_name { &[Disturbance::Rotate] } else { &[] });
        pass(&coder);
        let (held, organization, now) = {
            let coder = coder.lock().unwrap();
            (coder.status.current.clone().unwrap(), coder.wanted.organization_id, coder.now)
        };
        let retiring = Retiring { held, since: now, lost: false };
        let operator = Operator::new("end", &coder);
        coder.lock().unwrap().unreadable.insert(organization);
        let refused = wait(revoke(&operator, &retiring, is_ours_by_name, now)).unwrap_err();
        assert!(words(&refused).contains("no right"), "{refused:?}");
        // Nobody shows the organization either: it is named, and nothing waits for it.
        coder.lock().unwrap().hidden.insert(organization);
        let left = wait(revoke(&operator, &retiring, is_ours_by_name, now)).unwrap();
        assert_eq!(left, Revoked::OutOfReach);
        assert!(coder.lock().unwrap().live().is_some());
    }
}

fn again_at(coder: &Shared) -> Option<Timestamp> {
    Process::new("", coder).pass().0.unwrap().rest.again_at
}

#[test]
fn nothing_that_we_may_not_do_is_waited_for() {
    // A person's Secret is not rotated.
    let coder = Coder::new(Policy::Recreate);
    let tags = coder.lock().unwrap().wanted.tags.clone();
    coder.lock().unwrap().foreign("right", &tags, 1);
    coder.lock().unwrap().wanted.rotate_every = Some(SignedDuration::from_hours(1));
    brought(&coder, Some("value-1"));
    assert_eq!(again_at(&coder), None);
    advance(&coder, SignedDuration::from_hours(2));
    assert_eq!(again_at(&coder), None);
    // A person's Secret that is no good ends no key.
    let coder = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&coder);
    brought(&coder, Some("spoilt"));
    let due = coder.lock().unwrap().now.checked_add(GRACE).unwrap();
    assert_eq!(again_at(&coder), Some(due));
    advance(&coder, GRACE);
    assert_eq!(again_at(&coder), None);
    // Without a Secret there is no fence, and nothing is revoked.
    let coder = after(Policy::OnRequest, &[Disturbance::Rotate]);
    pass(&coder);
    disturb(&coder, Disturbance::DeleteSecret);
    advance(&coder, GRACE);
    assert_eq!(again_at(&coder), None);
}

#[test]
fn a_name_that_may_still_come_costs_no_list_and_is_found_when_it_does() {
    let coder = Coder::new(Policy::Recreate);
    {
        let mut coder = coder.lock().unwrap();
        coder.ailing = Some(Ailing::Mute);
        coder.disturbances += 1;
    }
    let mut process = Process::new("we", &coder);
    process.pass().0.unwrap();
    coder.lock().unwrap().roll();
    let (calls, now) = {
        let coder = coder.lock().unwrap();
        assert_eq!(coder.status.retiring.len(), 1);
        (coder.log.len(), coder.now)
    };
    let rest = process.pass().0.unwrap().rest;
    assert_eq!(coder.lock().unwrap().log[calls..], [""; 0]);
    assert_eq!(rest.again_at, now.checked_add(SignedDuration::from_mins(1)).ok());
    assert!(!rest.is_rotating());
    // Somebody slow comes with the request after all.
    twin(&coder);
    coder.lock().unwrap().rows.iter_mut().for_each(|it| it.is_foreign = false);
    process.operator.cache.lock().unwrap().clear();
    process.pass().0.unwrap();
    assert_eq!(coder.lock().unwrap().ours().count(), 1);
    ends_well(&coder);
}

#[test]
fn key_of_a_request_that_was_sent_twice_is_named_and_left() {
    let coder = Coder::new(Policy::Recreate);
    {
        let mut coder = coder.lock().unwrap();
        coder.ailing = Some(Ailing::Twice);
        coder.disturbances += 1;
    }
    let driven = Process::new("we", &coder).pass().0.unwrap();
    assert_eq!(driven.rest.key.unwrap().name, "alpha-1a2b-2");
    let named = "revoked Alpha Doubtful: a key of that name appeared while it was being minted";
    let is_named = |it: &&String| it.eq_ignore_ascii_case(named);
    assert_eq!(coder.lock().unwrap().log.iter().filter(is_named).count(), 1);
    ends_well(&coder);
    assert!(coder.lock().unwrap().rows.iter().any(|it| it.key.name == "alpha" && it.is_left));
}

#[test]
fn lost_key_of_another_clock_is_named_and_left() {
    for minutes in [20, -20] {
        let coder = Coder::new(Policy::Recreate);
        {
            let mut coder = coder.lock().unwrap();
            coder.ailing = Some(Ailing::Mute);
            coder.ahead = SignedDuration::from_mins(minutes);
            coder.disturbances += 1;
        }
        let mut process = Process::new("we", &coder);
        process.pass().0.unwrap();
        coder.lock().unwrap().roll();
        advance(&coder, SignedDuration::from_mins(16));
        process.operator.cache.lock().unwrap().clear();
        process.pass().0.unwrap();
        let is_named = |it: &&String| it.to_lowercase().starts_with("revoked alpha doubtful");
        assert_eq!(coder.lock().unwrap().log.iter().filter(is_named).count(), 1);
        ends_well(&coder);
        assert!(coder.lock().unwrap().rows.iter().any(|it| it.key.name == "alpha" && it.is_left));
    }
}

#[test]
fn no_key_is_minted_for_a_secret_that_takes_no_value() {
    let coder = after(Policy::Recreate, &[Disturbance::Rotate]);
    coder.lock().unwrap().secrets.values_mut().for_each(|it| it.is_immutable = true);
    for _ in 0..2 {
        assert_eq!(pass(&coder), [api::Reason::SecretNotWritten.as_str()]);
    }
    assert_eq!(coder.lock().unwrap().posts, 1);
    disturb(&coder, Disturbance::DeleteSecret);
    assert_eq!(pass(&coder).last().unwrap(), "alpha-1a2b-2 is ours");
}

#[test]
fn pods_that_may_take_longer_than_is_declared_now_keep_their_key_that_long() {
    let coder = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&coder);
    coder.lock().unwrap().pods_grace = GRACE * 2;
    advance(&coder, GRACE * 2 - SignedDuration::from_secs(1));
    assert!(!pass(&coder).iter().any(|it| it.starts_with("delete")));
    advance(&coder, SignedDuration::from_secs(1));
    assert!(pass(&coder).contains(&"delete alpha".to_owned()));
}

#[test]
fn a_settled_world_says_that_it_does_not_rotate() {
    let coder = settled(Policy::Recreate);
    assert!(!Process::new("", &coder).pass().0.unwrap().rest.is_rotating());
    disturb(&coder, Disturbance::Rotate);
    assert!(Process::new("", &coder).pass().0.unwrap().rest.is_rotating());
    assert_eq!(coder.lock().unwrap().secrets.values().next().unwrap().owner, Owner::Ours);
}
