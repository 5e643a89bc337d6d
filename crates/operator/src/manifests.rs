//! Manifests from files, folders and standard input, and everything that is wrong with them, at once.
//!
//! A manifest is a value with a place: the file and the line that a person has to go to.

mod lines;
mod read;
mod rules;
mod schema;
mod values;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use anyhow::{Result, ensure};
use api::CoderControlPlane;
use engine::{Subject, kinds};
use kube::Resource as _;
use serde_json::Value;

use read::Document;
pub(crate) use read::Place;
use schema::Definitions;
pub(crate) use values::FileSecret;

/// What a set of manifests holds.
#[derive(Default)]
pub(crate) struct Manifests {
    /// What the engine serves, in the order in which it is applied.
    pub(crate) subjects: Vec<Placed>,
    pub(crate) planes: BTreeMap<Named, (CoderControlPlane, Place)>,
    pub(crate) secrets: BTreeMap<Named, FileSecret>,
    /// What was passed over, and why.
    pub(crate) notes: Vec<String>,
}

/// An object of a known kind: its namespace, which may be empty, and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Named {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn of(document: &Document) -> Self {
        let field = |path: &str| document.value.pointer(path).and_then(Value::as_str).unwrap_or_default();
        Self::new(field("/metadata/namespace"), field("/metadata/name"))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name } = self;
        if namespace.is_empty() {
            write!(formatter, "{name}")
        } else {
            write!(formatter, "{namespace}/{name}")
        }
    }
}

/// A manifest and where it stands.
pub(crate) struct Placed {
    pub(crate) subject: Box<dyn Subject>,
    pub(crate) place: Place,
}

impl Placed {
    /// The control plane that the manifest belongs to.
    pub(crate) fn plane(&self) -> Named {
        let namespace = self.subject.reference().namespace.unwrap_or_default();
        Named::new(&namespace, self.subject.control_plane())
    }
}

/// Something that cannot be meant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// Which manifests may want the same object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them: they go to one deployment.
    All,
    /// Those of one control plane.
    Plane,
}

/// Reads a set of manifests. All mistakes are told together, and with any of them there is nothing to apply.
pub(crate) fn load(paths: &[PathBuf], scope: Scope) -> Result<std::result::Result<Manifests, Vec<Mistake>>> {
    let mut manifests = Manifests::default();
    let mut mistakes = Vec::new();
    let mut definitions = Definitions::default();
    let mut is_empty = true;
    for source in read::sources(paths)? {
        match source.documents() {
            Ok(documents) => {
                is_empty &= documents.is_empty();
                for document in &documents {
                    take(document, &mut definitions, &mut manifests, &mut mistakes);
                }
            }
            Err(mistake) => mistakes.push(mistake),
        }
    }
    mistakes.extend(twice(&manifests.subjects, scope));
    if !mistakes.is_empty() {
        return Ok(Err(mistakes));
    }
    // A gate that nothing goes through says nothing.
    ensure!(!is_empty, "there is no manifest in what was given: look at -f");
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
    if !document.value.is_object() {
        let message =
            "expected a manifest, which is a map with apiVersion, kind, metadata and spec".to_owned();
        mistakes.push(Mistake { place: document.place(""), message });
        return;
    }
    let (kind, version) = (document.text("kind"), document.text("apiVersion"));
    if version == "v1" && kind == "Secret" {
        match values::secret(document) {
            Ok(secret) => keep(document, secret, &mut manifests.secrets, |it| &it.place, mistakes),
            Err(found) => mistakes.extend(found),
        }
        return;
    }
    let is_ours = version.split('/').next() == Some(api::GROUP);
    if !is_ours && !kind.is_empty() && !version.is_empty() {
        manifests.notes.push(format!("{}: a {kind} is passed over", document.place("")));
        return;
    }
    let mut complain = |path: &str, message: String| {
        mistakes.push(Mistake { place: document.place(path), message });
    };
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
        for misfit in &misfits {
            complain(&misfit.path, misfit.to_string());
        }
        return;
    }
    if kind == CoderControlPlane::kind(&()) {
        match serde_json::from_value::<CoderControlPlane>(document.value.clone()) {
            Ok(plane) => {
                keep(document, (plane, document.place("")), &mut manifests.planes, |it| &it.1, mistakes);
            }
            Err(error) => complain("", error.to_string()),
        }
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

/// Keeps an object that others refer to by name, and refuses a second one of that name.
fn keep<T>(
    document: &Document,
    object: T,
    kept: &mut BTreeMap<Named, T>,
    place: impl Fn(&T) -> &Place,
    mistakes: &mut Vec<Mistake>,
) {
    let named = Named::of(document);
    let kind = document.text("kind");
    if named.name.is_empty() {
        mistakes.push(Mistake {
            place: document.place("metadata"),
            message: "metadata.name: is missing".to_owned(),
        });
    } else if let Some(other) = kept.get(&named) {
        let message = format!("{kind} {named} is declared twice: {} has it already", place(other));
        mistakes.push(Mistake { place: document.place(""), message });
    } else {
        kept.insert(named, object);
    }
}

/// Two manifests that want the same object: which of them should win?
fn twice(subjects: &[Placed], scope: Scope) -> Vec<Mistake> {
    let mut first: BTreeMap<(Option<Named>, String, String), &Placed> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for placed in subjects {
        let target = placed.subject.target();
        let plane = (scope == Scope::Plane).then(|| placed.plane());
        let key = (plane, placed.subject.reference().kind, target.to_lowercase());
        if let Some(other) = first.get(&key) {
            let message = format!("{target} is declared twice: {} has it already", other.place);
            mistakes.push(Mistake { place: placed.place.clone(), message });
        } else {
            first.insert(key, placed);
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_example_passes_offline_as_it_passes_in_a_cluster() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kinds");
        let files = folder.read_dir().unwrap().map(|it| it.unwrap().path());
        let mut count = 0;
        for file in files {
            let loaded = load(std::slice::from_ref(&file), Scope::Plane).unwrap();
            let mistakes = loaded.err().unwrap_or_default();
            assert_eq!(mistakes, [], "{}", file.display());
            count += 1;
        }
        assert!(count >= api::crds().len(), "{count}");
    }
}
