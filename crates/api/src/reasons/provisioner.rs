//! Conditions and reasons of provisioner daemons and of their keys.

use super::{ConditionDoc, KEYS as KINDS_WITH_KEYS, PROVISIONER, ReasonGroup, row};
use crate::{Reason, condition};

pub(super) const CONDITIONS: &[ConditionDoc] = &[
    ConditionDoc {
        condition: condition::CONTROL_PLANE_READY,
        kinds: PROVISIONER,
        meaning: "The control plane exists and has an address.",
    },
    ConditionDoc {
        condition: condition::OPERATOR_ACCESS,
        kinds: PROVISIONER,
        meaning: "Without `bootstrap`: the control plane has working credentials.",
    },
    ConditionDoc {
        condition: condition::BOOTSTRAP_SECRET,
        kinds: PROVISIONER,
        meaning: "With `bootstrap`: the Secret with the token exists, and Coder accepts the token.",
    },
    ConditionDoc {
        condition: condition::PROVISIONERS_ENTITLED,
        kinds: PROVISIONER,
        meaning: "The licence includes external provisioner daemons.",
    },
    ConditionDoc {
        condition: condition::PROVISIONER_KEY,
        kinds: PROVISIONER,
        meaning: "Coder has the key, as declared.",
    },
    ConditionDoc {
        condition: condition::PROVISIONER_KEY_SECRET,
        kinds: PROVISIONER,
        meaning: "The Secret holds the value of that key.",
    },
    ConditionDoc {
        condition: condition::DEPLOYMENT,
        kinds: PROVISIONER,
        meaning: "The pods are ready, or `replicas` is 0.",
    },
    ConditionDoc {
        condition: condition::DAEMONS,
        kinds: PROVISIONER,
        meaning: "Coder sees the declared number of daemons on this key.",
    },
];

pub(super) const KEYS: ReasonGroup = ReasonGroup {
    title: "Provisioner keys",
    conditions: &[condition::READY, condition::PROVISIONER_KEY, condition::PROVISIONER_KEY_SECRET],
    kinds: KINDS_WITH_KEYS,
    reasons: &[
        row(Reason::KeyReady, "The key is valid, and the Secret holds its value.", "Nothing."),
        row(
            Reason::SecretMissing,
            "The key is valid in Coder, and no Secret holds its value.",
            "Restore the newest copy of the Secret with its annotations, or request a rotation with `coder.com/rotate-requested-at`.",
        ),
        row(
            Reason::SecretOutdated,
            "The Secret was replaced by an older copy of itself, such as a backup: it holds an earlier key, and the newest one \
             is valid in Coder. Nothing is minted or revoked; pods that run keep their key.",
            "Restore the newer Secret, or request a rotation.",
        ),
        row(
            Reason::SecretChanged,
            "The Secret holds a value that is not the value of the key, which is still valid in Coder.",
            "Restore the Secret, or request a rotation.",
        ),
        row(
            Reason::KeyRevoked,
            "The Secret holds a value, and Coder no longer has that key.",
            "Request a rotation. A `CoderProvisioner` creates a new key by itself.",
        ),
        row(
            Reason::NameTaken,
            "A key that the operator did not create has the declared name; it is not changed.",
            "Choose another name, or delete that key.",
        ),
        row(
            Reason::DaemonsNotSeen,
            "The key is valid, and Coder does not see the expected daemons on it.",
            "Check the pods' logs and their network path to Coder; for daemons elsewhere, check that they use the new value.",
        ),
    ],
};

pub(super) const STAGES: ReasonGroup = ReasonGroup {
    title: "Provisioner daemons",
    conditions: &[
        condition::READY,
        condition::CONTROL_PLANE_READY,
        condition::OPERATOR_ACCESS,
        condition::BOOTSTRAP_SECRET,
        condition::PROVISIONERS_ENTITLED,
        condition::PROVISIONER_KEY,
        condition::PROVISIONER_KEY_SECRET,
        condition::DEPLOYMENT,
        condition::DAEMONS,
    ],
    kinds: PROVISIONER,
    reasons: &[
        row(Reason::ControlPlaneAvailable, "The control plane exists and has an address.", "Nothing."),
        row(
            Reason::ControlPlaneUnavailable,
            "The control plane does not exist, or has no address yet.",
            "Create it, or look at its status.",
        ),
        row(Reason::OperatorAccessReady, "The control plane has working credentials.", "Nothing."),
        row(
            Reason::OperatorAccessNotReady,
            "The control plane has no working credentials.",
            "Look at `OperatorAccessReady` of the control plane, or set `bootstrap.credentialsSecretRef`.",
        ),
        row(Reason::SecretReady, "The Secret holds what it should.", "Nothing."),
        row(Reason::Entitled, "The licence includes external provisioner daemons.", "Nothing."),
        row(Reason::NotSupported, "This build of Coder has no entitlements.", "Use the enterprise image."),
        row(
            Reason::EntitlementsQueryFailed,
            "The entitlements could not be read.",
            "Read the message; the request is retried.",
        ),
        row(Reason::ProvisionerKeyReady, "Coder has the key, as declared.", "Nothing."),
        row(
            Reason::ProvisionerKeyFailed,
            "Coder refused to create the key; the message quotes its answer.",
            "Correct the manifest or the account's roles.",
        ),
        row(
            Reason::ReferenceNotFound,
            "The organization does not exist in Coder.",
            "Create it or declare it; the reconcile starts when it appears.",
        ),
        row(
            Reason::HeldByOther,
            "Another custom resource keeps its key in that Secret.",
            "Choose another `key.secretName`; the message names the holder.",
        ),
        row(Reason::MinimumReplicasReady, "The pods are ready, or `replicas` is 0.", "Nothing."),
        row(Reason::NoReplicasReady, "No pod is ready.", "Look at the pods; the message names one."),
        row(
            Reason::RolloutStuck,
            "Pods do not become ready; the message names a pod, its state and its last log line.",
            "Correct what the log line reports.",
        ),
        row(
            Reason::NotApplied,
            "The API server or an admission policy refused an object.",
            "Read the answer in the message, and change the manifest or the policy.",
        ),
        row(Reason::DaemonsConnected, "Coder sees the daemons.", "Nothing."),
        row(
            Reason::NotObserved,
            "An earlier condition is not `True`, so that this one was not checked.",
            "Correct the first condition that is `False`.",
        ),
    ],
};
