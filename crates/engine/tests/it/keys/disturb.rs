//! What others do: people, other tools, databases that are restored, manifests that change.

use engine::provisioner_keys::{Names, Owner, Record, SecretPlace, checksum};
use secrecy::SecretString;
use uuid::Uuid;

use super::model::{Row, Shared, Stored, UID, World, place};

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
    let world = &mut *shared.lock().unwrap();
    world.log.push(format!("{disturbance:?}"));
    world.disturbances += 1;
    match disturbance {
        Disturbance::ForeignName => {
            let (name, tags) =
                (world.wanted.names.base.clone(), [("other".to_owned(), String::new())].into());
            world.foreign(&name, &tags, 0);
        }
        Disturbance::DeleteKey => {
            let value = world.value().cloned();
            world.rows.retain(|it| it.is_foreign || Some(&it.value) != value.as_ref());
        }
        Disturbance::RestoreKey => restore(world),
        Disturbance::RestoreSecret(which) => restore_secret(world, which),
        Disturbance::LoseStatus(fields) => lose(&mut world.status, fields, &mut world.status_version),
        Disturbance::Seconds(seconds) => {
            world.now = world.now.checked_add(jiff::SignedDuration::from_secs(seconds.into())).unwrap();
            world.disturbances -= 1;
        }
        Disturbance::Roll => {
            world.roll();
            world.disturbances -= 1;
        }
        Disturbance::Rotate
        | Disturbance::Tags
        | Disturbance::Name
        | Disturbance::Organization
        | Disturbance::Plane
        | Disturbance::Replaced
        | Disturbance::Url
        | Disturbance::RenameSecret
        | Disturbance::RenameEntry => change_manifest(world, disturbance),
        Disturbance::DeleteSecret
        | Disturbance::EmptySecret
        | Disturbance::SpoilSecret
        | Disturbance::TouchSecret
        | Disturbance::LoseRecord
        | Disturbance::OthersValue => change_secret(world, disturbance),
    }
}

fn change_manifest(world: &mut World, disturbance: Disturbance) {
    let number = world.log.len();
    if matches!(disturbance, Disturbance::Name | Disturbance::Plane | Disturbance::Replaced) {
        // What was restored and seen by nobody is not found where nobody looks any more.
        let is_named = |it: &Row| world.is_named(it);
        let unseen: Vec<Uuid> = world.ours().filter(|it| !is_named(it)).map(|it| it.key.id).collect();
        world.rows.retain(|it| !unseen.contains(&it.key.id));
    }
    let wanted = &mut world.wanted;
    match disturbance {
        Disturbance::Rotate => wanted.rotate_request = Some(number.to_string()),
        Disturbance::Tags => wanted.tags = [("cluster".to_owned(), number.to_string())].into(),
        Disturbance::Name => wanted.names = Names::new(&format!("beta{}", number % 3), UID),
        Disturbance::Organization => {
            // It was deleted with everything in it, and is there again.
            let gone = wanted.organization_id;
            world.rows.retain(|it| it.key.organization_id != gone);
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

fn change_secret(world: &mut World, disturbance: Disturbance) {
    let SecretPlace { name, key } = world.wanted.secret.clone();
    let others = world.rows.iter().find(|it| it.is_foreign && it.key.tags == world.wanted.tags);
    let others = others.map(|it| it.value.clone());
    if matches!(disturbance, Disturbance::DeleteSecret | Disturbance::EmptySecret | Disturbance::SpoilSecret)
    {
        forget_unknown(world);
    }
    let Some(secret) = world.secrets.get_mut(&name) else { return };
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
                world.newest = None;
            }
        }
        Disturbance::LoseRecord => secret.record = None,
        Disturbance::DeleteSecret => {
            world.secrets.remove(&name);
        }
        _ => assert_eq!(secret.owner, Owner::Ours),
    }
}

/// A value that is in the Secret and not in the status yet is known to nobody when the Secret goes.
fn forget_unknown(world: &mut World) {
    let known = world.status.current.as_ref().map(|it| it.checksum.clone());
    let newest = world.newest.as_ref().map(|it| checksum(&SecretString::from(it.clone())));
    if known != newest {
        world.newest = None;
    }
}

fn restore_secret(world: &mut World, which: u8) {
    forget_unknown(world);
    let name = world.wanted.secret.name.clone();
    let copies: Vec<&Stored> =
        world.backups.iter().filter(|(of, _)| *of == name).map(|(_, copy)| copy).collect();
    if copies.is_empty() {
        return;
    }
    let mut copy = copies[usize::from(which) % copies.len()].clone();
    // A version that nobody has seen.
    copy.version = 10_000_000 * world.log.len() as u64;
    world.secrets.insert(name, copy);
}

fn restore(world: &mut World) {
    let names = world.wanted.names.clone();
    let (organization, deployment) = (world.wanted.organization_id, world.wanted.place.deployment_id);
    let is_known = |it: &Row| {
        names.is_ours(&it.key.name)
            && it.key.organization_id == organization
            && Some(it.deployment) == deployment
    };
    if let Some(at) = world.deleted.iter().position(is_known) {
        let mut row = world.deleted.remove(at);
        // Its daemons were disconnected when it was revoked. A key that daemons use is not revoked for its name alone.
        row.key.daemons = 0;
        world.rows.push(row);
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
