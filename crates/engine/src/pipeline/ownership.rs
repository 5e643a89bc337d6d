//! Who keeps an object that several manifests want.

use uuid::Uuid;

/// A manifest that wants an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub uid: String,
    /// When the manifest was made, in seconds.
    pub created: i64,
    /// The object that is recorded in its status.
    pub held: Option<String>,
    /// The namespace of the manifest, and the name of its control plane there.
    pub control_plane: (String, String),
    /// The deployments that the manifest is known to declare an object in.
    pub deployments: Vec<Uuid>,
    /// The address of the control plane.
    pub url: Option<String>,
}

impl Claim {
    /// The one who asked first; of two that are equally old the one with the smaller uid, so that everybody who asks gets
    /// the same answer.
    fn age(&self) -> (i64, &str) {
        (self.created, &self.uid)
    }

    /// Whether both manifests declare objects in one deployment, through whichever control planes. Manifests of different
    /// control planes do so only where the deployment of both is known. Every server can claim the id of a deployment, so
    /// across namespaces, which do not trust each other, the address has to be the same too.
    pub fn shares_deployment_with(&self, other: &Self) -> bool {
        let is_beside = self.control_plane.0 == other.control_plane.0;
        let is_there = self.url.is_some() && self.url == other.url;
        self.control_plane == other.control_plane
            || ((is_beside || is_there) && self.deployments.iter().any(|it| other.deployments.contains(it)))
    }

    /// The name of the manifest for a reader in `namespace`.
    pub fn name_in(&self, namespace: &str) -> String {
        let name = &self.name;
        if self.control_plane.0 == namespace {
            name.clone()
        } else {
            format!("{name} in namespace {}", self.control_plane.0)
        }
    }
}

/// Whether another manifest, which names the same object with the same words, keeps it. Nobody was asked yet: a manifest
/// that holds something may be about to rename it, and ids will tell.
pub fn keeper_by_name<'a>(mine: &Claim, others: &'a [Claim]) -> Option<&'a Claim> {
    if mine.held.is_some() {
        return None;
    }
    let holder = others.iter().filter(|it| it.held.is_some()).min_by_key(|it| it.age());
    holder.or_else(|| others.iter().min_by_key(|it| it.age()).filter(|it| it.age() < mine.age()))
}

/// Whether another manifest, which declares the same exclusive thing, keeps it: the older one.
pub fn keeper_by_age<'a>(mine: &Claim, others: &'a [Claim]) -> Option<&'a Claim> {
    others.iter().min_by_key(|it| it.age()).filter(|it| it.age() < mine.age())
}

/// Whether another manifest keeps the object of this id, however it is named there: the recorded holder, and of two
/// holders the older one.
pub fn keeper_by_id<'a>(id: &str, mine: &Claim, others: &'a [Claim]) -> Option<&'a Claim> {
    let holds = |it: &Claim| it.held.as_deref() == Some(id);
    let holder = others.iter().filter(|it| holds(it)).min_by_key(|it| it.age())?;
    (!holds(mine) || holder.age() < mine.age()).then_some(holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: &str, created: i64, held: Option<&str>) -> Claim {
        let held = held.map(str::to_owned);
        let control_plane = ("platform".to_owned(), "main".to_owned());
        let (name, uid) = (uid.to_owned(), uid.to_owned());
        let url = Some("https://coder.example.com".to_owned());
        Claim { name, uid, created, held, control_plane, deployments: Vec::new(), url }
    }

    #[test]
    fn manifests_share_a_deployment_by_its_id_or_by_their_control_plane() {
        let of = |namespace: &str, plane: &str, deployments: &[u128]| Claim {
            control_plane: (namespace.to_owned(), plane.to_owned()),
            deployments: deployments.iter().map(|it| Uuid::from_u128(*it)).collect(),
            ..claim("a", 1, None)
        };
        let mine = of("platform", "main", &[1]);
        assert!(of("platform", "main", &[]).shares_deployment_with(&mine));
        assert!(of("platform", "again", &[1]).shares_deployment_with(&mine));
        assert!(of("other", "main", &[2, 1]).shares_deployment_with(&mine));
        assert!(!of("other", "main", &[2]).shares_deployment_with(&mine));
        let elsewhere = Some("https://stranger.example.com".to_owned());
        assert!(!Claim { url: elsewhere.clone(), ..of("other", "main", &[1]) }.shares_deployment_with(&mine));
        assert!(Claim { url: elsewhere, ..of("platform", "again", &[1]) }.shares_deployment_with(&mine));
        let (unknown, other) = (Claim { url: None, ..mine.clone() }, of("other", "main", &[1]));
        assert!(!Claim { url: None, ..other }.shares_deployment_with(&unknown));
        assert!(!of("platform", "again", &[]).shares_deployment_with(&of("platform", "main", &[])));
        assert_eq!(mine.name_in("platform"), "a");
        assert_eq!(mine.name_in("other"), "a in namespace platform");
    }

    #[test]
    fn the_recorded_holder_keeps_it_and_otherwise_the_older_one() {
        let keeper = |mine: &Claim, other: Claim| keeper_by_name(mine, &[other]).is_some();
        let mine = claim("b", 2, None);
        assert!(keeper(&mine, claim("c", 1, None)));
        assert!(!keeper(&mine, claim("a", 3, None)));
        assert!(keeper(&mine, claim("a", 3, Some("x"))));
        assert!(keeper(&mine, claim("a", 2, None)), "of two that are equally old the smaller uid");
        assert!(!keeper(&claim("b", 2, Some("x")), claim("a", 1, Some("y"))), "ids will tell");
        assert!(keeper_by_name(&mine, &[]).is_none());
    }

    #[test]
    fn an_object_with_two_names_has_one_keeper() {
        let (mine, other) = (claim("b", 2, None), claim("a", 3, Some("x")));
        assert_eq!(keeper_by_id("x", &mine, std::slice::from_ref(&other)), Some(&other));
        assert_eq!(keeper_by_id("y", &mine, &[other]), None);
        let (older, younger) = (claim("a", 1, Some("x")), claim("b", 2, Some("x")));
        assert_eq!(keeper_by_id("x", &younger, std::slice::from_ref(&older)), Some(&older));
        assert_eq!(keeper_by_id("x", &older, &[younger]), None);
    }
}
