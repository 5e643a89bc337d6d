//! Secrets that do not take the value of a key that was just minted: the value is in nobody's hands but ours.

use api::Reason;
use engine::{pipeline::outcome::Trouble, secrets::Policy};

use super::{
    Shared,
    cases::settled,
    disturb::{Disturbance, disturb},
    ends_well,
    model::{Denial, Model},
    run::Process,
};

const ALWAYS: usize = usize::MAX;

fn deny(model: &Shared, code: u16, reason: &'static str, times: usize) {
    let mut model = model.lock().unwrap();
    model.denial = Some(Denial { code, reason, times });
    model.disturbances += 1;
}

fn is_unwritten(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Blocked(it) if it.reason == Reason::SecretNotWritten)
}

/// Our keys in coderd, and how often a key was asked for.
fn keys(model: &Shared) -> (usize, usize) {
    let model = model.lock().unwrap();
    (model.ours().count(), model.posts)
}

#[test]
fn value_that_is_refused_for_a_moment_is_written_again() {
    for (code, reason) in
        [(403, "Forbidden"), (429, "TooManyRequests"), (500, "InternalError"), (504, "Timeout")]
    {
        let model = Model::new(Policy::Recreate);
        deny(&model, code, reason, 3);
        let driven = Process::new("we", &model).pass().0.unwrap();
        assert_eq!(driven.rest.key.unwrap().name, "alpha", "{code}");
        assert_eq!(keys(&model), (1, 1), "{code}");
        assert!(model.lock().unwrap().status().retiring.is_empty(), "{code}: no key is lost");
        ends_well(&model);
    }
}

#[test]
fn key_whose_value_no_secret_takes_is_revoked_at_once_and_forgotten() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        for (code, reason) in [(403, "Forbidden"), (422, "Invalid"), (500, "InternalError")] {
            let model = Model::new(policy);
            deny(&model, code, reason, ALWAYS);
            let mut process = Process::new("we", &model);
            assert!(is_unwritten(&process.pass().0.unwrap_err()), "{code}");
            assert_eq!(keys(&model), (0, 1), "{code}: the key is revoked");
            assert!(model.lock().unwrap().status().retiring.is_empty(), "{code}: no key is lost");
            let is_reported = |it: &String| it.ends_with("could not be written into the Secret");
            assert!(model.lock().unwrap().log.iter().any(is_reported), "{code}");
            // The Secret is tried first from now on.
            assert!(is_unwritten(&process.pass().0.unwrap_err()), "{code}");
            assert_eq!(keys(&model), (0, 1), "{code}: coderd is not asked again");
            model.lock().unwrap().denial = None;
            assert_eq!(process.pass().0.unwrap().rest.key.unwrap().name, "alpha", "{code}");
            assert_eq!(keys(&model), (1, 2), "{code}");
            ends_well(&model);
        }
    }
}

#[test]
fn rotation_whose_value_no_secret_takes_leaves_the_key_before() {
    let model = settled(Policy::Recreate);
    disturb(&model, Disturbance::Rotate);
    let mut process = Process::new("we", &model);
    process.begin();
    while model.lock().unwrap().minted == 1 {
        process.step();
    }
    deny(&model, 403, "Forbidden", ALWAYS);
    let mut ended = None;
    while process.is_busy() {
        ended = process.step();
    }
    assert!(is_unwritten(&ended.unwrap().unwrap_err()));
    assert_eq!(model.lock().unwrap().live().unwrap().key.name, "alpha");
    assert_eq!(keys(&model).0, 1, "the new key is revoked");
    model.lock().unwrap().denial = None;
    assert_eq!(process.pass().0.unwrap().rest.key.unwrap().name, "alpha-1a2b-2");
    ends_well(&model);
}

#[test]
fn key_whose_value_may_have_been_written_is_not_revoked_at_once() {
    let model = Model::new(Policy::Recreate);
    deny(&model, 504, "Timeout", ALWAYS);
    let mut process = Process::new("we", &model);
    assert!(is_unwritten(&process.pass().0.unwrap_err()));
    assert_eq!(keys(&model), (1, 1));
    assert!(model.lock().unwrap().status().intent.is_some(), "its name is on record");
    model.lock().unwrap().denial = None;
    process.pass().0.unwrap();
    ends_well(&model);
}

#[test]
fn key_that_cannot_be_revoked_at_once_is_found_by_its_intent() {
    let model = Model::new(Policy::Recreate);
    deny(&model, 403, "Forbidden", ALWAYS);
    let mut process = Process::new("we", &model);
    process.begin();
    while model.lock().unwrap().minted == 0 {
        process.step();
    }
    // Whatever is asked of coderd after the last attempt to write fails, too.
    let calls = model.lock().unwrap().calls;
    model.lock().unwrap().faults.extend((6..12).map(|it| (calls + it, super::Fault::Refused)));
    while process.is_busy() {
        process.step();
    }
    assert_eq!(keys(&model), (1, 1));
    model.lock().unwrap().denial = None;
    ends_well(&model);
}
