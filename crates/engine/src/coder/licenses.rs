//! The licences of a deployment, as a shared list.

use std::sync::Arc;

use client::{Error, licenses::License};
use tokio::time::Instant;

use super::Coder;

impl Coder {
    /// All licences, expired ones included.
    pub(crate) async fn licenses(&self) -> Result<Arc<Vec<License>>, Error> {
        let read = || self.client.list_licenses();
        Ok(self.used(self.reads.licenses.get(self.need, read).await?))
    }

    /// Enters a licence that coderd has just added.
    pub(crate) async fn note_license(&self, license: &License) {
        self.reads.licenses.note(Instant::now(), |list| list.push(license.clone())).await;
    }

    /// Removes a licence that was deleted.
    pub(crate) async fn note_license_gone(&self, id: i32) {
        self.reads.licenses.note(Instant::now(), |list| list.retain(|it| it.id != id)).await;
    }

    /// Drops the list, after an upload whose effect is unknown.
    pub(crate) async fn forget_licenses(&self) {
        self.reads.licenses.forget().await;
    }
}
