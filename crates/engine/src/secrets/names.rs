//! What keys are called, and the two hashes that coder-k8s wrote down and that we go on with.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

use crate::pipeline::short::{cut, fnv};

/// The longest name that coderd takes.
pub const LONGEST: usize = 64;
/// Keys of coderd's own.
const RESERVED: [&str; 3] = ["built-in", "user-auth", "psk"];
/// How much of the uid is in a name.
const OF_UID: usize = 4;

/// The names of the keys of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The declared name, short enough.
    pub base: String,
    /// The uid of the object.
    pub uid: String,
}

impl Names {
    pub fn new(declared: &str, uid: &str) -> Self {
        let base = if declared.len() <= LONGEST {
            declared.to_owned()
        } else {
            let hash = fnv(&[declared.as_bytes()]);
            format!("{}-{hash}", cut(declared, LONGEST - hash.len() - 1))
        };
        Self { base, uid: uid.to_owned() }
    }

    /// What is wrong with a declared name.
    pub fn check(declared: &str) -> Result<(), String> {
        let is_reserved = RESERVED.iter().any(|it| it.eq_ignore_ascii_case(declared));
        match declared {
            "" => Err("a key needs a name".to_owned()),
            // Such a key could be made and never be deleted again; dots alone would even lead elsewhere.
            _ if declared.contains('/') => Err("a key's name cannot contain a slash".to_owned()),
            _ if declared.chars().all(|it| it == '.') => {
                Err("a key's name cannot consist of dots".to_owned())
            }
            _ if declared.trim() != declared || declared.chars().any(char::is_control) => {
                Err("a key's name cannot begin or end with a space, or contain control characters".to_owned())
            }
            // coderd compares names without regard to case, and how it does that for other letters is its database's business.
            _ if !declared.is_ascii() => {
                Err("a key's name can only have ASCII letters, digits and punctuation".to_owned())
            }
            _ if is_reserved => {
                Err(format!("{declared} is the name of a key of Coder's own: choose another"))
            }
            _ => Ok(()),
        }
    }

    /// The name of that generation.
    pub fn suffixed(&self, generation: u32) -> String {
        let suffix = format!("-{}-{generation}", self.mark());
        format!("{}{suffix}", cut(&self.base, LONGEST - suffix.len()))
    }

    /// Which generation of ours it is, by its ending; nothing for every other name.
    pub fn generation(&self, name: &str) -> Option<u32> {
        let (_, number) = name.rsplit_once('-')?;
        let generation = number.parse().ok()?;
        self.suffixed(generation).eq_ignore_ascii_case(name).then_some(generation)
    }

    /// Whether a name says by itself that the key is ours.
    pub fn is_ours(&self, name: &str) -> bool {
        self.generation(name).is_some()
    }

    /// Whether it is a name for what is declared now: the declared one, or one of ours that begins with it.
    pub fn is_of_base(&self, name: &str) -> bool {
        self.base.eq_ignore_ascii_case(name) || self.is_ours(name)
    }

    fn mark(&self) -> String {
        self.uid.chars().filter(char::is_ascii_alphanumeric).take(OF_UID).collect::<String>().to_lowercase()
    }
}

/// The hash of tags as coder-k8s has it in its status.
pub fn tags_hash(tags: &BTreeMap<String, String>) -> String {
    let parts: Vec<&[u8]> =
        tags.iter().flat_map(|(key, value)| [key.as_bytes(), &[0], value.as_bytes(), &[0]]).collect();
    fnv(&parts)
}

/// What pods carry of a value, as coder-k8s has it: another one would roll every pod at a take-over.
pub fn checksum(value: &SecretString) -> String {
    fnv(&[value.expose_secret().as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "1A2b3c4d-5e6f-4711-8aaa-000000000001";

    #[test]
    fn names_are_counted_and_known_again_in_any_case() {
        let names = Names::new("alpha", UID);
        assert_eq!(names.suffixed(7), "alpha-1a2b-7");
        assert_eq!(names.generation("Alpha-1A2B-7"), Some(7));
        for other in
            ["alpha", "alpha-7", "alpha-1a2b-", "alpha-1a2b-x", "alpha-1a2c-7", "beta-1a2b-7", "-1a2b-7"]
        {
            assert!(!names.is_ours(other), "{other}");
        }
        // Not as we write it.
        assert!(!names.is_ours("alpha-1a2b-07") && !names.is_ours("alpha-1a2b-+7"));
    }

    #[test]
    fn no_name_is_longer_than_coderd_takes() {
        let long = "a".repeat(128);
        let names = Names::new(&long, UID);
        assert_eq!(names.base.len(), LONGEST);
        assert_ne!(names.base, Names::new(&"a".repeat(127), UID).base);
        for generation in [1, 99, u32::MAX] {
            let name = names.suffixed(generation);
            assert!(name.len() == LONGEST && names.generation(&name) == Some(generation), "{name}");
        }
    }

    #[test]
    fn names_that_coderd_keeps_for_itself_or_cannot_delete_are_refused() {
        for name in ["", "built-in", "User-Auth", "PSK", "a/b", ".", "..", " a", "a\n", "schlüssel", "Кey"]
        {
            assert!(Names::check(name).is_err(), "{name}");
        }
        for name in ["alpha", "psk-1", "a.b", &"a".repeat(128)] {
            assert_eq!(Names::check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn hashes_are_those_of_coder_k8s() {
        let tags = |pairs: &[(&str, &str)]| {
            tags_hash(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        assert_eq!(tags(&[]), "811c9dc5");
        assert_eq!(tags(&[("b", "2"), ("a", "1")]), fnv(&[b"a\x001\x00b\x002\x00"]));
        assert_ne!(tags(&[("a", "b")]), tags(&[("ab", "")]));
        assert_eq!(checksum(&SecretString::from("foobar")), "bf9cf968");
    }
}
