//! What is revoked when the manifest goes: every key that is ours, wherever we know it from.

use super::{
    names::Names,
    record::{Held, Place, Record, Retiring},
    situation::LiveKey,
};
use crate::pipeline::ledger::{Entry, KeyState};

/// What is known at the end.
#[derive(Debug, Clone, Copy)]
pub struct HeldKeys<'a> {
    pub names: &'a Names,
    /// Every copy of the record that could be found: in Secrets, in the status, in this process.
    pub records: &'a [Record],
    /// The keys of the organization, where they could be read, and where they live.
    pub listed: Option<(&'a [LiveKey], &'a Place)>,
}

/// Pure: the keys to revoke, in this order; each at its own place, and only if it is still the one that is meant. What may
/// be lost goes first, the one in use last. Doing it again after a crash does nothing twice.
pub fn keys_to_revoke(ending: &HeldKeys<'_>) -> Vec<Retiring> {
    let HeldKeys { names, records, listed } = ending;
    let is_own = |it: &&Record| it.holder.is_empty() || it.holder == names.uid;
    let records: Vec<&Record> = records.iter().filter(is_own).collect();
    let mut steps: Vec<Retiring> = Vec::new();
    let mut add = |step: Retiring| {
        if !step.held.is_ours || step.held.name.is_empty() {
            return;
        }
        match steps.iter_mut().find(|it| it.held.may_be(&step.held)) {
            // Not every copy of a record knows the id.
            Some(known) => known.held.id = known.held.id.or(step.held.id),
            None => steps.push(step),
        }
    };
    for record in &records {
        for retiring in &record.retiring {
            add(retiring.clone());
        }
    }
    for intent in records.iter().filter_map(|it| it.intent.as_ref()) {
        // One that was written as the current key by now is not lost.
        let is_current =
            |it: &&Record| it.keys().any(|held| held.is_called(&intent.name, intent.organization_id));
        if !records.iter().any(is_current) {
            add(Retiring { held: intent.held(), since: intent.since, lost: true });
        }
    }
    for held in records.iter().filter_map(|it| it.current.as_ref()) {
        add(Retiring { held: held.clone(), ..Retiring::default() });
    }
    for (key, place) in listed.iter().flat_map(|(keys, place)| keys.iter().map(move |key| (key, place))) {
        let is_known = |it: &&Record| it.names_key(&key.name, Some(key.organization_id));
        if names.is_ours(&key.name) && key.daemons == 0 && !records.iter().any(is_known) {
            let held = Held {
                name: key.name.clone(),
                id: key.id,
                organization_id: Some(key.organization_id),
                place: (*place).clone(),
                is_ours: true,
                ..Held::default()
            };
            add(Retiring { held, ..Retiring::default() });
        }
    }
    steps
}

/// Pure: the same keys as entries of a ledger. The key in use is that of the newest record, which comes first.
pub fn key_entries(names: &Names, records: &[Record]) -> Vec<Entry> {
    let current = records.iter().find_map(|it| it.current.as_ref());
    let keys = keys_to_revoke(&HeldKeys { names, records, listed: None });
    let entry = |Retiring { held, lost, .. }: Retiring| {
        let is_current = current.is_some_and(|it| it.is_called(&held.name, held.organization_id));
        let state = match (is_current, lost) {
            (true, _) => KeyState::Held,
            (false, true) => KeyState::Lost,
            (false, false) => KeyState::Retiring,
        };
        key_entry(&held, state)
    };
    keys.into_iter().map(entry).collect()
}

/// A key as an entry of a ledger.
pub fn key_entry(held: &Held, state: KeyState) -> Entry {
    Entry::Key { state, name: held.name.clone(), organization_id: held.organization_id }
}
