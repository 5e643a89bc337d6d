//! The licence of a manifest that a deployment has: its hash, and since when.

use client::licenses::License;
use jiff::Timestamp;

use super::declared::Declared;

/// The declared licence that is installed, for `status.licenseLastApplied` and `status.licenseLastAppliedHash`.
///
/// Both are read from the deployment and not from what one reconcile did, so a lost status or a write that met a conflict
/// leaves no other answer, and a licence that somebody else installed has one too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// When the licence was uploaded, in whole seconds.
    pub at: Timestamp,
    /// [`Jwt::hash`](super::Jwt::hash) of the declared licence.
    pub hash: String,
}

/// Finds the first declared licence in the deployment. `None` while it is not installed, or none is declared.
pub fn applied(declared: &[Declared], live: &[License]) -> Option<Applied> {
    let first = declared.first()?;
    let uploaded = first.find(live)?.uploaded_at;
    // A status keeps whole seconds: more would differ from what is read back.
    let at = Timestamp::from_second(uploaded.as_second()).unwrap_or(uploaded);
    Some(Applied { at, hash: first.hash()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use secrecy::SecretString;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::kinds::control_plane::license::{Jwt, claims::tests::jwt};

    fn declare(claims: &Value) -> Declared {
        let text = SecretString::from(format!(" {}\n", jwt(claims)));
        Declared { slot: "licenseSecretRef".to_owned(), jwt: Jwt::new(&text) }
    }

    fn live(id: i32, claims: &Value, second: i64) -> License {
        let uploaded_at = Timestamp::from_nanosecond(i128::from(second) * 1_000_000_000 + 999).unwrap();
        License { id, uuid: Uuid::nil(), uploaded_at, claims: claims.as_object().unwrap().clone() }
    }

    fn stamp(second: i64, declared: &Declared) -> Applied {
        let hash = declared.hash().unwrap().to_owned();
        Applied { at: Timestamp::from_second(second).unwrap(), hash }
    }

    #[test]
    fn installed_licence_has_its_upload_time_and_hash() {
        let (valid, future) = (json!({"jti": "a", "nbf": 1}), json!({"jti": "b", "nbf": 9_000_000_000_i64}));
        let (first, second) = (declare(&valid), declare(&future));
        assert_eq!(applied(&[], &[live(1, &valid, 5)]), None);
        assert_eq!(applied(from_ref(&first), &[]), None);
        assert_eq!(applied(from_ref(&first), &[live(1, &future, 5)]), None, "another licence is not it");
        // Whoever uploaded it.
        assert_eq!(applied(from_ref(&first), &[live(1, &valid, 5)]), Some(stamp(5, &first)));
        // A later one is uploaded beside it, and goes out of the manifest again.
        let both = [live(1, &valid, 5), live(2, &future, 7)];
        assert_eq!(applied(from_ref(&second), &both), Some(stamp(7, &second)));
        assert_eq!(applied(from_ref(&first), &both), Some(stamp(5, &first)));
        assert_eq!(
            applied(&[first.clone(), second], &both),
            Some(stamp(5, &first)),
            "the first declared one counts"
        );
        assert_eq!(
            applied(from_ref(&first), &[live(3, &valid, 9)]),
            Some(stamp(9, &first)),
            "uploaded again"
        );
    }

    #[test]
    fn hash_is_the_sha256_of_the_trimmed_licence() {
        let trimmed = Jwt::new(&SecretString::from("\n a.b.c \n")).unwrap();
        // printf a.b.c | sha256sum
        let hash = "845e30448809e2bc8958eb025bfc795235d13b077a53d0c3abbd2385170dc9b8";
        assert_eq!(trimmed.hash(), hash);
    }
}
