//! The audit log: who changed what.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{get, routes},
};

/// How many entries are read. The log is long, and what is asked for happened lately.
pub const ENTRIES: usize = 200;

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct AuditEntry {
    pub time: Timestamp,
    /// The program that sent the request, as it names itself.
    #[serde(default)]
    pub user_agent: String,
    /// For example `group`.
    pub resource_type: String,
    pub resource_id: Uuid,
    /// The name of the object.
    #[serde(default)]
    pub resource_target: String,
    /// The fields that were changed, by Coder's names.
    #[serde(default, deserialize_with = "null_as_default")]
    pub diff: BTreeMap<String, AuditDiff>,
    /// The status of the answer. Refused attempts are in the log, too.
    #[serde(default)]
    pub status_code: u16,
    /// Nil for an object of the whole deployment.
    #[serde(default)]
    pub organization_id: Uuid,
    /// `None` for what Coder did by itself.
    #[serde(default)]
    pub user: Option<AuditUser>,
}

/// A field that was changed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
pub struct AuditDiff {
    /// The value after the change. `Null` for a secret one.
    #[serde(default)]
    pub new: Value,
}

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct AuditUser {
    pub id: Uuid,
    #[serde(default)]
    pub username: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct AuditPage {
    #[serde(default, deserialize_with = "null_as_default")]
    audit_logs: Vec<AuditEntry>,
}

routes! {
    AUDIT_LOG = get("/api/v2/audit").reads::<AuditPage>();
}

impl Client {
    /// Reads the last changes of objects that existed, newest first. Needs the right to read the audit log.
    pub async fn last_audited_writes(&self) -> Result<Vec<AuditEntry>, Error> {
        let call = self.call(&AUDIT_LOG).query("q", &"action:write").query("limit", &ENTRIES);
        Ok(call.read::<AuditPage>().await?.audit_logs)
    }
}
