//! One deployment as the stages see it: a client, and lists that are shared.
//!
//! Every list knows when its read began, and serves everybody who needs no later one. A write enters its answer into the
//! lists, so that no write makes a caller read a list again. Callers choose how recent reads have to be:
//! [`Coder::with`] is the same deployment with another need, and [`Coder::rests_on`] reports how old the used reads are.
//!
//! The ages of lists are measured with tokio's `Instant`, the one clock that is no argument: tests pause it.

pub mod address;
mod ai;
mod audit;
pub mod endpoint;
mod evidence;
mod freshness;
mod keys;
mod people;
mod shared;
mod templates;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{DEFAULT_ORGANIZATION, EVERYONE, Reason};
use client::{
    Client, Downloads, Error,
    ai_providers::AiProvider,
    deployment::{BuildInfo, Entitlements},
    groups::Group,
    members::MemberRef,
    model_configs::ModelConfig,
    organizations::{Organization, WorkspaceSharingSettings},
    provisioner_keys::ProvisionerKey,
    roles::AssignableRole,
    server_config::ServerConfig,
    templates::Template,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

pub(crate) use self::templates::ArchiveKey;
use self::{
    audit::AuditLog,
    evidence::Evidence,
    keys::KeyLists,
    people::People,
    shared::{PerOrganization, Read, Shared},
};
pub use self::{freshness::Freshness, keys::KeyList};
use crate::{
    pipeline::{
        field_gate::{FieldGate, Unsupported},
        gate::{self, Gate},
        outcome::{Blocked, Trouble},
        remote_name::RemoteName,
    },
    ports::Cluster,
    secrets::{
        FingerprintKeys,
        memory::{KeyMemory, KeyStore},
        own::OwnIntents,
    },
};

/// A deployment, and how recent what is read of it has to be. Clones share everything that was read.
#[derive(Debug, Clone)]
pub struct Coder {
    client: Client,
    reads: Arc<Reads>,
    need: Freshness,
    evidence: Arc<Evidence>,
    promises: Arc<Promises>,
    /// The deployment that this has to be, where that is known.
    expected: Option<Uuid>,
    /// The cluster, where there is one.
    beside: Option<Beside>,
    /// Where Secrets are read that manifests refer to, where that is not the cluster beside the deployment.
    references: Option<Arc<dyn Cluster>>,
    /// Whether manifests are compared without the fields whose Secrets are missing.
    skips_missing_secrets: bool,
    /// Whether manifests may name directories of this machine.
    reads_directories: bool,
    /// How archives of other hosts are read. `None` where they are not.
    downloads: Option<Downloads>,
}

/// A cluster beside a deployment, for what is kept in it.
#[derive(Clone)]
pub struct Beside {
    pub cluster: Arc<dyn Cluster>,
    /// Where Secrets and control planes that manifests refer to are read. It is the same cluster, or files in front of it.
    pub references: Arc<dyn Cluster>,
    /// What this process remembers of the keys in it.
    pub memory: Arc<KeyMemory>,
    /// Whether records are written into the status of manifests, too.
    pub writes_status: bool,
    /// The keys of fingerprints that stand in the status of manifests. `None` where no status is written.
    pub fingerprints: Option<Arc<FingerprintKeys>>,
}

impl Beside {
    /// Where provisioner keys are kept.
    pub fn key_store(&self) -> KeyStore<'_> {
        let Self { cluster, memory, writes_status, .. } = self;
        KeyStore { cluster: &**cluster, memory, writes_status: *writes_status }
    }
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Beside").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// What was read of a deployment.
#[derive(Debug, Default)]
struct Reads {
    deployment: Shared<(BuildInfo, Entitlements)>,
    organizations: Shared<Vec<Organization>>,
    groups: PerOrganization<Vec<Group>>,
    members: PerOrganization<Vec<MemberRef>>,
    roles: PerOrganization<Vec<AssignableRole>>,
    sharing: PerOrganization<WorkspaceSharingSettings>,
    keys: KeyLists,
    ai_providers: Shared<Vec<AiProvider>>,
    model_configs: Shared<Vec<ModelConfig>>,
    server_config: Shared<ServerConfig>,
    people: People,
    audit_log: Shared<Option<AuditLog>>,
    own_intents: OwnIntents,
    templates: PerOrganization<Vec<Template>>,
    access: Mutex<HashMap<Uuid, templates::KnownAccess>>,
    /// The files that this process has uploaded, by the digests of their bytes.
    uploads: Mutex<HashMap<String, Uuid>>,
    /// Archives of other hosts with what may read them, the oldest first.
    archives: Mutex<Vec<(templates::ArchiveKey, Arc<Vec<u8>>)>>,
    /// Whether versions that other tools published have a content, by the digest of the content.
    compared: Mutex<HashMap<Uuid, HashMap<String, bool>>>,
    /// The versions that this process has published, by what they are made of and for.
    published: Mutex<HashMap<String, Uuid>>,
    /// Why tests of versions failed, by the names of their workspaces.
    failed_tests: Mutex<HashMap<String, String>>,
}

/// What manifests that come earlier will have made: a plan may count on it before it is there.
#[derive(Debug, Clone, Default)]
pub struct Promises {
    organizations: BTreeSet<String>,
    groups: BTreeSet<(String, String)>,
    roles: BTreeSet<(String, String)>,
    ai_providers: BTreeSet<String>,
    /// User names by user name and by e-mail address.
    users: BTreeMap<String, String>,
}

/// Something that is referred to by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<T> {
    There(T),
    /// It will be made by a manifest that comes first.
    Promised,
    Missing,
}

impl Coder {
    /// Everything is read once, until a caller needs something more recent.
    pub fn new(client: Client, promises: Promises) -> Self {
        Self {
            client,
            reads: Arc::default(),
            need: Freshness::UpTo(Duration::MAX),
            evidence: Arc::default(),
            promises: Arc::new(promises),
            expected: None,
            beside: None,
            references: None,
            skips_missing_secrets: false,
            reads_directories: false,
            downloads: None,
        }
    }

    /// The same deployment, read as recently as this. Clones share what [`Self::rests_on`] reports; the result does not.
    #[must_use]
    pub fn with(&self, need: Freshness) -> Self {
        Self { need, evidence: Arc::default(), ..self.clone() }
    }

    /// Whether every shared read that was used through this value is as recent as that.
    pub fn rests_on(&self, need: Freshness) -> bool {
        self.evidence.meets(need)
    }

    /// The same deployment, read from now on.
    #[must_use]
    pub fn anew(&self) -> Self {
        self.with(Freshness::BegunAfter(Instant::now()))
    }

    /// The same, which stops everything as soon as another deployment answers.
    #[must_use]
    pub fn expecting(self, deployment: Uuid) -> Self {
        Self { expected: Some(deployment), ..self }
    }

    /// The same with a cluster beside it, for what is kept in Secrets.
    #[must_use]
    pub fn beside(self, beside: Beside) -> Self {
        Self { beside: Some(beside), ..self }
    }

    /// The same with a place where Secrets are read that manifests refer to, with or without a cluster behind it.
    #[must_use]
    pub fn reading(self, references: Arc<dyn Cluster>) -> Self {
        Self { references: Some(references), ..self }
    }

    /// The same, where fields count as unknown whose Secrets are missing. For comparing only.
    #[must_use]
    pub fn skipping_missing_secrets(self) -> Self {
        Self { skips_missing_secrets: true, ..self }
    }

    pub(crate) fn skips_missing_secrets(&self) -> bool {
        self.skips_missing_secrets
    }

    /// The same for manifests of this machine, which may name directories beside them.
    #[must_use]
    pub fn reading_directories(self) -> Self {
        Self { reads_directories: true, ..self }
    }

    pub(crate) fn reads_directories(&self) -> bool {
        self.reads_directories
    }

    /// Where Secrets and control planes are read that manifests refer to.
    pub(crate) fn references(&self) -> Result<&dyn Cluster, Blocked> {
        match (&self.references, &self.beside) {
            (Some(references), _) => Ok(&**references),
            (None, Some(beside)) => Ok(&*beside.references),
            (None, None) => Err(Blocked {
                reason: Reason::NeedsCluster,
                message: "the manifest refers to Secrets, and there are neither files nor a cluster to read them from: \
                          set KUBECONFIG"
                    .to_owned(),
            }),
        }
    }

    /// The cluster beside the deployment, where there is one.
    pub(crate) fn cluster(&self) -> Option<&Beside> {
        self.beside.as_ref()
    }

    /// The cluster, for a manifest that needs one.
    pub(crate) fn needed_cluster(&self) -> Result<&Beside, Blocked> {
        self.beside.as_ref().ok_or_else(|| Blocked {
            reason: Reason::NeedsCluster,
            message:
                "the manifest has objects in a cluster, and there is no Kubernetes context: set KUBECONFIG"
                    .to_owned(),
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Drops the list of organizations, after a write whose effect is unknown.
    pub(crate) async fn forget_organizations(&self) {
        self.reads.organizations.forget().await;
    }

    /// Drops the list of groups, after a write whose effect is unknown.
    pub(crate) async fn forget_groups(&self, organization: Uuid) {
        self.reads.groups.of(organization).forget().await;
    }

    /// Enters an organization that coderd has just answered with.
    pub(crate) async fn note_organization(&self, organization: &Organization) {
        let answered = Instant::now();
        let enter = |list: &mut Vec<Organization>| shared::enter(list, organization, |it| it.id);
        self.reads.organizations.note(answered, enter).await;
    }

    /// Removes an organization that was deleted.
    pub(crate) async fn note_organization_gone(&self, id: Uuid) {
        let answered = Instant::now();
        self.reads.organizations.note(answered, |list| list.retain(|it| it.id != id)).await;
    }

    /// Enters a group that coderd has just answered with.
    pub(crate) async fn note_group(&self, group: &Group) {
        let answered = Instant::now();
        let enter = |list: &mut Vec<Group>| shared::enter(list, group, |it| it.id);
        self.reads.groups.of(group.organization_id).note(answered, enter).await;
    }

    /// Removes a group that was deleted.
    pub(crate) async fn note_group_gone(&self, group: &Group) {
        let answered = Instant::now();
        let remove = |list: &mut Vec<Group>| list.retain(|it| it.id != group.id);
        self.reads.groups.of(group.organization_id).note(answered, remove).await;
    }

    /// Drops the list of roles, after a write whose effect is unknown.
    pub(crate) async fn forget_roles(&self, organization: Uuid) {
        self.reads.roles.of(organization).forget().await;
    }

    /// Enters a custom role that coderd has just answered with.
    pub(crate) async fn note_role(&self, organization: Uuid, role: &AssignableRole) {
        let answered = Instant::now();
        let enter = |list: &mut Vec<AssignableRole>| {
            list.retain(|it| it.name != role.name);
            list.push(role.clone());
        };
        self.reads.roles.of(organization).note(answered, enter).await;
    }

    /// Removes a custom role that was deleted.
    pub(crate) async fn note_role_gone(&self, organization: Uuid, name: &str) {
        let answered = Instant::now();
        let remove = |list: &mut Vec<AssignableRole>| list.retain(|it| it.name != name);
        self.reads.roles.of(organization).note(answered, remove).await;
    }

    /// Records that a read is used, and returns its value.
    fn used<T>(&self, read: Read<T>) -> Arc<T> {
        self.evidence.record(&read);
        read.value
    }

    /// Whether a kind can be kept on this deployment now. A kind without a gate needs no licence.
    pub async fn pass(&self, gate: Option<Gate>) -> Result<(), Trouble> {
        match self.deployment().await {
            Ok(known) => {
                self.check_expected(&known.0)?;
                Ok(gate::check(gate, &known.0, &known.1)?)
            }
            Err(error) if error.route_missing() => {
                if let Some(gate) = gate {
                    return Err(gate::without_licences(gate).into());
                }
                let build = self.client.build_info().await?;
                self.check_expected(&build)?;
                Ok(gate::check_version(&build)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The fields of a manifest that this deployment does not support.
    pub(crate) async fn unsupported(
        &self,
        gates: &[FieldGate],
        manifest: &Value,
    ) -> Result<Unsupported, Error> {
        if gates.is_empty() {
            return Ok(Unsupported::default());
        }
        match self.deployment().await {
            Ok(known) => Ok(Unsupported::of(gates, manifest, &known.0, Some(&known.1))),
            // A build without licences.
            Err(error) if error.route_missing() => {
                Ok(Unsupported::of(gates, manifest, &self.client.build_info().await?, None))
            }
            Err(error) => Err(error),
        }
    }

    fn check_expected(&self, build: &BuildInfo) -> Result<(), Blocked> {
        let found = build.deployment_id;
        if self.expected.is_none_or(|it| it == found) {
            return Ok(());
        }
        let message = format!("another deployment answers: {found}");
        Err(Blocked { reason: Reason::DeploymentChanged, message })
    }

    /// What tells this deployment from others.
    pub async fn deployment_id(&self) -> Result<Uuid, Error> {
        Ok(self.deployment().await?.0.deployment_id)
    }

    /// Whether the deployment that answers is still the expected one.
    pub async fn same_deployment(&self) -> Result<(), Trouble> {
        match self.deployment().await {
            Ok(known) => Ok(self.check_expected(&known.0)?),
            // A build without licences; whatever is asked of it says so.
            Err(error) if error.route_missing() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What answers, and what it is licensed for.
    pub async fn licensed(&self) -> Result<Arc<(BuildInfo, Entitlements)>, Error> {
        self.deployment().await
    }

    async fn deployment(&self) -> Result<Arc<(BuildInfo, Entitlements)>, Error> {
        // One after the other: after an outage the first is the only one that is let through, and must come to its end.
        let read = async || Ok((self.client.build_info().await?, self.client.entitlements().await?));
        Ok(self.used(self.reads.deployment.get(self.need, read).await?))
    }

    pub async fn organizations(&self) -> Result<Arc<Vec<Organization>>, Error> {
        let read = || self.client.list_organizations();
        Ok(self.used(self.reads.organizations.get(self.need, read).await?))
    }

    pub async fn groups(&self, organization: Uuid) -> Result<Arc<Vec<Group>>, Error> {
        let read = || self.client.list_groups(organization);
        Ok(self.used(self.reads.groups.of(organization).get(self.need, read).await?))
    }

    pub async fn members(&self, organization: Uuid) -> Result<Arc<Vec<MemberRef>>, Error> {
        let read = || self.client.list_members(organization);
        Ok(self.used(self.reads.members.of(organization).get(self.need, read).await?))
    }

    pub async fn roles(&self, organization: Uuid) -> Result<Arc<Vec<AssignableRole>>, Error> {
        let read = || self.client.list_organization_roles(organization);
        Ok(self.used(self.reads.roles.of(organization).get(self.need, read).await?))
    }

    /// Whose workspaces can be shared in an organization. Coder shows it one by one.
    pub async fn workspace_sharing(
        &self,
        organization: Uuid,
    ) -> Result<Arc<WorkspaceSharingSettings>, Error> {
        let read = || self.client.workspace_sharing(organization);
        Ok(self.used(self.reads.sharing.of(organization).get(self.need, read).await?))
    }

    /// Drops what is known of the sharing of workspaces, after a write.
    pub(crate) async fn forget_workspace_sharing(&self, organization: Uuid) {
        self.reads.sharing.of(organization).forget().await;
    }

    /// The provisioner keys of an organization, with the daemons that were seen on them.
    pub async fn keys(&self, organization: Uuid, now: Timestamp) -> Result<Arc<KeyList>, Error> {
        Ok(self.used(self.reads.keys.get(&self.client, organization, self.need, now).await?))
    }

    /// What this process wrote down before it asked for keys.
    pub(crate) fn own_intents(&self) -> &OwnIntents {
        &self.reads.own_intents
    }

    pub(crate) async fn note_key(&self, key: &ProvisionerKey) {
        self.reads.keys.note(key).await;
    }

    pub(crate) fn note_minted(&self, organization: Uuid, name: &str) {
        self.reads.keys.note_minted(organization, name);
    }

    /// The same deployment with a list of keys that shows one which this process has minted.
    pub(crate) async fn showing(&self, organization: Uuid, name: &str) -> Self {
        match self.reads.keys.showing(organization, name).await {
            Some(need) => Self { need: self.need.and(need), ..self.clone() },
            None => self.clone(),
        }
    }

    pub(crate) async fn note_key_gone(&self, organization: Uuid, name: &str) {
        self.reads.keys.note_gone(organization, name).await;
    }

    /// An organization by name; `default` is the default one, whatever it is called.
    pub async fn organization(&self, name: &str) -> Result<Found<Organization>, Error> {
        let organizations = self.organizations().await?;
        let is_it = |it: &&Organization| it.is_named(name);
        Ok(match organizations.iter().find(is_it) {
            Some(found) => Found::There(found.clone()),
            None if self.promises.has_organization(name) => Found::Promised,
            None => Found::Missing,
        })
    }

    /// An organization under whichever name it has by now; nothing when it is gone.
    pub(crate) async fn organization_by_id(&self, id: Uuid) -> Result<Option<Organization>, Error> {
        Ok(self.organizations().await?.iter().find(|it| it.id == id).cloned())
    }

    /// An organization that an object belongs to: without it the object waits.
    pub async fn home(&self, name: &str) -> Result<Option<Organization>, Trouble> {
        match self.organization(name).await? {
            Found::There(organization) => Ok(Some(organization)),
            Found::Promised => Ok(None),
            Found::Missing => Err(missing(format!("organization {name} does not exist yet")).into()),
        }
    }

    /// The id of an organization that must be there by now.
    pub(crate) async fn organization_id(&self, name: &str) -> Result<Uuid, Trouble> {
        match self.organization(name).await? {
            Found::There(organization) => Ok(organization.id),
            Found::Promised | Found::Missing => {
                Err(missing(format!("organization {name} does not exist")).into())
            }
        }
    }

    /// What manifests that come earlier will have made.
    pub fn promises(&self) -> &Promises {
        &self.promises
    }
}

/// Something that is referred to is not there.
pub fn missing(message: String) -> Blocked {
    Blocked { reason: Reason::ReferenceNotFound, message }
}

/// Names of organizations are the same in any case.
pub(crate) trait Named {
    fn is_named(&self, name: &str) -> bool;
}

impl Named for Organization {
    fn is_named(&self, name: &str) -> bool {
        if name == DEFAULT_ORGANIZATION { self.is_default } else { self.name.eq_ignore_ascii_case(name) }
    }
}

impl Promises {
    /// Adds an object that a manifest will have made.
    pub fn add(&mut self, name: &RemoteName) {
        match name {
            RemoteName::Organization(name) => {
                self.organizations.insert(name.to_lowercase());
                // It comes with every organization.
                self.groups.insert((name.to_lowercase(), EVERYONE.to_owned()));
            }
            RemoteName::Group { organization, name } => {
                self.groups.insert((organization.to_lowercase(), name.clone()));
            }
            RemoteName::User { name, email } => {
                for key in [Some(name), email.as_ref()].into_iter().flatten() {
                    self.users.insert(key.to_lowercase(), name.clone());
                }
            }
            RemoteName::Role { organization, name } => {
                self.roles.insert((organization.to_lowercase(), name.to_lowercase()));
            }
            RemoteName::AiProvider(name) => {
                self.ai_providers.insert(name.clone());
            }
        }
    }

    /// The name of a promised user, who is referred to by name or by e-mail address.
    pub fn user(&self, person: &str) -> Option<&String> {
        self.users.get(&person.to_lowercase())
    }

    /// Whether a role of an organization is promised, under whichever name of the organization.
    pub fn has_role_of(&self, home: &Organization, name: &str) -> bool {
        let has =
            |organization: &str| self.roles.contains(&(organization.to_lowercase(), name.to_lowercase()));
        has(&home.name) || (home.is_default && has(DEFAULT_ORGANIZATION))
    }

    pub fn has_organization(&self, name: &str) -> bool {
        self.organizations.contains(&name.to_lowercase())
    }

    pub fn has_ai_provider(&self, name: &str) -> bool {
        self.ai_providers.contains(name)
    }

    pub fn has_group(&self, organization: &str, name: &str) -> bool {
        self.groups.contains(&(organization.to_lowercase(), name.to_owned()))
    }

    /// The same for an organization that is there, under whichever of its names the group was promised.
    pub fn has_group_of(&self, home: &Organization, name: &str) -> bool {
        self.has_group(&home.name, name) || (home.is_default && self.has_group(DEFAULT_ORGANIZATION, name))
    }
}
