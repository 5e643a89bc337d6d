//! Templates of a deployment, and the archives and versions that this process has sent.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError},
};

use client::{Error, templates::Template};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Coder, shared};

impl Coder {
    /// Every template of an organization, deprecated ones included.
    pub async fn templates(&self, organization: Uuid) -> Result<Arc<Vec<Template>>, Error> {
        let read = || self.client.list_templates(organization);
        Ok(self.used(self.reads.templates.of(organization).get(self.need, read).await?))
    }

    /// Drops the list of templates, after a write whose effect is unknown.
    pub(crate) async fn forget_templates(&self, organization: Uuid) {
        self.reads.templates.of(organization).forget().await;
    }

    /// Enters a template that coderd has just answered with.
    pub(crate) async fn note_template(&self, template: &Template) {
        let answered = Instant::now();
        let enter = |list: &mut Vec<Template>| shared::enter(list, template, |it| it.id);
        self.reads.templates.of(template.organization_id).note(answered, enter).await;
    }

    /// Removes a template that was deleted.
    pub(crate) async fn note_template_gone(&self, template: &Template) {
        let answered = Instant::now();
        let remove = |list: &mut Vec<Template>| list.retain(|it| it.id != template.id);
        self.reads.templates.of(template.organization_id).note(answered, remove).await;
    }

    /// The file with these bytes, where this process has uploaded it.
    pub(crate) fn uploaded(&self, digest: &str) -> Option<Uuid> {
        self.uploads().get(digest).copied()
    }

    pub(crate) fn note_upload(&self, digest: &str, file: Uuid) {
        self.uploads().insert(digest.to_owned(), file);
    }

    pub(crate) fn forget_upload(&self, digest: &str) {
        self.uploads().remove(digest);
    }

    /// The version that this process has published of this.
    pub(crate) fn published(&self, what: &str) -> Option<Uuid> {
        self.reads.published.lock().unwrap_or_else(PoisonError::into_inner).get(what).copied()
    }

    pub(crate) fn note_published(&self, what: &str, version: Uuid) {
        self.reads.published.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned(), version);
    }

    fn uploads(&self) -> MutexGuard<'_, HashMap<String, Uuid>> {
        self.reads.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
