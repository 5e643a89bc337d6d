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
mod gates;
mod keys;
mod licenses;
mod organizations;
mod people;
mod promises;
mod shared;
mod templates;
mod token_memory;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::{CoderControlPlane, Reason};
use client::{
    Client, ClientOptions, Downloads, Unreached,
    ai_providers::AiProvider,
    deployment::{BuildInfo, Entitlements},
    groups::Group,
    licenses::License,
    members::MemberRef,
    model_configs::ModelConfig,
    organizations::{Organization, WorkspaceSharingSettings},
    roles::AssignableRole,
    server_config::ServerConfig,
    templates::Template,
};
use futures::future::BoxFuture;
use k8s_openapi::api::rbac::v1::PolicyRule;
use secrecy::SecretSlice;
use tokio::time::Instant;
use uuid::Uuid;

use self::{
    audit::AuditLog,
    endpoint::Credentials,
    evidence::Evidence,
    keys::KeyLists,
    people::People,
    shared::{PerOrganization, Read, Shared},
};
pub use self::{
    freshness::Freshness,
    keys::KeyList,
    organizations::Found,
    promises::Promises,
    token_memory::{OwnToken, Pause, TokenMemory},
};
pub(crate) use self::{organizations::Named, templates::ArchiveKey};
use crate::{
    pipeline::outcome::{Blocked, Trouble},
    ports::Cluster,
    secrets::{
        FingerprintKeys, Names, Retiring, Revoked,
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
    /// The other deployments that this process knows. `None` where it knows none.
    elsewhere: Option<Arc<dyn OtherDeployments>>,
    /// The key for fingerprints that was used and is not stored yet.
    owed_fingerprint_key: Arc<Mutex<Option<OwedFingerprintKey>>>,
    /// What tokens of the deployment are minted with. `None` for manifests that acquire no token.
    credentials: Option<Credentials>,
}

/// A key for fingerprints that was used and is not stored yet.
pub(crate) struct OwedFingerprintKey {
    pub(crate) plane: Box<CoderControlPlane>,
    pub(crate) key: SecretSlice<u8>,
}

impl std::fmt::Debug for OwedFingerprintKey {
    /// The manifest has the values of variables.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OwedFingerprintKey")
    }
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
    /// What `extraRules` of control planes may grant. `None` where that is not known.
    pub allowed_rules: Option<Arc<[PolicyRule]>>,
    /// The tokens of the operator that this process remembers.
    pub tokens: Arc<TokenMemory>,
}

/// Deployments other than the one that a manifest refers to.
pub trait OtherDeployments: std::fmt::Debug + Send + Sync {
    /// Revokes a key of another deployment, by the control plane in this namespace that the key was made with.
    fn revoke<'a>(
        &'a self,
        retiring: &'a Retiring,
        namespace: &'a str,
        names: &'a Names,
    ) -> BoxFuture<'a, Result<Revoked, Trouble>>;
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
    licenses: Shared<Vec<License>>,
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
            elsewhere: None,
            owed_fingerprint_key: Arc::default(),
            credentials: None,
        }
    }

    /// A deployment that is not reached, for what is compared with objects of the cluster alone.
    pub fn unreached(beside: Beside) -> Result<Self, Blocked> {
        let invalid = |message: String| Blocked { reason: Reason::Invalid, message };
        let url = "http://unreached.invalid".parse::<url::Url>().map_err(|it| invalid(it.to_string()))?;
        let options = ClientOptions { url, token: None, transport: Arc::new(Unreached) };
        let client = Client::new(options).map_err(|it| invalid(it.to_string()))?;
        Ok(Self::new(client, Promises::default()).beside(beside))
    }

    /// The same deployment, read as recently as this. Clones share what [`Self::rests_on`] reports; the result does not.
    #[must_use]
    pub fn with(&self, need: Freshness) -> Self {
        Self { need, evidence: Arc::default(), owed_fingerprint_key: Arc::default(), ..self.clone() }
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

    /// The same with other deployments, for keys that were made there.
    #[must_use]
    pub fn knowing(self, elsewhere: Arc<dyn OtherDeployments>) -> Self {
        Self { elsewhere: Some(elsewhere), ..self }
    }

    /// Records that a fingerprint was made with a key of this control plane that is not stored yet.
    pub(crate) fn owe_fingerprint_key(&self, plane: &CoderControlPlane, key: SecretSlice<u8>) {
        let owed = OwedFingerprintKey { plane: Box::new(plane.clone()), key };
        *self.owed_fingerprint_key.lock().unwrap_or_else(PoisonError::into_inner) = Some(owed);
    }

    /// Takes what [`Self::owe_fingerprint_key`] has recorded.
    pub(crate) fn take_owed_fingerprint_key(&self) -> Option<OwedFingerprintKey> {
        self.owed_fingerprint_key.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The same with the credentials that its control plane declares, for acquiring a token.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..self }
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    pub(crate) fn elsewhere(&self) -> Option<&dyn OtherDeployments> {
        self.elsewhere.as_deref()
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

    /// Records that a read is used, and returns its value.
    fn used<T>(&self, read: Read<T>) -> Arc<T> {
        self.evidence.record(&read);
        read.value
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
