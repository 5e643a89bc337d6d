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
