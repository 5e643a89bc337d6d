//! Who made the remote object of a manifest differ.

use api::AppState as _;
use kube::Resource as _;

use super::Object;
use crate::{
    coder::Coder,
    kind::Kind,
    pipeline::{
        attribution::{self, Attribution},
        decide::{Contact, Door},
        plan::PlanView,
        status,
    },
};

impl<K: Kind> Object<K> {
    /// Whether a difference was made in Coder, and not by a change of the manifest. The command line cannot tell.
    pub(super) fn is_drift(&self, contact: Contact, door: Door) -> bool {
        match door {
            Door::CommandLine => contact != Contact::Absent,
            Door::Controller => {
                let observed = self.manifest.status().and_then(|it| it.observed_generation);
                let generation = self.manifest.meta().generation;
                contact == Contact::Held && generation.is_some() && observed == generation
            }
        }
    }

    /// Who made the object differ. The audit log is read only where a difference needs it.
    pub(super) async fn attributions(
        &self,
        observed: &K::Observed,
        plan: &PlanView,
        coder: &Coder,
    ) -> Vec<Attribution> {
        if K::HAS_SECRETS || attribution::differences(plan).next().is_none() {
            return Vec::new();
        }
        let recorded = self.manifest.status();
        let known = recorded.map_or_else(Vec::new, |it| status::known(plan, &it.drift));
        if known.len() == attribution::differences(plan).count() {
            return known;
        }
        let mut found = match K::audited(observed) {
            Some(audited) => match &*coder.audit_log().await {
                Some(log) => {
                    let entries = attribution::since(&log.entries, recorded.and_then(status::equal_since));
                    attribution::attribute(plan, &audited, entries, Some(log.own))
                }
                None => attribution::unknown(plan),
            },
            None => attribution::unknown(plan),
        };
        // The log may not reach back to what was found in it before.
        found.retain(|it| !known.iter().any(|known| known.field == it.field));
        found.extend(known);
        found
    }
}
