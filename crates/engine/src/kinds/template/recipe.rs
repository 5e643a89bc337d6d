//! What a version is made of, and how a version in Coder says so: a mark in its message.
//!
//! A mark tells the content of a version from any account, after a restart, and for a template that is adopted. Coder keeps
//! the message of a version as it was sent.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

const MARK: &str = "[coder-operator ";
/// Where the values of Secrets are not known by a fingerprint.
const UNKNOWN: &str = "-";

/// The digest of everything that a version is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// Of files, tags, plain variables, and the names of secret ones.
    pub(crate) content: String,
    /// A keyed fingerprint of the values of Secrets. `None` where there are none, or no key to make it with.
    pub(crate) values: Option<String>,
}

/// How a version in Coder compares with a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    Same,
    /// The values of Secrets have changed since.
    OtherValues,
    Other,
}

/// The result of a test, in the mark of the version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TestResult {
    Passed,
    /// The key of the test that the version failed.
    Failed(String),
}

impl TestResult {
    /// The result in the mark of a message. `None` until there is one.
    pub(crate) fn of(message: &str) -> Option<Self> {
        let mut words = mark(message)?.rest.split(' ');
        match (words.next()?, words.next()) {
            ("passed", None) => Some(Self::Passed),
            ("failed", Some(key)) => Some(Self::Failed(key.to_owned())),
            _ => None,
        }
    }

    /// A message with this result in its mark. `None` for a message without a mark.
    pub(crate) fn entered(&self, message: &str) -> Option<String> {
        let Mark { content, values, .. } = mark(message)?;
        let words = message.get(..message.rfind(MARK)?)?;
        let result = match self {
            Self::Passed => "passed".to_owned(),
            Self::Failed(key) => format!("failed {key}"),
        };
        Some(format!("{words}{MARK}{content} {values} {result}]"))
    }

    /// The result in one word, for the status.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
        }
    }
}

impl Recipe {
    #[cfg(test)]
    pub(crate) fn new(
        archive: &[u8],
        tags: &BTreeMap<String, String>,
        variables: &BTreeMap<String, Option<String>>,
        values: Option<String>,
    ) -> Self {
        Self::of_digest(Self::digest(archive), tags, variables, values)
    }

    pub(crate) fn digest(archive: &[u8]) -> [u8; 32] {
        Sha256::digest(archive).into()
    }

    /// The same with the digest of the archive.
    pub(crate) fn of_digest(
        archive: [u8; 32],
        tags: &BTreeMap<String, String>,
        variables: &BTreeMap<String, Option<String>>,
        values: Option<String>,
    ) -> Self {
        let mut hash = Sha256::new();
        hash.update(archive);
        hash.update(serde_json::to_vec(&(tags, variables)).unwrap_or_default());
        let values = values.map(|it| it.chars().take(16).collect());
        Self { content: base16ct::lower::encode_string(&hash.finalize()), values }
    }

    /// The name of a version that the manifest does not name.
    pub(crate) fn name(&self) -> String {
        let content = self.content.get(..12).unwrap_or_default();
        match self.values.as_deref().and_then(|it| it.get(..6)) {
            Some(values) => format!("sha-{content}-{values}"),
            None => format!("sha-{content}"),
        }
    }

    /// The recipe in one word, for the status.
    pub(crate) fn key(&self) -> String {
        format!("{} {}", self.content, self.values.as_deref().unwrap_or(UNKNOWN))
    }

    /// The message of a version, with the mark at its end.
    pub(crate) fn message(&self, words: Option<&str>) -> String {
        let mark = format!("{MARK}{}]", self.key());
        match words.map(str::trim_end).filter(|it| !it.is_empty()) {
            Some(words) => format!("{words}\n\n{mark}"),
            None => mark,
        }
    }

    /// Compares with the version that has this message, and this key of its recipe in the status.
    pub(crate) fn likeness(&self, message: &str, recorded: Option<&str>) -> Likeness {
        let Some(Mark { content, values, .. }) = mark(message) else { return Likeness::Other };
        if content != self.content {
            return Likeness::Other;
        }
        let recorded = recorded.and_then(|it| it.split_once(' ')).filter(|(it, _)| *it == content);
        let values = if values == UNKNOWN { recorded.map_or(UNKNOWN, |(_, it)| it) } else { values };
        match &self.values {
            Some(known) if values != UNKNOWN && values != known => Likeness::OtherValues,
            _ => Likeness::Same,
        }
    }

    /// Whether the version that has this message, and this key of its recipe in the status, is known to be built with other values of
    /// Secrets.
    pub(crate) fn has_other_values(&self, message: &str, recorded: Option<&str>) -> bool {
        let recorded = recorded.and_then(|it| it.split_once(' ')).map(|(_, it)| it);
        let marked = mark(message).map(|it| it.values);
        // The status knows better: it is of the version itself.
        let known = [recorded, marked].into_iter().flatten().find(|it| *it != UNKNOWN);
        self.values.as_deref().is_some_and(|values| known.is_some_and(|it| it != values))
    }

    /// Whether a key is of a recipe with the same content, whatever its values.
    pub(crate) fn has_content(&self, key: &str) -> bool {
        key.split_once(' ').is_some_and(|(it, _)| it == self.content)
    }

    /// Whether the version that has this message was surely published with the same values of Secrets.
    pub(crate) fn has_values_of(&self, message: &str) -> bool {
        let values = mark(message).map(|it| it.values);
        self.values.is_some() && values == self.values.as_deref()
    }
}

/// A message without its mark, as a person gave it.
pub(crate) fn words(message: &str) -> &str {
    match (mark(message), message.rfind(MARK)) {
        (Some(_), Some(at)) => message.get(..at).unwrap_or_default().trim_end(),
        _ => message,
    }
}

/// What the mark of a message has.
pub(crate) struct Mark<'a> {
    pub(crate) content: &'a str,
    pub(crate) values: &'a str,
    /// Empty until the version was tested.
    rest: &'a str,
}

pub(crate) fn mark(message: &str) -> Option<Mark<'_>> {
    let mark = message.get(message.rfind(MARK)? + MARK.len()..)?;
    let (content, values) = mark.split_once(']')?.0.split_once(' ')?;
    let (values, rest) = values.split_once(' ').unwrap_or((values, ""));
    Some(Mark { content, values, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(archive: &str, values: Option<&str>) -> Recipe {
        let variables = BTreeMap::from([("region".to_owned(), Some("eu".to_owned()))]);
        Recipe::new(archive.as_bytes(), &BTreeMap::new(), &variables, values.map(str::to_owned))
    }

    #[test]
    fn version_is_known_by_the_mark_in_its_message() {
        let recipe = self::recipe("a", None);
        for words in [None, Some(""), Some("Faster start"), Some("not [coder-operator x y] this one")] {
            assert_eq!(recipe.likeness(&recipe.message(words), None), Likeness::Same, "{words:?}");
        }
        assert_eq!(recipe.likeness(&self::recipe("b", None).message(None), None), Likeness::Other);
        for message in ["", "Faster start", "[coder-operator", "[coder-operator x]"] {
            assert_eq!(recipe.likeness(message, None), Likeness::Other, "{message}");
        }
    }

    #[test]
    fn changed_secret_is_another_version_where_its_fingerprint_is_known() {
        let one = recipe("a", Some("0011223344556677889900"));
        let two = recipe("a", Some("ff11223344556677889900"));
        assert_eq!(one.likeness(&two.message(None), None), Likeness::OtherValues);
        assert_ne!(one.name(), two.name());
        let unknown = recipe("a", None);
        assert_eq!(one.likeness(&unknown.message(None), None), Likeness::Same);
        assert_eq!(unknown.likeness(&one.message(None), None), Likeness::Same);
        // The status knows the values of a version whose mark does not.
        let message = unknown.message(None);
        assert_eq!(one.likeness(&message, Some(&one.key())), Likeness::Same);
        assert_eq!(one.likeness(&message, Some(&two.key())), Likeness::OtherValues);
        assert_eq!(one.likeness(&message, Some(&unknown.key())), Likeness::Same);
        assert_eq!(unknown.likeness(&message, Some(&one.key())), Likeness::Same);
        assert_eq!(one.likeness(&message, Some(&recipe("b", Some("ff112233")).key())), Likeness::Same);
        assert!(one.has_values_of(&one.message(None)));
        assert!(!one.has_values_of(&message) && !one.has_values_of(&two.message(None)));
        assert!(!unknown.has_values_of(&message), "neither of them is known");
    }

    #[test]
    fn words_are_the_message_without_the_mark() {
        for text in ["", "Faster start", "two\n\nlines", "not [coder-operator x y] this one"] {
            assert_eq!(words(&recipe("a", None).message(Some(text))), text);
        }
        assert_eq!(words("[coder-operator"), "[coder-operator");
    }

    #[test]
    fn values_are_other_ones_only_where_both_are_known() {
        let (one, two) = (recipe("a", Some("0011223344556677")), recipe("b", Some("ff11223344556677")));
        let unknown = recipe("a", None);
        assert!(one.has_other_values(&two.message(None), None));
        assert!(one.has_other_values("by hand", Some(&two.key())));
        assert!(!one.has_other_values("by hand", None) && !one.has_other_values("", Some(&unknown.key())));
        assert!(!one.has_other_values(&one.message(None), Some(&one.key())));
        assert!(!unknown.has_other_values(&two.message(None), Some(&two.key())));
    }

    #[test]
    fn result_of_a_test_is_entered_into_the_mark_and_the_rest_stays() {
        let recipe = self::recipe("a", Some("0011223344556677889900"));
        let message = recipe.message(Some("Faster [start]"));
        assert_eq!(TestResult::of(&message), None);
        let failed = TestResult::Failed("0123abcd".to_owned());
        let once = failed.entered(&message).unwrap();
        assert_eq!(TestResult::of(&once), Some(failed));
        let twice = TestResult::Passed.entered(&once).unwrap();
        assert_eq!(TestResult::of(&twice), Some(TestResult::Passed));
        for message in [once, twice] {
            assert!(message.starts_with("Faster [start]\n\n[coder-operator "), "{message}");
            assert_eq!(recipe.likeness(&message, None), Likeness::Same);
            assert!(recipe.has_values_of(&message));
        }
        assert_eq!(TestResult::Passed.entered("by hand"), None);
    }

    #[test]
    fn recipe_depends_on_variables_and_tags() {
        let none = BTreeMap::new();
        let plain = |value: &str| BTreeMap::from([("a".to_owned(), Some(value.to_owned()))]);
        let content = |tags: &BTreeMap<_, _>, variables: &BTreeMap<_, _>| {
            Recipe::new(b"", tags, variables, None).content
        };
        let all = [
            content(&none, &BTreeMap::new()),
            content(&none, &plain("b")),
            content(&none, &plain("c")),
            content(&BTreeMap::from([("a".to_owned(), "b".to_owned())]), &BTreeMap::new()),
            content(&none, &BTreeMap::from([("a".to_owned(), None)])),
        ];
        let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
