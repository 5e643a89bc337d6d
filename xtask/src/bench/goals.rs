//! The goals: what a work may cost at most.

use super::{
    figures::Measure::{
        self, AnonymousMegabytes, BinaryMegabytes, Calls, FurtherReads, FurtherWatches, LeaseWrites,
        OperatorCpu, Reads, ResidentMegabytes, Seconds, ServersCpu, Writes,
    },
    works::Work,
};

/// A figure that a work should not exceed. Counts of a burst are those of an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal {
    pub(super) work: Work,
    pub(super) measure: Measure,
    pub(super) at_most: f64,
}

const fn goal(work: Work, measure: Measure, at_most: f64) -> Goal {
    Goal { work, measure, at_most }
}

/// Every goal, in the order of the table. The 120 lease writes of ten minutes are what leader election needs.
pub(super) const GOALS: [Goal; 37] = [
    goal(Work::Empty, FurtherWatches, 0.0),
    goal(Work::Empty, ResidentMegabytes, 20.0),
    goal(Work::Empty, AnonymousMegabytes, 4.0),
    goal(Work::Empty, BinaryMegabytes, 18.0),
    goal(Work::PlaneAndLicense, Writes, 5.0),
    goal(Work::PlaneAndLicense, Calls, 5.0),
    goal(Work::Provisioners1, Seconds, 0.25),
    goal(Work::Provisioners50, Seconds, 2.5),
    goal(Work::Provisioners200, Seconds, 10.0),
    goal(Work::Provisioners200, Writes, 9.2),
    goal(Work::Provisioners200, Reads, 1.0),
    goal(Work::Provisioners200, Calls, 1.1),
    goal(Work::Provisioners200, ServersCpu, 17.0),
    goal(Work::Provisioners200, ResidentMegabytes, 32.0),
    goal(Work::Provisioners200, AnonymousMegabytes, 12.0),
    goal(Work::Idle, Writes, 0.0),
    goal(Work::Idle, Reads, 0.0),
    goal(Work::Idle, LeaseWrites, 120.0),
    goal(Work::Idle, Calls, 16.0),
    goal(Work::Idle, OperatorCpu, 0.3),
    goal(Work::Restart, Seconds, 1.0),
    goal(Work::Restart, Writes, 0.0),
    goal(Work::Restart, FurtherReads, 0.0),
    goal(Work::Restart, Calls, 10.0),
    goal(Work::Delete200, Seconds, 3.0),
    goal(Work::Delete200, Writes, 2.0),
    goal(Work::Delete200, Reads, 0.0),
    goal(Work::Delete200, Calls, 1.05),
    goal(Work::Groups1000, Seconds, 25.0),
    goal(Work::Groups1000, Writes, 3.0),
    goal(Work::Groups1000, Calls, 1.05),
    goal(Work::RestartGroups, ResidentMegabytes, 34.0),
    goal(Work::RestartGroups, AnonymousMegabytes, 14.0),
    goal(Work::RestartGroups, Writes, 0.0),
    goal(Work::Groups1000Cli, Seconds, 15.0),
    goal(Work::Groups1000Cli, Calls, 1.02),
    goal(Work::Plan1000, Seconds, 1.0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_figure_has_two_goals() {
        for (index, goal) in GOALS.iter().enumerate() {
            let is_same = |it: &&Goal| (it.work, it.measure) == (goal.work, goal.measure);
            assert_eq!(GOALS.iter().position(|it| is_same(&it)), Some(index), "{goal:?}");
        }
    }
}
