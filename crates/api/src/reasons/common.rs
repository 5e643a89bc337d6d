//! Conditions and reasons that every kind may report.

use super::{ConditionDoc, ReasonGroup, row};
use crate::{
    Reason, condition,
    kinds::{ALL, APP_STATE},
};

pub(super) const CONDITIONS: &[ConditionDoc] = &[
    ConditionDoc {
        condition: condition::READY,
        kinds: ALL,
        meaning: "The declared state was reached, on evidence read after the last change. Always present.",
    },
    ConditionDoc {
        condition: condition::RECONCILING,
        kinds: ALL,
        meaning: "Work is in progress, or the object waits for a dependency. Present only while true.",
    },
    ConditionDoc {
        condition: condition::STALLED,
        kinds: ALL,
        meaning: "Nothing changes until a person changes the manifest, a Secret or Coder. Present only while true.",
    },
    ConditionDoc {
        condition: condition::DRIFTED,
        kinds: ALL,
        meaning: "The remote object differs from the manifest. `Unknown` while it was not read.",
    },
];

pub(super) const EVERY_KIND: ReasonGroup = ReasonGroup {
    title: "Every kind",
    conditions: &[condition::READY, condition::RECONCILING, condition::STALLED],
    kinds: ALL,
    reasons: &[
        row(Reason::UpToDate, "The declared state was reached.", "Nothing."),
        row(Reason::Progressing, "Work is in progress.", "Wait. The message names the current step."),
        row(
            Reason::Suspended,
            "`spec.suspend` is true; the object is neither read nor changed.",
            "Set `suspend: false` to resume.",
        ),
        row(
            Reason::Invalid,
            "The manifest, or a value that it refers to, is invalid; Coder or the operator refused it.",
            "Correct the field that the message names.",
        ),
        row(
            Reason::ControlPlaneNotFound,
            "The namespace has no `CoderControlPlane` with the name in `controlPlaneRef`.",
            "Create the control plane, or correct the reference.",
        ),
        row(
            Reason::ControlPlaneNotReady,
            "The control plane has no address or no working credentials yet.",
            "Look at the condition `OperatorAccessReady` of the control plane.",
        ),
        row(
            Reason::DeploymentChanged,
            "Another Coder deployment (another deployment id) answers at the same address; nothing is written to it.",
            "If that is intended, annotate the control plane with `coder.com/accept-deployment: <id>`. \
             Otherwise correct the URL or the DNS entry.",
        ),
        row(
            Reason::OriginChanged,
            "URL, CA or credentials of the control plane have changed, and the new ones are not proved yet; nothing is written.",
            "Wait. If it persists, look at `OperatorAccessReady` of the control plane.",
        ),
        row(
            Reason::AddressNotAllowed,
            "The URL is a loopback, link-local or metadata address, and the operator does not connect to those.",
            "Correct the URL, or start the operator with `--allow-local-addresses`.",
        ),
        row(
            Reason::SecretNotAllowed,
            "The manifest refers to a Secret that the operator keeps for itself or for another object.",
            "Refer to a Secret of your own.",
        ),
        row(
            Reason::SecretNotFound,
            "A referenced Secret, or a key in it, does not exist.",
            "Create it; the message names Secret and key. The reconcile starts by itself.",
        ),
        row(
            Reason::SecretUnreadable,
            "Kubernetes refused to return a Secret, or did not answer.",
            "Check the operator's RBAC and the API server; the reconcile is retried.",
        ),
        row(
            Reason::SecretNotWritten,
            "Kubernetes refused to store a Secret, or another client changed it at the same time.",
            "Check the operator's RBAC, quotas and admission policies; the reconcile is retried.",
        ),
        row(
            Reason::Unauthorized,
            "Coder rejects the credentials: wrong, expired or revoked.",
            "Put a valid token, or e-mail and password, into the Secret that the control plane names.",
        ),
        row(
            Reason::Forbidden,
            "The account is valid and lacks a role in Coder.",
            "Give the account the role that the kind needs; see the security model.",
        ),
        row(
            Reason::NotEntitled,
            "The licence does not include the feature.",
            "Install a licence with the feature; `status.features` of the control plane lists what is included.",
        ),
        row(
            Reason::Unreachable,
            "Coder does not answer, or answers with a server error.",
            "Check the URL, the network and coderd; the reconcile is retried with backoff.",
        ),
        row(
            Reason::RateLimited,
            "Coder answered 429, or the operator's share of the rate limit is used up.",
            "Wait. If it persists, find out which other client uses the limit.",
        ),
        row(
            Reason::RemoteError,
            "Coder answered with an error that has no more specific reason.",
            "Read the message, which quotes the answer; the reconcile is retried.",
        ),
        row(
            Reason::Deleting,
            "The object is being deleted, and its cleanup is not complete.",
            "Wait up to 15 minutes. `coder.com/force-finalize: \"true\"` releases the object now and reports what is left.",
        ),
        row(
            Reason::NotOurs,
            "A Kubernetes object or Secret with the required name has another owner; the operator does not change it.",
            "Rename one of the two, or delete the other object.",
        ),
    ],
};

pub(super) const REMOTE_STATE: ReasonGroup = ReasonGroup {
    title: "State in Coder",
    conditions: &[condition::READY, condition::DRIFTED, condition::STALLED],
    kinds: APP_STATE,
    reasons: &[
        row(
            Reason::Observed,
            "`mode: Observe`: differences are in `status.plan`, and nothing is changed.",
            "Set `mode: Enforce` to apply the plan.",
        ),
        row(
            Reason::DriftFound,
            "The remote object differs from the manifest.",
            "Nothing with `mode: Enforce`. A `CoderProvisionerKey` needs a requested rotation.",
        ),
        row(Reason::NoDrift, "The remote object equals the manifest.", "Nothing."),
        row(Reason::NotObserved, "The remote object could not be read.", "Look at the reason of `Ready`."),
        row(
            Reason::ApprovalRequired,
            "`approval: Manual`, and the current plan is not approved.",
            "Review `status.plan` and annotate the object with `coder.com/approved-plan: <status.plan.hash>`.",
        ),
        row(
            Reason::DestructiveRefused,
            "A step of the plan would delete users' data.",
            "Approve the plan by its hash, or set `allowDestructive: true`.",
        ),
        row(
            Reason::AdoptionRefused,
            "The remote object exists, this manifest does not hold it, and `adoptionPolicy` forbids the adoption.",
            "Make the manifest equal to the remote object, or set `adoptionPolicy: Adopt`.",
        ),
        row(
            Reason::HeldByOther,
            "Another custom resource holds the same remote object or Secret.",
            "Delete one of the two; the message names the holder.",
        ),
        row(
            Reason::Contended,
            "Another client keeps changing the same field; the operator backs off.",
            "Find the other writer, or stop declaring the field.",
        ),
        row(
            Reason::OwnAccount,
            "The manifest would suspend, delete or demote the account that the operator itself uses.",
            "Correct the manifest, or use another account for the control plane.",
        ),
        row(
            Reason::LastOwner,
            "The manifest would suspend, delete or demote the last owner of the deployment who can sign in.",
            "Make another user an owner first.",
        ),
        row(
            Reason::ManagedByProvider,
            "The identity provider manages the roles or the organizations of a user who signs in with OIDC.",
            "Remove the field that the message names from the manifest.",
        ),
        row(
            Reason::SharingDisabled,
            "coderd was started without workspace sharing (CODER_DISABLE_WORKSPACE_SHARING), so that no organization can have it.",
            "Remove the option from coderd, or spec.workspaceSharing from the manifest.",
        ),
        row(
            Reason::InUse,
            "The remote object is to be deleted, and people still use it; the message names them.",
            "Take it from them in Coder, or allow the deletion as the message says.",
        ),
        row(
            Reason::ReferenceNotFound,
            "An organization, group, role or user that the manifest names does not exist in Coder.",
            "Create it or declare it; the reconcile starts when it appears.",
        ),
        row(
            Reason::VersionTooOld,
            "This version of Coder does not have the feature.",
            "Upgrade Coder to the version in the message.",
        ),
        row(
            Reason::SeededFromEnvironment,
            "coderd makes this AI provider from its environment at every start. Once the provider differs from that, coderd does not \
             start any more, so nothing is changed.",
            "Remove the variables that the message names from coderd's environment and let coderd restart. The provider stays.",
        ),
        row(
            Reason::ProviderDisabled,
            "The AI provider of the model is disabled, and Coder takes no models for it.",
            "Enable the provider; the model is applied then.",
        ),
        row(
            Reason::VersionNotSupported,
            "This version of Coder does not have the field that the message names, or not the API that the kind uses. The other \
             fields are as declared.",
            "Use a version of Coder that the message names, or remove the field.",
        ),
        row(
            Reason::NeedsCluster,
            "On the command line: the value has to be stored in a Secret, and there is no cluster.",
            "Apply the manifest to a cluster where the operator runs.",
        ),
    ],
};

pub(super) const RECONCILES: ReasonGroup = ReasonGroup {
    title: "Only in Events, metrics and logs",
    conditions: &[],
    kinds: ALL,
    reasons: &[
        row(
            Reason::ClusterError,
            "The Kubernetes API refused a request of the reconcile, or did not answer.",
            "Check the operator's RBAC and the API server; the reconcile is retried.",
        ),
        row(
            Reason::Deadline,
            "The reconcile did not begin to write within 60 seconds and was cancelled.",
            "Check how fast coderd and the API server answer; the reconcile is retried.",
        ),
        row(
            Reason::Panic,
            "A bug ended the reconcile; other objects are not affected.",
            "Report it with the log line; the reconcile is retried.",
        ),
        row(
            Reason::LeftBehind,
            "An object was deleted, and the operator could not take back what it had made for it.",
            "Delete what the note names, if it is not needed any more.",
        ),
        row(
            Reason::Undecodable,
            "This version of the operator cannot read the object and skips it; other objects are not affected.",
            "Correct the field that the note names, or install the CRDs and the operator of one release.",
        ),
        row(Reason::Created, "The operator created what the note names.", "Nothing."),
        row(
            Reason::Updated,
            "The operator changed what the note names, from the first value to the second.",
            "Nothing.",
        ),
        row(Reason::Deleted, "The operator deleted what the note names.", "Nothing."),
        row(Reason::KeyMinted, "The operator created the provisioner key that the note names.", "Nothing."),
        row(
            Reason::KeyRevoked,
            "The operator revoked the provisioner key that the note names. The condition `Ready` has the same reason when the key was revoked by another client.",
            "Nothing.",
        ),
        row(
            Reason::TokenExpires,
            "The supplied token of the control plane expires soon.",
            "Create a token in Coder and write it to the Secret that spec.external.credentialsSecretRef names.",
        ),
        row(
            Reason::LicenseExpires,
            "A licence of the control plane expires soon.",
            "Write the new licence to the Secret that spec.licenseSecretRef names.",
        ),
        row(Reason::LicenseInstalled, "The declared licence was uploaded to Coder.", "Nothing."),
        row(
            Reason::LicenseRetired,
            "A licence that the operator had installed was deleted, because another one is declared or none is.",
            "Nothing.",
        ),
        row(
            Reason::ScaledToZero,
            "A Deployment was scaled to zero replicas, for the reason in the note.",
            "Correct what the note names; the replicas come back with the next reconcile.",
        ),
        row(
            Reason::NoLongerManaged,
            "A managed control plane was changed to `external`; the operator does not manage the objects that the note names any more.",
            "Delete them if nothing uses them. Remove their owner references to keep them when the manifest is deleted.",
        ),
        row(
            Reason::NotTakenAway,
            "A token or an account that the operator no longer needs could not be removed from Coder.",
            "Wait: the removal is tried again. Remove it by hand where the note keeps coming.",
        ),
        row(Reason::Unknown, "The object was not reconciled yet.", "Wait."),
    ],
};
