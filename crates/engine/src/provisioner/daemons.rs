//! The daemons that coderd sees on a key: what every user asks for first.

use std::collections::BTreeSet;

use api::reason;
use client::provisioner_keys::ProvisionerDaemon;

use crate::{outcome::Waiting, version::Version};

/// The daemons on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemons {
    /// How many there should be.
    wanted: i32,
    connected: i32,
    versions: BTreeSet<String>,
    /// What coderd is, where its version is known.
    coderd: Option<String>,
}

impl Daemons {
    /// The daemons of a list that belong to pods that are there. When a daemon was last seen is coderd's business, by its
    /// own clock; but one whose pod has gone stays in its list for a while.
    pub fn of(
        list: &[ProvisionerDaemon],
        pods: &BTreeSet<String>,
        wanted: i32,
        coderd: Option<&str>,
    ) -> Self {
        let seen: Vec<&ProvisionerDaemon> = list.iter().filter(|it| pods.contains(&it.name)).collect();
        let names: BTreeSet<&str> = seen.iter().map(|it| it.name.as_str()).collect();
        Self {
            wanted,
            connected: i32::try_from(names.len()).unwrap_or(i32::MAX),
            versions: seen.iter().map(|it| it.version.clone()).filter(|it| !it.is_empty()).collect(),
            coderd: coderd.map(str::to_owned),
        }
    }

    pub fn connected(&self) -> i32 {
        self.connected
    }

    /// Each once.
    pub(super) fn versions(&self) -> Vec<String> {
        self.versions.iter().cloned().collect()
    }

    /// Whether there are as many as there should be.
    pub(super) fn standing(&self) -> Result<(), Waiting> {
        if self.connected >= self.wanted {
            return Ok(());
        }
        let message = format!(
            "coderd sees {} of {} daemons on this key: look at the pods' logs",
            self.connected, self.wanted
        );
        Err(Waiting { reason: reason::DAEMONS_NOT_SEEN, message })
    }

    /// What there is, in words.
    pub(super) fn words(&self) -> String {
        if self.wanted == 0 && self.connected == 0 {
            return "no daemons are declared".to_owned();
        }
        format!("coderd sees {} of {} daemons{}", self.connected, self.wanted, self.skew())
    }

    /// Daemons of another version than coderd's work as a rule, and a person should know.
    fn skew(&self) -> String {
        let Some(coderd) = self.coderd.as_deref() else { return String::new() };
        let known = Version::parse(coderd);
        let is_other = |it: &String| known.is_some() && Version::parse(it) != known;
        if self.versions.iter().any(is_other) {
            format!("; coderd is {coderd}: give them the same image")
        } else {
            String::new()
        }
    }
}
