//! Manifests from files, folders and standard input, and all mistakes in them at once.
//!
//! A manifest is a value with a place: the file and the line to look at.

mod lines;
mod misfit;
mod read;
mod rules;
mod schema;
mod skipped;
mod snippet;
mod source;
mod suggestion;
mod validate;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anyhow::{Result, ensure};
use api::CoderControlPlane;
use engine::{
    Object, Subject,
    kinds::{
        self,
        control_plane::{PlaneObjects, license::Licenses},
    },
};
use kube::Resource as _;
use serde_json::Value;

use read::Document;
pub(crate) use read::{Place, Sources};
use schema::Definitions;
pub(crate) use skipped::{NOT_APPLIED, SkipReason, Skipped};
pub(crate) use snippet::Severity;
pub(crate) use validate::{Validated, secret_value, unfit, validate};
pub(crate) use values::FileSecret;

use crate::args::GivenUrl;

/// Fields of a control plane that say how to reach it or whether to reconcile it.
const OF_THE_ADDRESS: [&str; 3] = ["external", "interval", "suspend"];
/// Fields of a control plane that name its licences, and say how they are applied.
const OF_LICENSES: [&str; 5] =
    ["allowDestructive", "approval", "licenseSecretRef", "licenseSecretRefs", "mode"];

/// A set of manifests without a mistake.
#[derive(Default)]
pub(crate) struct Manifests {
    /// The manifests that can be compared, in the order of their application.
    pub(crate) subjects: Vec<Placed>,
    pub(crate) planes: FilePlanes,
    pub(crate) secrets: BTreeMap<Named, FileSecret>,
    /// ConfigMaps, which are read where a manifest refers to them, and never applied.
    pub(crate) config_maps: BTreeMap<Named, Value>,
    /// Documents of other kinds.
    pub(crate) skipped: Vec<Skipped>,
    /// Manifests of ours that only the controllers handle.
    pub(crate) unsupported: Vec<Skipped>,
}

/// The control planes in the files.
#[derive(Default)]
pub(crate) struct FilePlanes(pub(crate) BTreeMap<Named, (CoderControlPlane, Place)>);

impl FilePlanes {
    /// The `external.url` of a control plane; `None` when it is not in the files or not external.
    pub(crate) fn external_url(&self, named: &Named) -> Option<&str> {
        self.0.get(named)?.0.spec.external.as_ref().map(|it| it.url.as_str())
    }

    /// The licences of each control plane that names some.
    pub(crate) fn licenses(&self) -> impl Iterator<Item = Placed> {
        let licensed = self.0.values().filter(|(plane, _)| plane.spec.licenses().next().is_some());
        licensed.map(|(plane, place)| {
            let subject = Box::new(Object::<Licenses>::new(plane.clone()));
            Placed { subject, place: place.clone() }
        })
    }

    /// The objects of each managed control plane. Without a cluster there is nothing to compare them with: then only those of
    /// control planes that no other of these manifests is about, so that their plans say so.
    pub(crate) fn objects(&self, subjects: &[Placed], has_cluster: bool) -> Vec<Placed> {
        let used: BTreeSet<Named> = subjects.iter().map(Placed::plane).collect();
        let compared = self.0.iter().filter(|(named, _)| has_cluster || !used.contains(named));
        let managed = compared.filter(|(_, (plane, _))| plane.spec.external.is_none());
        let objects = managed.map(|(_, (plane, place))| {
            let subject = Box::new(Object::<PlaneObjects>::new(plane.clone()));
            Placed { subject, place: place.clone() }
        });
        objects.collect()
    }

    /// Whether one of them is run by the operator.
    pub(crate) fn has_managed(&self) -> bool {
        self.0.values().any(|(plane, _)| plane.spec.external.is_none())
    }

    /// A note for each control plane with fields that only the controllers reconcile.
    pub(crate) fn notes(&self, has_cluster: bool) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(move |(named, (plane, place))| {
            if has_cluster && plane.spec.external.is_none() {
                return None;
            }
            let spec = serde_json::to_value(&plane.spec).unwrap_or_default();
            let fields = spec.as_object()?.keys().map(String::as_str);
            let fields: Vec<&str> = fields.filter(|it| !OF_THE_ADDRESS.contains(it) && !OF_LICENSES.contains(it)).collect();
            let note = format!(
                "{place}: CoderControlPlane {named} names the deployment; only `coder-operator run` reconciles its {}",
                fields.join(", ")
            );
            (!fields.is_empty()).then_some(note)
        })
    }
}

/// The namespace of an object, which may be empty, and its name.
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

/// A manifest and its place.
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

    pub(crate) fn skipped(&self, reason: SkipReason, message: &str) -> Skipped {
        let reference = self.subject.reference();
        let named = Named::new(reference.namespace.as_deref().unwrap_or_default(), &reference.name);
        Skipped::new(&reference.kind, &named, &self.place, reason, message)
    }
}

/// An error in a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// Reads a set of manifests. All mistakes are reported together.
pub(crate) fn load(
    sources: &Sources,
    given: Option<&GivenUrl>,
) -> Result<std::result::Result<Manifests, Vec<Mistake>>> {
    let Loaded { mut manifests, mut mistakes, .. } = read_all(sources)?;
    mistakes.extend(twice(&manifests, given));
    if !mistakes.is_empty() {
        return Ok(Err(mistakes));
    }
    manifests.set_unreferenced_planes_apart();
    manifests.ensure_any()?;
    in_order(&mut manifests.subjects);
    Ok(Ok(manifests))
}

/// Everything that the files hold.
#[derive(Default)]
struct Loaded {
    documents: Vec<Document>,
    manifests: Manifests,
    mistakes: Vec<Mistake>,
}

fn read_all(sources: &Sources) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut definitions = Definitions::default();
    for source in sources.read()? {
        match source.documents() {
            Ok(documents) => {
                for document in &documents {
                    take(document, &mut definitions, &mut loaded.manifests, &mut loaded.mistakes);
                }
                loaded.documents.extend(documents);
            }
            Err(mistake) => loaded.mistakes.push(mistake),
        }
    }
    Ok(loaded)
}

/// Sorts manifests into the order of their application: licences before organizations before their groups before their sync;
/// otherwise by name, so that the order of files does not matter.
pub(crate) fn in_order(subjects: &mut [Placed]) {
    subjects.sort_by_key(|it| (it.subject.rank(), it.subject.reference()));
}

impl Manifests {
    /// Fails where the files hold no manifest of ours: a gate that compared nothing must not succeed.
    fn ensure_any(&self) -> Result<()> {
        ensure!(
            !self.subjects.is_empty() || !self.unsupported.is_empty() || !self.planes.0.is_empty(),
            "no manifest of {}/{} in the files: check -f",
            api::GROUP,
            api::VERSION
        );
        Ok(())
    }

    /// Moves the control planes that no manifest refers to among the unsupported manifests.
    fn set_unreferenced_planes_apart(&mut self) {
        let referenced: BTreeSet<Named> = self.subjects.iter().map(Placed::plane).collect();
        let is_used = |named: &Named, plane: &CoderControlPlane| {
            referenced.contains(named)
                || plane.spec.licenses().next().is_some()
                || plane.spec.external.is_none()
        };
        for (named, (_, place)) in self.planes.0.extract_if(.., |it, (plane, _)| !is_used(it, plane)) {
            let kind = CoderControlPlane::kind(&());
            let message = skipped::UNREFERENCED;
            self.unsupported.push(Skipped::new(&kind, &named, &place, SkipReason::Unsupported, message));
        }
    }
}

/// Sorts one document into manifests, skipped documents and mistakes.
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
    if version == "v1" && kind == "ConfigMap" {
        manifests.config_maps.insert(Named::of(document), document.value.clone());
    }
    let is_ours = version.split('/').next() == Some(api::GROUP);
    if !is_ours && !kind.is_empty() && !version.is_empty() {
        manifests.skipped.push(Skipped::other_kind(document));
        return;
    }
    let mut complain = |path: &str, message: String| {
        mistakes.push(Mistake { place: document.place(path), message });
    };
    if version != format!("{}/{}", api::GROUP, api::VERSION) || !definitions.names().any(|it| it == kind) {
        let known: Vec<&str> = definitions.names().collect();
        let message = format!(
            "apiVersion {version:?}, kind {kind:?}: expected {}/{} and one of {}{}",
            api::GROUP,
            api::VERSION,
            known.join(", "),
            suggestion::of(kind, &known)
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
                keep(document, (plane, document.place("")), &mut manifests.planes.0, |it| &it.1, mistakes);
            }
            Err(error) => complain("", error.to_string()),
        }
        return;
    }
    let located = match source::located(document) {
        Ok(located) => located,
        Err(why) => return complain(source::FIELD, format!("{}: {why}", source::FIELD)),
    };
    let subject = match kinds::subject(kind, &located).transpose() {
        Ok(subject) => subject,
        Err(error) => return complain("", error.to_string()),
    };
    if let Some(Err(invalid)) = subject.as_ref().map(|it| it.check()) {
        return complain(&invalid.field, format!("{}: {}", invalid.field, invalid.message));
    }
    match subject {
        Some(subject) => {
            manifests.subjects.push(Placed { subject, place: document.place("") });
        }
        None => manifests.unsupported.push(Skipped::unsupported(document)),
    }
}

/// Keeps an object that others refer to by name; a second object of that name is a mistake.
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

/// Mistakes about two manifests for the same remote object of one deployment.
fn twice(manifests: &Manifests, given: Option<&GivenUrl>) -> Vec<Mistake> {
    let mut first: BTreeMap<(Option<Named>, String, String), &Placed> = BTreeMap::new();
    let mut exclusive: BTreeMap<(Option<Named>, String, &str), &Placed> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for placed in &manifests.subjects {
        let target = placed.subject.target();
        let plane = placed.plane();
        let is_given = given.is_some_and(|it| it.takes(manifests.planes.external_url(&plane)));
        let plane = (!is_given).then_some(plane);
        let kind = placed.subject.reference().kind;
        if let Some(what) = placed.subject.exclusive()
            && let Some(other) = exclusive.insert((plane.clone(), kind.clone(), what), placed)
        {
            let message = format!(
                "only one {kind} of a deployment can set {what}, and {} does already: remove it from one of the two",
                other.place
            );
            mistakes.push(Mistake { place: placed.place.clone(), message });
        }
        let key = (plane, kind, target.to_lowercase());
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
            let loaded = load(&Sources::Files(vec![file.clone()]), None).unwrap();
            let mistakes = loaded.err().unwrap_or_default();
            assert_eq!(mistakes, [], "{}", file.display());
            count += 1;
        }
        assert!(count >= api::crds().len(), "{count}");
    }
}
