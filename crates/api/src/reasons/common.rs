//! Conditions and reasons that every kind may report.

use super::{ALL, APP_STATE, ConditionDoc, ReasonGroup, row};
use crate::{condition, reason};

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
        kinds: APP_STATE,
        meaning: "The remote object differs from the manifest. `Unknown` while it was not read.",
    },
];

pub(super) const EVERY_KIND: ReasonGroup = ReasonGroup {
    title: "Every kind",
    conditions: &[condition::READY, condition::RECONCILING, condition::STALLED],
    kinds: ALL,
    reasons: &[
        row(reason::UP_TO_DATE, "The declared state was reached.", "Nothing."),
        row(reason::PROGRESSING, "Work is in progress.", "Wait. The message names the current step."),
        row(
            reason::SUSPENDED,
            "`spec.suspend` is true; the object is neither read nor changed.",
            "Set `suspend: false` to resume.",
        ),
        row(
            reason::INVALID,
            "The manifest, or a value that it refers to, is invalid; Coder or the operator refused it.",
            "Correct the field that the message names.",
        ),
        row(
            reason::CONTROL_PLANE_NOT_FOUND,
            "The namespace has no `CoderControlPlane` with the name in `controlPlaneRef`.",
            "Create the control plane, or correct the reference.",
        ),
        row(
            reason::CONTROL_PLANE_NOT_READY,
            "The control plane has no address or no working credentials yet.",
            "Look at the condition `OperatorAccessReady` of the control plane.",
        ),
        row(
            reason::DEPLOYMENT_CHANGED,
            "Another Coder deployment (another deployment id) answers at the same address; nothing is written to it.",
            "If that is intended, annotate the control plane with `coder.com/accept-deployment: <id>`. \
             Otherwise correct the URL or the DNS entry.",
        ),
        row(
            reason::ORIGIN_CHANGED,
            "URL, CA or credentials of the control plane have changed, and the new ones are not proved yet; nothing is written.",
            "Wait. If it persists, look at `OperatorAccessReady` of the control plane.",
        ),
        row(
            reason::ADDRESS_NOT_ALLOWED,
            "The URL is a loopback, link-local or metadata address, and the operator does not connect to those.",
            "Correct the URL, or start the operator with `--allow-local-addresses`.",
        ),
        row(
            reason::SECRET_NOT_ALLOWED,
            "The manifest refers to a Secret that the operator keeps for itself or for another object.",
            "Refer to a Secret of your own.",
        ),
        row(
            reason::SECRET_NOT_FOUND,
            "A referenced Secret, or a key in it, does not exist.",
            "Create it; the message names Secret and key. The reconcile starts by itself.",
        ),
        row(
            reason::SECRET_UNREADABLE,
            "Kubernetes refused to return a Secret, or did not answer.",
            "Check the operator's RBAC and the API server; the reconcile is retried.",
        ),
        row(
            reason::SECRET_NOT_WRITTEN,
            "Kubernetes refused to store a Secret, or another client changed it at the same time.",
            "Check the operator's RBAC, quotas and admission policies; the reconcile is retried.",
        ),
        row(
            reason::UNAUTHORIZED,
            "Coder rejects the credentials: wrong, expired or revoked.",
            "Put a valid token, or e-mail and password, into the Secret that the control plane names.",
        ),
        row(
            reason::FORBIDDEN,
            "The account is valid and lacks a role in Coder.",
            "Give the account the role that the kind needs; see the security model.",
        ),
        row(
            reason::NOT_ENTITLED,
            "The licence does not include the feature.",
            "Install a licence with the feature; `status.features` of the control plane lists what is included.",
        ),
        row(
            reason::UNREACHABLE,
            "Coder does not answer, or answers with a server error.",
            "Check the URL, the network and coderd; the reconcile is retried with backoff.",
        ),
        row(
            reason::RATE_LIMITED,
            "Coder answered 429, or the operator's share of the rate limit is used up.",
            "Wait. If it persists, find out which other client uses the limit.",
        ),
        row(
            reason::REMOTE_ERROR,
            "Coder answered with an error that has no more specific reason.",
            "Read the message, which quotes the answer; the reconcile is retried.",
        ),
        row(
            reason::DELETING,
            "The object is being deleted, and its cleanup is not complete.",
            "Wait up to 15 minutes. `coder.com/force-finalize: \"true\"` releases the object now and reports what is left.",
        ),
        row(
            reason::NOT_OURS,
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
            reason::OBSERVED,
            "`mode: Observe`: differences are in `status.plan`, and nothing is changed.",
            "Set `mode: Enforce` to apply the plan.",
        ),
        row(
            reason::DRIFT_FOUND,
            "The remote object differs from the manifest.",
            "Nothing with `mode: Enforce`. A `CoderProvisionerKey` needs a requested rotation.",
        ),
        row(reason::NO_DRIFT, "The remote object equals the manifest.", "Nothing."),
        row(reason::NOT_OBSERVED, "The remote object could not be read.", "Look at the reason of `Ready`."),
        row(
            reason::APPROVAL_REQUIRED,
            "`approval: Manual`, and the current plan is not approved.",
            "Review `status.plan` and annotate the object with `coder.com/approved-plan: <status.plan.hash>`.",
        ),
        row(
            reason::DESTRUCTIVE_REFUSED,
            "A step of the plan would delete users' data.",
            "Approve the plan by its hash, or set `allowDestructive: true`.",
        ),
        row(
            reason::ADOPTION_REFUSED,
            "The remote object exists, this manifest does not hold it, and `adoptionPolicy` forbids the adoption.",
            "Make the manifest equal to the remote object, or set `adoptionPolicy: Adopt`.",
        ),
        row(
            reason::HELD_BY_OTHER,
            "Another custom resource holds the same remote object or Secret.",
            "Delete one of the two; the message names the holder.",
        ),
        row(
            reason::CONTENDED,
            "Another client keeps changing the same field; the operator backs off.",
            "Find the other writer, or stop declaring the field.",
        ),
        row(
            reason::REFERENCE_NOT_FOUND,
            "An organization, group, role or user that the manifest names does not exist in Coder.",
            "Create it or declare it; the reconcile starts when it appears.",
        ),
        row(
            reason::VERSION_TOO_OLD,
            "This version of Coder does not have the feature.",
            "Upgrade Coder to the version in the message.",
        ),
        row(
            reason::NEEDS_CLUSTER,
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
            "ClusterError",
            "The Kubernetes API refused a request of the reconcile, or did not answer.",
            "Check the operator's RBAC and the API server; the reconcile is retried.",
        ),
        row(
            "Deadline",
            "The reconcile did not begin to write within 60 seconds and was cancelled.",
            "Check how fast coderd and the API server answer; the reconcile is retried.",
        ),
        row(
            "Panic",
            "A bug ended the reconcile; other objects are not affected.",
            "Report it with the log line; the reconcile is retried.",
        ),
        row(
            "LeftBehind",
            "An object was deleted, and the operator could not take back what it had made for it.",
            "Delete what the note names, if it is not needed any more.",
        ),
        row(
            "Undecodable",
            "This version of the operator cannot read the object and skips it; other objects are not affected.",
            "Correct the field that the note names, or install the CRDs and the operator of one release.",
        ),
        row("Created", "The operator created what the note names.", "Nothing."),
        row(
            "Updated",
            "The operator changed what the note names, from the first value to the second.",
            "Nothing.",
        ),
        row("Deleted", "The operator deleted what the note names.", "Nothing."),
        row("KeyMinted", "The operator created the provisioner key that the note names.", "Nothing."),
        row(
            "KeyRevoked",
            "The operator revoked the provisioner key that the note names. The condition `Ready` has the same reason when the key was revoked by another client.",
            "Nothing.",
        ),
        row(
            "TokenExpires",
            "The supplied token of the control plane expires soon.",
            "Create a token in Coder and write it to the Secret that spec.external.credentialsSecretRef names.",
        ),
        row(
            "LicenseExpires",
            "A licence of the control plane expires soon.",
            "Write the new licence to the Secret that spec.licenseSecretRef names.",
        ),
        row("LicenseInstalled", "The declared licence was uploaded to Coder.", "Nothing."),
        row(
            "LicenseRetired",
            "A licence that the operator had installed was deleted, because another one is declared or none is.",
            "Nothing.",
        ),
        row(
            "ScaledToZero",
            "A Deployment was scaled to zero replicas, for the reason in the note.",
            "Correct what the note names; the replicas come back with the next reconcile.",
        ),
        row(
            "NoLongerManaged",
            "A managed control plane was changed to `external`; the operator does not manage the objects that the note names any more.",
            "Delete them if nothing uses them. Remove their owner references to keep them when the manifest is deleted.",
        ),
        row(
            "NotTakenAway",
            "A token or an account that the operator no longer needs could not be removed from Coder.",
            "Wait: the removal is tried again. Remove it by hand where the note keeps coming.",
        ),
        row("Unknown", "The object was not reconciled yet.", "Wait."),
    ],
};
