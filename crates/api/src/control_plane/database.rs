//! Fields of newer releases of coder-k8s: the database by reference, and the settings of its template tests.

use kube::{KubeSchema, core::Rule};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The variable that tells Coder where its database is.
pub const DATABASE_URL: &str = "CODER_PG_CONNECTION_URL";

/// The database of a deployment that we run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseSpec {
    /// The Secret key with the connection URL of a PostgreSQL database. Coder reads it as `CODER_PG_CONNECTION_URL`.
    pub connection_secret_ref: ConnectionSecretRef,
}

/// A key of a Secret with a connection URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionSecretRef {
    /// The name of a Secret in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// Settings of coder-k8s for its kind `CoderTemplateTest`. They are stored as they are and not used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TemplateTests(pub Map<String, Value>);

impl JsonSchema for TemplateTests {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TemplateTests".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

/// Of two declared databases one would be ignored in silence.
pub(super) fn is_declared_once() -> Rule {
    Rule::new(format!(
        "!has(self.database) || !has(self.extraEnv) || !self.extraEnv.exists(it, it.name == '{DATABASE_URL}')"
    ))
    .message("must not be set together with CODER_PG_CONNECTION_URL in extraEnv: remove one of them")
    .field_path(".database")
}
