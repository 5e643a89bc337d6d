//! The object that a reconcile is about, for logs, metrics and what is remembered.

use crate::index::KindName;

/// The object that a reconcile is about.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) kind: KindName,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
}

impl About {
    pub(super) fn of<K: kube::Resource<DynamicType = ()>>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            kind: K::kind(&()),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            generation: meta.generation,
        }
    }

    pub(super) fn span(&self) -> tracing::Span {
        let Self { kind, namespace, name, generation, .. } = self;
        // Of the highest level, so that it is there with every line that is. Not `name`, which in JSON is the span's own.
        tracing::error_span!("reconcile", %kind, %namespace, object = %name, generation)
    }
}
