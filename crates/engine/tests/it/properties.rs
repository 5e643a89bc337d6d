//! What holds for every manifest and every coder, tried on many of both.

use std::collections::{BTreeMap, BTreeSet};

use engine::{Change, Coder, Contact, Decision, Door, Outcome, Refusal, Verdict};
use proptest::{
    prelude::{ProptestConfig, any},
    prop_assert, prop_assert_eq, prop_assert_ne, proptest,
    test_runner::TestCaseError,
};
use serde_json::Value;
use sim::state::State;

use crate::{
    support::{holding, promises, subject},
    wire::{Wire, Write},
};

mod make;

/// Where a field of a manifest stands in what coderd keeps.
const FIELDS: [(&str, &str); 14] = [
    ("displayName", "display_name"),
    ("description", "description"),
    ("icon", "icon"),
    ("avatarURL", "avatar_url"),
    ("quotaAllowance", "quota_allowance"),
    ("members", "members"),
    ("field", "field"),
    ("assignDefault", "organization_assign_default"),
    ("regexFilter", "regex_filter"),
    ("autoCreateMissingGroups", "auto_create_missing_groups"),
    ("mapping", "mapping"),
    ("applicationName", "application_name"),
    ("logoURL", "logo_url"),
    ("announcementBanners", "announcement_banners"),
];

fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_was_applied_is_equal_and_what_was_not_is_untouched(manifest in make::manifest(), state in make::coder()) {
        run(applied_is_equal(&manifest, &state))?;
    }

    #[test]
    fn nothing_that_is_not_declared_is_written(manifest in make::manifest(), state in make::coder()) {
        run(only_declared(&manifest, &state))?;
    }

    #[test]
    fn the_order_of_manifests_does_not_change_their_plans(
        manifests in make::manifests(), state in make::coder(), start in any::<usize>()
    ) {
        let expected = run(hashes(&manifests, &state));
        let mut turned = manifests.clone();
        turned.rotate_left(start % manifests.len());
        prop_assert_eq!(&run(hashes(&turned, &state)), &expected);
        turned.reverse();
        prop_assert_eq!(&run(hashes(&turned, &state)), &expected);
    }

    #[test]
    fn a_plan_that_counts_on_others_is_the_plan_once_they_are_done(
        manifests in make::manifests(), state in make::coder()
    ) {
        run(promises_are_kept(manifests, &state))?;
    }

    #[test]
    fn the_order_of_names_does_not_change_a_plan(manifest in make::manifest(), state in make::coder()) {
        let mut reversed = manifest.clone();
        for list in lists(&mut reversed["spec"]) {
            list.reverse();
            let repeated = list.clone();
            list.extend(repeated);
        }
        prop_assert_eq!(run(hash(&manifest, &state)), run(hash(&reversed, &state)));
    }

    #[test]
    fn an_approval_lets_that_plan_through_and_none_of_another_world(
        manifest in make::manifest(), state in make::coder(), other in make::coder()
    ) {
        let mut manual = manifest;
        manual["spec"]["approval"] = "Manual".into();
        let Some(hash) = run(hash(&manual, &state)) else { return Ok(()) };
        manual["metadata"]["annotations"]["coder.com/approved-plan"] = hash.clone().into();
        let decided = |state: &State| run(decision(&manual, state));
        prop_assert_ne!(decided(&state), Some(Decision::Refuse(Refusal::NotApproved)));
        if decided(&other) == Some(Decision::Apply) {
            let mut unapproved = manual.clone();
            unapproved["metadata"]["annotations"] = Value::Null;
            prop_assert_eq!(run(self::hash(&unapproved, &other)), Some(hash));
        }
    }
}

async fn applied_is_equal(manifest: &Value, state: &State) -> Result<(), TestCaseError> {
    let wire = Wire::new(state.clone());
    let coder = wire.coder();
    let before = things(&wire);
    let mut first = subject(manifest);
    let assessment = first.assess(&coder, Door::Controller).await;
    prop_assert_eq!(wire.writes().len(), 0);
    let report = first.carry_out(&assessment, &coder).await;
    let Verdict::Decided(decision) = assessment.verdict else {
        prop_assert!(!report.outcome.is_ready());
        prop_assert_eq!((wire.writes().len(), report.id), (0, None));
        return Ok(());
    };
    if decision != Decision::Apply {
        prop_assert_eq!(wire.writes().len(), 0);
        prop_assert_eq!(&things(&wire), &before);
        return Ok(());
    }
    prop_assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    prop_assert_eq!(wire.writes().len(), assessment.plan.steps.len());
    // The same coder goes on, and so does one that has read nothing yet.
    let held = holding(manifest, report.id.unwrap());
    for coder in [coder, wire.coder()] {
        let writes = wire.writes().len();
        let mut second = subject(&held);
        let again = second.assess(&coder, Door::Controller).await;
        prop_assert_eq!(again.contact, Some(Contact::Held));
        prop_assert_eq!(&again.plan.steps, &Vec::new());
        let report = second.carry_out(&again, &coder).await;
        prop_assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
        prop_assert_eq!(wire.writes().len(), writes);
    }
    Ok(())
}

/// What a person was shown for a whole set is what is done, one after the other.
async fn promises_are_kept(mut manifests: Vec<Value>, state: &State) -> Result<(), TestCaseError> {
    manifests.sort_by_key(|it| subject(it).rank());
    let coder = Coder::new(Wire::new(state.clone()).client(), promises(&manifests));
    let mut shown = Vec::new();
    for manifest in &manifests {
        let mut subject = subject(manifest);
        let assessment = subject.assess(&coder, Door::CommandLine).await;
        shown.push((subject, assessment));
    }
    // After a rename others are shown under the new name, so such a set takes two rounds.
    let renames = |it: &Change| it.field == "name" && !it.before.is_null();
    if shown.iter().any(|(_, it)| it.plan.changes().any(renames)) {
        return Ok(());
    }
    let coder = coder.anew();
    for (mut subject, shown) in shown {
        let now = subject.assess(&coder, Door::CommandLine).await;
        match (&shown.verdict, &now.verdict) {
            (Verdict::Decided(_), Verdict::Decided(_)) => {
                prop_assert_eq!(&shown.plan, &now.plan, "{}", subject.target());
            }
            // Nobody but us is in an organization that was just made, and it has no roles but Coder's own.
            (Verdict::Decided(_), Verdict::Stopped(Outcome::Blocked(it))) => {
                let is_new = it.message.starts_with("spec.members") || it.message.contains("role auditor");
                prop_assert!(is_new, "{}", it.message);
            }
            (Verdict::Stopped(_), Verdict::Stopped(_)) => {}
            unkept => prop_assert!(false, "{}: {unkept:?}", subject.target()),
        }
        subject.carry_out(&now, &coder).await;
    }
    Ok(())
}

async fn only_declared(manifest: &Value, state: &State) -> Result<(), TestCaseError> {
    let wire = Wire::new(state.clone());
    let coder = wire.coder();
    let mut subject = subject(manifest);
    let assessment = subject.assess(&coder, Door::Controller).await;
    let old = things(&wire);
    subject.carry_out(&assessment, &coder).await;
    let declared = declared(manifest);
    let new = things(&wire);
    let mut touched = BTreeSet::new();
    for (thing, fields) in &new {
        let Some(was) = old.get(thing) else { continue };
        for (field, value) in fields.as_object().unwrap() {
            if was.get(field) != Some(value) {
                touched.insert(thing);
                prop_assert!(declared.contains(field.as_str()), "{thing}: {field} was not declared");
            }
        }
    }
    prop_assert!(touched.len() <= 1, "{touched:?}");
    prop_assert!(old.keys().all(|it| new.contains_key(it)), "something is gone");
    for Write { path, body } in wire.writes() {
        if path.contains("idpsync") || path.ends_with("/appearance") {
            continue; // A document is always sent whole; what it changes was looked at above.
        }
        let users = ["add_users", "remove_users"];
        let mut keys = body.as_object().unwrap().keys();
        let is_declared = |it: &String| {
            declared.contains(it.as_str()) || (users.contains(&it.as_str()) && declared.contains("members"))
        };
        prop_assert!(keys.all(is_declared), "{path}: {body}");
    }
    Ok(())
}

/// What coderd calls the fields that a manifest declares; its name is one of them in any case.
fn declared(manifest: &Value) -> BTreeSet<&'static str> {
    let spec = manifest["spec"].as_object().unwrap();
    let fields = FIELDS.iter().filter(|(field, _)| spec.contains_key(*field));
    fields.map(|(_, remote)| *remote).chain(["name"]).collect()
}

/// Everything in a deployment, by where it is.
fn things(wire: &Wire) -> BTreeMap<String, Value> {
    let state = wire.deployment.read(|it| serde_json::to_value(it).unwrap());
    let mut things = BTreeMap::new();
    for part in ["organizations", "groups", "group_sync", "role_sync"] {
        let objects = state[part].as_object().unwrap();
        things.extend(objects.iter().map(|(id, it)| (format!("{part} {id}"), it.clone())));
    }
    for part in ["organization_sync", "appearance"] {
        things.insert(part.to_owned(), state[part].clone());
    }
    things
}

/// The hash of every manifest's plan, in one pass over all of them.
async fn hashes(manifests: &[Value], state: &State) -> BTreeMap<String, (String, String)> {
    let coder = Coder::new(Wire::new(state.clone()).client(), promises(manifests));
    let mut hashes = BTreeMap::new();
    for manifest in manifests {
        let mut subject = subject(manifest);
        let assessment = subject.assess(&coder, Door::Controller).await;
        hashes.insert(subject.target(), (assessment.plan.hash, format!("{:?}", assessment.verdict)));
    }
    hashes
}

async fn hash(manifest: &Value, state: &State) -> Option<String> {
    let coder = Wire::new(state.clone()).coder();
    let assessment = subject(manifest).assess(&coder, Door::Controller).await;
    matches!(assessment.verdict, Verdict::Decided(_)).then_some(assessment.plan.hash)
}

async fn decision(manifest: &Value, state: &State) -> Option<Decision> {
    let coder = Wire::new(state.clone()).coder();
    match subject(manifest).assess(&coder, Door::Controller).await.verdict {
        Verdict::Decided(decision) => Some(decision),
        Verdict::Stopped(_) => None,
    }
}

/// The lists of names in a spec, whose order means nothing; that of banners does.
fn lists(spec: &mut Value) -> Vec<&mut Vec<Value>> {
    let spec = spec.as_object_mut().unwrap();
    let mut lists = Vec::new();
    for (field, value) in spec {
        match (field.as_str(), value) {
            ("members", Value::Array(list)) => lists.push(list),
            ("mapping", Value::Object(mapping)) => {
                lists.extend(mapping.values_mut().filter_map(Value::as_array_mut));
            }
            _ => {}
        }
    }
    lists
}
