//! What we remember of licences: the ones that we uploaded, and the ones that coderd refused.

use client::licenses::License;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    claims::Claims,
    declared::Declared,
    term::{Announcement, crossed},
};

/// What is remembered from pass to pass. Nothing of it is secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LicenseRecord {
    /// The number of the write that left this record. It only grows.
    #[serde(default)]
    pub epoch: u64,
    /// The deployment that all of this belongs to: ids mean nothing on another.
    #[serde(default, rename = "deploymentID", skip_serializing_if = "Option::is_none")]
    pub deployment_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uploaded: Vec<Uploaded>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// What people have been told of the end of licences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<ReportedThreshold>,
}

/// A licence that we uploaded, or are about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Uploaded {
    /// Where it was declared; see [`Declared::slot`].
    pub slot: String,
    /// [`Claims::identity`].
    pub identity: String,
    /// Its id in the deployment; none before the upload is known to have worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i32>,
}

/// A licence that coderd does not take. It is not sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// Of the whole JWT, see [`super::Jwt::hash`].
    pub hash: String,
    /// What coderd said.
    pub words: String,
}

/// The last threshold that people have heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedThreshold {
    pub identity: String,
    pub days: i64,
}

impl LicenseRecord {
    /// Pure: the record in the light of what is declared and what is there. It is where every pass begins.
    ///
    /// What was about to be uploaded and is there is ours. What is gone is forgotten, and so is what is no longer declared
    /// where `keeps_undeclared` is false: it is left in the deployment, and nobody holds it any more.
    #[must_use]
    pub fn settled(
        &self,
        deployment: Uuid,
        declared: &[Declared],
        live: &[License],
        keeps_undeclared: bool,
    ) -> Self {
        if self.deployment_id.is_some_and(|it| it != deployment) {
            return Self { epoch: self.epoch, deployment_id: Some(deployment), ..Self::default() };
        }
        let live: Vec<(i32, String)> = live.iter().map(|it| (it.id, Claims::of(it).identity())).collect();
        let place = |entry: &Uploaded| {
            let has_it = |it: &&Declared| it.identity().as_deref() == Some(entry.identity.as_str());
            declared.iter().find(has_it).map(|it| it.slot.clone())
        };
        let is_slot = |slot: &str| declared.iter().any(|it| it.slot == slot);
        let mut uploaded: Vec<Uploaded> = Vec::new();
        for entry in &self.uploaded {
            let is_it = |(id, identity): &&(i32, String)| {
                *identity == entry.identity && entry.id.is_none_or(|known| known == *id)
            };
            let id = live.iter().rfind(is_it).map(|(id, _)| *id);
            let place = place(entry);
            // One that is about to be uploaded may still arrive.
            let is_expected = entry.id.is_none() && place.is_some();
            let is_held = place.is_some() || is_slot(&entry.slot) || keeps_undeclared;
            let entry = Uploaded {
                slot: place.unwrap_or_else(|| entry.slot.clone()),
                identity: entry.identity.clone(),
                id,
            };
            if (id.is_some() && is_held || is_expected) && !uploaded.contains(&entry) {
                uploaded.push(entry);
            }
        }
        let is_declared = |it: &&Refused| declared.iter().any(|one| one.hash() == Some(it.hash.as_str()));
        let refused = self.refused.iter().filter(is_declared).cloned().collect();
        let is_live = |it: &&ReportedThreshold| live.iter().any(|(_, identity)| *identity == it.identity);
        let told = self.told.iter().filter(is_live).cloned().collect();
        Self { epoch: self.epoch, deployment_id: Some(deployment), uploaded, refused, told }
    }

    /// Pure: the record to write where `before` stands: with the next epoch, unless nothing else differs.
    #[must_use]
    pub fn following(&self, before: &Self) -> Self {
        let same = Self { epoch: before.epoch, ..self.clone() };
        if same == *before { same } else { Self { epoch: before.epoch + 1, ..same } }
    }

    /// Writes down that it is about to be uploaded.
    pub(super) fn intend(&mut self, slot: &str, identity: &str) {
        let is_known = |it: &Uploaded| it.identity == identity && it.id.is_none();
        if !self.uploaded.iter().any(is_known) {
            let (slot, identity) = (slot.to_owned(), identity.to_owned());
            self.uploaded.push(Uploaded { slot, identity, id: None });
        }
    }

    /// Writes down what became of it.
    pub(super) fn uploaded(&mut self, identity: &str, id: i32) {
        for entry in self.uploaded.iter_mut().filter(|it| it.identity == identity && it.id.is_none()) {
            entry.id = Some(id);
        }
    }

    pub(super) fn refused(&mut self, identity: &str, refused: Refused) {
        self.uploaded.retain(|it| it.identity != identity || it.id.is_some());
        self.refused.push(refused);
    }

    pub(super) fn deleted(&mut self, id: i32) {
        self.uploaded.retain(|it| it.id != Some(id));
    }

    /// Pure: what people should hear now of the end of a licence, written down so that they hear it once. It is about the
    /// declared ones; where none is declared, about the one that lasts longest.
    pub fn announce(&mut self, declared: &[Declared], live: &[License], now: Timestamp) -> Vec<Announcement> {
        let mut watched: Vec<Claims> = declared
            .iter()
            .filter(|it| it.find(live).is_some())
            .filter_map(|it| it.claims().cloned())
            .collect();
        if declared.is_empty() {
            watched.extend(live.iter().map(Claims::of).max_by_key(Claims::expires));
        }
        let mut announcements = Vec::new();
        for claims in watched {
            let (Some(expires), identity) = (claims.expires(), claims.identity()) else { continue };
            let told = self.told.iter().find(|it| it.identity == identity).map(|it| it.days);
            if let Some(days) = crossed(expires, now, told) {
                self.told.retain(|it| it.identity != identity);
                self.told.push(ReportedThreshold { identity, days });
                announcements.push(Announcement { days, expires });
            }
        }
        announcements
    }

    /// What coderd said when it refused that JWT.
    pub fn refusal(&self, hash: &str) -> Option<&str> {
        self.refused.iter().find(|it| it.hash == hash).map(|it| it.words.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_that_differs_has_the_next_epoch() {
        let before: LicenseRecord =
            serde_json::from_str(r#"{"refused": [{"hash": "a", "words": "no"}]}"#).unwrap();
        assert_eq!(before.following(&before), before, "a record from before the field");
        let next = LicenseRecord { refused: Vec::new(), ..before.clone() }.following(&before);
        assert_eq!(next.epoch, 1);
        let back = LicenseRecord { epoch: 0, ..before.clone() }.following(&next);
        assert_eq!(back.epoch, 2, "an earlier record is another one when it comes back");
        let elsewhere = LicenseRecord { deployment_id: Some(Uuid::nil()), ..back };
        assert_eq!(elsewhere.settled(Uuid::from_u128(1), &[], &[], true).epoch, 2);
    }
}
