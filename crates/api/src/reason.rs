//! Why a condition has its status: stable words in `CamelCase`, and what follows from each.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};

/// What remains usable of the client of a control plane that has become blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptClient {
    /// Dependents keep using the client: the control plane may answer again at any moment.
    Full,
    /// Only deletions use the client.
    CleanupOnly,
    /// The client is not used any more.
    No,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident,)+) => {
        /// The reason of a condition.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $reason,)+
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                }
            }
        }
    };
}

reasons! {
    /// Everything declared is so.
    UpToDate,
    /// Steps are being applied.
    Progressing,
    /// `suspend` is set.
    Suspended,
    /// `mode: Observe`: the differences are in the plan, and nothing is changed.
    Observed,
    /// What was found differs from what is declared.
    DriftFound,
    /// What was found is what is declared.
    NoDrift,
    /// The deployment could not be compared with the manifest.
    NotObserved,
    /// `approval: Manual`, and this plan is not approved.
    ApprovalRequired,
    /// A step would delete users' data and is not allowed.
    DestructiveRefused,
    /// The remote object exists, is not ours, and `adoptionPolicy` does not let us take it.
    AdoptionRefused,
    /// Another object of the cluster holds the same remote object.
    HeldByOther,
    /// Another client keeps writing other values, and the operator backs off.
    Contended,
    /// The manifest asks for something that cannot be.
    Invalid,
    /// There is no control plane of that name in the namespace.
    ControlPlaneNotFound,
    /// The control plane has no address or no working credential yet.
    ControlPlaneNotReady,
    /// The address answers as another deployment than before.
    DeploymentChanged,
    /// Something that the manifest names does not exist, here or in Coder.
    ReferenceNotFound,
    /// A Secret or one of its keys is missing.
    SecretNotFound,
    /// Kubernetes does not let us read a Secret, or does not answer.
    SecretUnreadable,
    /// Kubernetes does not let us write a Secret, or another client has written it meanwhile.
    SecretNotWritten,
    /// A manifest refers to a Secret that the operator keeps for itself, or for another object.
    SecretNotAllowed,
    /// The address is a loopback, link-local or metadata address, which the operator does not connect to.
    AddressNotAllowed,
    /// The address, the certificates or the credentials of the control plane have changed, and are not proved yet.
    OriginChanged,
    /// Coder does not accept the credential.
    Unauthorized,
    /// The account may not do this.
    Forbidden,
    /// On a control plane: a declared licence is not installed, or not in force; `LicenseApplied` says more.
    LicenseNotApplied,
    /// The licence does not cover this.
    NotEntitled,
    /// This Coder is too old for this.
    VersionTooOld,
    /// This version of Coder does not have a declared field, or not the API that the kind uses.
    VersionNotSupported,
    /// coderd makes the remote object from its environment at every start, and does not start where it differs from that.
    SeededFromEnvironment,
    /// The AI provider that the object belongs to is disabled.
    ProviderDisabled,
    /// Coder does not answer.
    Unreachable,
    /// Coder asks us to slow down.
    RateLimited,
    /// Coder answered with an error.
    RemoteError,
    /// The remote object is being removed.
    Deleting,
    /// The user is the account that the operator itself uses.
    OwnAccount,
    /// The user is the last owner of the deployment.
    LastOwner,
    /// The identity provider manages the field.
    ManagedByProvider,
    /// The whole deployment was started without workspace sharing.
    SharingDisabled,
    /// People use the remote object, so that it is not deleted; the message names them.
    InUse,
    /// An object with the name of a managed object has another owner and was not changed.
    NotOurs,
    /// A namespace does not consent to take workspaces.
    NoConsent,
    /// The operator's service account lacks the rights for an object in another namespace.
    NotPermitted,
    /// The operator was not started to grant such rights.
    RulesNotAllowed,
    /// The cluster does not have the Gateway API.
    GatewayAPIMissing,
    /// No database is declared; what Coder keeps goes with its pod.
    NoDatabase,
    /// The Deployment has a database and the manifest names none; the pods were left as they are.
    DatabaseRemovalRefused,
    /// The image is older than what has worked on the database.
    DowngradeRefused,
    /// The image names no version that could be compared.
    VersionUnknown,
    /// `operatorAccess.disabled` is set.
    AccessDisabled,
    /// Pods do not come up; the message names one and what it says.
    RolloutStuck,
    /// The API server does not take an object that we should make; the message says what it answered.
    NotApplied,
    /// The control plane is not there, or has no address yet.
    ControlPlaneUnavailable,
    /// The control plane is there and has an address.
    ControlPlaneAvailable,
    /// The control plane has a credential that works.
    OperatorAccessReady,
    /// The control plane has no credential that works.
    OperatorAccessNotReady,
    /// The key is in Coder, as declared.
    ProvisionerKeyReady,
    /// The key could not be made; the message says what Coder answered.
    ProvisionerKeyFailed,
    /// Coder no longer has the key.
    KeyRevoked,
    /// A Secret holds what it should.
    SecretReady,
    /// The Secret with the key is gone, or empty.
    SecretMissing,
    /// The Secret with the key was replaced by an older copy of itself, such as a backup: nothing is minted or revoked until a
    /// person restores the newer one or asks for a new key.
    SecretOutdated,
    /// What has to be written is written into a cluster, and there is none here.
    NeedsCluster,
    /// A version of a template is being built.
    VersionBuilding,
    /// A version of a template waits for a provisioner daemon, and none with its tags is connected.
    NoProvisioner,
    /// A version of a template is tested by a throwaway workspace.
    VersionTesting,
    /// A version of a template could not be built, or failed its test; the message has the first error of the log.
    VersionFailed,
    /// The owner that is declared for test workspaces is not an account that Terraform may get a token of.
    TestOwnerRefused,
    /// The template has a version of that name with other content.
    VersionNameTaken,
    /// The source of a template cannot be read, or has something in it that a template cannot have.
    SourceNotUsable,
    /// The licence covers this.
    Entitled,
    /// This Coder does not have this at all.
    NotSupported,
    /// What the licence covers could not be read.
    EntitlementsQueryFailed,
    /// At least one pod is ready, or none is wanted.
    MinimumReplicasReady,
    /// No pod is ready.
    NoReplicasReady,
    /// Coder sees the daemons.
    DaemonsConnected,
    /// The pods run, and Coder does not see their daemons.
    DaemonsNotSeen,
    /// The key is live, and the value in the Secret proves it.
    KeyReady,
    /// The Secret holds a value that Coder does not take; the key that we made is live.
    SecretChanged,
    /// A key that is not ours has the declared name.
    NameTaken,
    /// An account of our name exists, and we did not make it.
    AccountTaken,
    /// No credentials for the deployment are declared.
    NoCredentials,
    /// The deployment has no user yet, and we are not to be the first.
    NoUsers,
    /// The Job that creates the operator's account runs.
    AdminJobRunning,
    /// The Job that creates the operator's account has failed, or could not be created.
    AdminJobFailed,
    /// Coder has the declared licence.
    Applied,
    /// A licence has ended, and what it covers still works for a while.
    GracePeriod,
    /// The licence has not been read yet.
    Pending,
    /// The licence and its grace period have ended.
    Expired,
    /// Coder answered with an error when it was asked about licences.
    Error,
    /// Coder reports licensed features and no problem.
    Licensed,
    /// The deployment has no licence in force.
    Unlicensed,
    /// Coder reports warnings about the licence.
    Warnings,
    /// Coder reports errors about the licence.
    Errors,
    /// More users are active than the licence allows.
    UserLimitExceeded,
    /// The API server refused a request, or did not answer.
    ClusterError,
    /// A reconcile took too long and was cut off.
    Deadline,
    /// A reconcile ended in a defect of the operator.
    Panic,
    /// The object cannot be decoded by this build.
    Undecodable,
    /// Of an Event: the deletion of an object left something behind.
    LeftBehind,
    /// Of an Event: something was created.
    Created,
    /// Of an Event: something was changed.
    Updated,
    /// Of an Event: something was deleted.
    Deleted,
    /// Of an Event: a provisioner key was created.
    KeyMinted,
    /// Of an Event: a supplied token expires soon.
    TokenExpires,
    /// Of an Event: a licence expires soon.
    LicenseExpires,
    /// Of an Event: a licence was uploaded.
    LicenseInstalled,
    /// Of an Event: a licence was deleted.
    LicenseRetired,
    /// Of an Event: a Deployment was scaled to zero replicas.
    ScaledToZero,
    /// Of an Event: objects are not managed any more.
    NoLongerManaged,
    /// Of an Event: a token or an account could not be removed yet.
    NotTakenAway,
    /// Of a metric: the object was not reconciled yet.
    Unknown,
}

impl Reason {
    /// Whether only a person can bring the object forward: a retry would end the same way.
    pub const fn stalls(self) -> bool {
        matches!(
            self,
            Self::AccessDisabled
                | Self::AddressNotAllowed
                | Self::DatabaseRemovalRefused
                | Self::DeploymentChanged
                | Self::DowngradeRefused
                | Self::HeldByOther
                | Self::Invalid
                | Self::NotOurs
                | Self::SecretNotAllowed
                | Self::SecretOutdated
                | Self::SeededFromEnvironment
        )
    }

    /// How often to look whether what an object waits for has come to its end. `None` for what a watch reports.
    pub const fn polled_every(self) -> Option<Duration> {
        match self {
            Self::VersionBuilding | Self::VersionTesting => Some(Duration::from_secs(3)),
            Self::NoProvisioner => Some(Duration::from_secs(15)),
            Self::RateLimited => Some(Duration::from_secs(30)),
            _ => None,
        }
    }

    /// Whether an object that waits for this reason goes on only after a person has changed something.
    pub const fn ends_waiting(self) -> bool {
        matches!(self, Self::VersionFailed | Self::VersionNameTaken | Self::TestOwnerRefused)
    }

    /// What remains usable of the client of a control plane that is blocked for this reason, while its whole origin is
    /// unchanged.
    pub const fn keeps_client(self) -> KeptClient {
        match self {
            Self::Unreachable | Self::RateLimited | Self::SecretUnreadable => KeptClient::Full,
            // A Secret may be deleted together with what it is needed for.
            Self::SecretNotFound | Self::SecretNotWritten => KeptClient::CleanupOnly,
            _ => KeptClient::No,
        }
    }

    /// Whether nothing that belongs to a control plane is changed while it has this reason, whichever credentials are used.
    pub const fn stops_dependents(self) -> bool {
        matches!(self, Self::Suspended | Self::Deleting | Self::DeploymentChanged)
    }

    /// Whether something that is declared was left out of a managed control plane.
    pub const fn is_omission(self) -> bool {
        matches!(
            self,
            Self::NotOurs
                | Self::NoConsent
                | Self::NotPermitted
                | Self::RulesNotAllowed
                | Self::GatewayAPIMissing
                | Self::NotSupported
        )
    }

    /// Whether the pods of a managed control plane stay as they are for this reason.
    pub const fn blocks_rollout(self) -> bool {
        matches!(
            self,
            Self::DowngradeRefused
                | Self::DatabaseRemovalRefused
                | Self::NotOurs
                | Self::NotApplied
                | Self::SecretNotFound
                | Self::SecretNotAllowed
        )
    }

    /// Whether nothing of ours is at that address any more, so that a deletion has nothing to retry.
    pub const fn is_final_for_deletion(self) -> bool {
        matches!(self, Self::DeploymentChanged | Self::OriginChanged)
    }

    /// Whether this is about the Secret that holds a key, and not about the key itself.
    pub const fn is_about_key_secret(self) -> bool {
        matches!(
            self,
            Self::NotOurs
                | Self::HeldByOther
                | Self::SecretMissing
                | Self::SecretNotAllowed
                | Self::SecretOutdated
        )
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
