//! What we know about our keys. It is an annotation of the Secret with the value, and its mirror is the object's status.
//!
//! Nothing of it is secret. Every field may be missing: people edit annotations, and a status may come from coder-k8s.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Everything that is written down about the keys of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The uid of the object that all of this is for. A copy of the Secret elsewhere is not a record of somebody else.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub holder: String,
    /// The number of the write that left this copy; see [`Record::epoch`]. `None` in records of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The key whose value is in the Secret, or was last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<Held>,
    /// The key that is about to be minted, or was minted and lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// Keys that are to be revoked. Nothing is revoked that does not stand here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retiring: Vec<Retiring>,
    /// Of the last name that was given; counts up and never back.
    pub generation: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotated_at: Option<Timestamp>,
    /// The last value of the annotation that asks for a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handled_request: Option<String>,
    /// Where the value was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretPlace>,
    /// Where it was before, as long as pods may read it there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<SecretPlace>,
    /// Names without a suffix that we have given. None is given twice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<String>,
}

/// A key that was minted, without its value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Held {
    pub name: String,
    /// Nothing until coderd has told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    #[serde(rename = "organizationID", skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<Uuid>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub organization_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tags_hash: String,
    pub place: Place,
    /// Of the value; what pods carry. Empty when it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub checksum: String,
    /// Whether we minted it. What we did not mint is used and never revoked.
    pub is_ours: bool,
}

/// A key that is about to be minted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Intent {
    pub name: String,
    #[serde(rename = "organizationID", skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<Uuid>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub organization_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tags_hash: String,
    pub place: Place,
    /// When somebody last set out to mint it. A key of that name from another time is somebody else's.
    pub since: Timestamp,
}

/// A key on its way out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retiring {
    #[serde(flatten)]
    pub held: Held,
    pub since: Timestamp,
    /// Nobody ever had its value, if it was minted at all: there is nothing to wait for.
    pub lost: bool,
}

/// Where a key lives: a deployment, and the control plane by which we know it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Place {
    /// The name in `controlPlaneRef`.
    pub control_plane: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    #[serde(rename = "deploymentID", skip_serializing_if = "Option::is_none")]
    pub deployment_id: Option<Uuid>,
}

/// An entry of a Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretPlace {
    pub name: String,
    pub key: String,
}

impl Place {
    /// Whether it is the same deployment. Where an id is missing, the same control plane is taken for the same deployment:
    /// it has a guard of its own.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.deployment_id, other.deployment_id) {
            (Some(one), Some(other)) => one == other,
            _ => self.control_plane == other.control_plane,
        }
    }

    /// Whether another deployment has taken the place of this one, so that nobody can reach this one any more.
    pub fn is_replaced_by(&self, other: &Self) -> bool {
        !self.is_same(other) && self.control_plane == other.control_plane
    }
}

impl Held {
    /// Whether it is the key of that name; coderd compares names in any case.
    pub fn is_called(&self, name: &str, organization_id: Option<Uuid>) -> bool {
        self.name.eq_ignore_ascii_case(name) && self.organization_id == organization_id
    }

    /// Whether both are the same key, as far as their ids are known.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        let are_same = self.id.is_none() || other.id.is_none() || self.id == other.id;
        self.is_called(&other.name, other.organization_id) && are_same
    }

    /// Whether both are the same key with the same value.
    pub(crate) fn is_same_value(&self, other: &Self) -> bool {
        self.may_be(other) && self.checksum == other.checksum
    }
}

impl Intent {
    pub fn is_called(&self, name: &str, organization_id: Option<Uuid>) -> bool {
        self.name.eq_ignore_ascii_case(name) && self.organization_id == organization_id
    }

    /// What it becomes when its value is lost.
    pub fn held(&self) -> Held {
        Held {
            name: self.name.clone(),
            id: None,
            organization_id: self.organization_id,
            organization_name: self.organization_name.clone(),
            tags_hash: self.tags_hash.clone(),
            place: self.place.clone(),
            checksum: String::new(),
            is_ours: true,
        }
    }
}

impl Record {
    /// How new this copy is: every write adds one, so of two copies the one with the higher epoch was written later. A
    /// record of an older version counts by its generation, which no later epoch is below.
    pub fn epoch(&self) -> u64 {
        self.epoch.unwrap_or_else(|| u64::from(self.generation))
    }

    /// What copies are compared by. The number of the last key comes first: an older release, and a status whose definition
    /// does not know the epoch, keep that number and lose the epoch.
    pub fn rank(&self) -> (u32, u64) {
        (self.generation, self.epoch.unwrap_or_default())
    }

    /// Whether it says the same as another copy. coderd does not tell the id of a key when it makes it: the Secret, which is
    /// written once, may not have the id that the status has.
    pub(crate) fn says_what(&self, other: &Self) -> bool {
        let mut copy = self.clone();
        copy.complete(other);
        copy == *other
    }

    /// Takes the id of the current key from another copy, where this one does not know it.
    pub(crate) fn complete(&mut self, other: &Self) {
        if let (Some(current), Some(other)) = (&mut self.current, &other.current)
            && current.is_same_value(other)
        {
            current.id = current.id.or(other.id);
        }
    }

    /// Whether that key stands anywhere in it.
    pub fn names_key(&self, name: &str, organization_id: Option<Uuid>) -> bool {
        let in_intent = self.intent.iter().any(|it| it.is_called(name, organization_id));
        in_intent || self.keys().any(|it| it.is_called(name, organization_id))
    }

    /// The keys that were minted: the current one and those that are retiring.
    pub fn keys(&self) -> impl Iterator<Item = &Held> {
        self.current.iter().chain(self.retiring.iter().map(|it| &it.held))
    }

    /// All names in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let given = self.intent.iter().map(|it| &it.name).chain(&self.used);
        given.chain(self.keys().map(|it| &it.name)).map(String::as_str)
    }

    /// A key of ours goes, with overlap. What is not ours is only forgotten.
    pub(crate) fn retire(&mut self, held: Held, since: Timestamp) {
        if held.is_ours && !self.is_retiring(&held.name, held.organization_id) {
            self.retiring.push(Retiring { held, since, lost: false });
        }
    }

    /// A key goes whose value nobody has.
    pub(crate) fn retire_lost(&mut self, intent: &Intent) {
        if !self.is_retiring(&intent.name, intent.organization_id) {
            self.retiring.push(Retiring { held: intent.held(), since: intent.since, lost: true });
        }
    }

    /// The value is in that entry from now on. The one before is removed later, where the readers are known.
    pub(crate) fn settle_in(&mut self, place: &SecretPlace, are_readers_known: bool) {
        self.former.retain(|it| it != place);
        if let Some(before) = self.secret.replace(place.clone())
            && before != *place
            && are_readers_known
            && !self.former.contains(&before)
        {
            self.former.push(before);
        }
    }

    fn is_retiring(&self, name: &str, organization_id: Option<Uuid>) -> bool {
        self.retiring.iter().any(|it| it.held.is_called(name, organization_id))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_read_whatever_is_missing() {
        assert_eq!(serde_json::from_value::<Record>(json!({})).unwrap(), Record::default());
        let record: Record = serde_json::from_value(
            json!({"current": {"name": "a"}, "retiring": [{"name": "b"}], "later": 1}),
        )
        .unwrap();
        assert_eq!(record.names().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_record_is_written_in_few_words_and_read_back() {
        let place = Place { control_plane: "main".to_owned(), ..Place::default() };
        let held = Held { name: "a".to_owned(), place, is_ours: true, ..Held::default() };
        let mut record = Record { generation: 2, ..Record::default() };
        record.retire(held, Timestamp::UNIX_EPOCH);
        let json = serde_json::to_value(&record).unwrap();
        let retiring = json!({"name": "a", "place": {"controlPlane": "main"}, "isOurs": true,
            "since": "1970-01-01T00:00:00Z", "lost": false});
        assert_eq!(json, json!({"generation": 2, "retiring": [retiring]}));
        assert_eq!(serde_json::from_value::<Record>(json).unwrap(), record);
    }

    #[test]
    fn a_deployment_is_known_by_its_id_and_without_one_by_its_control_plane() {
        let place = |control_plane: &str, id: Option<u128>| Place {
            control_plane: control_plane.to_owned(),
            url: String::new(),
            deployment_id: id.map(Uuid::from_u128),
        };
        assert!(place("a", Some(1)).is_same(&place("b", Some(1))));
        assert!(!place("a", Some(1)).is_same(&place("a", Some(2))));
        assert!(place("a", None).is_same(&place("a", Some(2))));
        assert!(!place("a", None).is_same(&place("b", Some(2))));
        assert!(place("a", Some(1)).is_replaced_by(&place("a", Some(2))));
        assert!(!place("a", Some(1)).is_replaced_by(&place("b", Some(2))));
    }
}
