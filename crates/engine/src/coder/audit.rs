//! The audit log of a deployment: read only where something drifted, and once for everything that did.

use std::{convert::Infallible, sync::Arc, time::Duration};

use client::{Error, audit::AuditEntry};
use uuid::Uuid;

use super::{Coder, Freshness};

/// The feature without which Coder keeps no log for people to read.
const AUDIT_LOG: &str = "audit_log";

/// The last writes of the log.
#[derive(Debug)]
pub(crate) struct AuditLog {
    /// Newest first.
    pub(crate) entries: Vec<AuditEntry>,
    /// The account that we ask with.
    pub(crate) own: Uuid,
}

impl Coder {
    /// Reads the last writes of the audit log. `None` without the licence, without the right, and while Coder does not answer.
    pub(crate) async fn audit_log(&self) -> Arc<Option<AuditLog>> {
        self.audit_log_of(self.need_of_the_log()).await
    }

    /// The same, as recent as every other list.
    pub(super) async fn recent_audit_log(&self) -> Arc<Option<AuditLog>> {
        self.audit_log_of(self.need).await
    }

    async fn audit_log_of(&self, need: Freshness) -> Arc<Option<AuditLog>> {
        let is_kept = self.licensed().await.is_ok_and(|it| it.1.is_enabled(AUDIT_LOG));
        if !is_kept {
            return Arc::new(None);
        }
        // A refusal is cached too, so that no other object asks again.
        let read = async || Ok::<_, Infallible>(self.read_audit_log().await.ok());
        let Ok(read) = self.reads.audit_log.get(need, read).await;
        read.value
    }

    /// A log from before the list that shows the drift would not have its cause. A run of the command line reads once.
    fn need_of_the_log(&self) -> Freshness {
        match (self.need, self.evidence.latest()) {
            (Freshness::UpTo(Duration::MAX), _) | (_, None) => self.need,
            (_, Some(latest)) => Freshness::BegunAfter(latest),
        }
    }

    async fn read_audit_log(&self) -> Result<AuditLog, Error> {
        let entries = self.client.last_audited_writes().await?;
        // The account of a token is always the same.
        let own = self.with(Freshness::UpTo(Duration::MAX)).own_account().await?;
        Ok(AuditLog { entries, own: own.id })
    }
}
