//! Conditions as every status has them: a transition keeps its time for as long as it lasts.

use api::Reason;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::pipeline::short::shortened;

/// The longest message of a condition, in bytes. Kubernetes takes 32 KiB.
const LONGEST: usize = 4096;

/// Makes the conditions of a status from those before.
#[derive(Debug)]
pub struct Conditions<'a> {
    before: &'a [Condition],
    generation: Option<i64>,
    now: Timestamp,
    made: Vec<Condition>,
}

/// A condition that only one kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The type of the condition.
    pub condition: &'static str,
    pub truth: Truth,
    pub reason: Reason,
    pub message: String,
}

/// What is known of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    True,
    False,
    Unknown,
}

impl<'a> Conditions<'a> {
    pub fn new(before: &'a [Condition], generation: Option<i64>, now: Timestamp) -> Self {
        Self { before, generation, now, made: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, kind: &str, truth: Truth, reason: Reason, message: &str) -> Self {
        let status = truth.as_str();
        let since = self.before.iter().find(|it| it.type_ == kind && it.status == status);
        self.made.push(Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message: shortened(message, LONGEST),
            observed_generation: self.generation,
            last_transition_time: since.map_or(Time(self.now), |it| it.last_transition_time.clone()),
        });
        self
    }

    #[must_use]
    pub fn with_all(self, facts: &[Fact]) -> Self {
        let with = |made: Self, it: &Fact| made.with(it.condition, it.truth, it.reason, &it.message);
        facts.iter().fold(self, with)
    }

    pub fn made(self) -> Vec<Condition> {
        self.made
    }
}

impl Truth {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Truth {
    fn from(it: bool) -> Self {
        if it { Self::True } else { Self::False }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_a_condition_is_cut() {
        let message = "ä".repeat(10_000);
        let made = Conditions::new(&[], None, Timestamp::UNIX_EPOCH);
        let made = made.with("Ready", Truth::True, Reason::UpToDate, &message).made();
        assert_eq!(made[0].message.len(), LONGEST - 1);
        assert!(made[0].message.ends_with('…'));
    }
}
