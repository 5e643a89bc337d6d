//! The objects that should be for a provisioner: the daemons' account, its rights, and the daemons.

#[cfg(test)]
mod tests;

use api::{CoderProvisioner, annotation};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Container, EnvVar, EnvVarSource, KeyToPath, ObjectFieldSelector, PodSpec, PodTemplateSpec,
            SecretKeySelector, SecretVolumeSource, ServiceAccount, Volume, VolumeMount,
        },
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};

use super::names;
use crate::{
    objects::{
        Child, Keeper as _, child, hardening,
        pods::{pull_secrets, spread, variable, with_declared},
        unless_empty,
    },
    pipeline::outcome::Invalid,
};

const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
const CONTAINER: &str = "provisioner";
/// Where the certificates of the control plane's authority are in the pods.
const AUTHORITY: &str = "/etc/coder/authority";
const AUTHORITY_VOLUME: &str = "coder-authority";
/// The folders in which Go looks for certificates, and so do the daemon and Terraform.
const CERTIFICATES: &str = "/etc/ssl/certs:/etc/pki/tls/certs";

/// What the daemons are told, and how many of them there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonFacts {
    /// Where the control plane is.
    pub url: String,
    pub image: String,
    /// The Secret and the key in it that hold the daemons' key.
    pub secret: (String, String),
    /// Tells this key from any other, on the pods.
    pub checksum: String,
    pub replicas: i32,
    pub authority: Option<Authority>,
}

/// Certificates to trust beyond the usual ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    pub secret: String,
    pub key: String,
    /// Tells them from any others: daemons read them when they start.
    pub fingerprint: String,
}

/// What tells certificates from others. They are no secret.
pub fn fingerprint(certificates: &[u8]) -> String {
    base16ct::lower::encode_string(&Sha256::digest(certificates)[..16])
}

/// The objects, in the order in which they are applied.
pub fn desire(provisioner: &CoderProvisioner, facts: &DaemonFacts) -> Result<Vec<Child>, Invalid> {
    let mut children = Vec::new();
    // One of somebody else is used as it is, with whatever rights it has.
    if provisioner.spec.service_account_name().is_none() {
        children.push(service_account(provisioner));
        children.extend(rights(provisioner).into_iter().flatten());
    }
    children.push(deployment(provisioner, facts)?);
    Ok(children)
}

/// The account of the daemons, whoever made it.
fn account(provisioner: &CoderProvisioner) -> String {
    let declared = provisioner.spec.service_account_name();
    declared.map_or_else(|| names::account(&provisioner.name_any()), str::to_owned)
}

fn service_account(provisioner: &CoderProvisioner) -> Child {
    let spec = provisioner.spec.service_account.clone().unwrap_or_default();
    let mut metadata = ObjectMeta { name: Some(account(provisioner)), ..metadata(provisioner) };
    metadata.labels.get_or_insert_default().extend(spec.labels.unwrap_or_default());
    metadata.annotations = spec.annotations.and_then(unless_empty);
    child(&ServiceAccount { metadata, ..ServiceAccount::default() }, "the daemons' account")
}

fn metadata(provisioner: &CoderProvisioner) -> ObjectMeta {
    ObjectMeta {
        name: Some(names::workload(provisioner)),
        namespace: provisioner.namespace(),
        labels: Some(names::labels(&provisioner.name_any())),
        owner_references: Some(vec![provisioner.owner()]),
        ..ObjectMeta::default()
    }
}

/// What templates need to make workspaces in the daemons' namespace.
fn rights(provisioner: &CoderProvisioner) -> Option<[Child; 2]> {
    let spec = provisioner.spec.rbac.clone().unwrap_or_default();
    if !spec.has_workspace_perms() {
        return None;
    }
    let metadata = || metadata(provisioner);
    let role = Role { metadata: metadata(), rules: Some(workspace_rules(spec.enables_deployments())) };
    let binding = RoleBinding {
        metadata: metadata(),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: names::workload(provisioner),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account(provisioner),
            namespace: provisioner.namespace(),
            api_group: None,
        }]),
    };
    Some([child(&role, "permissions for workspaces"), child(&binding, "permission to create workspaces")])
}

/// The rights that templates need to make workspaces.
pub(crate) fn workspace_rules(deployments: bool) -> Vec<PolicyRule> {
    let mut rules = vec![rule("", &["pods", "persistentvolumeclaims"])];
    if deployments {
        rules.push(rule("apps", &["deployments"]));
    }
    rules
}

fn rule(group: &str, resources: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(|it| (*it).to_owned()).collect()),
        verbs: VERBS.map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    }
}

fn deployment(provisioner: &CoderProvisioner, facts: &DaemonFacts) -> Result<Child, Invalid> {
    let (spec, labels) = (&provisioner.spec, names::labels(&provisioner.name_any()));
    let mut pod_labels = spec.pod_labels.clone().unwrap_or_default();
    // The selector finds pods by these, so nobody else's value may stand there.
    pod_labels.extend(labels.clone());
    let mut pod_annotations = spec.pod_annotations.clone().unwrap_or_default();
    pod_annotations.insert(annotation::PROVISIONER_KEY_CHECKSUM.to_owned(), facts.checksum.clone());
    if let Some(authority) = &facts.authority {
        pod_annotations.insert(annotation::CONFIGURATION.to_owned(), authority.fingerprint.clone());
    }
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels),
            annotations: unless_empty(pod_annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(pod(provisioner, facts)?),
    };
    let spec = DeploymentSpec {
        replicas: Some(facts.replicas),
        selector: LabelSelector { match_labels: Some(labels), match_expressions: None },
        template,
        ..DeploymentSpec::default()
    };
    let deployment = Deployment { metadata: metadata(provisioner), spec: Some(spec), status: None };
    Ok(child(&deployment, "the daemons"))
}

fn pod(provisioner: &CoderProvisioner, facts: &DaemonFacts) -> Result<PodSpec, Invalid> {
    let spec = &provisioner.spec;
    let context = hardening::pod(spec.pod_security_context.as_ref(), spec.security_context.as_ref());
    let (volumes, mounts) = volumes(provisioner, facts)?;
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(facts.image.clone()),
        command: Some(vec!["coder".to_owned()]),
        args: Some(
            ["provisioner", "start"]
                .map(str::to_owned)
                .into_iter()
                .chain(spec.extra_args.iter().flatten().cloned())
                .collect(),
        ),
        env: Some(with_declared(built_in(facts), spec.extra_env.as_deref().unwrap_or_default())?),
        env_from: spec.env_from.clone().filter(|it| !it.is_empty()),
        resources: spec.resources.clone(),
        security_context: Some(hardening::container(spec.security_context.as_ref())),
        volume_mounts: (!mounts.is_empty()).then_some(mounts),
        ..Container::default()
    };
    Ok(PodSpec {
        service_account_name: Some(account(provisioner)),
        security_context: Some(context),
        termination_grace_period_seconds: Some(spec.termination_grace_period()),
        image_pull_secrets: spec.image_pull_secrets.as_deref().and_then(pull_secrets),
        containers: vec![container],
        volumes: (!volumes.is_empty()).then_some(volumes),
        node_selector: spec.node_selector.clone().and_then(unless_empty),
        tolerations: spec.tolerations.clone().filter(|it| !it.is_empty()),
        affinity: spec.affinity.clone(),
        topology_spread_constraints: spread(spec.topology_spread_constraints.as_deref())?,
        priority_class_name: spec.priority_class_name.clone(),
        ..PodSpec::default()
    })
}

/// Never `CODER_ORGANIZATION`: the key says it, and a daemon that is told both does not start.
fn built_in(facts: &DaemonFacts) -> Vec<EnvVar> {
    let from = |name: &str, source: EnvVarSource| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(source),
    };
    let (secret, key) = facts.secret.clone();
    let key = SecretKeySelector { name: secret, key, optional: None };
    let name =
        ObjectFieldSelector { api_version: Some("v1".to_owned()), field_path: "metadata.name".to_owned() };
    let mut variables = vec![
        variable("CODER_URL", facts.url.clone()),
        from(
            "CODER_PROVISIONER_DAEMON_KEY",
            EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() },
        ),
        from(
            "CODER_PROVISIONER_DAEMON_NAME",
            EnvVarSource { field_ref: Some(name), ..EnvVarSource::default() },
        ),
    ];
    if facts.authority.is_some() {
        variables.push(variable("SSL_CERT_DIR", format!("{CERTIFICATES}:{AUTHORITY}")));
    }
    variables
}

/// The volumes and their mounts: the authority's certificates first, then what a person adds.
fn volumes(
    provisioner: &CoderProvisioner,
    facts: &DaemonFacts,
) -> Result<(Vec<Volume>, Vec<VolumeMount>), Invalid> {
    let mut volumes = Vec::new();
    let mut mounts = Vec::new();
    if let Some(Authority { secret, key, .. }) = &facts.authority {
        // Nothing else of that Secret: it may hold a private key too.
        let item = KeyToPath { key: key.clone(), path: "authority.crt".to_owned(), mode: None };
        let source = SecretVolumeSource {
            secret_name: Some(secret.clone()),
            items: Some(vec![item]),
            ..SecretVolumeSource::default()
        };
        volumes.push(Volume { name: AUTHORITY_VOLUME.to_owned(), secret: Some(source), ..Volume::default() });
        mounts.push(VolumeMount {
            name: AUTHORITY_VOLUME.to_owned(),
            mount_path: AUTHORITY.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    }
    let declared = provisioner.spec.volumes.iter().flatten();
    for (index, volume) in declared.enumerate() {
        if volumes.iter().any(|it: &Volume| it.name == volume.name) {
            return Err(Invalid::new(
                &format!("spec.volumes[{index}].name"),
                format!("`{}` is the name of another volume: choose one that is free", volume.name),
            ));
        }
        volumes.push(volume.clone());
    }
    mounts.extend(provisioner.spec.volume_mounts.iter().flatten().cloned());
    Ok((volumes, mounts))
}
