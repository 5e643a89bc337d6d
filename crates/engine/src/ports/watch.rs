//! What a watch of objects shows.

use std::fmt;

use futures::stream::BoxStream;
use kube::core::Selector;

use super::{ClusterError, object::Live};

/// Objects of one resource that are watched.
#[derive(Debug, Clone)]
pub struct Watch {
    /// As `apps/v1`.
    pub api_version: String,
    pub kind: String,
    /// The namespace. `None` for all that the operator serves.
    pub namespace: Option<String>,
    pub labels: Selector,
    /// Whether nothing but the metadata of the objects is read.
    pub only_metadata: bool,
}

impl Watch {
    /// All objects of a resource.
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        Self { api_version, kind, namespace: None, labels: Selector::default(), only_metadata: false }
    }

    /// All objects of a known type.
    pub fn all<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self::new(&K::api_version(&()), &K::kind(&()))
    }

    /// The same objects as far as they have these labels.
    #[must_use]
    pub fn labelled(self, labels: Selector) -> Self {
        Self { labels, ..self }
    }

    /// The metadata of the same objects.
    #[must_use]
    pub fn only_metadata(self) -> Self {
        Self { only_metadata: true, ..self }
    }
}

/// One event of a watch. Its order and its words are those of the watcher of `kube`.
#[derive(Clone)]
pub enum WatchEvent {
    /// A list begins. Objects that it does not show are gone.
    Init,
    /// An object of the list.
    InitApply(Live),
    /// The list is complete.
    InitDone,
    /// An object that was created or changed, or that has the labels from now on.
    Apply(Live),
    /// An object that was deleted, or that has not the labels any more. Its version is that of the deletion or the change.
    Delete(Live),
}

/// Names objects and nothing that is in them, which may be a Secret.
impl fmt::Debug for WatchEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Init => formatter.write_str("Init"),
            Self::InitDone => formatter.write_str("InitDone"),
            Self::InitApply(object) => write!(formatter, "InitApply {object:?}"),
            Self::Apply(object) => write!(formatter, "Apply {object:?}"),
            Self::Delete(object) => write!(formatter, "Delete {object:?}"),
        }
    }
}

/// The events of a watch.
pub type WatchEvents = BoxStream<'static, Result<WatchEvent, ClusterError>>;
