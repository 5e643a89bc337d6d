//! The steps that archive a version, and take that back. Pure.

use super::{Effect, version::Version};
use crate::pipeline::plan::{Action, Change, Impact, Step};

pub(super) fn archive(id: uuid::Uuid, reason: String) -> Step<Effect> {
    Step {
        action: Action::Update,
        impact: Impact::Upkeep,
        reason,
        changes: vec![Change::new("version.archived", false, true)],
        effect: Effect::Archive(id),
    }
}

/// Coder promotes no archived version.
pub(super) fn unarchive(version: &Version, id: uuid::Uuid) -> Step<Effect> {
    Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: format!("version {} is archived", version.name),
        changes: vec![Change::new("version.archived", true, false)],
        effect: Effect::Unarchive(id),
    }
}
