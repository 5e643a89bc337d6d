//! Manifests from files, folders and standard input, and everything that is wrong with them, at once.
//!
//! A manifest is a value with a place: the file and the line that a person has to go to.

mod read;
mod schema;

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::Result;
use engine::{Subject, kinds};

use read::Document;
pub(crate) use read::Place;

/// Kinds that may stand among the manifests and that this door has nothing to do with.
const PASSED_OVER: [&str; 3] = ["Secret", "ConfigMap", "CoderControlPlane"];

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
    for source in read::sources(paths)? {
        match source.documents() {
            Ok(documents) => documents.iter().for_each(|it| take(it, &mut manifests, &mut mistakes)),
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
fn take(document: &Document, manifests: &mut Manifests, mistakes: &mut Vec<Mistake>) {
    let (kind, version) = (document.text("kind"), document.text("apiVersion"));
    let ours = version.split('/').next() == Some(api::GROUP);
    if PASSED_OVER.contains(&kind) || !ours && !kind.is_empty() {
        manifests.notes.push(format!("{}: a {kind} is passed over", document.place(&[])));
        return;
    }
    if version != format!("{}/{}", api::GROUP, api::VERSION) || !kinds::names().iter().any(|it| it == kind) {
        let known = kinds::names().join(", ");
        let message = format!(
            "apiVersion {version:?}, kind {kind:?}: expected {}/{} and one of {known}",
            api::GROUP,
            api::VERSION
        );
        mistakes.push(Mistake { place: document.place(&["kind"]), message });
        return;
    }
    let found = schema::check(kind, &document.value);
    if !found.is_empty() {
        mistakes.extend(
            found
                .into_iter()
                .map(|it| Mistake { place: document.place(&it.path()), message: it.to_string() }),
        );
        return;
    }
    match kinds::parse(kind, &document.value) {
        Some(Ok(subject)) => match subject.check() {
            Ok(()) => manifests.subjects.push(Placed { subject, place: document.place(&[]) }),
            Err(invalid) => {
                let path: Vec<&str> = invalid.field.split('.').collect();
                let message = format!("{}: {}", invalid.field, invalid.message);
                mistakes.push(Mistake { place: document.place(&path), message });
            }
        },
        Some(Err(error)) => mistakes.push(Mistake { place: document.place(&[]), message: error.to_string() }),
        None => {}
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
