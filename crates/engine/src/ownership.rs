//! Who keeps an object that several manifests want.

/// A manifest that wants an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub uid: String,
    /// When the manifest was made, in seconds.
    pub created: i64,
    /// Whether the object's id is recorded in its status.
    pub holds: bool,
}

/// The manifest that keeps the object: the recorded holder, else the older one; of two that are equally old the one with
/// the smaller uid, so that everybody who asks gets the same answer.
pub fn keeper(claims: &[Claim]) -> Option<&Claim> {
    claims.iter().min_by_key(|it| (!it.holds, it.created, it.uid.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: &str, created: i64, holds: bool) -> Claim {
        Claim { name: uid.to_owned(), uid: uid.to_owned(), created, holds }
    }

    #[test]
    fn the_recorded_holder_keeps_it_and_otherwise_the_older_one() {
        let keeper_of = |claims: &[Claim]| keeper(claims).map(|it| it.uid.clone());
        assert_eq!(keeper_of(&[claim("b", 1, false), claim("a", 2, false)]).as_deref(), Some("b"));
        assert_eq!(keeper_of(&[claim("b", 1, false), claim("a", 2, true)]).as_deref(), Some("a"));
        assert_eq!(keeper_of(&[claim("b", 1, false), claim("a", 1, false)]).as_deref(), Some("a"));
        assert_eq!(keeper_of(&[]), None);
    }
}
