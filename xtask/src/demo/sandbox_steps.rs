//! The steps on the sandbox: what is told, what is typed, and what must be seen.

use super::steps::{
    Check::{Has, Lacks},
    Command, Step, command, exits,
};

/// Stands for the hash that the last refusal named.
pub(super) const HASH: &str = "HASH";

/// The group whose quota is changed by hand, and its organization.
pub(super) const GROUP: (&str, &str) = ("alpha", "developers");
/// The quota that is set by hand.
pub(super) const QUOTA: i32 = 1;

pub(super) const APPLY: Step = Step {
    title: "Apply the manifests",
    story: "An organization, two groups, three documents of IdP sync and a banner. `plan` shows what would change, `apply` changes it, `verify` compares.",
    commands: &[
        command("coder-operator plan -f state --url \"$CODER_URL\"", &[Has("7 to change"), Has("+sandbox")]),
        command(
            "coder-operator apply -f state --url \"$CODER_URL\" --yes > /dev/null",
            &[Has("7 applied in ")],
        ),
        exits(0, "coder-operator verify -f state --url \"$CODER_URL\"", &[Has("7 equal")]),
    ],
};

pub(super) const DRIFT: Step = Step {
    title: "Somebody changes something by hand",
    story: "On the page of the sandbox a person sets the quota of alpha/developers to 1. `verify` is what a CI pipeline runs: it changes nothing, and exits with 3 where Coder differs from the files. `apply` heals the drift.",
    commands: &[
        exits(3, "coder-operator verify -f state --url \"$CODER_URL\"", &[Has("quotaAllowance: 1 -> 20")]),
        command("coder-operator apply -f state --url \"$CODER_URL\" --yes", &[Has("1 applied, 6 equal")]),
        exits(0, "coder-operator verify -f state --url \"$CODER_URL\"", &[Lacks("quotaAllowance")]),
    ],
};

/// The change of a manifest and its refusal.
pub(super) const APPROVE: Step = Step {
    title: "A change that needs approval",
    story: "With `approval: Manual` nothing is changed until somebody approves exactly this plan, by its hash.",
    commands: &[
        command(
            "sed -i 's/displayName: Mission Partner Alpha/displayName: Alpha and Partners\\n  approval: Manual/' state/alpha.yaml",
            &[],
        ),
        exits(
            4,
            "coder-operator apply -f state --url \"$CODER_URL\" --yes",
            &[Has("approval is Manual"), Has("--approve ")],
        ),
    ],
};

/// The same plan with its approval.
pub(super) const APPROVED: [Command; 2] = [
    exits(
        0,
        "coder-operator apply -f state --url \"$CODER_URL\" --yes --approve HASH",
        &[Has("Alpha and Partners"), Has("1 applied, 6 equal")],
    ),
    exits(0, "coder-operator verify -f state --url \"$CODER_URL\"", &[Has("7 equal")]),
];
