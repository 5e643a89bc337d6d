//! `CoderUser`: an account of a deployment, of a person or of a service.

use kube::{
    CustomResource, KubeSchema,
    core::{Message, Rule},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    policy::Policy,
    reference::{ControlPlaneRef, SecretKeyRef},
    rules, schema,
    status::Status,
};

/// An account of a Coder deployment. Fields that are absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderUser",
    doc = "An account of a Coder deployment",
    namespaced,
    status = "Status",
    shortname = "cuser",
    printcolumn = r#"{"name":"User","type":"string","jsonPath":".spec.username"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = metadata_name()
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = has_email(),
    validation = service_account_has_no_email(),
    validation = service_account_has_no_login(),
    validation = password_has_its_login_type(),
    validation = email_stays(),
    validation = login_type_stays(),
    validation = service_account_stays()
)]
pub struct CoderUserSpec {
    /// The control plane. Immutable.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The user name. Defaults to `metadata.name`. A change renames the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = rules::name(), validation = rules::not_reserved())]
    pub username: Option<String>,
    /// The e-mail address. Required unless `serviceAccount` is true. Immutable: Coder cannot change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 320), regex(pattern = r"^[^@\s]+@[^@\s]+$"))]
    pub email: Option<String>,
    /// How the user signs in. Defaults to `password`, and to `none` for a service account. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_type: Option<LoginType>,
    /// The password that a new user of login type `password` begins with. It is sent once, when the user is created, and never
    /// again: a changed Secret does not change the password. The key defaults to `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_secret_ref: Option<SecretKeyRef>,
    /// Whether the account is one of a service, which has no e-mail address and no password. Needs a Premium licence. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<bool>,
    /// The roles in the whole deployment: `owner`, `user-admin`, `template-admin`, `auditor`. The list is complete. Absent means
    /// that the roles are managed elsewhere, for example by the identity provider; `[]` removes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::site_roles")]
    pub roles: Option<Vec<String>>,
    /// The organizations that the user is a member of, by name; `default` is the default organization. The list is complete.
    /// Absent means that membership is managed elsewhere; a new user is then a member of the default organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::organizations")]
    pub organizations: Option<Vec<String>>,
    /// Whether the user is suspended: signed out, and not able to sign in. A service account, which never signs in, becomes dormant
    /// in Coder after a while; `false` keeps it active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
}

/// How a user signs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoginType {
    Password,
    Oidc,
    Github,
    None,
}

impl LoginType {
    /// Coder's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Oidc => "oidc",
            Self::Github => "github",
            Self::None => "none",
        }
    }
}

impl CoderUser {
    /// The user name in Coder.
    pub fn username(&self) -> &str {
        self.spec.username.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

/// The object's own name, where it stands in for `spec.username`.
fn metadata_name() -> Rule {
    let name = rules::NAME;
    Rule::new(format!(
        "has(self.spec.username) || (self.metadata.name.size() <= 32 && self.metadata.name.matches('{name}') && \
         !(self.metadata.name in ['new', 'create']))"
    ))
    .message(Message::Message(
        "metadata.name cannot be a user name in Coder (letters and digits with single hyphens between them, at most 32 \
         characters, not `new` or `create`): set spec.username"
            .to_owned(),
    ))
}

const IS_SERVICE: &str = "(has(self.serviceAccount) && self.serviceAccount)";

fn has_email() -> Rule {
    Rule::new(format!("{IS_SERVICE} || has(self.email)"))
        .message("is required: only a service account has no e-mail address")
        .field_path(".email")
}

fn service_account_has_no_email() -> Rule {
    Rule::new(format!("!{IS_SERVICE} || !has(self.email)"))
        .message("cannot be set for a service account: leave it out")
        .field_path(".email")
}

fn service_account_has_no_login() -> Rule {
    Rule::new(format!("!{IS_SERVICE} || !has(self.loginType) || self.loginType == 'none'"))
        .message("must be `none` for a service account: leave it out")
        .field_path(".loginType")
}

fn password_has_its_login_type() -> Rule {
    let has_login = "!has(self.loginType) || self.loginType == 'password'";
    Rule::new(format!("!has(self.passwordSecretRef) || (!{IS_SERVICE} && ({has_login}))"))
        .message("needs loginType `password`: leave it out for every other user")
        .field_path(".passwordSecretRef")
}

/// A field that Coder cannot change, for the spec as a whole: a rule of the field alone would not see it come or go.
fn stays(field: &str) -> Rule {
    let has = |of: &str| format!("has({of}.{field})");
    Rule::new(format!(
        "{} == {} && (!{} || self.{field} == oldSelf.{field})",
        has("self"),
        has("oldSelf"),
        has("self")
    ))
    .message("cannot be changed: Coder cannot change it, so create another object")
}

fn email_stays() -> Rule {
    stays("email").field_path(".email")
}

fn login_type_stays() -> Rule {
    stays("loginType").field_path(".loginType")
}

fn service_account_stays() -> Rule {
    stays("serviceAccount").field_path(".serviceAccount")
}
