//! The builds of versions of templates, in virtual time.
//!
//! A job is done some seconds after a daemon with its tags is there. It fails where the braces of the source do not match,
//! which stands for everything that Terraform refuses.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::state::{State, Version};

/// When a daemon took the build of a version. `None` while there is none that may.
pub(crate) fn taken_at(state: &State, version: &Version) -> Option<Timestamp> {
    Some(first_daemon(state, version)?.max(version.created_at))
}

/// When a daemon that may build the version was first there. `None` while there is none.
pub(crate) fn first_daemon(state: &State, version: &Version) -> Option<Timestamp> {
    let fits = |tags: &BTreeMap<String, String>| {
        version.tags.iter().all(|(key, value)| value.is_empty() || tags.get(key) == Some(value))
    };
    let daemons = state.daemons.values().filter(|it| it.organization_id == version.organization_id);
    daemons.filter(|it| fits(&it.tags)).map(|it| it.created_at).min()
}

/// The state of the build, in coderd's words.
pub(crate) fn status(state: &State, version: &Version, now: Timestamp) -> &'static str {
    match taken_at(state, version) {
        _ if version.is_built => "succeeded",
        None => "pending",
        Some(taken) if now < taken + version.build_time => "running",
        Some(_) if version.is_broken => "failed",
        Some(_) => "succeeded",
    }
}
