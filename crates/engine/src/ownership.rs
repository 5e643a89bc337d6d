//! Who keeps an object that several manifests want.

/// A manifest that wants an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub uid: String,
    /// When the manifest was made, in seconds.
    pub created: i64,
    /// The object that is recorded in its status.
    pub held: Option<String>,
}

impl Claim {
    /// The one who asked first; of two that are equally old the one with the smaller uid, so that everybody who asks gets
    /// the same answer.
    fn age(&self) -> (i64, &str) {
        (self.created, &self.uid)
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
        Claim { name: uid.to_owned(), uid: uid.to_owned(), created, held: held.map(str::to_owned) }
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
