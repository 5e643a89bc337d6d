//! A Secret that is replaced by an older copy of itself: the newest key lives, nothing is minted or revoked because of it, and
//! a person who asks gets a new key.

use engine::{
    Blocked,
    keys::Driven,
    secrets::{Policy, Record},
};
use jiff::SignedDuration;
use serde_json::Value;

use super::{
    Shared,
    cases::settled,
    dies_at,
    disturb::{Disturbance, disturb},
    ends_well, finish, fork,
    model::{GRACE, Model, UID, place},
    run::{Process, settle},
    scenes,
    secret::{record_of, set_owner, set_record},
};

const OUTDATED: &str = api::Reason::SecretOutdated.as_str();

/// The Secret as it is now.
fn copy(model: &Shared) -> Value {
    model.lock().unwrap().secret().unwrap()
}

/// Puts a copy in place of the Secret.
fn restore(model: &Shared, copy: &Value) {
    let mut model = model.lock().unwrap();
    model.log.push("restored".to_owned());
    model.cluster.set(copy);
    model.disturbances += 1;
}

fn advance(model: &Shared, by: SignedDuration) {
    model.lock().unwrap().advance(by);
}

/// A model whose key was rotated, and the Secret from before; within the overlap or after it.
fn rotated(policy: Policy, is_over: bool) -> (Shared, Value) {
    let model = settled(policy);
    let before = copy(&model);
    disturb(&model, Disturbance::Rotate);
    if is_over {
        settle(&model);
    } else {
        Process::new("rotates", &model).pass().0.unwrap();
    }
    model.lock().unwrap().roll();
    (model, before)
}

/// What the keys in coderd are called.
fn names(model: &Shared) -> Vec<String> {
    model.lock().unwrap().ours().map(|it| it.key.name.clone()).collect()
}

fn reason(driven: &Driven) -> &str {
    driven.rest.key.as_ref().map_or_else(|it| it.reason.as_str(), |_| "Ready")
}

/// Passes over a long time report the older copy, and change neither the Secret nor coderd.
fn is_held(model: &Shared, process: &mut Process) {
    let (keys, secret) = (names(model), copy(model));
    for _ in 0..4 {
        let driven = process.pass().0.unwrap();
        assert_eq!(reason(&driven), OUTDATED, "{:#?}", model.lock().unwrap());
        assert_eq!((names(model), copy(model)), (keys.clone(), secret.clone()));
        advance(model, GRACE);
        process.operator.forget_lists();
    }
    let writes = model.lock().unwrap().writes;
    process.pass().0.unwrap();
    assert_eq!(model.lock().unwrap().writes, writes, "it is quiet");
}

#[test]
fn an_older_secret_is_reported_and_the_newest_key_lives() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for (is_over, has_status, is_same_process) in (0..8).map(|it| (it & 1 > 0, it & 2 > 0, it & 4 > 0)) {
            let (model, before) = rotated(policy, is_over);
            let mut process = Process::new("same", &model);
            process.pass().0.unwrap();
            restore(&model, &before);
            if !has_status {
                disturb(&model, Disturbance::LoseStatus(0xff));
            }
            if !is_same_process {
                process.crash();
            }
            is_held(&model, &mut process);
            assert!(names(&model).contains(&"alpha-1a2b-2".to_owned()));
            assert_eq!(model.lock().unwrap().status().current.unwrap().name, "alpha-1a2b-2");

            // A person follows the advice. While the plan for that is held back, nothing changes.
            disturb(&model, Disturbance::Rotate);
            let message = "approval is Manual".to_owned();
            let held_back = Blocked { reason: api::Reason::ApprovalRequired, message };
            model.lock().unwrap().wanted.held_back = Some(held_back);
            is_held(&model, &mut process);
            model.lock().unwrap().wanted.held_back = None;
            process.pass().0.unwrap();
            {
                let model = model.lock().unwrap();
                assert_eq!(model.live().unwrap().key.name, "alpha-1a2b-3");
                let retiring = model.status().retiring;
                assert!(retiring.iter().any(|it| it.held.name == "alpha-1a2b-2"), "{retiring:?}");
                assert!(model.rows.iter().any(|it| it.key.name == "alpha-1a2b-2"), "the overlap begins now");
            }
            ends_well(&model);
        }
    }
}

#[test]
fn the_report_names_both_keys_and_both_remedies() {
    for (is_over, state) in [(false, "still accepts"), (true, "does not accept any more")] {
        let (model, before) = rotated(Policy::OnRequest, is_over);
        restore(&model, &before);
        let driven = Process::new("", &model).pass().0.unwrap();
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
    let (model, before) = rotated(Policy::Recreate, true);
    restore(&model, &before);
    let driven = Process::new("", &model).pass().0.unwrap();
    assert!(
        driven.rest.key.unwrap_err().message.contains("Pods that run keep the key that they started with")
    );
}

#[test]
fn the_newer_secret_put_back_ends_the_report() {
    let (model, before) = rotated(Policy::OnRequest, true);
    let newer = copy(&model);
    restore(&model, &before);
    let mut process = Process::new("", &model);
    assert_eq!(reason(&process.pass().0.unwrap()), OUTDATED);
    restore(&model, &newer);
    assert_eq!(reason(&process.pass().0.unwrap()), "Ready");
    assert_eq!(model.lock().unwrap().minted, 2);
    ends_well(&model);
}

#[test]
fn an_older_copy_with_the_newest_key_is_completed() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        let (model, _) = rotated(policy, false);
        // Made while the old key was still valid.
        let before = copy(&model);
        settle(&model);
        assert_eq!(names(&model), ["alpha-1a2b-2"]);
        restore(&model, &before);
        assert_eq!(reason(&Process::new("", &model).pass().0.unwrap()), "Ready");
        assert_eq!(names(&model), ["alpha-1a2b-2"]);
        assert_eq!(model.lock().unwrap().minted, 2);
        ends_well(&model);
    }
}

#[test]
fn a_value_that_is_put_back_without_its_record_does_not_end_the_newest_key() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for owner in [Some(UID), None] {
            let (model, mut before) = rotated(policy, false);
            set_record(&mut before, None);
            set_owner(&mut before, owner);
            restore(&model, &before);
            let mut process = Process::new("", &model);
            is_held(&model, &mut process);
            assert_eq!(names(&model), ["alpha", "alpha-1a2b-2"]);
        }
    }
}

#[test]
fn a_status_from_the_same_backup_does_not_make_the_older_secret_right() {
    for is_over in [false, true] {
        let model = settled(Policy::OnRequest);
        let (before, status) = (copy(&model), model.lock().unwrap().status());
        disturb(&model, Disturbance::Rotate);
        settle(&model);
        if !is_over {
            disturb(&model, Disturbance::Rotate);
            Process::new("", &model).pass().0.unwrap();
        }
        restore(&model, &before);
        model.lock().unwrap().set_status(&status);
        // The request that stands on the object was heard long ago.
        let mut process = Process::new("new", &model);
        is_held(&model, &mut process);
        disturb(&model, Disturbance::Rotate);
        ends_well(&model);
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
                let model = fork(&begun);
                let mut process = Process::new("", &model);
                process.begin();
                process.steps(stop);
                let backup = model.lock().unwrap().backups.get(which).cloned();
                let Some(backup) = backup else { break };
                if !is_alive {
                    // What was in a Secret that nobody knows of, not even the status, is not known to be older.
                    let epoch = record_of(&backup).as_ref().map_or(0, Record::epoch);
                    if epoch >= model.lock().unwrap().status().epoch() {
                        continue;
                    }
                    process.crash();
                    model.lock().unwrap().disturbances += 1;
                }
                restored += 1;
                model.lock().unwrap().checks_value = false;
                restore(&model, &backup);
                while process.is_busy() {
                    process.step();
                }
                model.lock().unwrap().checks_value = true;
                comes_through(&model, &mut process);
            }
        }
    }
    assert!(restored > 900, "{restored}");
}

/// Whatever was restored: nothing is lost over time, and one request more at most ends it.
fn comes_through(model: &Shared, process: &mut Process) {
    for _ in 0..3 {
        process.pass().0.ok();
        advance(model, GRACE);
        process.operator.forget_lists();
    }
    let driven = process.pass().0.unwrap();
    match reason(&driven) {
        "Ready" => {}
        // The oldest copy has no value yet.
        OUTDATED | "SecretMissing" => disturb(model, Disturbance::Rotate),
        other => panic!("{other}\n{:#?}", model.lock().unwrap()),
    }
    ends_well(model);
}

#[test]
fn of_two_copies_with_one_epoch_neither_loses_its_key() {
    // Records of a version without epochs: the backup was made when the second key was about to be written.
    for has_intent in [true, false] {
        let model = settled(Policy::OnRequest);
        disturb(&model, Disturbance::Rotate);
        let mut process = Process::new("", &model);
        process.begin();
        while model.lock().unwrap().minted < 2 {
            process.step();
        }
        let mut before = copy(&model);
        while process.is_busy() {
            process.step();
        }
        if !has_intent {
            let record = record_of(&before).unwrap();
            set_record(&mut before, Some(&Record { intent: None, ..record }));
        }
        restore(&model, &before);
        strip(&model);
        let mut process = Process::new("newer version", &model);
        is_held(&model, &mut process);
        assert_eq!(names(&model), ["alpha", "alpha-1a2b-2"]);
        disturb(&model, Disturbance::Rotate);
        ends_well(&model);
    }
}

/// Leaves the records as a version without epochs wrote them.
fn strip(model: &Shared) {
    let model = model.lock().unwrap();
    model.set_status(&Record { epoch: None, ..model.status() });
    for mut secret in model.cluster.all("Secret") {
        if let Some(record) = record_of(&secret) {
            set_record(&mut secret, Some(&Record { epoch: None, ..record }));
        }
        model.cluster.set(&secret);
    }
}

#[test]
fn records_without_epochs_are_taken_over_and_nothing_happens() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for is_over in [true, false] {
            let (model, _) = rotated(policy, is_over);
            let carried = model.lock().unwrap().carried.clone();
            if is_over {
                settle(&model);
            }
            strip(&model);
            let (writes, minted, keys) = {
                let model = model.lock().unwrap();
                (model.writes, model.minted, model.rows.len())
            };
            let mut process = Process::new("newer version", &model);
            assert_eq!(reason(&process.pass().0.unwrap()), "Ready");
            let model = model.lock().unwrap();
            if is_over {
                assert_eq!(model.writes, writes, "nothing is written only for the epoch");
            }
            assert_eq!((model.minted, &model.carried), (minted, &carried));
            // Without pods that carry it the old key goes as it would have gone.
            assert!(model.rows.len() == keys || model.deleted.iter().any(|it| it.key.name == "alpha"));
        }
    }
}

#[test]
fn a_rotation_that_an_older_version_left_unfinished_is_finished() {
    for scene in scenes() {
        for stop in 0.. {
            let model = fork(&scene);
            let died = dies_at(&model, stop);
            strip(&model);
            let driven = Process::new("newer version", &model).pass().0.unwrap();
            assert_ne!(reason(&driven), OUTDATED, "{:#?}", model.lock().unwrap());
            ends_well(&model);
            if !died {
                break;
            }
        }
    }
}

#[test]
fn a_secret_that_had_the_name_before_gets_the_newest_value() {
    let model = settled(Policy::OnRequest);
    let first = model.lock().unwrap().wanted.secret.clone();
    disturb(&model, Disturbance::RenameSecret);
    settle(&model);
    disturb(&model, Disturbance::Rotate);
    settle(&model);
    let newest = model.lock().unwrap().value();
    // Others may read the first Secret, so it is still there, with the first value.
    {
        let mut model = model.lock().unwrap();
        model.wanted.secret = first;
        model.disturbances += 1;
        assert!(model.value().is_some() && model.value() != newest);
    }
    assert_eq!(reason(&Process::new("", &model).pass().0.unwrap()), "Ready");
    {
        let model = model.lock().unwrap();
        assert_eq!((model.value(), model.minted), (newest, 2));
    }
    ends_well(&model);
}

#[test]
fn an_older_value_is_not_shown_to_another_deployment() {
    let (model, before) = rotated(Policy::Recreate, true);
    restore(&model, &before);
    {
        let mut model = model.lock().unwrap();
        model.wanted.place = place("other", 2);
        model.disturbances += 1;
    }
    let from = model.lock().unwrap().log.len();
    let driven = Process::new("", &model).pass().0.unwrap();
    assert_eq!(reason(&driven), OUTDATED);
    assert!(!model.lock().unwrap().log[from..].iter().any(|it| it.contains("prove")));
}

#[test]
fn a_schedule_waits_while_the_secret_is_outdated() {
    let (model, before) = rotated(Policy::OnRequest, true);
    model.lock().unwrap().wanted.rotate_every = Some(GRACE * 2);
    restore(&model, &before);
    let mut process = Process::new("", &model);
    is_held(&model, &mut process);
}

#[test]
fn a_deletion_takes_every_key_of_every_copy() {
    for is_over in [false, true] {
        let (model, before) = rotated(Policy::OnRequest, is_over);
        restore(&model, &before);
        Process::new("", &model).pass().0.unwrap();
        finish(&model);
        assert_eq!(names(&model), [""; 0]);
    }
}

#[test]
fn every_copy_has_the_epoch_of_the_last_write() {
    let model = Model::new(Policy::OnRequest);
    let mut process = Process::new("", &model);
    for _ in 0..3 {
        process.pass().0.unwrap();
        disturb(&model, Disturbance::Rotate);
    }
    let memory = process.operator.remembered().and_then(|it| it.epoch);
    let model = model.lock().unwrap();
    let epochs: Vec<u64> = model.backups.iter().filter_map(|it| record_of(it)?.epoch).collect();
    // The first intent is in the status alone.
    assert_eq!(epochs, (2..2 + epochs.len() as u64).collect::<Vec<_>>());
    let last = epochs.last().copied();
    assert_eq!((model.status().epoch, memory), (last, last));
}

/// Two writers did not know of each other: one wrote the Secret for a newer key, the other one the status with a higher epoch.
#[test]
fn record_of_a_newer_key_with_a_lower_epoch_is_written_above_every_copy() {
    let model = settled(Policy::Recreate);
    let highest = {
        let model = model.lock().unwrap();
        let status = model.status();
        let highest = status.epoch() + 5;
        model.set_status(&Record { epoch: Some(highest), ..status });
        model.edit_secret(|secret| {
            let record = record_of(secret).unwrap();
            let generation = record.generation + 1;
            set_record(secret, Some(&Record { generation, ..record }));
        });
        highest
    };
    // A status with a lower epoch is a failure.
    settle(&model);
    let model = model.lock().unwrap();
    assert_eq!(model.completed_record(), Some(model.status()));
    assert!(model.status().epoch() > highest, "{model:#?}");
}
