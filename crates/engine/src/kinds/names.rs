//! Coder's rules for names, so that a name that it would refuse is found before anything is asked.

use crate::pipeline::outcome::Invalid;

/// The longest name of an organization, in bytes.
pub(crate) const ORGANIZATION: usize = 32;
/// The longest name of a group, in bytes.
pub(crate) const GROUP: usize = 255;
/// The longest name of a user, in bytes.
pub(crate) const USER: usize = 32;
/// The longest name of a role, in bytes.
pub(crate) const ROLE: usize = 32;

const DISPLAY_NAME: usize = 64;
/// What Coder's dashboard needs for itself.
const RESERVED: [&str; 2] = ["new", "create"];

/// A name of something in Coder. It may come from `metadata.name`, and `spec.name` is what mends it.
pub(crate) fn check_name(name: &str, longest: usize) -> Result<(), Invalid> {
    let is_word = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_alphanumeric());
    if name.len() > longest || !name.split('-').all(is_word) {
        return Err(Invalid::new(
            "spec.name",
            format!(
                "must be letters and digits with single hyphens between them, at most {longest} characters"
            ),
        ));
    }
    if RESERVED.contains(&name) {
        return Err(Invalid::new("spec.name", "must not be `new` or `create`, which Coder reserves"));
    }
    Ok(())
}

/// A user name. It may come from `metadata.name`, and `spec.username` is what mends it.
pub(crate) fn check_username(name: &str) -> Result<(), Invalid> {
    check_name(name, USER).map_err(|it| Invalid { field: "spec.username".to_owned(), ..it })
}

/// A name for people to read.
pub(crate) fn check_display_name(name: Option<&String>) -> Result<(), Invalid> {
    let Some(name) = name else { return Ok(()) };
    if name.len() > DISPLAY_NAME || name.trim() != name || name.contains('\n') {
        return Err(Invalid::new(
            "spec.displayName",
            format!("must be at most {DISPLAY_NAME} bytes in one line, without blanks at its ends"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_with_single_hyphens_between_them() {
        for good in ["a", "A1", "team-alpha", "a-b-c"] {
            assert_eq!(check_name(good, ORGANIZATION), Ok(()), "{good}");
        }
        let long = "a".repeat(33);
        for bad in ["", "-a", "a-", "a--b", "a_b", "a b", "\u{e4}", "new", "create", &long] {
            assert!(check_name(bad, ORGANIZATION).is_err(), "{bad}");
        }
        assert_eq!(check_name(&long, GROUP), Ok(()));
    }

    #[test]
    fn display_names_have_no_blanks_at_their_ends_and_count_in_bytes() {
        let check = |name: &str| check_display_name(Some(&name.to_owned()));
        assert_eq!(check_display_name(None), Ok(()));
        assert_eq!(check("Mission Partner Alpha"), Ok(()));
        assert_eq!(check(""), Ok(()));
        for bad in [" a", "a ", "a\nb", &"\u{e4}".repeat(33)] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
