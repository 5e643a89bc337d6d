//! A Secret that a person brought: it is used as it is, or it is said what is wrong with it. Nothing of it is written.
//! One that another object keeps is not used at all: that one changes its key, and revokes it, as it likes.
//!
//! Keys that we minted before are still ours. The status is then the only place where they are written down.

use jiff::Timestamp;

use super::{
    super::{
        copies::{self, held},
        record::{Held, Place, Record, Retiring},
        situation::{LiveKey, Seen, Wanted},
    },
    Next,
    intent::give_up,
    retiring::{due, leave, prolong, rest},
    settle::adopt,
    waiting,
};
use crate::pipeline::outcome::Blocked;

pub(super) fn next(wanted: &Wanted, seen: &Seen, now: Timestamp) -> Next {
    let mut record = copies::newest(wanted, seen);
    if let Some(minted) = &seen.minted {
        // The Secret was taken from under us.
        record.retire_lost(&minted.intent);
    }
    give_up(&mut record, seen, now);
    let judged = judge(wanted, seen);
    if let Ok(key) = judged {
        let checksum = seen.secret.checksum.as_deref().unwrap_or_default();
        adopt(&mut record, held(wanted, key, checksum, false), key, now);
        record.secret = Some(wanted.secret.clone());
    }
    prolong(wanted, seen, &mut record, now);
    let mut cleared = record.clone();
    let leaves = leave(wanted, seen, &mut cleared, now);
    let is_mirrored = |it: &Record| it.retiring == seen.mirror.retiring && it.intent == seen.mirror.intent;
    // Whoever is forgotten is named first, also one that was the key in use until now.
    if !leaves.is_empty() || (!is_mirrored(&record) && !is_mirrored(&cleared)) {
        return mirror(wanted, seen, cleared, leaves);
    }
    // A key whose value was never in a Secret is revoked in any case; one that pods may have, once another one works.
    let is_revoked = |it: &&Retiring| it.lost || judged.is_ok();
    if let Some(due) = due(wanted, seen, &cleared, now).find(is_revoked) {
        return Next::Revoke(Box::new(due.clone()));
    }
    if is_mirrored(&cleared) {
        rest(wanted, seen, cleared, judged.err(), now)
    } else {
        mirror(wanted, seen, cleared, leaves)
    }
}

/// The place of the key in a Secret that another object left behind, if that is another place than the declared one: a key is
/// shown to no deployment but its own.
pub(super) fn minted_elsewhere<'a>(wanted: &Wanted, seen: &'a Seen) -> Option<&'a Place> {
    let place = &seen.secret.record.as_ref()?.current.as_ref()?.place;
    let is_other_url = !place.url.is_empty() && place.url != wanted.place.url;
    let is_other = is_other_url && !is_encrypted_since(place, &wanted.place);
    (is_other || !place.is_same(&wanted.place)).then_some(place)
}

/// Whether a deployment that was reached by plain HTTP is reached by HTTPS now, under the same name.
fn is_encrypted_since(before: &Place, now: &Place) -> bool {
    let host = |url: &str, scheme: &str| {
        let url = url::Url::parse(url).ok().filter(|it| it.scheme() == scheme)?;
        url.host_str().map(str::to_owned)
    };
    let was_at = host(&before.url, "http");
    before.deployment_id.is_some()
        && before.deployment_id == now.deployment_id
        && was_at.is_some()
        && was_at == host(&now.url, "https")
}

/// The status is the only copy that is written here.
fn mirror(wanted: &Wanted, seen: &Seen, record: Record, leaves: Vec<Held>) -> Next {
    Next::Mirror { record: Box::new(copies::next(wanted, seen, record)), leaves }
}

/// Whether the key in it is one that we minted.
pub(super) fn is_ours_after_all(wanted: &Wanted, seen: &Seen, key: &LiveKey) -> bool {
    let is_it = |it: &Held| it.is_ours && it.id.is_some() && it.id == key.id;
    wanted.names.is_ours(&key.name) || copies::all(wanted, seen).flat_map(Record::keys).any(is_it)
}

/// Whether the value is for what is declared.
fn judge<'a>(wanted: &Wanted, seen: &'a Seen) -> Result<&'a LiveKey, Blocked> {
    let secret = &wanted.secret.name;
    if let Some(withheld) = &seen.secret.withheld {
        return Err(withheld.clone());
    }
    if let Some(keeper) = &seen.secret.keeper {
        let message = format!("{keeper} keeps its own key in Secret {secret}: choose another secretName");
        return Err(waiting(api::Reason::HeldByOther, message));
    }
    if let Some(place) = minted_elsewhere(wanted, seen) {
        let message = format!(
            "Secret {secret} holds a key that was minted for the deployment of control plane {} at {}, and is used for no \
             other: choose another secretName",
            place.control_plane, place.url
        );
        return Err(waiting(api::Reason::SecretNotAllowed, message));
    }
    let remedy = "correct the Secret, or delete it to have one created";
    let Some(key) = seen.live() else {
        return Err(match &seen.secret.checksum {
            Some(_) => waiting(
                api::Reason::Invalid,
                format!(
                    "Coder does not accept the value in Secret {secret}, which the operator does not manage: {remedy}"
                ),
            ),
            None => waiting(
                api::Reason::NotOurs,
                format!(
                    "Secret {secret}, which the operator does not manage, has no value under {}: {remedy}",
                    wanted.secret.key
                ),
            ),
        });
    };
    let difference = if key.organization_id != wanted.organization_id {
        "belongs to another organization"
    } else if key.tags != wanted.tags {
        "has other tags than declared"
    } else {
        return Ok(key);
    };
    let message = format!(
        "key {} in Secret {secret}, which the operator does not manage, {difference}: {remedy}",
        key.name
    );
    Err(waiting(api::Reason::Invalid, message))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn deployment_may_come_to_be_reached_by_https_and_not_the_other_way() {
        let place = |url: &str, id: Option<u128>| Place {
            control_plane: "main".to_owned(),
            url: url.to_owned(),
            deployment_id: id.map(Uuid::from_u128),
        };
        let plain = place("http://main.platform.svc.cluster.local:80", Some(1));
        let encrypted = place("https://main.platform.svc.cluster.local", Some(1));
        assert!(is_encrypted_since(&plain, &encrypted));
        assert!(!is_encrypted_since(&encrypted, &plain));
        for other in [
            place("https://main.platform.svc.cluster.local", Some(2)),
            place("https://main.platform.svc.cluster.local", None),
            place("https://coder.example.com", Some(1)),
            place("coder", Some(1)),
        ] {
            assert!(!is_encrypted_since(&plain, &other), "{other:?}");
        }
        let unknown = place("http://main.platform.svc.cluster.local:80", None);
        assert!(!is_encrypted_since(&unknown, &encrypted));
    }
}
