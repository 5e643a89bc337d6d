//! What the deletion of a control plane did not take back, and why.

use api::{CoderControlPlane, Reason};
use kube::Resource as _;

use crate::{
    pipeline::outcome::{Blocked, Trouble},
    ports::Cluster,
};

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
    /// What stays on purpose and has to be named.
    stays: Vec<String>,
}

impl Cleanup {
    /// Adds what was not taken back.
    pub fn fail(&mut self, name: impl Into<String>, failure: impl Into<CleanupFailure>) {
        self.remainders.push(Remainder { name: name.into(), failure: failure.into() });
    }

    /// Adds what stays on purpose, as a sentence.
    pub fn stays(&mut self, note: String) {
        self.stays.push(note);
    }

    /// How much was not taken back so far.
    pub fn count(&self) -> usize {
        self.remainders.len()
    }

    /// Records whether a deployment that did not do what was asked may do it later, for everything from this count on.
    pub fn settle(&mut self, may_answer: bool, from: usize) {
        for remainder in self.remainders.iter_mut().skip(from).filter(|_| !may_answer) {
            remainder.failure.is_final = true;
        }
    }

    /// What a retry may take back.
    pub fn pending(&self) -> Option<&Remainder> {
        self.remainders.iter().find(|it| !it.failure.is_final)
    }

    /// Names everything that is left behind.
    pub async fn name(&self, plane: &CoderControlPlane, cluster: &dyn Cluster) {
        let about = plane.object_ref(&());
        for note in &self.stays {
            cluster.left_behind(&about, Reason::Deleting, note).await;
        }
        for Remainder { name, failure: CleanupFailure { blocked, .. } } in &self.remainders {
            let note = format!("{name} is left behind: {}", blocked.message);
            cluster.left_behind(&about, blocked.reason, &note).await;
        }
    }
}
