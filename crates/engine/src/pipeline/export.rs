//! What a kind answers to `export`: drafts of manifests, and what a person has to know of them. Values only.

use std::collections::BTreeMap;

use api::DEFAULT_ORGANIZATION;
use client::organizations::Organization;

/// The longest name of an object of which also labels may be made.
pub(crate) const LONGEST_NAME: usize = 63;

/// Where the objects of a kind are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// Once for the deployment.
    InDeployment,
    /// In each organization: [`Kind::export`] is called for each.
    InOrganizations,
    /// The kind cannot be exported, for this reason.
    Nowhere(&'static str),
}

/// The part of a deployment that a kind is asked for.
#[derive(Debug, Clone, Copy)]
pub struct ExportPlace<'a> {
    /// The organization, for [`Listed::InOrganizations`].
    pub organization: Option<&'a Organization>,
    /// Whether a person named the kind or wants all of it, and so also what is left out of an export of everything.
    pub is_asked_for: bool,
}

/// The word for an organization in manifests: `default` is the default one in every deployment, whatever its name.
pub fn organization_word(organization: &Organization) -> String {
    if organization.is_default { DEFAULT_ORGANIZATION.to_owned() } else { organization.name.clone() }
}

/// A manifest before it has a name, a control plane and a namespace.
#[derive(Debug, Clone)]
pub struct Draft<M> {
    /// What `metadata.name` is made of.
    pub title: String,
    pub manifest: M,
    /// What the manifest does not say, and why.
    pub notes: Vec<String>,
    /// The Secrets that the manifest refers to.
    pub secrets: Vec<NeededSecret>,
    /// The files of `spec.source`, by their paths. `None` for a manifest without a source.
    pub files: Option<BTreeMap<String, SourceFile>>,
}

/// A file of the source of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    pub content: Vec<u8>,
    /// Whether programs may run it: a template may have scripts.
    pub is_executable: bool,
}

impl From<Vec<u8>> for SourceFile {
    fn from(content: Vec<u8>) -> Self {
        Self { content, is_executable: false }
    }
}

impl<M> Draft<M> {
    pub fn new(title: impl Into<String>, manifest: M) -> Self {
        Self { title: title.into(), manifest, notes: Vec::new(), secrets: Vec::new(), files: None }
    }
}

/// The answer of a kind.
#[derive(Debug)]
pub struct KindExport<M> {
    pub drafts: Vec<Draft<M>>,
    pub left_out: Vec<LeftOut>,
}

impl<M> Default for KindExport<M> {
    fn default() -> Self {
        Self { drafts: Vec::new(), left_out: Vec::new() }
    }
}

impl<M> KindExport<M> {
    pub fn of(drafts: impl IntoIterator<Item = Draft<M>>) -> Self {
        Self { drafts: drafts.into_iter().collect(), left_out: Vec::new() }
    }

    /// At most one manifest, or why there is none, with the object in words.
    pub fn of_one(draft: Result<Option<Draft<M>>, String>, what: impl FnOnce() -> String) -> Self {
        let mut export = Self::default();
        match draft {
            Ok(draft) => export.drafts.extend(draft),
            Err(why) => export.leave_out(what(), why),
        }
        export
    }

    pub fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.left_out.push(LeftOut { what: what.into(), why: why.into() });
    }
}

/// An object, a kind or a list that is in no manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    pub what: String,
    pub why: String,
}

/// An entry of a Secret that a person has to supply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeededSecret {
    /// The name of the Secret.
    pub name: String,
    pub key: String,
    /// What the value is.
    pub what: String,
}

/// The title of an object of an organization.
pub(crate) fn title_in(organization: &Organization, name: &str) -> String {
    format!("{}-{name}", organization.name)
}

/// A text for a manifest. `None` where it is empty: a field that is absent is not compared.
pub(crate) fn said(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A title as Kubernetes takes it for a name: small letters, digits and single hyphens, at most 63 characters.
pub(crate) fn slug(title: &str) -> String {
    let mut name = String::new();
    for letter in title.chars().map(|it| it.to_ascii_lowercase()) {
        if letter.is_ascii_alphanumeric() {
            name.push(letter);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    name.truncate(LONGEST_NAME);
    let name = name.trim_end_matches('-');
    if name.is_empty() { "unnamed".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_becomes_a_name_of_kubernetes() {
        for (title, name) in [
            ("alpha-developers", "alpha-developers"),
            ("Team_Alpha / Ops", "team-alpha-ops"),
            ("claude-opus-4.8", "claude-opus-4-8"),
            ("--a--", "a"),
            ("\u{e4}\u{f6}", "unnamed"),
        ] {
            assert_eq!(slug(title), name, "{title}");
        }
        assert_eq!(slug(&"a".repeat(100)).len(), 63);
    }
}
