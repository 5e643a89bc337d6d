//! Keys of provisioner daemons, shown once, and the daemons that connected with them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, internal_unauthorized, not_found},
    call::{Call, NEVER},
    ids::hashed,
    rights::Right,
    state::{Daemon, ProvisionerKey, State},
};

pub(crate) const KEY_HEADER: &str = "coder-provisioner-daemon-key";
pub(crate) const KEY_LENGTH: usize = 43;
const LONGEST_NAME: usize = 64;
/// The keys that coderd has for itself, in the order in which they are listed.
const RESERVED: [(&str, u128); 3] = [("built-in", 1), ("psk", 3), ("user-auth", 2)];
const USER_AUTH: Uuid = Uuid::from_u128(2);
/// A daemon that was not seen for longer is not listed.
const RECENTLY: SignedDuration = SignedDuration::from_mins(3);

/// The keys that coderd has for itself; only the default organization has them all.
pub(crate) fn reserved(organization: Uuid, now: Timestamp) -> BTreeMap<Uuid, ProvisionerKey> {
    let key = |(index, (name, id)): (usize, &(&str, u128))| {
        let id = Uuid::from_u128(*id);
        let key = ProvisionerKey {
            id,
            number: u64::try_from(index).unwrap_or_default(),
            organization_id: organization,
            name: (*name).to_owned(),
            tags: BTreeMap::new(),
            secret: String::new(),
            created_at: now,
        };
        (id, key)
    };
    RESERVED.iter().enumerate().map(key).collect()
}

/// Whether the caller sees the keys of the organization of the path. For others the list is empty.
fn is_readable(call: &Call<'_>) -> Result<bool, Answer> {
    let is_member = call.organization()?.members.contains_key(&call.caller);
    Ok(is_member || call.may(Right::ReadProvisionerKeys))
}

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    let is_readable = is_readable(call)?;
    let mut daemons: BTreeMap<Uuid, Vec<Value>> = BTreeMap::new();
    let recent =
        call.state.daemons.values().filter(|it| call.now.duration_since(it.last_seen_at) <= RECENTLY);
    for daemon in recent {
        daemons.entry(daemon.key_id).or_default().push(shown_daemon(daemon));
    }
    let mut keys: Vec<&ProvisionerKey> = call
        .state
        .provisioner_keys
        .values()
        .filter(|it| it.organization_id == organization && is_readable)
        .collect();
    keys.sort_by_key(|it| it.number);
    let mut listed: Vec<Value> = keys
        .iter()
        .map(|it| json!({"key": shown(it), "daemons": daemons.remove(&it.id).unwrap_or_default()}))
        .collect();
    if !keys.iter().any(|it| it.id == USER_AUTH) {
        let key = json!({"id": USER_AUTH, "created_at": NEVER, "organization": organization, "name": "user-auth", "tags": {}});
        listed.push(json!({"key": key, "daemons": []}));
    }
    Ok(Answer::ok(json!(listed)))
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    let fields = call.fields("CreateProvisionerKeyRequest")?;
    let name = fields.plain("name")?;
    let tags = fields.text_map("tags")?;
    let refused = |message: String| Err(Answer::message(400, message.clone()).field("name", message));
    if name.is_empty() {
        return refused("Name is required".to_owned());
    }
    if name.len() > LONGEST_NAME {
        return refused(format!("Name must be at most {LONGEST_NAME} characters"));
    }
    if RESERVED.iter().any(|(it, _)| it.eq_ignore_ascii_case(&name)) {
        return refused(format!("Name cannot be reserved name '{name}'"));
    }
    if !call.may(Right::ManageProvisionerKeys) {
        return Err(internal_unauthorized());
    }
    let stored_name = name.to_ascii_lowercase();
    if named(call.state, organization, &stored_name).is_some() {
        let message = format!("Provisioner key with name '{name}' already exists in organization");
        return Err(Answer::message(409, message));
    }
    let id = call.ids().uuid();
    let value = call.ids().key();
    let key = ProvisionerKey {
        id,
        number: call.state.issued,
        organization_id: organization,
        name: stored_name,
        tags,
        secret: hashed(&value),
        created_at: call.now,
    };
    call.changed("provisioner_key", (id, &key.name), Value::Null, shown(&key));
    call.state.provisioner_keys.insert(id, key);
    Ok(Answer::created(json!({"key": value})))
}

fn named<'a>(state: &'a State, organization: Uuid, name: &str) -> Option<&'a ProvisionerKey> {
    let mut keys = state.provisioner_keys.values();
    keys.find(|it| it.organization_id == organization && it.name == name)
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    let is_readable = is_readable(call)?;
    let name = call.parameter("provisionerkey").to_ascii_lowercase();
    let key = named(call.state, organization, &name).filter(|_| is_readable).ok_or_else(not_found)?;
    let id = key.id;
    let before = shown(key);
    if RESERVED.iter().any(|(it, _)| *it == name) {
        return Err(Answer::message(400, format!("Cannot delete reserved '{name}' provisioner key")));
    }
    if !call.may(Right::ManageProvisionerKeys) {
        return Err(internal_unauthorized());
    }
    call.state.provisioner_keys.remove(&id);
    call.state.daemons.retain(|_, it| it.key_id != id);
    call.changed("provisioner_key", (id, &name), before, Value::Null);
    Ok(Answer::empty(204))
}

/// Shows the key whose value the request carries.
pub(crate) fn prove(call: &mut Call<'_>) -> Handled {
    let value = call.headers.get(KEY_HEADER).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if value.is_empty() {
        return Err(Answer::message(401, "provisioner daemon key required"));
    }
    let invalid = "provisioner daemon key invalid";
    if value.len() != KEY_LENGTH {
        let detail = format!("must be {KEY_LENGTH} characters");
        return Err(Answer::message(400, invalid).detail(detail));
    }
    let key = by_value(call.state, value).ok_or_else(|| Answer::message(401, invalid))?;
    Ok(Answer::ok(shown(key)))
}

pub(crate) fn by_value<'a>(state: &'a State, value: &str) -> Option<&'a ProvisionerKey> {
    let secret = hashed(value);
    state.provisioner_keys.values().find(|it| it.secret == secret)
}

/// A daemon that connects.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    /// The value of the key.
    pub(crate) value: &'a str,
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    pub(crate) api_version: String,
    pub(crate) provisioners: Vec<String>,
}

impl<'a> Connection<'a> {
    /// A daemon as Coder ships it.
    pub(crate) fn of_terraform(value: &'a str, name: &'a str, version: &'a str) -> Self {
        let (api_version, provisioners) = ("1.18".to_owned(), vec!["terraform".to_owned()]);
        Self { value, name, version, api_version, provisioners }
    }
}

/// Stores a daemon that connects with a key, and returns its id. One of the same name in the organization is the same daemon.
pub(crate) fn connect(
    state: &mut State,
    id: Uuid,
    connection: Connection<'_>,
    now: Timestamp,
) -> Option<Uuid> {
    let Connection { value, name, version, api_version, provisioners } = connection;
    let key = by_value(state, value)?;
    let key_id = key.id;
    let organization_id = key.organization_id;
    // coderd drops tags without a value and adds its own two.
    let mut tags: BTreeMap<String, String> = key.tags.clone();
    tags.retain(|_, value| !value.is_empty());
    tags.entry("scope".to_owned()).or_insert_with(|| "organization".to_owned());
    tags.insert("owner".to_owned(), String::new());
    let known = state.daemons.values().find(|it| it.organization_id == organization_id && it.name == name);
    let (id, created_at) = known.map_or((id, now), |it| (it.id, it.created_at));
    let daemon = Daemon {
        id,
        organization_id,
        key_id,
        name: name.to_owned(),
        version: version.to_owned(),
        api_version,
        provisioners,
        tags,
        created_at,
        last_seen_at: now,
    };
    state.daemons.insert(id, daemon);
    Some(id)
}

fn shown(key: &ProvisionerKey) -> Value {
    json!({
        "id": key.id,
        "created_at": key.created_at,
        "organization": key.organization_id,
        "name": key.name,
        "tags": key.tags,
    })
}

fn shown_daemon(daemon: &Daemon) -> Value {
    json!({
        "id": daemon.id,
        "organization_id": daemon.organization_id,
        "key_id": daemon.key_id,
        "created_at": daemon.created_at,
        "last_seen_at": daemon.last_seen_at,
        "name": daemon.name,
        "version": daemon.version,
        "api_version": daemon.api_version,
        "provisioners": daemon.provisioners,
        "tags": daemon.tags,
        "key_name": null,
        "status": null,
        "current_job": null,
        "previous_job": null,
    })
}
