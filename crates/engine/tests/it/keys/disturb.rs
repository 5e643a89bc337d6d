//! What others do: people, other tools, databases that are restored, manifests that change.

use engine::secrets::{Names, Owner, Record, SecretPlace, checksum};
use secrecy::SecretString;
use uuid::Uuid;

use super::model::{Coder, Row, Shared, Stored, UID, place};

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
    let coder = &mut *shared.lock().unwrap();
    coder.log.push(format!("{disturbance:?}"));
    coder.disturbances += 1;
    match disturbance {
        Disturbance::ForeignName => {
            let (name, tags) =
                (coder.wanted.names.base.clone(), [("other".to_owned(), String::new())].into());
            coder.foreign(&name, &tags, 0);
        }
        Disturbance::DeleteKey => {
            let value = coder.value().cloned();
            coder.rows.retain(|it| it.is_foreign || Some(&it.value) != value.as_ref());
        }
        Disturbance::RestoreKey => restore(coder),
        Disturbance::RestoreSecret(which) => restore_secret(coder, which),
        Disturbance::LoseStatus(fields) => lose(&mut coder.status, fields, &mut coder.status_version),
        Disturbance::Seconds(seconds) => {
            coder.now = coder.now.checked_add(jiff::SignedDuration::from_secs(seconds.into())).unwrap();
            coder.disturbances -= 1;
        }
        Disturbance::Roll => {
            coder.roll();
            coder.disturbances -= 1;
        }
        Disturbance::Rotate
        | Disturbance::Tags
        | Disturbance::Name
        | Disturbance::Organization
        | Disturbance::Plane
        | Disturbance::Replaced
        | Disturbance::Url
        | Disturbance::RenameSecret
        | Disturbance::RenameEntry => change_manifest(coder, disturbance),
        Disturbance::DeleteSecret
        | Disturbance::EmptySecret
        | Disturbance::SpoilSecret
        | Disturbance::TouchSecret
        | Disturbance::LoseRecord
        | Disturbance::OthersValue => change_secret(coder, disturbance),
    }
}

fn change_manifest(coder: &mut Coder, disturbance: Disturbance) {
    let number = coder.log.len();
    if matches!(disturbance, Disturbance::Name | Disturbance::Plane | Disturbance::Replaced) {
        // What was restored and seen by nobody is not found where nobody looks any more.
        let is_named = |it: &Row| coder.is_named(it);
        let unseen: Vec<Uuid> = coder.ours().filter(|it| !is_named(it)).map(|it| it.key.id).collect();
        coder.rows.retain(|it| !unseen.contains(&it.key.id));
    }
    let wanted = &mut coder.wanted;
    match disturbance {
        Disturbance::Rotate => wanted.rotate_request = Some(number.to_string()),
        Disturbance::Tags => wanted.tags = [("cluster".to_owned(), number.to_string())].into(),
        Disturbance::Name => wanted.names = Names::new(&format!("beta{}", number % 3), UID),
        Disturbance::Organization => {
            // It was deleted with everything in it, and is there again.
            let gone = wanted.organization_id;
            coder.rows.retain(|it| it.key.organization_id != gone);
            wanted.organization_id = Uuid::from_u128(100 + number as u128);
        }
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

fn change_secret(coder: &mut Coder, disturbance: Disturbance) {
    let SecretPlace { name, key } = coder.wanted.secret.clone();
    let others = coder.rows.iter().find(|it| it.is_foreign && it.key.tags == coder.wanted.tags);
    let others = others.map(|it| it.value.clone());
    if matches!(disturbance, Disturbance::DeleteSecret | Disturbance::EmptySecret | Disturbance::SpoilSecret)
    {
        forget_unknown(coder);
    }
    let Some(secret) = coder.secrets.get_mut(&name) else { return };
    secret.version += 100_000;
    match disturbance {
        Disturbance::EmptySecret => {
            secret.data.remove(&key);
        }
        Disturbance::SpoilSecret => {
            secret.data.insert(key, "spoilt".to_owned());
        }
        Disturbance::OthersValue => {
            if let Some(value) = others {
                secret.data.insert(key, value);
                coder.newest = None;
            }
        }
        Disturbance::LoseRecord => secret.record = None,
        Disturbance::DeleteSecret => {
            coder.secrets.remove(&name);
        }
        _ => assert_eq!(secret.owner, Owner::Ours),
    }
}

/// A value that is in the Secret and not in the status yet is known to nobody when the Secret goes.
fn forget_unknown(coder: &mut Coder) {
    let known = coder.status.current.as_ref().map(|it| it.checksum.clone());
    let newest = coder.newest.as_ref().map(|it| checksum(&SecretString::from(it.clone())));
    if known != newest {
        coder.newest = None;
    }
}

fn restore_secret(coder: &mut Coder, which: u8) {
    forget_unknown(coder);
    let name = coder.wanted.secret.name.clone();
    let copies: Vec<&Stored> =
        coder.backups.iter().filter(|(of, _)| *of == name).map(|(_, copy)| copy).collect();
    if copies.is_empty() {
        return;
    }
    let mut copy = copies[usize::from(which) % copies.len()].clone();
    // A version that nobody has seen.
    copy.version = 10_000_000 * coder.log.len() as u64;
    coder.secrets.insert(name, copy);
}

fn restore(coder: &mut Coder) {
    let names = coder.wanted.names.clone();
    let (organization, deployment) = (coder.wanted.organization_id, coder.wanted.place.deployment_id);
    let is_known = |it: &Row| {
        names.is_ours(&it.key.name)
            && it.key.organization_id == organization
            && Some(it.deployment) == deployment
    };
    if let Some(at) = coder.deleted.iter().position(is_known) {
        let mut row = coder.deleted.remove(at);
        // Its daemons were disconnected when it was revoked. A key that daemons use is not revoked for its name alone.
        row.key.daemons = 0;
        coder.rows.push(row);
    }
}

fn lose(status: &mut Record, fields: u8, version: &mut u64) {
    *version += 1;
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
