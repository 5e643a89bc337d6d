//! The words that people and programs rely on: annotations, labels, finalizers, condition types and reasons.
//!
//! Once released a word keeps its meaning: alerts, pipelines and health checks match on it.

/// Annotations that people and tools set.
pub mod annotation {
    /// The hash of the plan that may be applied.
    pub const APPROVED_PLAN: &str = "coder.com/approved-plan";
    /// Any new value asks for a reconciliation now.
    pub const RECONCILE_REQUESTED_AT: &str = "coder.com/reconcile-requested-at";
    /// The same, as Flux asks for it.
    pub const FLUX_REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
    /// Any new value asks for a new key.
    pub const ROTATE_REQUESTED_AT: &str = "coder.com/rotate-requested-at";
    /// `"true"` lets an object go that is being deleted; what is left behind is named.
    pub const FORCE_FINALIZE: &str = "coder.com/force-finalize";
    /// We write it beside our own token: whose it is, and what was about to be done. Nothing secret.
    pub const OPERATOR_ACCESS: &str = "coder.com/operator-access";
    /// We write it beside the value of a provisioner key: which keys are ours, and what was about to be done. Nothing secret.
    pub const PROVISIONER_KEY: &str = "coder.com/provisioner-key";
    /// On the pods of a provisioner: changes with the value of the key that they sign in with. The name is coder-k8s'.
    pub const PROVISIONER_KEY_CHECKSUM: &str = "checksum/provisioner-key";
    /// On a control plane: the id of the deployment that may take the place of the one known so far.
    pub const ACCEPT_DEPLOYMENT: &str = "coder.com/accept-deployment";
    /// On a Role or `RoleBinding` for workspaces: the uid of the control plane that it is for.
    pub const WORKSPACE_RBAC_OWNER: &str = "coder.com/workspace-rbac-owner-uid";
    /// On the pods of a control plane: changes with the Secrets and `ConfigMap`s that they read.
    pub const CONFIGURATION: &str = "coder.com/configuration";
    /// On a Deployment that was running before we came: the configuration that its pods had then.
    pub const CONFIGURATION_FOUND: &str = "coder.com/configuration-found";
    /// On the Deployment of a control plane: where its pods read the address of their database, or `none`.
    pub const DATABASE: &str = "coder.com/database";
}

/// Labels.
pub mod label {
    /// On a namespace that takes workspaces: the namespace of the control plane from which it does.
    pub const WORKSPACES_FROM: &str = "coder.com/workspaces-from";
    /// On a Role or `RoleBinding` for workspaces: the control plane that it is for.
    pub const CONTROL_PLANE: &str = "coder.com/control-plane";
    /// The namespace of that control plane.
    pub const CONTROL_PLANE_NAMESPACE: &str = "coder.com/control-plane-namespace";
    /// What an object is part of.
    pub const NAME: &str = "app.kubernetes.io/name";
    /// Which of them.
    pub const INSTANCE: &str = "app.kubernetes.io/instance";
    /// Who made it.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// The value of [`NAME`] on what belongs to a provisioner. coder-k8s' own, so that what it made is found.
    pub const PROVISIONER: &str = "coder-provisioner";
}

/// Finalizers. Kinds that coder-k8s has keep its names, so that either operator can let go what the other held.
pub mod finalizer {
    /// Of every kind that coder-k8s does not have.
    pub const FINALIZER: &str = "coder.com/finalizer";
    /// Of a control plane.
    pub const CONTROL_PLANE: &str = "coder.com/workspace-rbac-cleanup";
    /// Of the Secret with our own token for a control plane.
    pub const TOKEN: &str = "coder.com/operator-token";
    /// Of a provisioner.
    pub const PROVISIONER: &str = "coder.com/provisioner-key-cleanup";
}

/// Types of conditions.
pub mod condition {
    /// The remote object is as declared. Always present.
    pub const READY: &str = "Ready";
    /// Work is under way or is waited for. Present only while true.
    pub const RECONCILING: &str = "Reconciling";
    /// Nothing will happen until a person changes something. Present only while true.
    pub const STALLED: &str = "Stalled";
    /// What was found differs from what is declared.
    pub const DRIFTED: &str = "Drifted";
    /// On a control plane: the declared licences are installed.
    pub const LICENSE_APPLIED: &str = "LicenseApplied";
    /// On a control plane: what the licences cover is known, and nothing is wrong with it.
    pub const ENTITLEMENTS: &str = "Entitlements";
    /// On a control plane: we have a credential that works. On a provisioner: the control plane has one.
    pub const OPERATOR_ACCESS: &str = "OperatorAccessReady";
    /// On a control plane that we run: everything that is declared beside the pods is there. The message says what was left out.
    pub const COMPLETE: &str = "Complete";
    /// On a managed control plane: whether a database is configured.
    pub const DATABASE_CONFIGURED: &str = "DatabaseConfigured";
    /// On a provisioner: its control plane is there and has an address.
    pub const CONTROL_PLANE_READY: &str = "ControlPlaneReady";
    /// On a provisioner with `bootstrap`: the Secret with the token is there.
    pub const BOOTSTRAP_SECRET: &str = "BootstrapSecretReady";
    /// On a provisioner: there is a key in Coder, as declared.
    pub const PROVISIONER_KEY: &str = "ProvisionerKeyReady";
    /// On a provisioner: the value of that key is in its Secret.
    pub const PROVISIONER_KEY_SECRET: &str = "ProvisionerKeySecretReady";
    /// On a provisioner: at least one of its pods is ready, or none is wanted.
    pub const DEPLOYMENT: &str = "DeploymentReady";
    /// On a provisioner: the licence covers daemons that run apart from the control plane.
    pub const PROVISIONERS_ENTITLED: &str = "ExternalProvisionersEntitled";
    /// On a provisioner: Coder sees its daemons.
    pub const DAEMONS: &str = "DaemonsConnected";
}

/// Reasons of conditions, stable and CamelCase.
pub mod reason {
    /// Everything declared is so.
    pub const UP_TO_DATE: &str = "UpToDate";
    /// Steps are being applied.
    pub const PROGRESSING: &str = "Progressing";
    /// `suspend` is set.
    pub const SUSPENDED: &str = "Suspended";
    /// `mode: Observe`: the differences are in the plan, and nothing is changed.
    pub const OBSERVED: &str = "Observed";
    /// What was found differs from what is declared.
    pub const DRIFT_FOUND: &str = "DriftFound";
    /// What was found is what is declared.
    pub const NO_DRIFT: &str = "NoDrift";
    /// The deployment could not be compared with the manifest.
    pub const NOT_OBSERVED: &str = "NotObserved";
    /// `approval: Manual`, and nobody has approved this plan.
    pub const APPROVAL_REQUIRED: &str = "ApprovalRequired";
    /// A step would destroy people's data, and nobody has allowed that.
    pub const DESTRUCTIVE_REFUSED: &str = "DestructiveRefused";
    /// The remote object exists, is not ours, and `adoptionPolicy` does not let us take it.
    pub const ADOPTION_REFUSED: &str = "AdoptionRefused";
    /// Another object of the cluster holds the same remote object.
    pub const HELD_BY_OTHER: &str = "HeldByOther";
    /// Somebody else keeps writing other values; we have stepped back.
    pub const CONTENDED: &str = "Contended";
    /// The manifest asks for something that cannot be.
    pub const INVALID: &str = "Invalid";
    /// There is no control plane of that name in the namespace.
    pub const CONTROL_PLANE_NOT_FOUND: &str = "ControlPlaneNotFound";
    /// The control plane has no address or no working credential yet.
    pub const CONTROL_PLANE_NOT_READY: &str = "ControlPlaneNotReady";
    /// The address answers as another deployment than before.
    pub const DEPLOYMENT_CHANGED: &str = "DeploymentChanged";
    /// Something that the manifest names does not exist, here or in Coder.
    pub const REFERENCE_NOT_FOUND: &str = "ReferenceNotFound";
    /// A Secret or one of its keys is missing.
    pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
    /// Kubernetes does not let us read a Secret, or does not answer.
    pub const SECRET_UNREADABLE: &str = "SecretUnreadable";
    /// Kubernetes does not let us write a Secret, or somebody else has written it meanwhile.
    pub const SECRET_NOT_WRITTEN: &str = "SecretNotWritten";
    /// A manifest refers to a Secret that the operator keeps for itself, or for another object.
    pub const SECRET_NOT_ALLOWED: &str = "SecretNotAllowed";
    /// The address is a loopback, link-local or metadata address, which the operator does not connect to.
    pub const ADDRESS_NOT_ALLOWED: &str = "AddressNotAllowed";
    /// The address, the certificates or the credentials of the control plane have changed, and are not proved yet.
    pub const ORIGIN_CHANGED: &str = "OriginChanged";
    /// Coder does not accept the credential.
    pub const UNAUTHORIZED: &str = "Unauthorized";
    /// The account may not do this.
    pub const FORBIDDEN: &str = "Forbidden";
    /// On a control plane: a declared licence is not installed, or not in force; `LicenseApplied` says more.
    pub const LICENSE_NOT_APPLIED: &str = "LicenseNotApplied";
    /// The licence does not cover this.
    pub const NOT_ENTITLED: &str = "NotEntitled";
    /// This Coder is too old for this.
    pub const VERSION_TOO_OLD: &str = "VersionTooOld";
    /// Coder does not answer.
    pub const UNREACHABLE: &str = "Unreachable";
    /// Coder asks us to slow down.
    pub const RATE_LIMITED: &str = "RateLimited";
    /// Coder answered with an error.
    pub const REMOTE_ERROR: &str = "RemoteError";
    /// The remote object is being removed.
    pub const DELETING: &str = "Deleting";
    /// An object of the cluster that should be ours is somebody else's; nothing of it was changed.
    pub const NOT_OURS: &str = "NotOurs";
    /// A namespace does not consent to take workspaces.
    pub const NO_CONSENT: &str = "NoConsent";
    /// The operator's service account lacks the rights for an object in another namespace.
    pub const NOT_PERMITTED: &str = "NotPermitted";
    /// The operator was not started to grant such rights.
    pub const RULES_NOT_ALLOWED: &str = "RulesNotAllowed";
    /// The cluster does not have the Gateway API.
    pub const GATEWAY_API_MISSING: &str = "GatewayAPIMissing";
    /// No database is declared; what Coder keeps goes with its pod.
    pub const NO_DATABASE: &str = "NoDatabase";
    /// The Deployment has a database and the manifest names none; the pods were left as they are.
    pub const DATABASE_REMOVAL_REFUSED: &str = "DatabaseRemovalRefused";
    /// The image is older than what has worked on the database.
    pub const DOWNGRADE_REFUSED: &str = "DowngradeRefused";
    /// The image names no version that could be compared.
    pub const VERSION_UNKNOWN: &str = "VersionUnknown";
    /// `operatorAccess.disabled` is set.
    pub const ACCESS_DISABLED: &str = "AccessDisabled";
    /// Pods do not come up; the message names one and what it says.
    pub const ROLLOUT_STUCK: &str = "RolloutStuck";
    /// The API server does not take an object that we should make; the message says what it answered.
    pub const NOT_APPLIED: &str = "NotApplied";
    /// The control plane is not there, or has no address yet.
    pub const CONTROL_PLANE_UNAVAILABLE: &str = "ControlPlaneUnavailable";
    /// The control plane is there and has an address.
    pub const CONTROL_PLANE_AVAILABLE: &str = "ControlPlaneAvailable";
    /// The control plane has a credential that works.
    pub const OPERATOR_ACCESS_READY: &str = "OperatorAccessReady";
    /// The control plane has no credential that works.
    pub const OPERATOR_ACCESS_NOT_READY: &str = "OperatorAccessNotReady";
    /// The key is in Coder, as declared.
    pub const PROVISIONER_KEY_READY: &str = "ProvisionerKeyReady";
    /// The key could not be made; the message says what Coder answered.
    pub const PROVISIONER_KEY_FAILED: &str = "ProvisionerKeyFailed";
    /// Coder no longer has the key.
    pub const KEY_REVOKED: &str = "KeyRevoked";
    /// A Secret holds what it should.
    pub const SECRET_READY: &str = "SecretReady";
    /// The Secret with the key is gone, or empty.
    pub const SECRET_MISSING: &str = "SecretMissing";
    /// The Secret with the key was replaced by an older copy of itself, such as a backup: nothing is minted or revoked until a
    /// person restores the newer one or asks for a new key.
    pub const SECRET_OUTDATED: &str = "SecretOutdated";
    /// What has to be written is written into a cluster, and there is none here.
    pub const NEEDS_CLUSTER: &str = "NeedsCluster";
    /// The licence covers this.
    pub const ENTITLED: &str = "Entitled";
    /// This Coder does not have this at all.
    pub const NOT_SUPPORTED: &str = "NotSupported";
    /// What the licence covers could not be read.
    pub const ENTITLEMENTS_QUERY_FAILED: &str = "EntitlementsQueryFailed";
    /// At least one pod is ready, or none is wanted.
    pub const MINIMUM_REPLICAS_READY: &str = "MinimumReplicasReady";
    /// No pod is ready.
    pub const NO_REPLICAS_READY: &str = "NoReplicasReady";
    /// Coder sees the daemons.
    pub const DAEMONS_CONNECTED: &str = "DaemonsConnected";
    /// The pods run, and Coder does not see their daemons.
    pub const DAEMONS_NOT_SEEN: &str = "DaemonsNotSeen";
}
