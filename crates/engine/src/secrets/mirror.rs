//! The record as a status shows it, and back. What a status of coder-k8s says is enough to go on with its key.

use api::{OtherKey, ProvisionerKeyState, SecretKeyRef};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::record::{Held, Intent, Place, Record, Retiring, SecretPlace};

/// What a status knows.
pub fn of_status(state: &ProvisionerKeyState, holder: &str) -> Record {
    let current = text(state.provisioner_key_name.as_ref()).map(|name| Held {
        name,
        id: id(state.provisioner_key_id.as_ref()),
        organization_id: id(state.organization_id.as_ref()),
        organization_name: state.organization_name.clone().unwrap_or_default(),
        tags_hash: state.tags_hash.clone().unwrap_or_default(),
        place: Place {
            control_plane: state.control_plane_ref_name.clone().unwrap_or_default(),
            url: state.control_plane_url.clone().unwrap_or_default(),
            deployment_id: id(state.deployment_id.as_ref()),
        },
        checksum: state.provisioner_key_checksum.clone().unwrap_or_default(),
        is_ours: state.provisioner_key_is_ours.unwrap_or(true),
    });
    Record {
        holder: holder.to_owned(),
        epoch: state.key_epoch.and_then(|it| u64::try_from(it).ok()),
        current,
        intent: state.pending_key.as_ref().map(|it| {
            let Retiring { held, since, .. } = retiring(it);
            let Held { name, organization_id, organization_name, tags_hash, place, .. } = held;
            Intent { name, organization_id, organization_name, tags_hash, place, since }
        }),
        retiring: state.retiring_keys.iter().map(retiring).collect(),
        generation: state.key_generation.and_then(|it| u32::try_from(it).ok()).unwrap_or_default(),
        rotated_at: state.last_rotation_time.as_ref().map(|it| it.0),
        handled_request: state.last_handled_rotate_at.clone(),
        secret: state.secret_ref.as_ref().map(entry),
        former: state.former_secret_refs.iter().map(entry).collect(),
        used: state.used_key_names.clone(),
    }
}

/// What a status says of a record.
pub fn to_status(record: &Record) -> ProvisionerKeyState {
    let Record {
        epoch,
        current,
        intent,
        retiring,
        generation,
        rotated_at,
        handled_request,
        secret,
        former,
        used,
        ..
    } = record;
    let held = current.clone().unwrap_or_default();
    ProvisionerKeyState {
        organization_id: held.organization_id.map(|it| it.to_string()),
        organization_name: text(Some(&held.organization_name)),
        provisioner_key_id: held.id.map(|it| it.to_string()),
        provisioner_key_name: text(Some(&held.name)),
        provisioner_key_is_ours: (current.is_some() && !held.is_ours).then_some(false),
        tags_hash: text(Some(&held.tags_hash)),
        control_plane_ref_name: text(Some(&held.place.control_plane)),
        control_plane_url: text(Some(&held.place.url)),
        deployment_id: held.place.deployment_id.map(|it| it.to_string()),
        secret_ref: secret.as_ref().map(reference),
        provisioner_key_checksum: text(Some(&held.checksum)),
        pending_key: intent.as_ref().map(|it| other(&it.held(), it.since, false)),
        retiring_keys: retiring.iter().map(|it| other(&it.held, it.since, it.lost)).collect(),
        former_secret_refs: former.iter().map(reference).collect(),
        used_key_names: used.clone(),
        key_generation: (*generation > 0).then(|| i64::from(*generation)),
        key_epoch: epoch.and_then(|it| i64::try_from(it).ok()),
        last_rotation_time: rotated_at.map(Time),
        last_handled_rotate_at: handled_request.clone(),
    }
}

/// The fields of a stored status that a record changes, for a merge. `None` where the status has a newer record: no write
/// lowers the epoch.
pub fn advanced(stored: &ProvisionerKeyState, record: &Record) -> Option<Map<String, Value>> {
    let is_newer = of_status(stored, "").rank() > record.rank();
    (!is_newer).then(|| changed(stored, &to_status(record)))
}

/// The fields of a status that differ, for a merge: what is no longer there is null.
pub fn changed(before: &ProvisionerKeyState, next: &ProvisionerKeyState) -> Map<String, Value> {
    let fields = |state: &ProvisionerKeyState| match serde_json::to_value(state) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (before, next) = (fields(before), fields(next));
    let gone = before.keys().filter(|it| !next.contains_key(*it)).map(|it| (it.clone(), Value::Null));
    let others = next.iter().filter(|(field, value)| before.get(*field) != Some(value));
    others.map(|(field, value)| (field.clone(), value.clone())).chain(gone).collect()
}

fn retiring(key: &OtherKey) -> Retiring {
    let held = Held {
        name: key.name.clone(),
        id: id(key.id.as_ref()),
        organization_id: id(key.organization_id.as_ref()),
        organization_name: key.organization_name.clone().unwrap_or_default(),
        tags_hash: key.tags_hash.clone().unwrap_or_default(),
        place: Place {
            control_plane: key.control_plane_ref_name.clone().unwrap_or_default(),
            url: key.control_plane_url.clone().unwrap_or_default(),
            deployment_id: id(key.deployment_id.as_ref()),
        },
        checksum: key.checksum.clone().unwrap_or_default(),
        is_ours: key.is_ours,
    };
    Retiring { held, since: key.since.0, lost: key.lost.unwrap_or_default() }
}

fn other(held: &Held, since: Timestamp, lost: bool) -> OtherKey {
    OtherKey {
        name: held.name.clone(),
        id: held.id.map(|it| it.to_string()),
        organization_id: held.organization_id.map(|it| it.to_string()),
        organization_name: text(Some(&held.organization_name)),
        control_plane_ref_name: text(Some(&held.place.control_plane)),
        control_plane_url: text(Some(&held.place.url)),
        deployment_id: held.place.deployment_id.map(|it| it.to_string()),
        since: Time(since),
        is_ours: held.is_ours,
        checksum: text(Some(&held.checksum)),
        tags_hash: text(Some(&held.tags_hash)),
        lost: lost.then_some(true),
    }
}

fn entry(reference: &SecretKeyRef) -> SecretPlace {
    SecretPlace { name: reference.name.clone(), key: reference.key.clone().unwrap_or_default() }
}

fn reference(place: &SecretPlace) -> SecretKeyRef {
    SecretKeyRef { name: place.name.clone(), key: text(Some(&place.key)) }
}

fn id(text: Option<&String>) -> Option<Uuid> {
    text?.parse().ok()
}

/// Nothing for an empty text: a field that says nothing is left out.
fn text(text: Option<&String>) -> Option<String> {
    text.filter(|it| !it.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_gives_back_the_record_that_it_was_made_of() {
        let place = Place {
            control_plane: "main".to_owned(),
            url: "https://coder.example.com".to_owned(),
            deployment_id: Some(Uuid::from_u128(7)),
        };
        // A status keeps whole seconds.
        let since = Timestamp::from_second(1_700_000_000).unwrap();
        let held = |name: &str| Held {
            name: name.to_owned(),
            id: Some(Uuid::from_u128(1)),
            organization_id: Some(Uuid::from_u128(2)),
            organization_name: "alpha".to_owned(),
            tags_hash: "811c9dc5".to_owned(),
            place: place.clone(),
            checksum: "bf9cf968".to_owned(),
            is_ours: true,
        };
        let lost = Held { id: None, checksum: String::new(), ..held("c") };
        let entry = |name: &str| SecretPlace { name: name.to_owned(), key: "key".to_owned() };
        let record = Record {
            holder: "uid".to_owned(),
            epoch: Some(9),
            current: Some(Held { is_ours: false, ..held("a") }),
            intent: Some(Intent {
                name: "b".to_owned(),
                organization_id: Some(Uuid::from_u128(2)),
                organization_name: "alpha".to_owned(),
                tags_hash: "811c9dc5".to_owned(),
                place: place.clone(),
                since,
            }),
            retiring: vec![
                Retiring { held: held("d"), since, lost: false },
                Retiring { held: lost, since, lost: true },
            ],
            generation: 3,
            rotated_at: Some(since),
            handled_request: Some("now".to_owned()),
            secret: Some(entry("one")),
            former: vec![entry("two")],
            used: vec!["a".to_owned()],
        };
        let state: ProvisionerKeyState =
            serde_json::from_value(serde_json::to_value(to_status(&record)).unwrap()).unwrap();
        assert_eq!(of_status(&state, "uid"), record);
    }

    #[test]
    fn a_status_of_coder_k8s_names_its_key() {
        let state = json!({"organizationID": Uuid::from_u128(2), "organizationName": "default", "tagsHash": "811c9dc5",
            "provisionerKeyID": Uuid::from_u128(1), "provisionerKeyName": "alpha", "controlPlaneRefName": "main",
            "controlPlaneURL": "http://main.coder.svc.cluster.local:80", "secretRef": {"name": "s", "key": "key"}});
        let record = of_status(&serde_json::from_value(state).unwrap(), "uid");
        let current = record.current.unwrap();
        assert!(current.is_ours && current.name == "alpha" && current.id == Some(Uuid::from_u128(1)));
        assert_eq!(record.secret.unwrap().name, "s");
        assert_eq!(of_status(&ProvisionerKeyState::default(), "uid").current, None);
    }
}
