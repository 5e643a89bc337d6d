//! The ledger of every kind: when a manifest needs its finalizer, and that each thing is taken back once.

use std::collections::BTreeSet;

use api::{AppState as _, CoderControlPlane, CoderProvisioner, CoderProvisionerKey, finalizer};
use engine::{
    Kind,
    kinds::{self, ProvisionerKey, control_plane, provisioner},
    pipeline::ledger::{Entry, KeyState, Leaves, Ledger},
    secrets::{
        Held, HeldKeys, Intent, Names, Record, Retiring, key_entries, keys_to_revoke, mirror::to_status,
    },
};
use jiff::Timestamp;
use proptest::{
    collection::vec,
    option,
    prelude::{ProptestConfig, Strategy, any},
    prop_assert, prop_assert_eq, proptest,
    sample::select,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::examples;

const UID: &str = "1a2b3c4d-0000-4000-8000-000000000001";

/// What a deletion takes back, in its order, one entry after the other.
fn taken_back(ledger: &Ledger) -> Vec<Entry> {
    let (mut rest, mut taken) = (ledger.clone(), Vec::new());
    while let Some(entry) = rest.entries().first().cloned() {
        rest = rest.without(std::slice::from_ref(&entry));
        taken.push(entry);
    }
    taken
}

struct AppStates;

impl kinds::Visitor for AppStates {
    fn visit<K: Kind>(&mut self) {
        if K::HAS_SECRETS {
            return;
        }
        let kind = <K::Manifest as kube::Resource>::kind(&()).into_owned();
        let statuses = [
            (json!({}), false),
            (json!({"id": UID}), true),
            (json!({"creating": "0123"}), true),
            (json!({"id": UID, "creating": "0123"}), true),
        ];
        for mode in ["Enforce", "Observe"] {
            for (status, is_made) in &statuses {
                for policy in ["Delete", "Retain"] {
                    let mut manifest = examples::of(&kind);
                    manifest["status"] = status.clone();
                    manifest["spec"]["mode"] = mode.into();
                    manifest["spec"]["deletionPolicy"] = policy.into();
                    let manifest: K::Manifest = serde_json::from_value(manifest).unwrap();
                    let (ledger, leaves) = (K::ledger(&manifest), Leaves::of(&manifest.policy()));
                    let is_deleted = policy == "Delete";
                    let what = format!("{kind} {mode} {policy} {status}");
                    let needs_finalizer = is_deleted && (*is_made || mode == "Enforce");
                    assert_eq!(ledger.needs_finalizer(leaves), needs_finalizer, "{what}");
                    let owed = taken_back(&ledger.owed(leaves));
                    assert_eq!(owed.len(), usize::from(is_deleted && *is_made), "{what}: {owed:?}");
                    let names_id = |it: &Entry| it.name().contains(UID) == K::SHOWS_ID;
                    let is_named = status["id"].is_null() || owed.iter().all(names_id);
                    assert!(is_named, "{what}: {owed:?}");
                }
            }
        }
    }
}

#[test]
fn app_state_manifest_has_a_finalizer_while_its_deletion_has_work() {
    kinds::visit(&mut AppStates);
}

/// The keys `0` to `3` by name, each of them in one of two organizations.
fn held() -> impl Strategy<Value = Held> {
    (0..4_u8, any::<bool>(), any::<bool>()).prop_map(|(number, is_elsewhere, is_ours)| Held {
        name: format!("key-{number}"),
        organization_id: Some(Uuid::from_u128(u128::from(is_elsewhere))),
        is_ours,
        ..Held::default()
    })
}

fn record() -> impl Strategy<Value = Record> {
    let retiring = (held(), any::<bool>());
    let retiring = retiring.prop_map(|(held, lost)| Retiring { held, since: Timestamp::UNIX_EPOCH, lost });
    (option::of(held()), option::of(held()), vec(retiring, 0..3)).prop_map(|(current, intent, retiring)| {
        let intent = intent.map(|it| Intent {
            name: it.name,
            organization_id: it.organization_id,
            ..Intent::default()
        });
        Record { holder: UID.to_owned(), current, intent, retiring, ..Record::default() }
    })
}

/// Keys by name and organization.
fn called(keys: impl IntoIterator<Item = Held>) -> BTreeSet<(String, Option<Uuid>)> {
    keys.into_iter().map(|it| (it.name, it.organization_id)).collect()
}

fn keys_of(entries: &[Entry]) -> Vec<(String, Option<Uuid>)> {
    let key = |it: &Entry| match it {
        Entry::Key { name, organization_id, .. } => Some((name.clone(), *organization_id)),
        _ => None,
    };
    entries.iter().filter_map(key).collect()
}

fn key_manifest(record: &Record, mode: &str, policy: &str) -> CoderProvisionerKey {
    let mut manifest = examples::of("CoderProvisionerKey");
    manifest["metadata"]["uid"] = UID.into();
    manifest["spec"]["mode"] = mode.into();
    manifest["spec"]["deletionPolicy"] = policy.into();
    manifest["status"] = serde_json::to_value(to_status(record)).unwrap();
    serde_json::from_value(manifest).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_key_of_ours_is_taken_back_once_and_no_other(records in vec(record(), 1..3)) {
        let names = Names::new("key", UID);
        let revoked = keys_to_revoke(&HeldKeys { names: &names, records: &records, listed: None });
        let taken = keys_of(&taken_back(&Ledger::new(key_entries(&names, &records))));
        let once: BTreeSet<_> = taken.iter().cloned().collect();
        prop_assert_eq!(once.len(), taken.len(), "{:?}", taken);
        prop_assert_eq!(&once, &called(revoked.into_iter().map(|it| it.held)));
        // By the records themselves: whatever is ours in one of them is in the ledger, or somebody else's key is.
        let of_record = |it: &Record| {
            let minted: Vec<Held> = it.keys().filter(|it| it.is_ours).cloned().collect();
            minted
        };
        for key in called(records.iter().flat_map(of_record)) {
            prop_assert!(once.contains(&key), "{:?} is forgotten", key);
        }
    }

    #[test]
    fn key_manifest_has_a_finalizer_while_its_deletion_has_work(
        record in record(),
        mode in select(vec!["Enforce", "Observe"]),
        policy in select(vec!["Delete", "Retain"]),
    ) {
        let manifest = key_manifest(&record, mode, policy);
        let (ledger, leaves) = (ProvisionerKey::ledger(&manifest), Leaves::of(&manifest.policy()));
        let is_current = |name: &str, organization: Option<Uuid>| {
            record.current.as_ref().is_some_and(|it| it.is_called(name, organization))
        };
        let replaced = record.retiring.iter().map(|it| &it.held);
        let is_replaced = replaced.clone().any(|it| it.is_ours && !is_current(&it.name, it.organization_id));
        let is_lost = record.intent.iter().any(|it| {
            !is_current(&it.name, it.organization_id)
                && !replaced.clone().any(|key| key.is_called(&it.name, it.organization_id))
        });
        let is_held = record.current.iter().any(|it| it.is_ours || replaced.clone().any(|key| {
            key.is_ours && key.is_called(&it.name, it.organization_id)
        }));
        let is_deleted = policy == "Delete" && (mode == "Enforce" || is_held);
        prop_assert_eq!(ledger.needs_finalizer(leaves), is_replaced || is_lost || is_deleted, "{:?}", ledger);
        if policy == "Retain" {
            let taken = keys_of(&taken_back(&ledger.owed(leaves)));
            prop_assert!(!taken.iter().any(|(name, organization)| is_current(name, *organization)));
        }
    }
}

#[test]
fn mint_is_in_the_ledger_before_it_begins() {
    let manifest = key_manifest(&Record { holder: UID.to_owned(), ..Record::default() }, "Enforce", "Retain");
    let (mut ledger, leaves) = (ProvisionerKey::ledger(&manifest), Leaves::of(&manifest.policy()));
    assert!(!ledger.needs_finalizer(leaves), "{ledger:?}");
    ledger.add(Entry::Key { state: KeyState::Lost, name: "alpha".to_owned(), organization_id: None });
    assert!(ledger.needs_finalizer(leaves));
}

#[test]
fn id_without_a_name_is_looked_up_in_other_records() {
    let mut manifest = examples::of("CoderProvisionerKey");
    manifest["spec"]["deletionPolicy"] = "Delete".into();
    manifest["status"] = json!({"id": UID});
    let manifest: CoderProvisionerKey = serde_json::from_value(manifest).unwrap();
    let owed = ProvisionerKey::ledger(&manifest).owed(Leaves::of(&manifest.policy()));
    assert_eq!(owed.entries(), [Entry::UnnamedKeys]);
}

fn provisioner(mode: &str, finalizers: &[&str], status: &Value) -> CoderProvisioner {
    let object = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
        "metadata": {"name": "alpha", "uid": UID, "finalizers": finalizers},
        "spec": {"controlPlaneRef": {"name": "main"}, "mode": mode}, "status": status});
    serde_json::from_value(object).unwrap()
}

#[test]
fn observed_provisioner_keeps_a_finalizer_that_it_has() {
    let needs = |it: &CoderProvisioner| provisioner::ledger::ledger(it).needs_finalizer(Leaves::default());
    assert!(needs(&provisioner("Enforce", &[], &json!({}))));
    assert!(!needs(&provisioner("Observe", &[], &json!({}))));
    assert!(needs(&provisioner("Observe", &[], &json!({"provisionerKeyName": "alpha"}))));
    let supplied = json!({"provisionerKeyName": "alpha", "provisionerKeyIsOurs": false});
    assert!(!needs(&provisioner("Observe", &[], &supplied)));
    // The status may not have the key yet that a mint with a lost answer made.
    assert!(needs(&provisioner("Observe", &[finalizer::PROVISIONER], &json!({}))));
}

fn plane(spec: &Value, status: &Value) -> CoderControlPlane {
    let object = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main", "namespace": "platform", "uid": UID}, "spec": spec, "status": status});
    serde_json::from_value(object).unwrap()
}

#[test]
fn control_plane_takes_back_roles_licences_tokens_and_secrets_in_order() {
    let uploaded =
        json!({"uploaded": [{"slot": "a", "id": 7, "identity": "x", "since": "2026-01-01T00:00:00Z"}]});
    let status = json!({"workspaceNamespaces": ["b", "a"], "licenseRecord": uploaded.to_string()});
    for (spec, has_licence, entries) in [
        (
            json!({"external": {"url": "https://coder.example.com", "credentialsSecretRef": {"name": "token"}},
            "licenseDeletionPolicy": "Retain"}),
            false,
            4,
        ),
        (json!({"image": "coder", "licenseDeletionPolicy": "Delete"}), true, 6),
        (json!({"image": "coder", "licenseDeletionPolicy": "Retain"}), false, 5),
    ] {
        let plane = plane(&spec, &status);
        let (ledger, leaves) = (control_plane::ledger(&plane), control_plane::leaves(&plane));
        assert!(ledger.needs_finalizer(leaves), "its dependents need it");
        let taken = taken_back(&ledger.owed(leaves));
        assert_eq!(taken.len(), entries, "{spec}: {taken:?}");
        assert_eq!(taken[0], Entry::Dependents, "{spec}");
        assert_eq!(taken[1], Entry::Roles(vec!["a".to_owned(), "b".to_owned()]), "{spec}");
        let licence = Entry::Licenses(vec!["7".to_owned()]);
        assert_eq!(taken.contains(&licence), has_licence, "{spec}: {taken:?}");
        let secret = "main-operator-token".to_owned();
        let last = [Entry::Token { secret: secret.clone() }, Entry::SecretFinalizer { secret }];
        assert_eq!(taken[entries - 2..], last, "{spec}");
    }
}

#[test]
fn entries_are_named_in_one_phrase_and_a_secret_after_its_keys() {
    let key = |name: &str, state| Entry::Key { state, name: name.to_owned(), organization_id: None };
    let secret = Entry::KeySecret("alpha-provisioner-key".to_owned());
    let mut ledger =
        Ledger::new([secret.clone(), key("alpha-1a2b-2", KeyState::Held), key("alpha", KeyState::Retiring)]);
    assert_eq!(ledger.in_words().unwrap(), "provisioner keys alpha, alpha-1a2b-2");
    ledger = ledger.without(&[key("alpha-1a2b-2", KeyState::Retiring)]);
    assert_eq!(ledger.in_words().unwrap(), "provisioner key alpha");
    ledger = ledger.without(&[key("Alpha", KeyState::Lost)]);
    assert_eq!(ledger.in_words().unwrap(), "Secret alpha-provisioner-key");
    assert_eq!(ledger.without(&[secret]).in_words(), None);
}
