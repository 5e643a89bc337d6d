//! An external deployment: one that the operator does not run.

use kube::{
    KubeSchema,
    core::{Message, Rule},
};
use serde::{Deserialize, Serialize};

use crate::reference::SecretKeyRef;

/// The key that holds a token where a Secret is named without one.
pub(super) const TOKEN_KEY: &str = "token";
/// The key that holds certificates where a Secret is named without one.
const CA_KEY: &str = "ca.crt";

/// Fields that only a managed deployment has.
const OF_ONE_THAT_WE_RUN: [&str; 28] = [
    "image",
    "replicas",
    "service",
    "database",
    "extraArgs",
    "extraEnv",
    "envFrom",
    "envUseClusterAccessURL",
    "imagePullSecrets",
    "serviceAccount",
    "rbac",
    "resources",
    "securityContext",
    "podSecurityContext",
    "podAnnotations",
    "podLabels",
    "tls",
    "certs",
    "readinessProbe",
    "livenessProbe",
    "expose",
    "volumes",
    "volumeMounts",
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "templateTests",
];

/// An external deployment: one that the operator does not run, for example one of Coder's Helm chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// The URL, as `https://coder.example.com`. The credentials are sent to this origin only.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = is_http(), validation = is_only_an_address())]
    pub url: String,
    /// The Secret with the credentials: a token under `key`, which defaults to `token`; or an account under `email` and
    /// `password`, for which the operator creates and renews tokens.
    pub credentials_secret_ref: SecretKeyRef,
    /// The Secret with additional CA certificates (PEM) to trust. The key defaults to `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,
}

impl External {
    /// The key under which a bare token is.
    pub fn token_key(&self) -> &str {
        self.credentials_secret_ref.key_or(TOKEN_KEY)
    }

    /// The Secret with further certificates, as its name and key.
    pub fn ca(&self) -> Option<(&str, &str)> {
        self.ca_secret_ref.as_ref().map(|it| (it.name.as_str(), it.key_or(CA_KEY)))
    }
}

fn is_http() -> Rule {
    Rule::new("self.matches('^https?://[^/?#]')")
        .message("must be an address that begins with http:// or https://")
}

fn is_only_an_address() -> Rule {
    Rule::new("isURL(self) && !self.matches('[?#]') && !self.matches('^[^/]*//[^/]*@')")
        .message("must be an address alone: no user or password, no query, no fragment")
}

/// The refusal names the fields that stand there: one that was written by a default of coder-k8s' definition is easily
/// overlooked.
pub(super) fn stands_alone() -> Rule {
    let any = OF_ONE_THAT_WE_RUN.map(|field| format!("has(self.{field})")).join(" || ");
    let found = OF_ONE_THAT_WE_RUN.map(|field| format!("(has(self.{field}) ? ' {field}' : '')")).join(" + ");
    Rule::new(format!("!has(self.external) || !({any})"))
        .message(Message::Expression(format!(
            "'a deployment that runs elsewhere cannot be configured here; remove external, or' + {found}"
        )))
        .field_path(".external")
}

/// Access to a deployment that runs elsewhere comes from `external.credentialsSecretRef`.
pub(super) fn brings_its_credentials() -> Rule {
    let access = "self.operatorAccess";
    Rule::new(format!(
        "!has(self.external) || !has({access}) || \
         !(has({access}.firstUserSecretRef) || has({access}.adminCredentialsSecretRef))"
    ))
    .message(
        "a deployment that runs elsewhere is entered with external.credentialsSecretRef: remove \
         firstUserSecretRef and adminCredentialsSecretRef",
    )
    .field_path(".operatorAccess")
}
