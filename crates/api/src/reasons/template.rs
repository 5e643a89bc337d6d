//! Reasons of templates.

use super::{ReasonGroup, row};
use crate::{Reason, condition};

pub(super) const TEMPLATES: ReasonGroup = ReasonGroup {
    title: "Templates",
    conditions: &[condition::READY, condition::RECONCILING, condition::STALLED],
    kinds: &["CoderTemplate"],
    reasons: &[
        row(
            Reason::VersionBuilding,
            "Coder builds the version. It is promoted after the build.",
            "Wait. The message has the state of the build.",
        ),
        row(
            Reason::NoProvisioner,
            "The build of the version or of its test workspace is queued, and no provisioner daemon that Coder lists has its tags. The build goes on waiting.",
            "Start a daemon with the tags in the message, or correct `provisionerTags`.",
        ),
        row(
            Reason::VersionTesting,
            "A throwaway workspace of the version is started or deleted. The version is promoted after that.",
            "Wait. The message has the state of the workspace and of its agents.",
        ),
        row(
            Reason::VersionFailed,
            "The build of the version failed, or its test workspace did not come up. The version was not promoted, and is archived.",
            "Correct the source, the variables or the test. To build the same source again, set another `version.name`.",
        ),
        row(
            Reason::TestOwnerRefused,
            "The owner in `version.test` has roles, is the account of a person, or is dormant or suspended. Terraform gets a token of the owner.",
            "Set an active service account without roles. The message has what is wrong with the account.",
        ),
        row(
            Reason::VersionNameTaken,
            "The template has a version of that name whose source, variables or tags differ.",
            "Set another `version.name`, or leave it out: then the name is derived from the content.",
        ),
        row(
            Reason::SourceNotUsable,
            "The source cannot be read here, or has a file that a template cannot have.",
            "Correct the field that the message names.",
        ),
    ],
};
