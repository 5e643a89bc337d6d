//! A Secret that is replaced by an older copy of itself: the newest key lives, nothing is minted or revoked because of it, and
//! a person who asks gets a new key.

use engine::{
    Blocked,
    provisioner_keys::{Driven, Owner, Policy, Record},
};
use jiff::SignedDuration;

use super::{
    Shared,
    cases::settled,
    dies_at,
    disturb::{Disturbance, disturb},
    ends_well, finish,
    model::{GRACE, Stored, World, place},
    run::{Process, settle},
    scenes, shared,
};

const OUTDATED: &str = api::Reason::SecretOutdated.as_str();

/// The Secret as it is now.
fn copy(world: &Shared) -> Stored {
    let world = world.lock().unwrap();
    world.secrets[&world.wanted.secret.name].clone()
}

/// Puts a copy in place of the Secret.
fn restore(world: &Shared, copy: &Stored) {
    let mut world = world.lock().unwrap();
    let version = 10_000_000 * (world.log.len() as u64 + 1);
    let name = world.wanted.secret.name.clone();
    world.log.push("restored".to_owned());
    world.secrets.insert(name, Stored { version, ..copy.clone() });
    world.disturbances += 1;
}

fn advance(world: &Shared, by: SignedDuration) {
    let mut world = world.lock().unwrap();
    world.now = world.now.checked_add(by).unwrap();
}

/// A world whose key was rotated, and the Secret from before; within the overlap or after it.
fn rotated(policy: Policy, is_over: bool) -> (Shared, Stored) {
    let world = settled(policy);
    let before = copy(&world);
    disturb(&world, Disturbance::Rotate);
    if is_over {
        settle(&world);
    } else {
        Process::new("rotates", &world).pass().0.unwrap();
    }
    world.lock().unwrap().roll();
    (world, before)
}

/// What the keys in coderd are called.
fn names(world: &Shared) -> Vec<String> {
    world.lock().unwrap().ours().map(|it| it.key.name.clone()).collect()
}

fn reason(driven: &Driven) -> &str {
    driven.rest.key.as_ref().map_or_else(|it| it.reason.as_str(), |_| "Ready")
}

/// Passes over a long time report the older copy, and change neither the Secret nor coderd.
fn is_held(world: &Shared, process: &mut Process) {
    let (keys, secret) = (names(world), copy(world));
    for _ in 0..4 {
        let driven = process.pass().0.unwrap();
        assert_eq!(reason(&driven), OUTDATED, "{:#?}", world.lock().unwrap());
        let now = copy(world);
        assert_eq!(
            (names(world), now.version, now.data),
            (keys.clone(), secret.version, secret.data.clone())
        );
        advance(world, GRACE);
        process.operator.cache.lock().unwrap().clear();
    }
    let writes = world.lock().unwrap().writes;
    process.pass().0.unwrap();
    assert_eq!(world.lock().unwrap().writes, writes, "it is quiet");
}

#[test]
fn an_older_secret_is_reported_and_the_newest_key_lives() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for (is_over, has_status, is_same_process) in (0..8).map(|it| (it & 1 > 0, it & 2 > 0, it & 4 > 0)) {
            let (world, before) = rotated(policy, is_over);
            let mut process = Process::new("same", &world);
            process.pass().0.unwrap();
            restore(&world, &before);
            if !has_status {
                disturb(&world, Disturbance::LoseStatus(0xff));
            }
            if !is_same_process {
                process.crash();
            }
            is_held(&world, &mut process);
            assert!(names(&world).contains(&"alpha-1a2b-2".to_owned()));
            assert_eq!(world.lock().unwrap().status.current.as_ref().unwrap().name, "alpha-1a2b-2");

            // A person follows the advice. While the plan for that is held back, nothing changes.
            disturb(&world, Disturbance::Rotate);
            let message = "approval is Manual".to_owned();
            let held_back = Blocked { reason: api::Reason::ApprovalRequired, message };
            world.lock().unwrap().wanted.held_back = Some(held_back);
            is_held(&world, &mut process);
            world.lock().unwrap().wanted.held_back = None;
            process.pass().0.unwrap();
            {
                let world = world.lock().unwrap();
                assert_eq!(world.live().unwrap().key.name, "alpha-1a2b-3");
                let retiring: Vec<&str> =
                    world.status.retiring.iter().map(|it| it.held.name.as_str()).collect();
                assert!(retiring.contains(&"alpha-1a2b-2"), "{retiring:?}");
                assert!(world.rows.iter().any(|it| it.key.name == "alpha-1a2b-2"), "the overlap begins now");
            }
            ends_well(&world);
        }
    }
}

#[test]
fn the_report_names_both_keys_and_both_remedies() {
    for (is_over, state) in [(false, "still accepts"), (true, "does not accept any more")] {
        let (world, before) = rotated(Policy::OnRequest, is_over);
        restore(&world, &before);
        let driven = Process::new("", &world).pass().0.unwrap();
        let message = driven.rest.key.unwrap_err().message;
        for part in [
            "Secret alpha-provisioner-key was replaced by an older copy",
            &format!("it holds key alpha, which Coder {state}"),
            "the newest key is alpha-1a2b-2, which is live",
            "restore the newer Secret",
            "coder.com/rotate-requested-at",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    let (world, before) = rotated(Policy::Recreate, true);
    restore(&world, &before);
    let driven = Process::new("", &world).pass().0.unwrap();
    assert!(
        driven.rest.key.unwrap_err().message.contains("Pods that run keep the key that they started with")
    );
}

#[test]
fn the_newer_secret_put_back_ends_the_report() {
    let (world, before) = rotated(Policy::OnRequest, true);
    let newer = copy(&world);
    restore(&world, &before);
    let mut process = Process::new("", &world);
    assert_eq!(reason(&process.pass().0.unwrap()), OUTDATED);
    restore(&world, &newer);
    assert_eq!(reason(&process.pass().0.unwrap()), "Ready");
    assert_eq!(world.lock().unwrap().minted, 2);
    ends_well(&world);
}

#[test]
fn an_older_copy_with_the_newest_key_is_completed() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        let (world, _) = rotated(policy, false);
        // Made while the old key was still valid.
        let before = copy(&world);
        settle(&world);
        assert_eq!(names(&world), ["alpha-1a2b-2"]);
        restore(&world, &before);
        assert_eq!(reason(&Process::new("", &world).pass().0.unwrap()), "Ready");
        assert_eq!(names(&world), ["alpha-1a2b-2"]);
        assert_eq!(world.lock().unwrap().minted, 2);
        ends_well(&world);
    }
}

#[test]
fn a_value_that_is_put_back_without_its_record_does_not_end_the_newest_key() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for owner in [Owner::Ours, Owner::Users] {
            let (world, before) = rotated(policy, false);
            restore(&world, &Stored { record: None, owner, ..before });
            let mut process = Process::new("", &world);
            is_held(&world, &mut process);
            assert_eq!(names(&world), ["alpha", "alpha-1a2b-2"]);
        }
    }
}

#[test]
fn a_status_from_the_same_backup_does_not_make_the_older_secret_right() {
    for is_over in [false, true] {
        let world = settled(Policy::OnRequest);
        let (before, status) = (copy(&world), world.lock().unwrap().status.clone());
        disturb(&world, Disturbance::Rotate);
        settle(&world);
        if !is_over {
            disturb(&world, Disturbance::Rotate);
            Process::new("", &world).pass().0.unwrap();
        }
        restore(&world, &before);
        {
            let mut world = world.lock().unwrap();
            (world.status, world.status_version) = (status, world.status_version + 1);
        }
        // The request that stands on the object was heard long ago.
        let mut process = Process::new("new", &world);
        is_held(&world, &mut process);
        disturb(&world, Disturbance::Rotate);
        ends_well(&world);
    }
}

#[test]
fn an_older_copy_may_come_back_at_any_moment() {
    let mut restored = 0;
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for (stop, is_alive) in (0..60).flat_map(|stop| [(stop, true), (stop, false)]) {
            let (begun, _) = rotated(policy, false);
            disturb(&begun, Disturbance::Rotate);
            let count = begun.lock().unwrap().backups.len();
            for which in 0..count + 8 {
                let world = shared(&begun.lock().unwrap());
                let mut process = Process::new("", &world);
                process.begin();
                process.steps(stop);
                let backup = world.lock().unwrap().backups.get(which).map(|it| it.1.clone());
                let Some(backup) = backup else { break };
                if !is_alive {
                    // What was in a Secret that nobody knows of, not even the status, is not known to be older.
                    let epoch = backup.record.as_ref().map_or(0, Record::epoch);
                    if epoch >= world.lock().unwrap().status.epoch() {
                        continue;
                    }
                    process.crash();
                    world.lock().unwrap().disturbances += 1;
                }
                restored += 1;
                world.lock().unwrap().checks_value = false;
                restore(&world, &backup);
                while process.is_busy() {
                    process.step();
                }
                world.lock().unwrap().checks_value = true;
                comes_through(&world, &mut process);
            }
        }
    }
    assert!(restored > 1000, "{restored}");
}

/// Whatever was restored: nothing is lost over time, and one request more at most ends it.
fn comes_through(world: &Shared, process: &mut Process) {
    for _ in 0..3 {
        process.pass().0.ok();
        advance(world, GRACE);
        process.operator.cache.lock().unwrap().clear();
    }
    let driven = process.pass().0.unwrap();
    match reason(&driven) {
        "Ready" => {}
        // The oldest copy has no value yet.
        OUTDATED | "SecretMissing" => disturb(world, Disturbance::Rotate),
        other => panic!("{other}\n{:#?}", world.lock().unwrap()),
    }
    ends_well(world);
}

#[test]
fn of_two_copies_with_one_epoch_neither_loses_its_key() {
    // Records of a version without epochs: the backup was made when the second key was about to be written.
    for has_intent in [true, false] {
        let world = settled(Policy::OnRequest);
        disturb(&world, Disturbance::Rotate);
        let mut process = Process::new("", &world);
        process.begin();
        while world.lock().unwrap().minted < 2 {
            process.step();
        }
        let mut before = copy(&world);
        while process.is_busy() {
            process.step();
        }
        if !has_intent {
            before.record.as_mut().unwrap().intent = None;
        }
        restore(&world, &before);
        strip(&world);
        let mut process = Process::new("newer version", &world);
        is_held(&world, &mut process);
        assert_eq!(names(&world), ["alpha", "alpha-1a2b-2"]);
        disturb(&world, Disturbance::Rotate);
        ends_well(&world);
    }
}

/// Leaves the records as a version without epochs wrote them.
fn strip(world: &Shared) {
    let mut world = world.lock().unwrap();
    world.status.epoch = None;
    world.status_version += 1;
    world.secrets.values_mut().for_each(|it| {
        it.version += 100_000;
        it.record.iter_mut().for_each(|it| it.epoch = None);
    });
}

#[test]
fn records_without_epochs_are_taken_over_and_nothing_happens() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for is_over in [true, false] {
            let (world, _) = rotated(policy, is_over);
            let carried = world.lock().unwrap().carried.clone();
            if is_over {
                settle(&world);
            }
            strip(&world);
            let (writes, minted, keys) = {
                let world = world.lock().unwrap();
                (world.writes, world.minted, world.rows.len())
            };
            let mut process = Process::new("newer version", &world);
            assert_eq!(reason(&process.pass().0.unwrap()), "Ready");
            let world = world.lock().unwrap();
            if is_over {
                assert_eq!(world.writes, writes, "nothing is written only for the epoch");
            }
            assert_eq!((world.minted, &world.carried), (minted, &carried));
            // Without pods that carry it the old key goes as it would have gone.
            assert!(world.rows.len() == keys || world.deleted.iter().any(|it| it.key.name == "alpha"));
        }
    }
}

#[test]
fn a_rotation_that_an_older_version_left_unfinished_is_finished() {
    for scene in scenes() {
        for stop in 0.. {
            let world = shared(&scene);
            let died = dies_at(&world, stop);
            strip(&world);
            let driven = Process::new("newer version", &world).pass().0.unwrap();
            assert_ne!(reason(&driven), OUTDATED, "{:#?}", world.lock().unwrap());
            ends_well(&world);
            if !died {
                break;
            }
        }
    }
}

#[test]
fn a_secret_that_had_the_name_before_gets_the_newest_value() {
    let world = settled(Policy::OnRequest);
    let first = world.lock().unwrap().wanted.secret.clone();
    disturb(&world, Disturbance::RenameSecret);
    settle(&world);
    disturb(&world, Disturbance::Rotate);
    settle(&world);
    let newest = world.lock().unwrap().value().cloned();
    // Others may read the first Secret, so it is still there, with the first value.
    {
        let mut world = world.lock().unwrap();
        world.wanted.secret = first;
        world.disturbances += 1;
        assert!(world.value().is_some() && world.value() != newest.as_ref());
    }
    assert_eq!(reason(&Process::new("", &world).pass().0.unwrap()), "Ready");
    {
        let world = world.lock().unwrap();
        assert_eq!((world.value(), world.minted), (newest.as_ref(), 2));
    }
    ends_well(&world);
}

#[test]
fn an_older_value_is_not_shown_to_another_deployment() {
    let (world, before) = rotated(Policy::Recreate, true);
    restore(&world, &before);
    {
        let mut world = world.lock().unwrap();
        world.wanted.place = place("other", 2);
        world.disturbances += 1;
    }
    let from = world.lock().unwrap().log.len();
    let driven = Process::new("", &world).pass().0.unwrap();
    assert_eq!(reason(&driven), OUTDATED);
    assert!(!world.lock().unwrap().log[from..].iter().any(|it| it.contains("prove")));
}

#[test]
fn a_schedule_waits_while_the_secret_is_outdated() {
    let (world, before) = rotated(Policy::OnRequest, true);
    world.lock().unwrap().wanted.rotate_every = Some(GRACE * 2);
    restore(&world, &before);
    let mut process = Process::new("", &world);
    is_held(&world, &mut process);
}

#[test]
fn a_deletion_takes_every_key_of_every_copy() {
    for is_over in [false, true] {
        let (world, before) = rotated(Policy::OnRequest, is_over);
        restore(&world, &before);
        Process::new("", &world).pass().0.unwrap();
        finish(&world);
        assert_eq!(names(&world), [""; 0]);
    }
}

#[test]
fn every_copy_has_the_epoch_of_the_last_write() {
    let world = World::new(Policy::OnRequest);
    let mut process = Process::new("", &world);
    for _ in 0..3 {
        process.pass().0.unwrap();
        disturb(&world, Disturbance::Rotate);
    }
    let world = world.lock().unwrap();
    let epochs: Vec<u64> = world.backups.iter().filter_map(|it| it.1.record.as_ref()?.epoch).collect();
    assert_eq!(epochs, (1..=epochs.len() as u64).collect::<Vec<_>>());
    let last = epochs.last().copied();
    let memory = process.operator.memory.lock().unwrap().as_ref().and_then(|it| it.epoch);
    assert_eq!((world.status.epoch, memory), (last, last));
}

/// Two writers did not know of each other: one wrote the Secret for a newer key, the other one the status with a higher epoch.
#[test]
fn record_of_a_newer_key_with_a_lower_epoch_is_written_above_every_copy() {
    let world = settled(Policy::Recreate);
    let highest = {
        let mut world = world.lock().unwrap();
        let name = world.wanted.secret.name.clone();
        let highest = world.status.epoch() + 5;
        world.status.epoch = Some(highest);
        world.status_version += 1;
        let stored = world.secrets.get_mut(&name).unwrap();
        stored.record.as_mut().unwrap().generation += 1;
        stored.version += 1_000_000;
        highest
    };
    // The model refuses a status with a lower epoch.
    settle(&world);
    let world = world.lock().unwrap();
    let stored = world.secrets[&world.wanted.secret.name].record.as_ref();
    assert_eq!(stored, Some(&world.status));
    assert!(world.status.epoch() > highest, "{world:#?}");
}
