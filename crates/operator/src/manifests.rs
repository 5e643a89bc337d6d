//! Manifests from files, folders and standard input, and everything that is wrong with them, at once.
//!
//! A manifest is a value with a place: the file and the line that a person has to go to.

mod lines;
mod read;
mod rules;
mod schema;

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::Result;
use engine::{Subject, kinds};

use read::Document;
pub(crate) use read::Place;
use schema::Definitions;

/// The manifests of a set that the engine serves, in the order in which they are applied.
pub(crate) struct Manifests {
    pub(crate) subjects: Vec<Placed>,
    /// What was passed over, and why.
    pub(crate) notes: Vec<String>,
}

/// A manifest and where it stands.
pub(crate) struct Placed {
    pub(crate) subject: Box<dyn Subject>,
    pub(crate) place: Place,
}

/// Something that cannot be meant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// Reads a set of manifests. All mistakes are told together, and with any of them there is nothing to apply.
pub(crate) fn load(paths: &[PathBuf]) -> Result<std::result::Result<Manifests, Vec<Mistake>>> {
    let mut manifests = Manifests { subjects: Vec::new(), notes: Vec::new() };
    let mut mistakes = Vec::new();
    let mut definitions = Definitions::default();
    for source in read::sources(paths)? {
        match source.documents() {
            Ok(documents) => {
                documents.iter().for_each(|it| take(it, &mut definitions, &mut manifests, &mut mistakes));
            }
            Err(mistake) => mistakes.push(mistake),
        }
    }
    mistakes.extend(twice(&manifests.subjects));
    if !mistakes.is_empty() {
        return Ok(Err(mistakes));
    }
    // Organizations before their groups before their sync; otherwise by name, so that the order of files means nothing.
    manifests.subjects.sort_by_key(|it| (it.subject.rank(), it.subject.reference()));
    Ok(Ok(manifests))
}

/// Sorts one document into what is served, what is passed over and what is wrong.
fn take(
    document: &Document,
    definitions: &mut Definitions,
    manifests: &mut Manifests,
    mistakes: &mut Vec<Mistake>,
) {
    let (kind, version) = (document.text("kind"), document.text("apiVersion"));
    let mut complain = |path: &str, message: String| {
        mistakes.push(Mistake { place: document.place(path), message });
    };
    let is_ours = version.split('/').next() == Some(api::GROUP);
    if !is_ours && !kind.is_empty() && !version.is_empty() {
        manifests.notes.push(format!("{}: a {kind} is passed over", document.place("")));
        return;
    }
    if version != format!("{}/{}", api::GROUP, api::VERSION) || !definitions.names().any(|it| it == kind) {
        let known: Vec<&str> = definitions.names().collect();
        let message = format!(
            "apiVersion {version:?}, kind {kind:?}: expected {}/{} and one of {}",
            api::GROUP,
            api::VERSION,
            known.join(", ")
        );
        complain("kind", message);
        return;
    }
    let misfits = definitions.check(kind, &document.value);
    if !misfits.is_empty() {
        misfits.iter().for_each(|it| complain(&it.path, it.to_string()));
        return;
    }
    match kinds::parse(kind, &document.value) {
        Some(Ok(subject)) => match subject.check() {
            Ok(()) => manifests.subjects.push(Placed { subject, place: document.place("") }),
            Err(invalid) => complain(&invalid.field, format!("{}: {}", invalid.field, invalid.message)),
        },
        Some(Err(error)) => complain("", error.to_string()),
        None => manifests.notes.push(format!("{}: a {kind} is passed over", document.place(""))),
    }
}

/// Two manifests that want the same object: which of them should win?
fn twice(subjects: &[Placed]) -> Vec<Mistake> {
    let mut first: BTreeMap<(String, String), &Placed> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for placed in subjects {
        let target = placed.subject.target();
        let key = (placed.subject.reference().kind, target.to_lowercase());
        if let Some(other) = first.get(&key) {
            let message = format!("{target} is declared twice: {} has it already", other.place);
            mistakes.push(Mistake { place: placed.place.clone(), message });
        } else {
            first.insert(key, placed);
        }
    }
    mistakes
}
