//! A Secret that is replaced by an older copy of itself: the newest key lives, nothing is minted or revoked because of it, and
//! a person who asks gets a new key.

use engine::{
    Blocked,
    secrets::{Driven, Owner, Policy, Record},
};
use jiff::SignedDuration;

use super::{
    Shared,
    cases::settled,
    dies_at,
    disturb::{Disturbance, disturb},
    ends_well, finish,
    model::{Coder, GRACE, Stored, place},
    run::{Process, settle},
    scenes, shared,
};

const OUTDATED: &str = api::Reason::SecretOutdated.as_str();

/// The Secret as it is now.
fn copy(coder: &Shared) -> Stored {
    let coder = coder.lock().unwrap();
    coder.secrets[&coder.wanted.secret.name].clone()
}

/// Puts a copy in place of the Secret.
fn restore(coder: &Shared, copy: &Stored) {
    let mut coder = coder.lock().unwrap();
    let version = 10_000_000 * (coder.log.len() as u64 + 1);
    let name = coder.wanted.secret.name.clone();
    coder.log.push("restored".to_owned());
    coder.secrets.insert(name, Stored { version, ..copy.clone() });
    coder.disturbances += 1;
}

fn advance(coder: &Shared, by: SignedDuration) {
    let mut coder = coder.lock().unwrap();
    coder.now = coder.now.checked_add(by).unwrap();
}

/// A coder whose key was rotated, and the Secret from before; within the overlap or after it.
fn rotated(policy: Policy, is_over: bool) -> (Shared, Stored) {
    let coder = settled(policy);
    let before = copy(&coder);
    disturb(&coder, Disturbance::Rotate);
    if is_over {
        settle(&coder);
    } else {
        Process::new("rotates", &coder).pass().0.unwrap();
    }
    coder.lock().unwrap().roll();
    (coder, before)
}

/// What the keys in coderd are called.
fn names(coder: &Shared) -> Vec<String> {
    coder.lock().unwrap().ours().map(|it| it.key.name.clone()).collect()
}

fn reason(driven: &Driven) -> &str {
    driven.rest.key.as_ref().map_or_else(|it| it.reason.as_str(), |_| "Ready")
}

/// Passes over a long time report the older copy, and change neither the Secret nor coderd.
fn is_held(coder: &Shared, process: &mut Process) {
    let (keys, secret) = (names(coder), copy(coder));
    for _ in 0..4 {
        let driven = process.pass().0.unwrap();
        assert_eq!(reason(&driven), OUTDATED, "{:#?}", coder.lock().unwrap());
        let now = copy(coder);
        assert_eq!(
            (names(coder), now.version, now.data),
            (keys.clone(), secret.version, secret.data.clone())
        );
        advance(coder, GRACE);
        process.operator.cache.lock().unwrap().clear();
    }
    let writes = coder.lock().unwrap().writes;
    process.pass().0.unwrap();
    assert_eq!(coder.lock().unwrap().writes, writes, "it is quiet");
}

#[test]
fn an_older_secret_is_reported_and_the_newest_key_lives() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for (is_over, has_status, is_same_process) in (0..8).map(|it| (it & 1 > 0, it & 2 > 0, it & 4 > 0)) {
            let (coder, before) = rotated(policy, is_over);
            let mut process = Process::new("same", &coder);
            process.pass().0.unwrap();
            restore(&coder, &before);
            if !has_status {
                disturb(&coder, Disturbance::LoseStatus(0xff));
            }
            if !is_same_process {
                process.crash();
            }
            is_held(&coder, &mut process);
            assert!(names(&coder).contains(&"alpha-1a2b-2".to_owned()));
            assert_eq!(coder.lock().unwrap().status.current.as_ref().unwrap().name, "alpha-1a2b-2");

            // A person follows the advice. While the plan for that is held back, nothing changes.
            disturb(&coder, Disturbance::Rotate);
            let message = "approval is Manual".to_owned();
            let held_back = Blocked { reason: api::Reason::ApprovalRequired, message };
            coder.lock().unwrap().wanted.held_back = Some(held_back);
            is_held(&coder, &mut process);
            coder.lock().unwrap().wanted.held_back = None;
            process.pass().0.unwrap();
            {
                let coder = coder.lock().unwrap();
                assert_eq!(coder.live().unwrap().key.name, "alpha-1a2b-3");
                let retiring: Vec<&str> =
                    coder.status.retiring.iter().map(|it| it.held.name.as_str()).collect();
                assert!(retiring.contains(&"alpha-1a2b-2"), "{retiring:?}");
                assert!(coder.rows.iter().any(|it| it.key.name == "alpha-1a2b-2"), "the overlap begins now");
            }
            ends_well(&coder);
        }
    }
}

#[test]
fn the_report_names_both_keys_and_both_remedies() {
    for (is_over, state) in [(false, "still accepts"), (true, "does not accept any more")] {
        let (coder, before) = rotated(Policy::OnRequest, is_over);
        restore(&coder, &before);
        let driven = Process::new("", &coder).pass().0.unwrap();
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
    let (coder, before) = rotated(Policy::Recreate, true);
    restore(&coder, &before);
    let driven = Process::new("", &coder).pass().0.unwrap();
    assert!(
        driven.rest.key.unwrap_err().message.contains("Pods that run keep the key that they started with")
    );
}

#[test]
fn the_newer_secret_put_back_ends_the_report() {
    let (coder, before) = rotated(Policy::OnRequest, true);
    let newer = copy(&coder);
    restore(&coder, &before);
    let mut process = Process::new("", &coder);
    assert_eq!(reason(&process.pass().0.unwrap()), OUTDATED);
    restore(&coder, &newer);
    assert_eq!(reason(&process.pass().0.unwrap()), "Ready");
    assert_eq!(coder.lock().unwrap().minted, 2);
    ends_well(&coder);
}

#[test]
fn an_older_copy_with_the_newest_key_is_completed() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        let (coder, _) = rotated(policy, false);
        // Made while the old key was still valid.
        let before = copy(&coder);
        settle(&coder);
        assert_eq!(names(&coder), ["alpha-1a2b-2"]);
        restore(&coder, &before);
        assert_eq!(reason(&Process::new("", &coder).pass().0.unwrap()), "Ready");
        assert_eq!(names(&coder), ["alpha-1a2b-2"]);
        assert_eq!(coder.lock().unwrap().minted, 2);
        ends_well(&coder);
    }
}

#[test]
fn a_value_that_is_put_back_without_its_record_does_not_end_the_newest_key() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for owner in [Owner::Ours, Owner::Users] {
            let (coder, before) = rotated(policy, false);
            restore(&coder, &Stored { record: None, owner, ..before });
            let mut process = Process::new("", &coder);
            is_held(&coder, &mut process);
            assert_eq!(names(&coder), ["alpha", "alpha-1a2b-2"]);
        }
    }
}

#[test]
fn a_status_from_the_same_backup_does_not_make_the_older_secret_right() {
    for is_over in [false, true] {
        let coder = settled(Policy::OnRequest);
        let (before, status) = (copy(&coder), coder.lock().unwrap().status.clone());
        disturb(&coder, Disturbance::Rotate);
        settle(&coder);
        if !is_over {
            disturb(&coder, Disturbance::Rotate);
            Process::new("", &coder).pass().0.unwrap();
        }
        restore(&coder, &before);
        {
            let mut coder = coder.lock().unwrap();
            (coder.status, coder.status_version) = (status, coder.status_version + 1);
        }
        // The request that stands on the object was heard long ago.
        let mut process = Process::new("new", &coder);
        is_held(&coder, &mut process);
        disturb(&coder, Disturbance::Rotate);
        ends_well(&coder);
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
                let coder = shared(&begun.lock().unwrap());
                let mut process = Process::new("", &coder);
                process.begin();
                process.steps(stop);
                let backup = coder.lock().unwrap().backups.get(which).map(|it| it.1.clone());
                let Some(backup) = backup else { break };
                if !is_alive {
                    // What was in a Secret that nobody knows of, not even the status, is not known to be older.
                    let epoch = backup.record.as_ref().map_or(0, Record::epoch);
                    if epoch >= coder.lock().unwrap().status.epoch() {
                        continue;
                    }
                    process.crash();
                    coder.lock().unwrap().disturbances += 1;
                }
                restored += 1;
                coder.lock().unwrap().checks_value = false;
                restore(&coder, &backup);
                while process.is_busy() {
                    process.step();
                }
                coder.lock().unwrap().checks_value = true;
                comes_through(&coder, &mut process);
            }
        }
    }
    assert!(restored > 1000, "{restored}");
}

/// Whatever was restored: nothing is lost over time, and one request more at most ends it.
fn comes_through(coder: &Shared, process: &mut Process) {
    for _ in 0..3 {
        process.pass().0.ok();
        advance(coder, GRACE);
        process.operator.cache.lock().unwrap().clear();
    }
    let driven = process.pass().0.unwrap();
    match reason(&driven) {
        "Ready" => {}
        // The oldest copy has no value yet.
        OUTDATED | "SecretMissing" => disturb(coder, Disturbance::Rotate),
        other => panic!("{other}\n{:#?}", coder.lock().unwrap()),
    }
    ends_well(coder);
}

#[test]
fn of_two_copies_with_one_epoch_neither_loses_its_key() {
    // Records of a version without epochs: the backup was made when the second key was about to be written.
    for has_intent in [true, false] {
        let coder = settled(Policy::OnRequest);
        disturb(&coder, Disturbance::Rotate);
        let mut process = Process::new("", &coder);
        process.begin();
        while coder.lock().unwrap().minted < 2 {
            process.step();
        }
        let mut before = copy(&coder);
        while process.is_busy() {
            process.step();
        }
        if !has_intent {
            before.record.as_mut().unwrap().intent = None;
        }
        restore(&coder, &before);
        strip(&coder);
        let mut process = Process::new("newer version", &coder);
        is_held(&coder, &mut process);
        assert_eq!(names(&coder), ["alpha", "alpha-1a2b-2"]);
        disturb(&coder, Disturbance::Rotate);
        ends_well(&coder);
    }
}

/// Leaves the records as a version without epochs wrote them.
fn strip(coder: &Shared) {
    let mut coder = coder.lock().unwrap();
    coder.status.epoch = None;
    coder.status_version += 1;
    coder.secrets.values_mut().for_each(|it| {
        it.version += 100_000;
        it.record.iter_mut().for_each(|it| it.epoch = None);
    });
}

#[test]
fn records_without_epochs_are_taken_over_and_nothing_happens() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for is_over in [true, false] {
            let (coder, _) = rotated(policy, is_over);
            let carried = coder.lock().unwrap().carried.clone();
            if is_over {
                settle(&coder);
            }
            strip(&coder);
            let (writes, minted, keys) = {
                let coder = coder.lock().unwrap();
                (coder.writes, coder.minted, coder.rows.len())
            };
            let mut process = Process::new("newer version", &coder);
            assert_eq!(reason(&process.pass().0.unwrap()), "Ready");
            let coder = coder.lock().unwrap();
            if is_over {
                assert_eq!(coder.writes, writes, "nothing is written only for the epoch");
            }
            assert_eq!((coder.minted, &coder.carried), (minted, &carried));
            // Without pods that carry it the old key goes as it would have gone.
            assert!(coder.rows.len() == keys || coder.deleted.iter().any(|it| it.key.name == "alpha"));
        }
    }
}

#[test]
fn a_rotation_that_an_older_version_left_unfinished_is_finished() {
    for scene in scenes() {
        for stop in 0.. {
            let coder = shared(&scene);
            let died = dies_at(&coder, stop);
            strip(&coder);
            let driven = Process::new("newer version", &coder).pass().0.unwrap();
            assert_ne!(reason(&driven), OUTDATED, "{:#?}", coder.lock().unwrap());
            ends_well(&coder);
            if !died {
                break;
            }
        }
    }
}

#[test]
fn a_secret_that_had_the_name_before_gets_the_newest_value() {
    let coder = settled(Policy::OnRequest);
    let first = coder.lock().unwrap().wanted.secret.clone();
    disturb(&coder, Disturbance::RenameSecret);
    settle(&coder);
    disturb(&coder, Disturbance::Rotate);
    settle(&coder);
    let newest = coder.lock().unwrap().value().cloned();
    // Others may read the first Secret, so it is still there, with the first value.
    {
        let mut coder = coder.lock().unwrap();
        coder.wanted.secret = first;
        coder.disturbances += 1;
        assert!(coder.value().is_some() && coder.value() != newest.as_ref());
    }
    assert_eq!(reason(&Process::new("", &coder).pass().0.unwrap()), "Ready");
    {
        let coder = coder.lock().unwrap();
        assert_eq!((coder.value(), coder.minted), (newest.as_ref(), 2));
    }
    ends_well(&coder);
}

#[test]
fn an_older_value_is_not_shown_to_another_deployment() {
    let (coder, before) = rotated(Policy::Recreate, true);
    restore(&coder, &before);
    {
        let mut coder = coder.lock().unwrap();
        coder.wanted.place = place("other", 2);
        coder.disturbances += 1;
    }
    let from = coder.lock().unwrap().log.len();
    let driven = Process::new("", &coder).pass().0.unwrap();
    assert_eq!(reason(&driven), OUTDATED);
    assert!(!coder.lock().unwrap().log[from..].iter().any(|it| it.contains("prove")));
}

#[test]
fn a_schedule_waits_while_the_secret_is_outdated() {
    let (coder, before) = rotated(Policy::OnRequest, true);
    coder.lock().unwrap().wanted.rotate_every = Some(GRACE * 2);
    restore(&coder, &before);
    let mut process = Process::new("", &coder);
    is_held(&coder, &mut process);
}

#[test]
fn a_deletion_takes_every_key_of_every_copy() {
    for is_over in [false, true] {
        let (coder, before) = rotated(Policy::OnRequest, is_over);
        restore(&coder, &before);
        Process::new("", &coder).pass().0.unwrap();
        finish(&coder);
        assert_eq!(names(&coder), [""; 0]);
    }
}

#[test]
fn every_copy_has_the_epoch_of_the_last_write() {
    let coder = Coder::new(Policy::OnRequest);
    let mut process = Process::new("", &coder);
    for _ in 0..3 {
        process.pass().0.unwrap();
        disturb(&coder, Disturbance::Rotate);
    }
    let coder = coder.lock().unwrap();
    let epochs: Vec<u64> = coder.backups.iter().filter_map(|it| it.1.record.as_ref()?.epoch).collect();
    assert_eq!(epochs, (1..=epochs.len() as u64).collect::<Vec<_>>());
    let last = epochs.last().copied();
    let memory = process.operator.memory.lock().unwrap().as_ref().and_then(|it| it.epoch);
    assert_eq!((coder.status.epoch, memory), (last, last));
}

/// Two writers did not know of each other: one wrote the Secret for a newer key, the other one the status with a higher epoch.
#[test]
fn record_of_a_newer_key_with_a_lower_epoch_is_written_above_every_copy() {
    let coder = settled(Policy::Recreate);
    let highest = {
        let mut coder = coder.lock().unwrap();
        let name = coder.wanted.secret.name.clone();
        let highest = coder.status.epoch() + 5;
        coder.status.epoch = Some(highest);
        coder.status_version += 1;
        let stored = coder.secrets.get_mut(&name).unwrap();
        stored.record.as_mut().unwrap().generation += 1;
        stored.version += 1_000_000;
        highest
    };
    // The model refuses a status with a lower epoch.
    settle(&coder);
    let coder = coder.lock().unwrap();
    let stored = coder.secrets[&coder.wanted.secret.name].record.as_ref();
    assert_eq!(stored, Some(&coder.status));
    assert!(coder.status.epoch() > highest, "{coder:#?}");
}
