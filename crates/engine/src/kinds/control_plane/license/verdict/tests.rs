use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::kinds::control_plane::license::{Jwt, LicenseRecord, Refused, claims::tests::jwt};

const DAY: i64 = 86_400;
const NOW: i64 = 1_800_000_000;

fn from_to(from: i64, to: i64) -> Value {
    json!({"nbf": NOW + from * DAY, "license_expires": NOW + to * DAY, "exp": NOW + (to + 10) * DAY})
}

fn declare(claims: &Value) -> Declared {
    Declared { slot: "licenseSecretRef".to_owned(), jwt: Jwt::new(&SecretString::from(jwt(claims))) }
}

/// How it stands when the deployment has these licences.
fn judge(
    declared: &[Declared],
    live: &[&Value],
    record: &LicenseRecord,
    in_effect: Option<&Summary>,
) -> LicenseVerdict {
    let live: Vec<License> = live
        .iter()
        .map(|claims| License {
            id: 1,
            uuid: Uuid::nil(),
            uploaded_at: Timestamp::UNIX_EPOCH,
            claims: claims.as_object().unwrap().clone(),
        })
        .collect();
    let now = Timestamp::from_second(NOW).unwrap();
    let observed = Observed { deployment: Uuid::nil(), live: &live, record, errors: &[], now };
    verdict(declared, &observed, in_effect)
}

/// The same without a record and without a look at the effect.
fn plain(declared: &[Declared], live: &[&Value]) -> (Option<bool>, &'static str) {
    let verdict = judge(declared, live, &LicenseRecord::default(), None);
    (verdict.status, verdict.reason.as_str())
}

#[test]
fn every_stage_of_a_licence_has_its_reason() {
    let (valid, grace, future, over) = (from_to(-1, 9), from_to(-9, -1), from_to(1, 9), from_to(-90, -80));
    assert_eq!(plain(&[], &[&valid]), (None, "Pending"));
    assert_eq!(plain(&[declare(&valid)], &[]), (Some(false), "Pending"));
    assert_eq!(plain(&[declare(&valid)], &[&grace]), (Some(false), "Pending"), "another one is not it");
    assert_eq!(plain(&[declare(&valid)], &[&valid]), (Some(true), "Applied"));
    assert_eq!(plain(&[declare(&grace)], &[&grace]), (Some(true), "GracePeriod"));
    assert_eq!(plain(&[declare(&future)], &[&future]), (Some(true), "Applied"));
    assert_eq!(plain(&[declare(&over)], &[]), (Some(false), "Expired"));
    assert_eq!(plain(&[declare(&over)], &[&over]), (Some(false), "Expired"));
    let missing = Declared { slot: "licenseSecretRef".to_owned(), jwt: None };
    assert_eq!(plain(&[missing], &[&valid]), (Some(false), "SecretMissing"));
    let garbage = Jwt::new(&SecretString::from("a word"));
    let garbage = Declared { slot: "licenseSecretRef".to_owned(), jwt: garbage };
    assert_eq!(plain(&[garbage], &[]), (Some(false), "Invalid"));
}

#[test]
fn a_refusal_is_told_in_coderds_words_and_not_retried() {
    let declared = declare(&from_to(-1, 9));
    let hash = declared.jwt.as_ref().unwrap().hash().to_owned();
    let words = "License cannot be used on this deployment!".to_owned();
    let record =
        LicenseRecord { refused: vec![Refused { hash, words: words.clone() }], ..Default::default() };
    let verdict = judge(&[declared], &[], &record, None);
    assert_eq!((verdict.status, verdict.reason), (Some(false), Reason::Invalid));
    assert!(verdict.message.contains(&words), "{}", verdict.message);
    assert!(!is_retried(verdict.reason));
}

#[test]
fn of_several_the_gravest_speaks_and_is_named() {
    let (valid, grace) = (from_to(-1, 9), from_to(-9, -1));
    let addon = Declared { slot: "addons/license".to_owned(), ..declare(&grace) };
    let verdict = judge(&[declare(&valid), addon], &[&valid, &grace], &LicenseRecord::default(), None);
    assert_eq!(verdict.reason, Reason::GracePeriod);
    assert!(verdict.message.starts_with("addons/license: "), "{}", verdict.message);
}

#[test]
fn a_licence_that_was_taken_and_has_no_effect_is_not_green() {
    let (valid, future) = (from_to(-1, 9), from_to(1, 9));
    let judge = |claims: &Value, summary: &Summary| {
        judge(&[declare(claims)], &[claims], &LicenseRecord::default(), Some(summary)).reason
    };
    let unnoticed = Summary::default();
    assert_eq!(judge(&valid, &unnoticed), Reason::Pending);
    assert_eq!(judge(&future, &unnoticed), Reason::Applied, "nobody expects it to count yet");
    let counts = Summary { has_license: true, ..Summary::default() };
    assert_eq!(judge(&valid, &counts), Reason::Applied);
    let words = "License requires telemetry but telemetry is disabled".to_owned();
    assert_eq!(judge(&valid, &Summary { errors: vec![words], ..counts }), Reason::Error);
}

#[test]
fn what_has_to_come_first_is_pending() {
    let status =
        |it: &Obstacle| (LicenseVerdict::obstacle(it).status, LicenseVerdict::obstacle(it).reason.as_str());
    assert_eq!(status(&Obstacle::NotDeclared), (None, "Pending"));
    assert_eq!(status(&Obstacle::NotReady), (Some(false), "Pending"));
    assert_eq!(status(&Obstacle::NoAccess), (Some(false), "Pending"));
}
