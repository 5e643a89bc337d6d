//! A deletion: how long it may take, what it did not take back, and why. Pure.

use std::time::Duration;

use api::Reason;

use crate::pipeline::outcome::{Blocked, Trouble};

/// How long a deletion waits for a dependency or a server.
pub const DEADLINE: Duration = Duration::from_mins(15);
/// However long others were waited for, a deployment that does not answer is asked again for this long.
pub const LAST_TRIES: Duration = Duration::from_mins(4);

/// Why something was not taken back.
#[derive(Debug, Clone)]
pub struct CleanupFailure {
    pub blocked: Blocked,
    /// Whether a retry cannot help.
    pub is_final: bool,
}

impl From<Blocked> for CleanupFailure {
    fn from(blocked: Blocked) -> Self {
        Self { is_final: blocked.reason.is_final_for_deletion(), blocked }
    }
}

impl From<Trouble> for CleanupFailure {
    fn from(trouble: Trouble) -> Self {
        trouble.into_blocked().into()
    }
}

/// Something of ours that a cleanup did not take back.
#[derive(Debug)]
pub struct Remainder {
    /// Its name, as the subject of a sentence.
    pub name: String,
    pub failure: CleanupFailure,
}

/// What a cleanup did not take back.
#[derive(Debug, Default)]
pub struct Cleanup {
    remainders: Vec<Remainder>,
    /// What stays on purpose, or for good, and has to be named.
    stays: Vec<(Reason, String)>,
}

impl Cleanup {
    /// Adds what was not taken back.
    pub fn fail(&mut self, name: impl Into<String>, failure: impl Into<CleanupFailure>) {
        self.remainders.push(Remainder { name: name.into(), failure: failure.into() });
    }

    /// Adds what stays on purpose, as a sentence.
    pub fn stays(&mut self, note: impl Into<String>) {
        self.stays_because(Reason::Deleting, note);
    }

    /// Adds what stays for this reason, as a sentence.
    pub fn stays_because(&mut self, reason: Reason, note: impl Into<String>) {
        self.stays.push((reason, note.into()));
    }

    /// Adds what another cleanup did not take back.
    pub fn add(&mut self, other: Self) {
        self.stays.extend(other.stays);
        self.remainders.extend(other.remainders);
    }

    /// Records whether a deployment that did not do what was asked may do it later.
    pub fn settle(&mut self, may_answer: bool) {
        for remainder in self.remainders.iter_mut().filter(|_| !may_answer) {
            remainder.failure.is_final = true;
        }
    }

    /// What a retry may take back.
    pub fn pending(&self) -> Option<&Remainder> {
        self.remainders.iter().find(|it| !it.failure.is_final)
    }

    /// What is left behind, each with the reason and a sentence.
    pub fn notes(&self) -> Vec<(Reason, String)> {
        let stays = self.stays.iter().cloned();
        let left = self.remainders.iter().map(|Remainder { name, failure }| {
            (failure.blocked.reason, format!("{name} is left behind: {}", failure.blocked.message))
        });
        stays.chain(left).collect()
    }
}
