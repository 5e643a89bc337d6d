//! What is done to keys, as steps of a plan: in names, without a value.

use serde_json::Value;

use super::{record::SecretPlace, situation::Wanted};
use crate::{
    pipeline::plan::{Action, Change, Impact, Step},
    secrets::preview::{Act, Before},
};

/// The step that an act is.
pub(crate) fn step<E>(act: &Act, wanted: &Wanted, effect: E) -> Step<E> {
    let Wanted { organization_name, tags, secret, .. } = wanted;
    let made = |field: &str, value: &str| Change::new(field, Value::Null, value);
    let SecretPlace { name: secret_name, key: secret_key } = secret;
    let (action, impact, reason, changes) = match act {
        Act::Mint { before: None, name, .. } => {
            let mut changes = vec![
                made("name", name),
                made("organization", organization_name),
                made("secretName", secret_name),
                made("secretKey", secret_key),
            ];
            let tags = serde_json::to_value(tags).unwrap_or(Value::Null);
            changes.push(Change::new("tags", Value::Null, tags));
            let reason = format!("a key named {name} is created and written into Secret {secret_name}");
            (Action::Create, Impact::Safe, reason, changes)
        }
        Act::Mint { need, before: Some(before), name } => {
            let reason = format!(
                "a key named {name} is created and written into Secret {secret_name}, because {}; {before} stays valid until \
                 the overlap is over",
                need.words(),
                before = before.name
            );
            let changes = replaced(before, name, wanted);
            (Action::Update, Impact::Disruptive, reason, changes)
        }
        Act::Move { from } => {
            let before = |part: fn(&SecretPlace) -> &String| {
                from.as_ref().map_or(Value::Null, |it| Value::from(part(it).as_str()))
            };
            let changes = vec![
                Change::new("secretName", before(|it| &it.name), secret_name.as_str()),
                Change::new("secretKey", before(|it| &it.key), secret_key.as_str()),
            ];
            let changes = changes.into_iter().filter(|it| it.before != it.after).collect();
            let reason = format!("the value is written into Secret {secret_name}; the old entry is kept");
            (Action::Update, Impact::Disruptive, reason, changes)
        }
        Act::Note => {
            let reason = format!("the key's record is written to Secret {secret_name}");
            (Action::Update, Impact::Upkeep, reason, Vec::new())
        }
        Act::Revoke(held) => {
            let reason = format!("key {} is revoked: another key has replaced it", held.name);
            let changes = vec![revoked(&held.name)];
            (Action::Delete, Impact::Upkeep, reason, changes)
        }
    };
    Step { action, impact, reason, changes, effect }
}

/// Everything in which a key differs from the one that takes its place: what is approved is that key and no other.
fn replaced(before: &Before, name: &str, wanted: &Wanted) -> Vec<Change> {
    let Before { name: former, organization: (id, organization), tags, secret } = before;
    let mut changes = vec![Change::new("name", former.as_str(), name)];
    if tags.as_ref() != Some(&wanted.tags) {
        let shown = |it: Option<&_>| serde_json::to_value(it).unwrap_or(Value::Null);
        changes.push(Change::new("tags", shown(tags.as_ref()), shown(Some(&wanted.tags))));
    }
    if let Some(secret) = secret {
        changes.push(Change::new("secretName", secret.name.as_str(), wanted.secret.name.as_str()));
        changes.push(Change::new("secretKey", secret.key.as_str(), wanted.secret.key.as_str()));
    }
    changes.retain(|it| it.before != it.after);
    if *id != Some(wanted.organization_id) {
        let after = wanted.organization_name.as_str();
        changes.push(Change::new("organization", organization.as_str(), after));
    }
    changes
}

pub(crate) fn revoked(name: &str) -> Change {
    Change::new(&format!("keys.{name}"), "valid", "revoked")
}
