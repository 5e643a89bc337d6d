//! Conditions and reasons of control planes.

use super::{CONTROL_PLANE, ConditionDoc, ReasonGroup, row};
use crate::{Reason, condition};

pub(super) const CONDITIONS: &[ConditionDoc] = &[
    ConditionDoc {
        condition: condition::OPERATOR_ACCESS,
        kinds: CONTROL_PLANE,
        meaning: "The operator has working credentials. Dependent objects need this condition, not `Ready`.",
    },
    ConditionDoc {
        condition: condition::LICENSE_APPLIED,
        kinds: CONTROL_PLANE,
        meaning: "The declared licences are installed and in force. `Unknown` when no licence is declared.",
    },
    ConditionDoc {
        condition: condition::ENTITLEMENTS,
        kinds: CONTROL_PLANE,
        meaning: "The entitlements were read, and Coder reports no error about them.",
    },
    ConditionDoc {
        condition: condition::COMPLETE,
        kinds: CONTROL_PLANE,
        meaning: "Managed control planes only: every declared object beside the pods exists.",
    },
    ConditionDoc {
        condition: condition::DATABASE_CONFIGURED,
        kinds: CONTROL_PLANE,
        meaning: "Managed control planes only: a database is declared.",
    },
];

pub(super) const WORKLOAD: ReasonGroup = ReasonGroup {
    title: "Managed control planes",
    conditions: &[condition::READY, condition::COMPLETE, condition::DATABASE_CONFIGURED],
    kinds: CONTROL_PLANE,
    reasons: &[
        row(
            Reason::RolloutStuck,
            "Pods do not become ready; the message names a pod, its state and its last log line.",
            "Correct what the log line reports. The previous pods keep serving.",
        ),
        row(
            Reason::NotApplied,
            "The API server or an admission policy refused an object.",
            "Read the answer in the message, and change the manifest or the policy.",
        ),
        row(
            Reason::DowngradeRefused,
            "The image is older than the version that has already migrated the database.",
            "Use an image of at least `status.databaseVersion`, or restore an older database.",
        ),
        row(
            Reason::VersionUnknown,
            "The image has no version tag, so that a downgrade cannot be detected.",
            "Use an image with a version tag.",
        ),
        row(
            Reason::NoDatabase,
            "No database is declared; coderd uses its built-in database and loses it with the pod.",
            "Set `spec.database`, or `CODER_PG_CONNECTION_URL` in `extraEnv`.",
        ),
        row(
            Reason::DatabaseRemovalRefused,
            "The running pods have a database, and the manifest no longer declares one; the pods stay as they are.",
            "Declare the database again. To start with an empty one on purpose, delete the Deployment.",
        ),
        row(
            Reason::NoConsent,
            "A namespace in `rbac.workspaceNamespaces` lacks the label `coder.com/workspaces-from`.",
            "Label the namespace with the control plane's namespace.",
        ),
        row(
            Reason::NotPermitted,
            "The operator's ServiceAccount lacks permissions in another namespace.",
            "Bind the Role in `deploy/rbac/workspaces.yaml` in that namespace.",
        ),
        row(
            Reason::RulesNotAllowed,
            "`rbac.extraRules` asks for more than the operator was started to grant.",
            "Add the rule to the file of `--allow-rules`, or remove it from the manifest.",
        ),
        row(
            Reason::GatewayAPIMissing,
            "The cluster has no Gateway API; the HTTPRoute is not created yet.",
            "Install the Gateway API CRDs, or use `expose.ingress`.",
        ),
        row(
            Reason::LicenseNotApplied,
            "A declared licence is not installed or not in force.",
            "Look at the condition `LicenseApplied`.",
        ),
    ],
};

pub(super) const ACCESS: ReasonGroup = ReasonGroup {
    title: "The operator's account",
    conditions: &[condition::OPERATOR_ACCESS, condition::READY],
    kinds: CONTROL_PLANE,
    reasons: &[
        row(
            Reason::AccessDisabled,
            "`operatorAccess.disabled` is true; the account and its token were removed.",
            "Set it to false if dependent objects have to be reconciled.",
        ),
        row(
            Reason::NoUsers,
            "The deployment has no user, and no database that a Job could reach.",
            "Set `operatorAccess.firstUserSecretRef`, or create the first user in a browser.",
        ),
        row(
            Reason::NoCredentials,
            "The operator has no way to get an account.",
            "Set `operatorAccess.adminCredentialsSecretRef`. Where password login is disabled the Secret has to hold a token.",
        ),
        row(
            Reason::AccountTaken,
            "An account with the operator's name exists, and the operator did not create it.",
            "Delete or rename the account in Coder, then delete the Job to retry at once.",
        ),
        row(
            Reason::AdminJobRunning,
            "A Job runs `coder server create-admin-user`.",
            "Wait. The message reports what the pod waits for.",
        ),
        row(
            Reason::AdminJobFailed,
            "That Job failed; the message quotes its pod.",
            "Correct the cause. The operator retries after five minutes, or at once when the pod template, a Secret or a \
             ConfigMap changes.",
        ),
    ],
};

pub(super) const LICENSES: ReasonGroup = ReasonGroup {
    title: "Licences",
    conditions: &[condition::LICENSE_APPLIED],
    kinds: CONTROL_PLANE,
    reasons: &[
        row(Reason::Applied, "The declared licences are installed.", "Nothing."),
        row(
            Reason::GracePeriod,
            "A licence has expired and is in its grace period.",
            "Renew the licence in its Secret.",
        ),
        row(
            Reason::Pending,
            "The deployment or the operator's access is not ready, or no licence is declared.",
            "Look at `OperatorAccessReady`.",
        ),
        row(Reason::SecretMissing, "The Secret with the licence, or its key, does not exist.", "Create it."),
        row(
            Reason::Forbidden,
            "The account may not manage licences.",
            "Give the account the site role `owner`.",
        ),
        row(Reason::NotSupported, "This build of Coder has no licences.", "Use the enterprise image."),
        row(
            Reason::Invalid,
            "Coder refuses the licence, or it is for another deployment or not yet valid.",
            "Put the right licence into the Secret. A refused licence is not uploaded again until the Secret changes.",
        ),
        row(
            Reason::Expired,
            "The licence and its grace period have ended.",
            "Renew the licence in its Secret.",
        ),
        row(Reason::Error, "Coder answered with an error.", "Read the message; the upload is retried."),
    ],
};

pub(super) const ENTITLEMENTS: ReasonGroup = ReasonGroup {
    title: "Entitlements",
    conditions: &[condition::ENTITLEMENTS],
    kinds: CONTROL_PLANE,
    reasons: &[
        row(Reason::Licensed, "Coder reports licensed features and no problem.", "Nothing."),
        row(
            Reason::Unlicensed,
            "The deployment has no licence in force.",
            "Install one if a kind needs a licensed feature.",
        ),
        row(
            Reason::GracePeriod,
            "Features are in their grace period; the message lists them.",
            "Renew the licence.",
        ),
        row(Reason::Warnings, "Coder reports warnings; they are in `status.licenseWarnings`.", "Read them."),
        row(
            Reason::Errors,
            "Coder reports errors; they are in `status.licenseErrors`.",
            "Read and correct them.",
        ),
        row(
            Reason::UserLimitExceeded,
            "More users are active than the licence allows.",
            "Suspend users, or extend the licence.",
        ),
        row(Reason::NotObserved, "The entitlements could not be read.", "Look at `OperatorAccessReady`."),
    ],
};
