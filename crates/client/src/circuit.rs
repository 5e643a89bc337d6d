//! The circuit breaker of one deployment: a dead one is asked seldom, and nobody waits for it.
//!
//! A pure state machine; the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::observer::CircuitState;

const FAILURES_TO_OPEN: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_mins(2);
/// A trial whose caller went away says nothing; after this long the next one may try.
const TRIAL_LIMIT: Duration = Duration::from_secs(75);

#[derive(Debug)]
pub(crate) struct Circuit {
    state: State,
    delay: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    Trial { until: Instant },
}

impl Circuit {
    pub(crate) fn new() -> Self {
        Self { state: State::Closed { failures: 0 }, delay: FIRST_DELAY }
    }

    pub(crate) fn state(&self) -> CircuitState {
        match self.state {
            State::Closed { failures: _ } => CircuitState::Closed,
            State::Open { until: _ } => CircuitState::Open,
            State::Trial { until: _ } => CircuitState::Trial,
        }
    }

    /// Lets a request through, or says when to come again.
    pub(crate) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        match self.state {
            State::Closed { failures: _ } => Ok(()),
            State::Open { until } | State::Trial { until } if now >= until => {
                self.state = State::Trial { until: now + TRIAL_LIMIT };
                Ok(())
            }
            State::Open { until } => Err(until - now),
            State::Trial { until } => Err(self.delay.min(until - now)),
        }
    }

    /// Whether a trial is under way: asked right after a request was let through, whether that is it.
    pub(crate) fn is_on_trial(&self) -> bool {
        matches!(self.state, State::Trial { until: _ })
    }

    /// The deployment answered, whatever it said.
    pub(crate) fn answered(&mut self) {
        *self = Self::new();
    }

    /// The deployment did not answer.
    pub(crate) fn failed(&mut self, now: Instant) {
        match self.state {
            State::Closed { failures } if failures + 1 < FAILURES_TO_OPEN => {
                self.state = State::Closed { failures: failures + 1 };
            }
            State::Closed { failures: _ } => self.state = State::Open { until: now + self.delay },
            State::Trial { until: _ } => {
                self.delay = (self.delay * 2).min(LONGEST_DELAY);
                self.state = State::Open { until: now + self.delay };
            }
            // Late failures of requests that were under way say nothing new.
            State::Open { until: _ } => {}
        }
    }

    /// A trial was admitted, and its caller went away before its end. One that is decided is decided.
    pub(crate) fn withdraw(&mut self, now: Instant) {
        if let State::Trial { until: _ } = self.state {
            self.state = State::Open { until: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(now: Instant) -> Circuit {
        let mut circuit = Circuit::new();
        for _ in 0..FAILURES_TO_OPEN {
            circuit.admit(now).unwrap();
            circuit.failed(now);
        }
        circuit
    }

    #[test]
    fn it_opens_after_five_failures_in_a_row_and_not_before() {
        let now = Instant::now();
        let mut circuit = Circuit::new();
        for _ in 0..4 {
            circuit.failed(now);
        }
        circuit.answered();
        for _ in 0..4 {
            circuit.failed(now);
        }
        assert_eq!(circuit.admit(now), Ok(()));
        circuit.failed(now);
        assert_eq!(circuit.admit(now), Err(Duration::from_secs(1)));
    }

    #[test]
    fn one_trial_at_a_time_decides() {
        let now = Instant::now();
        let mut circuit = opened(now);
        let later = now + Duration::from_secs(1);
        assert_eq!(circuit.admit(later), Ok(()));
        assert_eq!(circuit.admit(later), Err(Duration::from_secs(1)), "the others wait for the trial");
        circuit.answered();
        assert_eq!(circuit.admit(later), Ok(()));
        assert_eq!(circuit.admit(later), Ok(()));
    }

    #[test]
    fn each_failed_trial_doubles_the_delay_up_to_two_minutes() {
        let mut now = Instant::now();
        let mut circuit = opened(now);
        let mut delays = Vec::new();
        for _ in 0..9 {
            let delay = circuit.admit(now).unwrap_err();
            delays.push(delay.as_secs());
            now += delay;
            circuit.admit(now).unwrap();
            circuit.failed(now);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
    }

    #[test]
    fn failures_of_requests_under_way_do_not_lengthen_the_pause() {
        let now = Instant::now();
        let mut circuit = opened(now);
        circuit.failed(now);
        circuit.failed(now);
        assert_eq!(circuit.admit(now), Err(Duration::from_secs(1)));
    }

    #[test]
    fn a_trial_that_was_given_up_does_not_close_the_door_for_ever() {
        let now = Instant::now();
        let mut circuit = opened(now);
        let trial = now + Duration::from_secs(1);
        circuit.admit(trial).unwrap();
        assert!(circuit.admit(trial + TRIAL_LIMIT - Duration::from_secs(1)).is_err());
        assert_eq!(circuit.admit(trial + TRIAL_LIMIT), Ok(()));
        circuit.withdraw(trial);
        assert_eq!(circuit.admit(trial), Ok(()), "one that was never sent frees its place at once");
    }
}
