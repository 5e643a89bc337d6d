//! The requests of one user to the API server, read from its audit log and counted.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::Value;

/// A request, and when it was received and answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) verb: String,
    pub(super) group: String,
    /// The resource, with its subresource as `deployments/status`.
    pub(super) resource: String,
    pub(super) name: Option<String>,
    pub(super) code: u16,
    pub(super) received: Timestamp,
    pub(super) answered: Timestamp,
}

/// What a request is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Write,
    /// A write of an Event: a write, too, and also shown apart.
    Event,
    /// A `get` or a `list`.
    Read,
    Watch,
    /// A write of a Lease.
    LeaseWrite,
    /// A question about rights, a read of a Lease, or a refused watch: no read of what is reconciled.
    Other,
}

impl Request {
    pub(super) fn class(&self) -> Class {
        let is_lease = self.resource == "leases";
        match self.verb.as_str() {
            // A watch of a resource that the API server has just begun to serve is refused, and opened again.
            "watch" if self.code >= 400 => Class::Other,
            "watch" => Class::Watch,
            "get" | "list" if is_lease => Class::Other,
            "get" | "list" => Class::Read,
            _ if self.group == "authorization.k8s.io" => Class::Other,
            _ if is_lease => Class::LeaseWrite,
            _ if self.resource == "events" => Class::Event,
            _ => Class::Write,
        }
    }

    /// Returns how long the API server took, in milliseconds.
    pub(super) fn milliseconds(&self) -> f64 {
        self.answered.duration_since(self.received).as_secs_f64() * 1e3
    }
}

/// The number of requests of each class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Writes, those of Events among them.
    pub(super) writes: u32,
    pub(super) events: u32,
    pub(super) reads: u32,
    /// Reads beyond the first list of each resource.
    pub(super) further_reads: u32,
    pub(super) watches: u32,
    /// Watches beyond the first of each resource.
    pub(super) further_watches: u32,
    pub(super) lease_writes: u32,
}

/// Counts requests by class.
pub(super) fn count(requests: &[Request]) -> Counts {
    let mut counts = Counts::default();
    let mut first = BTreeSet::new();
    for request in requests {
        let is_first = matches!(request.class(), Class::Read | Class::Watch)
            && request.verb != "get"
            && first.insert((&request.verb, &request.group, &request.resource));
        match request.class() {
            Class::Write => counts.writes += 1,
            Class::Event => {
                counts.writes += 1;
                counts.events += 1;
            }
            Class::Read => {
                counts.reads += 1;
                counts.further_reads += u32::from(!is_first);
            }
            Class::Watch => {
                counts.watches += 1;
                counts.further_watches += u32::from(!is_first);
            }
            Class::LeaseWrite => counts.lease_writes += 1,
            Class::Other => {}
        }
    }
    counts
}

/// An audit log that is read from some place on.
#[derive(Debug)]
pub(super) struct AuditLog {
    path: PathBuf,
    user: String,
    offset: u64,
}

impl AuditLog {
    /// Opens the log at its end, for the requests of a user.
    pub(super) fn at_end(path: &Path, user: &str) -> Result<Self> {
        let length = path.metadata().with_context(|| format!("find the audit log {}", path.display()))?.len();
        Ok(Self { path: path.to_owned(), user: user.to_owned(), offset: length })
    }

    /// Returns the user's requests whose lines were written since the last call.
    pub(super) fn read(&mut self) -> Result<Vec<Request>> {
        let lines = self.read_lines().with_context(|| format!("read {}", self.path.display()))?;
        Ok(requests(&String::from_utf8_lossy(&lines), &self.user))
    }

    fn read_lines(&mut self) -> std::io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The last line may be half written.
        let whole = bytes.iter().rposition(|it| *it == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(whole);
        self.offset += u64::try_from(whole).unwrap_or_default();
        Ok(bytes)
    }
}

/// Returns the requests of a user among the lines of an audit log.
fn requests(lines: &str, user: &str) -> Vec<Request> {
    // Most lines are of other users; parsing each would cost more than what is measured.
    let lines = lines.lines().filter(|line| line.contains(user));
    let entries = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries.filter(|it| it["user"]["username"] == user).filter_map(|it| request(&it)).collect()
}

fn request(entry: &Value) -> Option<Request> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verb = text(&entry["verb"]);
    // A watch has a line when it begins and one when it ends.
    if verb == "watch" && entry["stage"] != "ResponseStarted" {
        return None;
    }
    let object = &entry["objectRef"];
    let mut resource = text(&object["resource"]);
    if let Some(part) = object["subresource"].as_str() {
        resource = format!("{resource}/{part}");
    }
    Some(Request {
        verb,
        group: text(&object["apiGroup"]),
        resource,
        name: object["name"].as_str().map(str::to_owned),
        code: entry["responseStatus"]["code"].as_u64().and_then(|it| it.try_into().ok()).unwrap_or_default(),
        received: entry["requestReceivedTimestamp"].as_str()?.parse().ok()?,
        answered: entry["stageTimestamp"].as_str()?.parse().ok()?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    const USER: &str = "system:serviceaccount:a:coder-operator";

    /// A line of the audit log.
    fn line(user: &str, verb: &str, resource: &str, stage: &str) -> String {
        json!({"user": {"username": user}, "verb": verb, "stage": stage,
            "objectRef": {"resource": resource, "apiGroup": "apps", "name": "alpha"},
            "responseStatus": {"code": 200},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
            "stageTimestamp": "2026-01-01T00:00:00.250000Z"})
        .to_string()
    }

    /// A request that was received so many milliseconds after the epoch.
    pub(in super::super) fn at(received: i64, took: i64, verb: &str, resource: &str, name: &str) -> Request {
        let time = |it| Timestamp::from_millisecond(it).unwrap();
        Request {
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            name: Some(name.to_owned()),
            code: 200,
            received: time(received),
            answered: time(received + took),
        }
    }

    fn classes(pairs: &[(&str, &str)]) -> Counts {
        let requests: Vec<Request> =
            pairs.iter().map(|(verb, resource)| at(0, 1, verb, resource, "alpha")).collect();
        count(&requests)
    }

    #[test]
    fn requests_of_the_user_are_read_and_those_of_others_are_not() {
        let named = line("bed-admin", "patch", USER, "ResponseComplete");
        let own = line(USER, "get", "deployments", "ResponseComplete");
        let found = requests(&[named, own, "half a li".to_owned()].join("\n"), USER);
        assert_eq!(found.len(), 1);
        let first = found.first().unwrap();
        assert_eq!((first.verb.as_str(), first.resource.as_str(), first.code), ("get", "deployments", 200));
        assert!((first.milliseconds() - 250.0).abs() < 0.001);
    }

    #[test]
    fn watch_is_counted_when_it_begins() {
        let lines = ["ResponseStarted", "ResponseComplete"].map(|it| line(USER, "watch", "pods", it));
        assert_eq!(requests(&lines.join("\n"), USER).len(), 1);
    }

    #[test]
    fn refused_watch_is_not_counted() {
        let refused = Request { code: 429, ..at(0, 1, "watch", "pods", "") };
        let counts = count(&[refused, at(5, 1, "watch", "pods", "")]);
        assert_eq!((counts.watches, counts.further_watches), (1, 0));
    }

    #[test]
    fn writes_include_events_and_no_leases() {
        let counts = classes(&[
            ("create", "events"),
            ("patch", "secrets"),
            ("delete", "secrets"),
            ("update", "leases"),
            ("get", "leases"),
        ]);
        let expected = Counts { writes: 3, events: 1, lease_writes: 1, ..Counts::default() };
        assert_eq!(counts, expected);
    }

    #[test]
    fn first_list_and_first_watch_of_a_resource_are_told_from_further_ones() {
        let counts = classes(&[
            ("list", "pods"),
            ("watch", "pods"),
            ("list", "secrets"),
            ("list", "pods"),
            ("get", "pods"),
            ("watch", "pods"),
        ]);
        let expected =
            Counts { reads: 4, further_reads: 2, watches: 2, further_watches: 1, ..Counts::default() };
        assert_eq!(counts, expected);
    }

    #[test]
    fn log_is_read_from_its_end_on_in_whole_lines() {
        let path = std::env::temp_dir().join(format!("bench-audit-{}", std::process::id()));
        let own = line(USER, "get", "deployments", "ResponseComplete");
        std::fs::write(&path, format!("{own}\n")).unwrap();
        let mut log = AuditLog::at_end(&path, USER).unwrap();
        assert_eq!(log.read().unwrap().len(), 0);
        let (start, rest) = own.split_at(20);
        std::fs::write(&path, format!("{own}\n{own}\n{start}")).unwrap();
        assert_eq!(log.read().unwrap().len(), 1);
        std::fs::write(&path, format!("{own}\n{own}\n{start}{rest}\n")).unwrap();
        assert_eq!(log.read().unwrap().len(), 1);
        std::fs::remove_file(&path).unwrap();
    }
}
