//! What coderd, others and the cluster do to us at the worst of times: nothing of anybody else's is touched, and nothing is
//! asked over and over.

use std::collections::{BTreeMap, BTreeSet};

use engine::{
    outcome::Trouble,
    provisioner_keys::{
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
    model::{Ailing, GRACE, Operator, Stored, World},
    run::{Process, wait},
};

fn foreign_keys(world: &Shared) -> usize {
    world.lock().unwrap().rows.iter().filter(|it| it.is_foreign).count()
}

/// Somebody makes a key of our name, with our tags, which has no daemons yet.
fn twin(world: &Shared) {
    let mut world = world.lock().unwrap();
    let (name, tags) = (world.wanted.names.base.clone(), world.wanted.tags.clone());
    world.foreign(&name, &tags, 0);
}

fn words(trouble: &Trouble) -> &str {
    match trouble {
        Trouble::Blocked(it) => &it.message,
        other => panic!("{other:?}"),
    }
}

fn advance(world: &Shared, by: SignedDuration) {
    let mut world = world.lock().unwrap();
    world.now = world.now.checked_add(by).unwrap();
}

#[test]
fn a_name_that_somebody_takes_at_any_moment_stays_theirs() {
    let mut taken = 0;
    for stop in 0.. {
        let world = World::new(Policy::Recreate);
        let mut process = Process::new("we", &world);
        process.begin();
        process.steps(stop);
        if !process.is_busy() {
            break;
        }
        twin(&world);
        taken += foreign_keys(&world);
        let before = foreign_keys(&world);
        while process.is_busy() {
            process.step();
        }
        ends_well(&world);
        assert_eq!(foreign_keys(&world), before);
    }
    assert!(taken > 6, "{taken}");
}

#[test]
fn a_name_that_somebody_takes_after_we_were_refused_stays_theirs() {
    let world = World::new(Policy::Recreate);
    world.lock().unwrap().ailing = Some(Ailing::Refuses);
    let mut process = Process::new("we", &world);
    process.pass().0.unwrap_err();
    twin(&world);
    world.lock().unwrap().ailing = None;
    let driven = process.pass().0.unwrap();
    assert_eq!(driven.rest.key.unwrap().name, "alpha-1a2b-2");
    ends_well(&world);
    assert_eq!(foreign_keys(&world), 1);
}

#[test]
fn a_refusal_does_not_cost_the_declared_name_and_writes_nothing_when_it_is_repeated() {
    let world = World::new(Policy::Recreate);
    world.lock().unwrap().ailing = Some(Ailing::Refuses);
    let mut process = Process::new("we", &world);
    process.pass().0.unwrap_err();
    let writes = world.lock().unwrap().writes;
    for _ in 0..3 {
        process.pass().0.unwrap_err();
    }
    assert_eq!(world.lock().unwrap().writes, writes);
    world.lock().unwrap().ailing = None;
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
fn take_turns(world: &Shared, other: &mut Holder) {
    let world = &mut *world.lock().unwrap();
    std::mem::swap(&mut world.wanted, &mut other.wanted);
    std::mem::swap(&mut world.secrets, &mut other.secrets);
    std::mem::swap(&mut world.status, &mut other.status);
    std::mem::swap(&mut world.status_version, &mut other.status_version);
    std::mem::swap(&mut world.carried, &mut other.carried);
    std::mem::swap(&mut world.read, &mut other.read);
    world.newest = None;
    world.rows.iter_mut().for_each(|it| it.is_foreign = !it.is_foreign);
}

#[test]
fn two_holders_with_one_name_and_old_lists_leave_each_other_their_keys() {
    for (one, two) in (0..30).flat_map(|one| (0..30).map(move |two| (one, two))) {
        let world = World::new(Policy::Recreate);
        world.lock().unwrap().disturbances = 3;
        let mut wanted = world.lock().unwrap().wanted.clone();
        wanted.names = Names::new("Alpha", "ffff0000-0000-0000-0000-000000000000");
        let mut other = Holder {
            wanted,
            secrets: BTreeMap::default(),
            status: Record::default(),
            status_version: 0,
            carried: BTreeSet::new(),
            read: BTreeSet::new(),
        };
        let (mut a, mut b) = (Process::new("a", &world), Process::new("b", &world));
        let (organization, at) = {
            let world = world.lock().unwrap();
            (world.wanted.organization_id, world.now)
        };
        for process in [&a, &b] {
            let old = Listing { keys: Vec::new(), at, is_shown: true };
            process.operator.cache.lock().unwrap().insert(organization, old);
        }
        a.begin();
        a.steps(one);
        take_turns(&world, &mut other);
        b.begin();
        b.steps(two);
        take_turns(&world, &mut other);
        while a.is_busy() {
            a.step();
        }
        take_turns(&world, &mut other);
        while b.is_busy() {
            b.step();
        }
        ends_for(&world, &mut other);
    }
}

/// Both have a key each, and go one after the other.
fn ends_for(world: &Shared, other: &mut Holder) {
    assert!(world.lock().unwrap().live().is_some());
    take_turns(world, other);
    assert!(world.lock().unwrap().live().is_some());
    ends_well(world);
    take_turns(world, other);
    ends_well(world);
}

#[test]
fn a_mint_that_fails_is_asked_once_a_pass_and_its_trouble_is_told() {
    let world = World::new(Policy::Recreate);
    world.lock().unwrap().ailing = Some(Ailing::Fails);
    let mut process = Process::new("we", &world);
    for posts in 1..4 {
        let writes = world.lock().unwrap().writes;
        let trouble = process.pass().0.unwrap_err();
        let world = world.lock().unwrap();
        assert_eq!((words(&trouble), world.posts), ("500", posts));
        assert!(posts == 1 || world.writes == writes, "a Secret that is written wakes us up again");
    }
    world.lock().unwrap().ailing = None;
    process.pass().0.unwrap();
    ends_well(&world);
}

#[test]
fn a_key_whose_list_is_not_shown_is_not_taken_for_gone() {
    for is_ours_by_name in [false, true] {
        let world = after(Policy::Recreate, if is_ours_by_name { &[Disturbance::Rotate] } else { &[] });
        pass(&world);
        let (held, organization, now) = {
            let world = world.lock().unwrap();
            (world.status.current.clone().unwrap(), world.wanted.organization_id, world.now)
        };
        let retiring = Retiring { held, since: now, lost: false };
        let operator = Operator::new("end", &world);
        world.lock().unwrap().unreadable.insert(organization);
        let refused = wait(revoke(&operator, &retiring, is_ours_by_name, now)).unwrap_err();
        assert!(words(&refused).contains("no right"), "{refused:?}");
        // Nobody shows the organization either: it is named, and nothing waits for it.
        world.lock().unwrap().hidden.insert(organization);
        let left = wait(revoke(&operator, &retiring, is_ours_by_name, now)).unwrap();
        assert_eq!(left, Revoked::OutOfReach);
        assert!(world.lock().unwrap().live().is_some());
    }
}

fn again_at(world: &Shared) -> Option<Timestamp> {
    Process::new("", world).pass().0.unwrap().rest.again_at
}

#[test]
fn nothing_that_we_may_not_do_is_waited_for() {
    // A person's Secret is not rotated.
    let world = World::new(Policy::Recreate);
    let tags = world.lock().unwrap().wanted.tags.clone();
    world.lock().unwrap().foreign("right", &tags, 1);
    world.lock().unwrap().wanted.rotate_every = Some(SignedDuration::from_hours(1));
    brought(&world, Some("value-1"));
    assert_eq!(again_at(&world), None);
    advance(&world, SignedDuration::from_hours(2));
    assert_eq!(again_at(&world), None);
    // A person's Secret that is no good ends no key.
    let world = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&world);
    brought(&world, Some("spoilt"));
    let due = world.lock().unwrap().now.checked_add(GRACE).unwrap();
    assert_eq!(again_at(&world), Some(due));
    advance(&world, GRACE);
    assert_eq!(again_at(&world), None);
    // Without a Secret there is no fence, and nothing is revoked.
    let world = after(Policy::OnRequest, &[Disturbance::Rotate]);
    pass(&world);
    disturb(&world, Disturbance::DeleteSecret);
    advance(&world, GRACE);
    assert_eq!(again_at(&world), None);
}

#[test]
fn a_name_that_may_still_come_costs_no_list_and_is_found_when_it_does() {
    let world = World::new(Policy::Recreate);
    {
        let mut world = world.lock().unwrap();
        world.ailing = Some(Ailing::Mute);
        world.disturbances += 1;
    }
    let mut process = Process::new("we", &world);
    process.pass().0.unwrap();
    world.lock().unwrap().roll();
    let (calls, now) = {
        let world = world.lock().unwrap();
        assert_eq!(world.status.retiring.len(), 1);
        (world.log.len(), world.now)
    };
    let rest = process.pass().0.unwrap().rest;
    assert_eq!(world.lock().unwrap().log[calls..], [""; 0]);
    assert_eq!(rest.again_at, now.checked_add(SignedDuration::from_mins(1)).ok());
    assert!(!rest.is_rotating());
    // Somebody slow comes with the request after all.
    twin(&world);
    world.lock().unwrap().rows.iter_mut().for_each(|it| it.is_foreign = false);
    process.operator.cache.lock().unwrap().clear();
    process.pass().0.unwrap();
    assert_eq!(world.lock().unwrap().ours().count(), 1);
    ends_well(&world);
}

#[test]
fn key_of_a_request_that_was_sent_twice_is_named_and_left() {
    let world = World::new(Policy::Recreate);
    {
        let mut world = world.lock().unwrap();
        world.ailing = Some(Ailing::Twice);
        world.disturbances += 1;
    }
    let driven = Process::new("we", &world).pass().0.unwrap();
    assert_eq!(driven.rest.key.unwrap().name, "alpha-1a2b-2");
    let named = "revoked Alpha Doubtful: a key of that name appeared while it was being minted";
    let is_named = |it: &&String| it.eq_ignore_ascii_case(named);
    assert_eq!(world.lock().unwrap().log.iter().filter(is_named).count(), 1);
    ends_well(&world);
    assert!(world.lock().unwrap().rows.iter().any(|it| it.key.name == "alpha" && it.is_left));
}

#[test]
fn lost_key_of_another_clock_is_named_and_left() {
    for minutes in [20, -20] {
        let world = World::new(Policy::Recreate);
        {
            let mut world = world.lock().unwrap();
            world.ailing = Some(Ailing::Mute);
            world.ahead = SignedDuration::from_mins(minutes);
            world.disturbances += 1;
        }
        let mut process = Process::new("we", &world);
        process.pass().0.unwrap();
        world.lock().unwrap().roll();
        advance(&world, SignedDuration::from_mins(16));
        process.operator.cache.lock().unwrap().clear();
        process.pass().0.unwrap();
        let is_named = |it: &&String| it.to_lowercase().starts_with("revoked alpha doubtful");
        assert_eq!(world.lock().unwrap().log.iter().filter(is_named).count(), 1);
        ends_well(&world);
        assert!(world.lock().unwrap().rows.iter().any(|it| it.key.name == "alpha" && it.is_left));
    }
}

#[test]
fn no_key_is_minted_for_a_secret_that_takes_no_value() {
    let world = after(Policy::Recreate, &[Disturbance::Rotate]);
    world.lock().unwrap().secrets.values_mut().for_each(|it| it.is_immutable = true);
    for _ in 0..2 {
        assert_eq!(pass(&world), [api::Reason::SecretNotWritten.as_str()]);
    }
    assert_eq!(world.lock().unwrap().posts, 1);
    disturb(&world, Disturbance::DeleteSecret);
    assert_eq!(pass(&world).last().unwrap(), "alpha-1a2b-2 is ours");
}

#[test]
fn pods_that_may_take_longer_than_is_declared_now_keep_their_key_that_long() {
    let world = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&world);
    world.lock().unwrap().pods_grace = GRACE * 2;
    advance(&world, GRACE * 2 - SignedDuration::from_secs(1));
    assert!(!pass(&world).iter().any(|it| it.starts_with("delete")));
    advance(&world, SignedDuration::from_secs(1));
    assert!(pass(&world).contains(&"delete alpha".to_owned()));
}

#[test]
fn a_settled_world_says_that_it_does_not_rotate() {
    let world = settled(Policy::Recreate);
    assert!(!Process::new("", &world).pass().0.unwrap().rest.is_rotating());
    disturb(&world, Disturbance::Rotate);
    assert!(Process::new("", &world).pass().0.unwrap().rest.is_rotating());
    assert_eq!(world.lock().unwrap().secrets.values().next().unwrap().owner, Owner::Ours);
}
