//! The daemons that coderd sees on a key: what every user asks for first.

use std::collections::BTreeSet;

use api::Reason;
use client::provisioner_keys::ProvisionerDaemon;

use crate::pipeline::{outcome::Blocked, version::Version};

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
    /// The daemons of a list that belong to pods that are there to stay. When a daemon was last seen is coderd's business, by its
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
    pub(super) fn standing(&self) -> Result<(), Blocked> {
        if self.connected >= self.wanted {
            return Ok(());
        }
        let message = format!(
            "coderd sees {} of {} daemons on this key: look at the pods' logs",
            self.connected, self.wanted
        );
        Err(Blocked { reason: Reason::DaemonsNotSeen, message })
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn daemon(name: &str, version: &str) -> ProvisionerDaemon {
        let id = uuid::Uuid::nil();
        serde_json::from_value(
            json!({"id": id, "key_id": id, "created_at": "2026-01-01T12:00:00Z", "name": name,
            "version": version}),
        )
        .unwrap()
    }

    fn of(list: &[ProvisionerDaemon], pods: &[&str], wanted: i32, coderd: Option<&str>) -> Daemons {
        let pods = pods.iter().map(|it| (*it).to_owned()).collect();
        Daemons::of(list, &pods, wanted, coderd)
    }

    #[test]
    fn a_daemon_counts_whose_pod_is_there() {
        let list = [daemon("here", "v2.36.0"), daemon("its-pod-is-gone", "v2.35.0")];
        let daemons = of(&list, &["here", "not-connected-yet"], 1, None);
        assert_eq!((daemons.connected(), daemons.versions()), (1, vec!["v2.36.0".to_owned()]));
        assert_eq!(daemons.standing(), Ok(()));
    }

    #[test]
    fn a_pod_that_connected_twice_is_one_daemon() {
        let list = [daemon("a", "v2.36.0"), daemon("a", "v2.36.0")];
        let daemons = of(&list, &["a"], 2, None);
        assert_eq!(daemons.connected(), 1);
        let missing = daemons.standing().unwrap_err();
        assert_eq!(missing.reason, Reason::DaemonsNotSeen);
        assert!(missing.message.contains("1 of 2"), "{}", missing.message);
    }

    #[test]
    fn daemons_of_another_version_than_coderd_are_told_of_and_builds_are_no_versions() {
        let list = [daemon("a", "v2.35.0")];
        let skewed = of(&list, &["a"], 1, Some("v2.36.0+abc"));
        assert_eq!(skewed.standing(), Ok(()));
        assert_eq!(
            skewed.words(),
            "coderd sees 1 of 1 daemons; coderd is v2.36.0+abc: give them the same image"
        );
        for coderd in [Some("v2.35.0+abc"), Some("a build of one's own"), None] {
            assert_eq!(of(&list, &["a"], 1, coderd).words(), "coderd sees 1 of 1 daemons");
        }
    }

    #[test]
    fn none_declared_is_as_it_should_be() {
        let none = of(&[], &[], 0, None);
        assert_eq!((none.standing(), none.words()), (Ok(()), "no daemons are declared".to_owned()));
    }
}
