//! A token that a Secret holds ready-made: when it ends, asked seldom and told in time.

use api::{CoderControlPlane, Reason};
use engine::kinds::control_plane::{access::Lifetime, status::SuppliedToken, token_record::id_of};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::{
    controller::{Shared, reach::proof::Proved, record::publish},
    planes::{Heard, name_of},
};

/// How long the token lives that we were given; nothing where it is one of our own.
pub(super) async fn keep(
    plane: &CoderControlPlane,
    proved: &Proved,
    shared: &Shared,
) -> Option<SuppliedToken> {
    let (name, now) = (name_of(plane), Timestamp::now());
    let lifetime = match &proved.given {
        Some(token) => Some(lifetime(plane, proved, token, shared).await),
        None => None,
    };
    let ends = lifetime.and_then(|it| if let Lifetime::Until(end) = it { Some(end) } else { None });
    shared.metrics.token_ends(&name, ends);
    let lifetime = lifetime?;
    let heard = shared.planes.heard(&name);
    let announced = heard.as_ref().and_then(|it| it.announced.as_ref());
    let before = announced.or_else(|| plane.status.as_ref()?.credential.as_ref());
    let (credential, announcement) = lifetime.announce(before, now);
    if let Some(announcement) = announcement {
        let note = announcement.message("the token of the control plane");
        publish(plane, true, (Reason::TokenExpires, "Announce"), &note, shared).await;
        if let Some(heard) = heard {
            shared.planes.set_heard(&name, Heard { announced: credential.clone(), ..heard });
        }
    }
    Some(SuppliedToken { lifetime, credential })
}

async fn lifetime(
    plane: &CoderControlPlane,
    proved: &Proved,
    token: &SecretString,
    shared: &Shared,
) -> Lifetime {
    let (name, now) = (name_of(plane), Timestamp::now());
    let known = shared.planes.heard(&name).filter(|it| it.origin == proved.origin);
    if let Some(fresh) = known.as_ref().filter(|it| !it.lifetime.is_due(it.at, now)) {
        return fresh.lifetime;
    }
    let asked = match id_of(token) {
        Some(id) => proved.client.token(client::users::ME, id).await.ok(),
        None => None,
    };
    // Who has no answer today has not forgotten that of yesterday.
    let before = known.as_ref().map_or(Lifetime::Unknown, |it| it.lifetime);
    let lifetime = asked.map_or(before, |it| Lifetime::of(&it, now));
    let announced = known.as_ref().and_then(|it| it.announced.clone());
    let origin = proved.origin.clone();
    shared.planes.set_heard(&name, Heard { origin, at: now, lifetime, announced });
    lifetime
}
