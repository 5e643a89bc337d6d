//! What others do: people, other tools, databases that are restored, manifests that change.

use engine::secrets::{Names, Record, SecretPlace, checksum};
use secrecy::SecretString;
use uuid::Uuid;

use super::{
    model::{Model, Row, Shared, UID, place},
    secret::{is_owned, set_entry, set_record},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// Somebody has a key of the declared name.
    ForeignName,
    Rotate,
    Tags,
    Name,
    Organization,
    Plane,
    /// Another deployment answers for the same control plane.
    Replaced,
    Url,
    DeleteSecret,
    EmptySecret,
    SpoilSecret,
    /// Somebody writes another label to the Secret.
    TouchSecret,
    DeleteKey,
    /// A key is back that we revoked.
    RestoreKey,
    LoseRecord,
    /// The fields of the status that have a bit here.
    LoseStatus(u8),
    RenameSecret,
    RenameEntry,
    /// The value in the Secret is replaced by that of a key of somebody else, which would do.
    OthersValue,
    /// The Secret is replaced by an older copy of itself: which of all of them.
    RestoreSecret(u8),
    Seconds(u32),
    Roll,
}

pub(crate) fn disturb(shared: &Shared, disturbance: Disturbance) {
    let model = &mut *shared.lock().unwrap();
    model.log.push(format!("{disturbance:?}"));
    model.disturbances += 1;
    match disturbance {
        Disturbance::ForeignName => {
            let name = model.wanted.names.base.clone();
            model.foreign(&name, &[("other".to_owned(), String::new())].into(), false);
        }
        Disturbance::DeleteKey => {
            let value = model.value();
            model.lose_keys(|it| !it.is_foreign && Some(&it.value) == value.as_ref());
        }
        Disturbance::RestoreKey => restore(model),
        Disturbance::RestoreSecret(which) => restore_secret(model, which),
        Disturbance::LoseStatus(fields) => {
            let mut status = model.status();
            lose(&mut status, fields);
            model.set_status(&status);
        }
        Disturbance::Seconds(seconds) => {
            model.advance(jiff::SignedDuration::from_secs(seconds.into()));
            model.disturbances -= 1;
        }
        Disturbance::Roll => {
            model.roll();
            model.disturbances -= 1;
        }
        Disturbance::Rotate
        | Disturbance::Tags
        | Disturbance::Name
        | Disturbance::Organization
        | Disturbance::Plane
        | Disturbance::Replaced
        | Disturbance::Url
        | Disturbance::RenameSecret
        | Disturbance::RenameEntry => change_manifest(model, disturbance),
        Disturbance::DeleteSecret
        | Disturbance::EmptySecret
        | Disturbance::SpoilSecret
        | Disturbance::TouchSecret
        | Disturbance::LoseRecord
        | Disturbance::OthersValue => change_secret(model, disturbance),
    }
}

fn change_manifest(model: &mut Model, disturbance: Disturbance) {
    let number = model.log.len();
    if matches!(disturbance, Disturbance::Name | Disturbance::Plane | Disturbance::Replaced) {
        // What was restored and seen by nobody is not found where nobody looks any more.
        let unseen: Vec<Uuid> = model.unnamed().map(|it| it.key.id).collect();
        model.lose_keys(|it| unseen.contains(&it.key.id));
    }
    let wanted = &mut model.wanted;
    match disturbance {
        Disturbance::Rotate => wanted.rotate_request = Some(number.to_string()),
        Disturbance::Tags => wanted.tags = [("cluster".to_owned(), number.to_string())].into(),
        Disturbance::Name => wanted.names = Names::new(&format!("beta{}", number % 3), UID),
        Disturbance::Organization => model.replace_organization(Uuid::from_u128(100 + number as u128)),
        Disturbance::Plane => {
            let is_main = wanted.place.control_plane == "main";
            wanted.place = if is_main { place("other", 2) } else { place("main", 1) };
        }
        Disturbance::Replaced => {
            wanted.place.deployment_id = Some(Uuid::from_u128(10 + number as u128));
        }
        Disturbance::Url => wanted.place.url = format!("https://{number}.example.com"),
        Disturbance::RenameSecret => wanted.secret.name = format!("renamed-{number}"),
        _ => wanted.secret.key = format!("entry-{number}"),
    }
}

fn change_secret(model: &mut Model, disturbance: Disturbance) {
    let SecretPlace { name, key } = model.wanted.secret.clone();
    let others = model.rows.iter().find(|it| it.is_foreign && it.key.tags == model.wanted.tags);
    let others = others.map(|it| it.value.clone());
    if matches!(disturbance, Disturbance::DeleteSecret | Disturbance::EmptySecret | Disturbance::SpoilSecret)
    {
        forget_unknown(model);
    }
    let Some(mut secret) = model.secret() else { return };
    match disturbance {
        Disturbance::EmptySecret => set_entry(&mut secret, &key, None),
        Disturbance::SpoilSecret => set_entry(&mut secret, &key, Some(&"x".repeat(43))),
        Disturbance::OthersValue => {
            if let Some(value) = others {
                set_entry(&mut secret, &key, Some(&value));
                model.newest = None;
            }
        }
        Disturbance::LoseRecord => set_record(&mut secret, None),
        Disturbance::DeleteSecret => return model.cluster.remove("Secret", &name),
        _ => assert!(is_owned(&secret, UID)),
    }
    model.cluster.set(&secret);
}

/// A value that is in the Secret and not in the status yet is known to nobody when the Secret goes.
fn forget_unknown(model: &mut Model) {
    let known = model.status().current.map(|it| it.checksum);
    let newest = model.newest.as_ref().map(|it| checksum(&SecretString::from(it.clone())));
    if known != newest {
        model.newest = None;
    }
}

fn restore_secret(model: &mut Model, which: u8) {
    forget_unknown(model);
    let name = model.wanted.secret.name.as_str();
    let mut copies = model.backups.iter().filter(|it| it["metadata"]["name"] == name);
    let count = copies.clone().count();
    if count > 0
        && let Some(copy) = copies.nth(usize::from(which) % count)
    {
        model.cluster.set(copy);
    }
}

fn restore(model: &mut Model) {
    let names = model.wanted.names.clone();
    let (organization, deployment) = (model.wanted.organization_id, model.wanted.place.deployment_id);
    let is_known = |it: &Row| {
        names.is_ours(&it.key.name)
            && it.key.organization_id == organization
            && Some(it.deployment) == deployment
    };
    if let Some(at) = model.deleted.iter().position(is_known) {
        // Its daemons were disconnected when it was revoked. A key that daemons use is not revoked for its name alone.
        let row = model.deleted.remove(at);
        model.put_back(row);
    }
}

fn lose(status: &mut Record, fields: u8) {
    let none = Record::default();
    let has = |bit: u8| fields & (1 << bit) != 0;
    if has(0) {
        status.current.clone_from(&none.current);
    }
    if has(1) {
        status.intent.clone_from(&none.intent);
    }
    if has(2) {
        status.retiring.clone_from(&none.retiring);
    }
    if has(3) {
        (status.generation, status.epoch) = (none.generation, none.epoch);
    }
    if has(4) {
        status.rotated_at = none.rotated_at;
    }
    if has(5) {
        status.handled_request.clone_from(&none.handled_request);
    }
    if has(6) {
        status.secret.clone_from(&none.secret);
    }
    if has(7) {
        (status.used, status.former) = (none.used, none.former);
    }
}
