//! The Job that makes our account with the image's own command, where there is no gentler way in.
//!
//! Its pod is the Deployment's with another command, because the database is reached from there and perhaps from nowhere else. The
//! Secret beside it is the record of what is being made: it is there before the Job and goes after our token is kept, so whoever
//! comes later finds the same name and the same password.

use std::collections::BTreeMap;

use api::{CoderControlPlane, Reason, annotation};
use k8s_openapi::{
    ByteString,
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{Affinity, EnvVar, EnvVarSource, PodSpec, PodTemplateSpec, Secret, SecretKeySelector},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::{PlaneFacts, database, deployment, metadata, unless_empty};
use crate::{
    kinds::control_plane::{account::Account, names, version},
    objects::references,
    pipeline::outcome::{Blocked, Invalid},
};

/// The image's own command, after `coder server`, which the image runs by itself.
const COMMAND: &str = "create-admin-user";
/// Flags of the server that the command has too.
const FLAGS: [&str; 2] = ["--postgres-url", "--postgres-connection-auth"];
/// The variables that the command reads, and the keys of the Secret.
const VARIABLES: [(&str, &str); 3] =
    [("CODER_USERNAME", USERNAME), ("CODER_EMAIL", EMAIL), ("CODER_PASSWORD", PASSWORD)];
const USERNAME: &str = "username";
const EMAIL: &str = "email";
const PASSWORD: &str = "password";

/// The image has to be there and the database has to answer; the command itself gives up after half a minute.
const DEADLINE_SECONDS: i64 = 600;
/// A Job that failed is looked at for this long; then it goes, and another one is tried.
const RETRIED_AFTER_SECONDS: i32 = 300;

/// The Job, if there can be one: Coder that keeps its database in its pod lets nobody else at it.
pub fn desire(plane: &CoderControlPlane, facts: &PlaneFacts) -> Result<Option<Job>, Blocked> {
    if !database::is_declared(&plane.spec, facts) {
        return Ok(None);
    }
    version::check(plane.spec.image(), facts.database_version.as_deref())
        .map_err(|it| Blocked { reason: it.reason, message: it.message })?;
    let pod = pod(plane, facts).map_err(|it| Blocked {
        reason: Reason::Invalid,
        message: format!("{}: {}", it.field, it.message),
    })?;
    let labels = names::admin_job_labels(&plane.name_any());
    let mut pod_labels = plane.spec.pod_labels.clone().unwrap_or_default();
    pod_labels.extend(labels.clone());
    let pod_annotations = plane.spec.pod_annotations.clone().unwrap_or_default();
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels),
            annotations: unless_empty(pod_annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(pod),
    };
    let configuration = configuration(plane, facts, &template);
    let metadata = ObjectMeta {
        name: Some(names::admin_job(plane)),
        labels: Some(labels),
        annotations: Some(BTreeMap::from([(annotation::CONFIGURATION.to_owned(), configuration)])),
        ..metadata(plane)
    };
    let spec = JobSpec {
        // The command tries for itself to reach the database, and cannot be run again once it has worked.
        backoff_limit: Some(0),
        active_deadline_seconds: Some(DEADLINE_SECONDS),
        ttl_seconds_after_finished: Some(RETRIED_AFTER_SECONDS),
        template,
        ..JobSpec::default()
    };
    Ok(Some(Job { metadata, spec: Some(spec), status: None }))
}

/// The Secret with what is to be made. Nobody changes it: another password than the account's would lock us out.
pub fn secret(plane: &CoderControlPlane, username: &str, email: &str, password: &SecretString) -> Secret {
    let bytes = |it: &str| ByteString(it.as_bytes().to_vec());
    let data = BTreeMap::from([
        (USERNAME.to_owned(), bytes(username)),
        (EMAIL.to_owned(), bytes(email)),
        (PASSWORD.to_owned(), bytes(password.expose_secret())),
    ]);
    let metadata = ObjectMeta {
        name: Some(names::admin_job(plane)),
        labels: Some(names::admin_job_labels(&plane.name_any())),
        ..metadata(plane)
    };
    Secret { metadata, data: Some(data), immutable: Some(true), ..Secret::default() }
}

/// The account that a Secret is about, and its user name.
pub fn account(secret: &Secret) -> Option<(String, Account)> {
    let text = |key: &str| {
        let text = str::from_utf8(&secret.data.as_ref()?.get(key)?.0).ok()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let password = SecretString::from(text(PASSWORD)?);
    Some((text(USERNAME)?, Account { email: text(EMAIL)?, password }))
}

/// Whether a Job was made from what is declared now.
pub fn is_current(found: &Job, wanted: &Job) -> bool {
    let of = |it: &Job| it.annotations().get(annotation::CONFIGURATION).cloned();
    of(found) == of(wanted)
}

/// The Deployment's pod, with another command and without what only a server has.
fn pod(plane: &CoderControlPlane, facts: &PlaneFacts) -> Result<PodSpec, Invalid> {
    let mut pod = deployment::pod(plane, facts)?;
    for container in &mut pod.containers {
        let declared = plane.spec.extra_args.as_deref().unwrap_or_default();
        container.args = Some(std::iter::once(COMMAND.to_owned()).chain(shared_flags(declared)).collect());
        let variables = container.env.get_or_insert_default();
        variables.retain(|it| VARIABLES.iter().all(|(name, _)| it.name != *name));
        variables
            .extend(VARIABLES.iter().map(|(name, key)| from_secret(name, &names::admin_job(plane), key)));
        (container.ports, container.readiness_probe, container.liveness_probe) = (None, None, None);
        // What it says at its end is told in a condition.
        container.termination_message_policy = Some("FallbackToLogsOnError".to_owned());
    }
    pod.restart_policy = Some("Never".to_owned());
    // Where servers stand to each other is no concern of a pod that ends.
    pod.topology_spread_constraints = None;
    pod.affinity = pod
        .affinity
        .and_then(|it| it.node_affinity)
        .map(|node_affinity| Affinity { node_affinity: Some(node_affinity), ..Affinity::default() });
    Ok(pod)
}

fn from_secret(name: &str, secret: &str, key: &str) -> EnvVar {
    let selector = SecretKeySelector { name: secret.to_owned(), key: key.to_owned(), optional: None };
    let from = EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(from) }
}

/// The flags that say where the database is, as `--flag=value` or as two words.
fn shared_flags(declared: &[String]) -> Vec<String> {
    let mut flags = Vec::new();
    let mut words = declared.iter();
    while let Some(word) = words.next() {
        let is_one =
            |flag: &&str| word.strip_prefix(*flag).is_some_and(|it| it.is_empty() || it.starts_with('='));
        if FLAGS.iter().any(is_one) {
            flags.push(word.clone());
            if !word.contains('=') {
                flags.extend(words.next().cloned());
            }
        }
    }
    flags
}

/// Changes with the pod and with what it reads: then a Job that failed is worth another one at once.
fn configuration(plane: &CoderControlPlane, facts: &PlaneFacts, template: &PodTemplateSpec) -> String {
    let mut hash = Sha256::new();
    hash.update(serde_json::to_vec(template).unwrap_or_default());
    hash.update(references::configuration(&plane.spec, &facts.sources));
    base16ct::lower::encode_string(&hash.finalize()[..16])
}

#[cfg(test)]
mod tests;
