use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::*;
use crate::kinds::control_plane::license::{Jwt, claims::tests::jwt};

const DAY: i64 = 86_400;
const NOW: i64 = 1_800_000_000;
const HERE: Uuid = Uuid::from_u128(7);
const FIRST: &str = "licenseSecretRef";

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// The claims of a licence from one day to another.
fn from_to(name: &str, from: i64, to: i64) -> Value {
    let (nbf, license_expires, exp) = (NOW + from * DAY, NOW + to * DAY, NOW + (to + 10) * DAY);
    json!({"jti": name, "nbf": nbf, "license_expires": license_expires, "exp": exp})
}

fn claims(name: &str) -> Value {
    from_to(name, -1, 100)
}

fn declare_as(slot: &str, claims: &Value) -> Declared {
    let text = format!("\n {}\n", jwt(claims));
    Declared { slot: slot.to_owned(), jwt: Jwt::new(&SecretString::from(text)) }
}

fn declare(claims: &Value) -> Declared {
    declare_as(FIRST, claims)
}

fn live(id: i32, claims: &Value) -> License {
    let claims = claims.as_object().unwrap().clone();
    License { id, uuid: Uuid::from_u128(9), uploaded_at: now(), claims }
}

fn identity(claims: &Value) -> String {
    declare(claims).identity().unwrap()
}

fn upload(claims: &Value) -> LicenseEffect {
    LicenseEffect::Upload { slot: FIRST.to_owned(), identity: identity(claims) }
}

fn delete(id: i32, claims: &Value) -> LicenseEffect {
    LicenseEffect::Delete { id, identity: identity(claims) }
}

/// A deployment in memory, with our record of it.
#[derive(Default)]
struct Coder {
    live: Vec<License>,
    record: LicenseRecord,
    errors: Vec<String>,
    last_id: i32,
    deletes: bool,
}

impl Coder {
    fn plan(&mut self, declared: &[Declared]) -> Vec<LicenseEffect> {
        self.record = self.record.settled(HERE, declared, &self.live, self.deletes);
        let Self { live, record, errors, deletes, .. } = self;
        let observed = Observed { deployment: HERE, live, record, errors, now: now() };
        plan(declared, &observed, *deletes).steps.into_iter().map(|it| it.effect).collect()
    }

    /// Carries out what is planned until nothing is, and gives all of it.
    fn converge(&mut self, declared: &[Declared]) -> Vec<LicenseEffect> {
        let mut all = Vec::new();
        for _ in 0..5 {
            let effects = self.plan(declared);
            if effects.is_empty() {
                return all;
            }
            for effect in effects {
                match &effect {
                    LicenseEffect::Upload { slot, identity } => {
                        self.record.intend(slot, identity);
                        let id = self.commit(declared, identity);
                        self.record.uploaded(identity, id);
                    }
                    LicenseEffect::Delete { id, .. } => {
                        self.live.retain(|it| it.id != *id);
                        self.record.deleted(*id);
                    }
                }
                all.push(effect);
            }
        }
        panic!("it does not come to an end: {all:?}");
    }

    /// What coderd does with an upload.
    fn commit(&mut self, declared: &[Declared], identity: &str) -> i32 {
        let one = declared.iter().find(|it| it.identity().as_deref() == Some(identity)).unwrap();
        self.last_id += 1;
        let claims = serde_json::to_value(one.claims().unwrap().map()).unwrap();
        self.live.push(live(self.last_id, &claims));
        self.last_id
    }

    fn names(&self) -> Vec<&str> {
        self.live.iter().map(|it| it.claims["jti"].as_str().unwrap()).collect()
    }
}

#[test]
fn a_licence_is_uploaded_once() {
    let mut coder = Coder::default();
    let declared = [declare(&claims("a"))];
    assert_eq!(coder.converge(&declared), [upload(&claims("a"))]);
    assert_eq!(coder.plan(&declared), []);
}

#[test]
fn another_licence_is_not_ours_being_present_and_is_left_alone() {
    let mut coder = Coder { live: vec![live(40, &claims("foreign"))], ..Coder::default() };
    coder.converge(&[declare(&claims("a"))]);
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.names(), ["foreign", "b"]);
}

#[test]
fn one_that_somebody_else_installed_is_present_and_never_deleted() {
    let mut coder = Coder { live: vec![live(40, &claims("a"))], deletes: true, ..Coder::default() };
    assert_eq!(coder.converge(&[declare(&claims("a"))]), []);
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.names(), ["a", "b"]);
    coder.converge(&[]);
    assert_eq!(coder.names(), ["a"]);
}

#[test]
fn a_renewal_adds_first_and_then_retires_what_we_uploaded() {
    let mut coder = Coder::default();
    coder.converge(&[declare(&claims("a"))]);
    let (a, b) = (claims("a"), claims("b"));
    assert_eq!(coder.converge(&[declare(&b)]), [upload(&b), delete(1, &a)]);
}

#[test]
fn back_and_forth_ends_with_what_is_declared() {
    let mut coder = Coder::default();
    for name in ["a", "b", "a", "b", "a"] {
        coder.converge(&[declare(&claims(name))]);
        assert_eq!(coder.names(), [name]);
    }
}

#[test]
fn a_restored_database_is_noticed_and_its_numbers_mean_nothing() {
    let mut coder = Coder::default();
    coder.converge(&[declare(&claims("a"))]);
    coder.live = vec![live(1, &claims("older"))];
    coder.last_id = 1;
    assert_eq!(coder.converge(&[declare(&claims("a"))]), [upload(&claims("a"))]);
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.names(), ["older", "b"], "number 1 is another licence now");
}

#[test]
fn a_record_of_another_deployment_counts_for_nothing() {
    let mut coder = Coder::default();
    coder.converge(&[declare(&claims("a"))]);
    coder.record.deployment_id = Some(Uuid::from_u128(8));
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.names(), ["a", "b"]);
}

#[test]
fn an_upload_that_crashed_after_it_was_stored_is_found_and_is_ours() {
    let mut coder = Coder::default();
    let declared = [declare(&claims("a"))];
    coder.plan(&declared);
    coder.record.intend(FIRST, &identity(&claims("a")));
    coder.commit(&declared, &identity(&claims("a")));
    assert_eq!(coder.plan(&declared), [], "it is not uploaded twice");
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.names(), ["b"], "and retired as ours");
}

#[test]
fn an_upload_that_never_arrived_is_sent_again() {
    let mut coder = Coder::default();
    let declared = [declare(&claims("a"))];
    coder.record.deployment_id = Some(HERE);
    coder.record.intend(FIRST, &identity(&claims("a")));
    assert_eq!(coder.plan(&declared), [upload(&claims("a"))]);
    coder.plan(&[]);
    assert_eq!(coder.record.uploaded, [], "what is no longer wanted and not there is forgotten");
}

#[test]
fn a_renewal_for_later_leaves_the_present_one_until_it_counts() {
    let mut coder = Coder::default();
    coder.converge(&[declare(&claims("a"))]);
    coder.converge(&[declare(&from_to("b", 5, 400))]);
    assert_eq!(coder.names(), ["a", "b"]);
}

#[test]
fn nothing_is_retired_while_the_deployment_complains() {
    let mut coder = Coder { errors: vec!["License requires telemetry".to_owned()], ..Coder::default() };
    coder.converge(&[declare(&claims("a"))]);
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.names(), ["a", "b"]);
    coder.errors.clear();
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.names(), ["b"]);
}

#[test]
fn one_that_the_deployment_complains_of_goes_when_another_has_its_place() {
    let needs_telemetry = |id: &str| {
        let mut claims = claims(id);
        claims["require_telemetry"] = json!(true);
        claims
    };
    let errors = vec!["License requires telemetry but telemetry is disabled".to_owned()];
    let mut coder = Coder { errors, ..Coder::default() };
    coder.converge(&[declare(&needs_telemetry("a"))]);
    coder.converge(&[declare(&needs_telemetry("b"))]);
    assert_eq!(coder.names(), ["a", "b"], "the next one would be no better");
    coder.errors.push("something else".to_owned());
    coder.converge(&[declare(&claims("c"))]);
    assert_eq!(coder.names(), ["a", "b", "c"], "it is not the only complaint");
    coder.errors.pop();
    coder.converge(&[declare(&claims("c"))]);
    assert_eq!(coder.names(), ["c"]);
}

#[test]
fn an_expired_one_is_not_sent_and_replaces_nothing() {
    let mut coder = Coder::default();
    coder.converge(&[declare(&claims("a"))]);
    assert_eq!(coder.converge(&[declare(&from_to("b", -100, -50))]), []);
    assert_eq!(coder.names(), ["a"]);
    let grace = from_to("c", -100, -5);
    assert_eq!(coder.converge(&[declare(&grace)]), [upload(&grace), delete(1, &claims("a"))]);
}

#[test]
fn a_refused_one_is_not_sent_again_until_the_secret_changes() {
    let mut coder = Coder::default();
    let declared = [declare(&claims("a"))];
    coder.plan(&declared);
    let hash = declared[0].hash().unwrap().to_owned();
    coder
        .record
        .refused(&identity(&claims("a")), super::super::record::Refused { hash, words: "no".to_owned() });
    assert_eq!(coder.plan(&declared), []);
    assert_eq!(coder.plan(&[declare(&claims("b"))]), [upload(&claims("b"))]);
    assert_eq!(coder.record.refused, [], "what is no longer declared is forgotten");
}

#[test]
fn several_are_uploaded_and_renewed_each_in_its_place() {
    let addon = |name: &str| declare_as("addons/license", &claims(name));
    let mut coder = Coder::default();
    coder.converge(&[declare(&claims("a")), addon("x")]);
    assert_eq!(coder.names(), ["a", "x"]);
    coder.converge(&[declare(&claims("a")), addon("y")]);
    assert_eq!(coder.names(), ["a", "y"]);
    coder.converge(&[declare(&claims("y")), addon("a")]);
    assert_eq!(coder.names(), ["a", "y"], "another place is no other licence");
    coder.converge(&[declare(&claims("z")), addon("a")]);
    assert_eq!(coder.names(), ["a", "z"]);
}

#[test]
fn the_same_one_in_two_places_is_uploaded_once() {
    let twice = [declare(&claims("a")), declare_as("addons/license", &claims("a"))];
    assert_eq!(Coder::default().converge(&twice).len(), 1);
}

#[test]
fn removing_the_reference_leaves_the_licence_unless_the_policy_is_delete() {
    let mut coder = Coder::default();
    coder.converge(&[declare(&claims("a"))]);
    assert_eq!(coder.converge(&[]), []);
    assert_eq!(coder.record.uploaded, [], "and nobody holds it any more");
    let mut coder = Coder { deletes: true, ..Coder::default() };
    coder.converge(&[declare(&claims("a"))]);
    assert_eq!(coder.converge(&[]), [delete(1, &claims("a"))]);
}

#[test]
fn a_missing_secret_takes_nothing_away() {
    let mut coder = Coder { deletes: true, ..Coder::default() };
    coder.converge(&[declare(&claims("a"))]);
    let missing = Declared { slot: FIRST.to_owned(), jwt: None };
    assert_eq!(coder.converge(&[missing]), []);
    assert_eq!(coder.names(), ["a"]);
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.names(), ["b"], "and it is still known whose it is");
}

#[test]
fn with_the_manifest_goes_what_we_uploaded_if_the_policy_says_so() {
    let mut coder = Coder { live: vec![live(40, &claims("foreign"))], last_id: 40, ..Coder::default() };
    coder.converge(&[declare(&claims("a"))]);
    let Coder { live, record, errors, .. } = &coder;
    let observed = Observed { deployment: HERE, live, record, errors, now: now() };
    assert!(plan_cleanup(&observed, false).is_empty());
    let effects: Vec<_> = plan_cleanup(&observed, true).steps.into_iter().map(|it| it.effect).collect();
    assert_eq!(effects, [delete(41, &claims("a"))]);
}

#[test]
fn the_text_is_trimmed_and_neither_plan_nor_record_holds_it() {
    let text = jwt(&json!({"jti": "a", "account_id": "customer-7"}));
    let padded = SecretString::from(format!("  {text}\n"));
    let jwt = Jwt::new(&padded).unwrap();
    assert_eq!(jwt.secret().expose_secret(), text);
    assert_eq!(jwt.hash(), Jwt::new(&SecretString::from(text.clone())).unwrap().hash());
    let declared = [Declared { slot: FIRST.to_owned(), jwt: Some(jwt) }];
    let mut record = LicenseRecord::default().settled(HERE, &declared, &[], false);
    record.intend(FIRST, &declared[0].identity().unwrap());
    let observed = Observed { deployment: HERE, live: &[], record: &record, errors: &[], now: now() };
    let plan = plan(&declared, &observed, false);
    let shown = serde_json::to_string(&(plan.view("licences"), &record)).unwrap();
    assert_eq!(plan.steps.len(), 1);
    assert!(!shown.contains(&text) && !shown.contains("customer-7"), "{shown}");
    assert!(!format!("{plan:?}").contains(&text));
    assert!(Jwt::new(&SecretString::from(" \n")).is_none());
}

#[test]
fn the_end_of_a_declared_licence_is_announced_once_a_threshold() {
    let mut coder = Coder::default();
    let soon = from_to("a", -1, 6);
    coder.converge(&[declare(&soon)]);
    let declared = [declare(&soon)];
    let days = |coder: &mut Coder, declared: &[Declared], now| {
        let Coder { live, record, .. } = coder;
        record.announce(declared, live, now).iter().map(|it| it.days).collect::<Vec<_>>()
    };
    assert_eq!(days(&mut coder, &declared, now()), [7]);
    assert_eq!(days(&mut coder, &declared, now()), [] as [i64; 0]);
    coder.plan(&declared);
    assert_eq!(days(&mut coder, &declared, now()), [] as [i64; 0], "also on the next pass");
    let last_day = Timestamp::from_second(NOW + 5 * DAY + 60).unwrap();
    assert_eq!(days(&mut coder, &declared, last_day), [1]);
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.record.told, [], "what is gone is forgotten");
}

#[test]
fn where_none_is_declared_the_one_that_lasts_longest_counts() {
    let (short, long) = (from_to("a", -1, 6), from_to("b", -1, 20));
    let live = [live(1, &short), live(2, &long)];
    let told = LicenseRecord::default().announce(&[], &live, now());
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].days, 30);
    assert_eq!(
        told[0].message("the licence"),
        "the licence expires in less than 30 days, on 2027-02-04: put a new one into its Secret"
    );
    let replaced = LicenseRecord::default().announce(&[declare(&long)], &live, now());
    assert_eq!(replaced.len(), 1, "one that is no longer declared may end");
}

#[test]
fn an_upload_that_arrives_late_is_ours() {
    let mut coder = Coder::default();
    let declared = [declare(&claims("a"))];
    coder.plan(&declared);
    coder.record.intend(FIRST, &identity(&claims("a")));
    assert_eq!(coder.plan(&declared), [upload(&claims("a"))], "it has not arrived yet");
    coder.commit(&declared, &identity(&claims("a")));
    coder.converge(&[declare(&claims("b"))]);
    assert_eq!(coder.names(), ["b"]);
}

#[test]
fn a_number_alone_deletes_nothing() {
    let uploaded = Uploaded { slot: FIRST.to_owned(), identity: identity(&claims("a")), id: Some(1) };
    let record =
        LicenseRecord { deployment_id: Some(HERE), uploaded: vec![uploaded], ..LicenseRecord::default() };
    let live = [live(1, &claims("older"))];
    let observed = Observed { deployment: HERE, live: &live, record: &record, errors: &[], now: now() };
    assert!(plan_cleanup(&observed, true).is_empty());
    assert!(plan(&[], &observed, true).is_empty());
}
