//! The objects that should be, from a manifest and what is known of the cluster.
//!
//! Every mistake of a person that the API server could not see is found here. What cannot be had now (a namespace that does not
//! consent, an API that is not installed) is left out with a notice, and holds up nothing else.

pub mod admin_job;
mod container;
mod database;
mod deployment;
mod environment;
mod exposure;
mod rbac;
mod service;
mod service_account;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use api::{CoderControlPlane, Reason};
use k8s_openapi::{api::rbac::v1::PolicyRule, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;
use secrecy::SecretSlice;
use serde_json::Value;

use super::{names, version};
use crate::{
    objects::{
        Child, Keeper as _, child,
        references::{self, Source, SourceRef},
        unless_empty,
    },
    pipeline::outcome::{Blocked, Invalid},
};

pub use database::sources_of_deployment;
pub(crate) use rbac::workspace_rules;
pub use rbac::{check_rule, consents};
pub(super) use service_account::name as service_account_name;

/// What is known of the cluster.
#[derive(Debug, Clone, Default)]
pub struct PlaneFacts {
    /// What was found of [`references`](super::references::references). What is missing there is missing here.
    pub sources: BTreeMap<SourceRef, Source>,
    /// Whether the sources are without fingerprints, as in a preview before there is a key for them. Then nothing is said of
    /// changes in them.
    pub lacks_fingerprints: bool,
    /// The key of the fingerprints, where it is not stored yet.
    pub unstored_key: Option<SecretSlice<u8>>,
    /// Whether the cluster has `HTTPRoute`s.
    pub gateway_api: bool,
    /// The namespaces that consent to take workspaces from this control plane.
    pub consenting: BTreeSet<String>,
    /// The namespaces whose consent the operator may not read, with the API server's answer.
    pub unreadable: BTreeMap<String, String>,
    /// What `extraRules` may grant.
    pub allowed_rules: Vec<PolicyRule>,
    /// The configuration of the Deployment that is there, if one is.
    pub deployed: Option<Deployed>,
    /// The newest version of Coder that has worked on the database.
    pub database_version: Option<String>,
}

/// What the Deployment that is there says of the configuration of its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deployed {
    /// The annotation of its pods.
    pub pods: Option<String>,
    /// What the pods had when we first saw them without that annotation.
    pub found: Option<String>,
    /// Where the pods take their database from, in words; `None` where no database is known.
    pub database: Option<String>,
    /// A source of `envFrom` that is missing and may have held the database; `None` where the Deployment records its database.
    pub missing_source: Option<SourceRef>,
}

/// What should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// In the order in which they are applied.
    pub children: Vec<Child>,
    /// What is left out, and what a person should know.
    pub notices: Vec<Blocked>,
}

/// The objects of a control plane that we run.
pub fn desire(plane: &CoderControlPlane, facts: &PlaneFacts) -> Result<Desired, Invalid> {
    let mut notices = Vec::new();
    let mut children = Vec::new();
    children.extend(service_account::desire(plane));
    children.extend(rbac::desire(plane, facts, &mut notices)?);
    children.push(service::desire(plane));
    let deployment = deployment::desire(plane, facts)?;
    let checked = version::check(plane.spec.image(), facts.database_version.as_deref());
    let checked = checked.and_then(|()| check_sources(plane, facts));
    match checked.and_then(|()| database::check_kept(plane, facts)) {
        // The pods that are there stay as they are.
        Err(refusal) => notices.push(refusal),
        Ok(()) => children.push(deployment),
    }
    children.extend(exposure::desire(plane, facts, &mut notices)?);
    notices.extend(version::check_named(plane.spec.image()));
    notices.extend(database::absence(&plane.spec, facts));
    notices.extend(plane.spec.template_tests.as_ref().map(|_| {
        Blocked {
            reason: Reason::NotSupported,
            message:
                "spec.templateTests is not used: template tests are a kind of coder-k8s; remove the field"
                    .to_owned(),
        }
    }));
    Ok(Desired { children, notices })
}

/// Whether everything is there that the pods read. One that went away may come back as it was: pods that run are not
/// replaced by others that cannot.
fn check_sources(plane: &CoderControlPlane, facts: &PlaneFacts) -> Result<(), Blocked> {
    let missing = references::missing(&plane.spec, &facts.sources);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.into_iter().collect::<Vec<_>>().join(", ");
    let message = format!("pods not rolled out: missing {names}; create them");
    Err(Blocked { reason: Reason::SecretNotFound, message })
}

impl Deployed {
    /// What a Deployment says. `sources` has to hold [`sources_of_deployment`].
    pub fn of(deployment: &Value, sources: &BTreeMap<SourceRef, Source>) -> Self {
        let text = |at: &str, key: &str| {
            deployment.pointer(at).and_then(|it| it.get(key)).and_then(Value::as_str).map(str::to_owned)
        };
        Self {
            pods: text("/spec/template/metadata/annotations", api::annotation::CONFIGURATION),
            found: text("/metadata/annotations", api::annotation::CONFIGURATION_FOUND),
            database: database::of_deployment(deployment, sources),
            missing_source: database::missing_source(deployment, sources),
        }
    }
}

/// What the objects in the control plane's own namespace have in common: its name, its labels, and that they go with it.
fn metadata(plane: &CoderControlPlane) -> ObjectMeta {
    ObjectMeta {
        name: Some(plane.name_any()),
        namespace: plane.namespace(),
        labels: Some(names::labels(&plane.name_any())),
        owner_references: Some(vec![plane.owner()]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests;
