//! Templates of a deployment, and the archives and versions that this process has sent.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use client::{
    Downloads, Error,
    audit::{AuditEntry, ENTRIES},
    templates::{Template, TemplateAccess},
};
use jiff::Timestamp;
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use super::{Coder, shared};
use crate::{ports::Cluster, secrets::SecretPlace};

/// How long the access to a template counts as known.
const ACCESS_KEPT: Duration = Duration::from_hours(1);
/// How many archives of other hosts are remembered.
const MOST_ARCHIVES: usize = 4;
/// How many versions are remembered with what they were compared with.
const MOST_COMPARED: usize = 1000;

/// What may read an archive of another host: the digest alone gives no right to its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchiveKey {
    /// The namespace of the manifest, within which credentials are shared.
    pub(crate) namespace: String,
    pub(crate) url: Url,
    pub(crate) credentials: Option<SecretPlace>,
    /// As hexadecimal digits.
    pub(crate) digest: String,
}

/// The access to a template, with the last entry of the audit log before it was read.
#[derive(Debug)]
pub(super) struct KnownAccess {
    access: Arc<TemplateAccess>,
    updated_at: String,
    /// `None` where the log was empty.
    last: Option<AuditEntry>,
    read: Instant,
}

impl Coder {
    /// The time, by the clock of the cluster or of the files. The beginning of time where there are neither: nothing is late then.
    pub(crate) fn now(&self) -> Timestamp {
        self.references().map_or(Timestamp::UNIX_EPOCH, Cluster::now)
    }

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

    /// Who may use and administer a template. Coder shows that only template by template, and the template itself does not show that
    /// it was changed: `updated_at` stays. A controller remembers what it has read, and asks again where the template was changed,
    /// where the audit log has a change of the access since, where the log does not reach back that far or cannot be read, and after
    /// an hour. One read of the log serves all templates. The command line has no memory, and asks.
    pub(crate) async fn template_access(&self, template: &Template) -> Result<Arc<TemplateAccess>, Error> {
        let remembers = self.beside.as_ref().is_some_and(|it| it.writes_status);
        let log = if remembers { self.recent_audit_log().await } else { Arc::new(None) };
        let entries = Option::as_ref(&log).map(|it| it.entries.as_slice());
        if let Some(known) = entries.and_then(|it| self.known_access(template, it)) {
            return Ok(known);
        }
        let access = Arc::new(self.client.template_access(template.id).await?);
        if let Some(entries) = entries {
            let known = KnownAccess {
                access: Arc::clone(&access),
                updated_at: template.updated_at.clone(),
                last: entries.first().cloned(),
                read: Instant::now(),
            };
            let mut all = self.reads.access.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, it| it.read.elapsed() < ACCESS_KEPT);
            all.insert(template.id, known);
        }
        Ok(access)
    }

    fn known_access(&self, template: &Template, entries: &[AuditEntry]) -> Option<Arc<TemplateAccess>> {
        let all = self.reads.access.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&template.id)?;
        let is_kept = known.read.elapsed() < ACCESS_KEPT && known.updated_at == template.updated_at;
        let later = match &known.last {
            Some(last) => entries.iter().position(|it| it == last).and_then(|it| entries.get(..it))?,
            None if entries.len() < ENTRIES => entries,
            None => return None,
        };
        let is_change = |it: &AuditEntry| {
            it.resource_id == template.id
                && ["user_acl", "group_acl"].iter().any(|field| it.diff.contains_key(*field))
        };
        (is_kept && !later.iter().any(is_change)).then(|| Arc::clone(&known.access))
    }

    /// Drops what is known of the access to a template, after a write.
    pub(crate) fn forget_template_access(&self, template: Uuid) {
        self.reads.access.lock().unwrap_or_else(PoisonError::into_inner).remove(&template);
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

    /// Whether this process has published a version of something else: one of the same content, for another template.
    pub(crate) fn is_of_another(&self, version: Uuid, what: &str) -> bool {
        let published = self.reads.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.iter().any(|(other, it)| *it == version && other != what)
    }

    pub(crate) fn note_published(&self, what: &str, version: Uuid) {
        self.reads.published.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned(), version);
    }

    /// Whether a version has this content, where this process has compared them.
    pub(crate) fn compared(&self, version: Uuid, content: &str) -> Option<bool> {
        let compared = self.reads.compared.lock().unwrap_or_else(PoisonError::into_inner);
        compared.get(&version)?.get(content).copied()
    }

    pub(crate) fn note_compared(&self, version: Uuid, content: &str, is_same: bool) {
        let mut compared = self.reads.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if compared.len() >= MOST_COMPARED {
            compared.clear();
        }
        compared.entry(version).or_default().insert(content.to_owned(), is_same);
    }

    /// The same with a way to other hosts, for archives that manifests name.
    #[must_use]
    pub fn downloading(self, downloads: Downloads) -> Self {
        Self { downloads: Some(downloads), ..self }
    }

    pub(crate) fn downloads(&self) -> Option<&Downloads> {
        self.downloads.as_ref()
    }

    /// The files of an archive, packed, where this process has read it for the same address with the same credentials.
    pub(crate) fn archive(&self, key: &ArchiveKey) -> Option<Arc<Vec<u8>>> {
        let archives = self.reads.archives.lock().unwrap_or_else(PoisonError::into_inner);
        archives.iter().find(|(it, _)| it == key).map(|(_, packed)| Arc::clone(packed))
    }

    pub(crate) fn note_archive(&self, key: &ArchiveKey, packed: &Arc<Vec<u8>>) {
        let mut archives = self.reads.archives.lock().unwrap_or_else(PoisonError::into_inner);
        archives.retain(|(it, _)| it != key);
        if archives.len() >= MOST_ARCHIVES {
            archives.remove(0);
        }
        archives.push((key.clone(), Arc::clone(packed)));
    }

    /// Why the version that was tested in this workspace failed, where this process knows it.
    pub(crate) fn failed_test(&self, workspace: &str) -> Option<String> {
        self.reads.failed_tests.lock().unwrap_or_else(PoisonError::into_inner).get(workspace).cloned()
    }

    pub(crate) fn note_failed_test(&self, workspace: &str, why: &str) {
        let mut known = self.reads.failed_tests.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(workspace.to_owned(), why.to_owned());
    }

    fn uploads(&self) -> MutexGuard<'_, HashMap<String, Uuid>> {
        self.reads.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
