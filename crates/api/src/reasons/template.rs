//! Reasons of templates.

use super::{ReasonGroup, row};
use crate::{Reason, condition, kinds::APP_STATE};

pub(super) const TEMPLATES: ReasonGroup = ReasonGroup {
    title: "Templates",
    conditions: &[condition::READY, condition::RECONCILING, condition::STALLED],
    kinds: APP_STATE,
    reasons: &[
        row(
            Reason::VersionBuilding,
            "Coder builds the version. It is promoted after the build.",
            "Wait. The message has the state of the build.",
        ),
        row(
            Reason::NoProvisioner,
            "The build of the version is queued, and no provisioner daemon that Coder lists has its tags. The build goes on waiting.",
            "Start a daemon with the tags in the message, or correct `provisionerTags`.",
        ),
        row(
            Reason::VersionFailed,
            "The build of the version failed. The version was not promoted, and is archived.",
            "Correct the source or the variables. To build the same source again, set another `version.name`.",
        ),
        row(
            Reason::VersionNameTaken,
            "The template has a version of that name whose source, variables or tags differ.",
            "Set another `version.name`, or leave it out: then the name is derived from the content.",
        ),
        row(
            Reason::VersionTesting,
            "A test workspace of the new version is started, checked or deleted. The version is promoted afterwards.",
            "Wait.",
        ),
        row(
            Reason::TestFailed,
            "The test workspace of the new version did not become ready. It was deleted, and the version was not promoted.",
            "Correct the source. To test the same source again, set another `version.name`.",
        ),
        row(
            Reason::TestOwnerNotAllowed,
            "The build of a workspace can read the token of its owner, and `version.test.owner` may do more than a plain member, \
             signs in as a person, or is dormant or suspended.",
            "Name a service account that is a plain member of the organization and has no roles.",
        ),
        row(
            Reason::SourceNotUsable,
            "The source cannot be read here, or has a file that a template cannot have.",
            "Correct the field that the message names.",
        ),
    ],
};
