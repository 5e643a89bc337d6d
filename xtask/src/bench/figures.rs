//! What is measured of a work, and the median of several rounds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::works::Work;

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Measure {
    Seconds,
    /// The seconds until half of the objects had converged.
    SecondsToHalf,
    Writes,
    /// Those writes that are of Events.
    Events,
    Reads,
    /// Reads beyond the first list of each resource.
    FurtherReads,
    Watches,
    /// Watches beyond the first of each resource.
    FurtherWatches,
    LeaseWrites,
    Calls,
    /// Megabytes of coderd's answers.
    CallMegabytes,
    ApiServerCpu,
    EtcdCpu,
    CoderdCpu,
    /// The CPU time of API server, etcd and coderd.
    ServersCpu,
    OperatorCpu,
    ResidentMegabytes,
    AnonymousMegabytes,
    BinaryMegabytes,
    /// The cores that were busy before the work began, while the operator was quiet.
    BusyCores,
}

impl Measure {
    /// Returns the name in the tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::SecondsToHalf => "seconds to half of the objects",
            Self::Writes => "writes",
            Self::Events => "Events",
            Self::Reads => "reads",
            Self::FurtherReads => "reads beyond one list per resource",
            Self::Watches => "watches",
            Self::FurtherWatches => "watches beyond one per resource",
            Self::LeaseWrites => "lease writes",
            Self::Calls => "coderd calls",
            Self::CallMegabytes => "MB from coderd",
            Self::ApiServerCpu => "CPU-s API server",
            Self::EtcdCpu => "CPU-s etcd",
            Self::CoderdCpu => "CPU-s coderd",
            Self::ServersCpu => "CPU-s API server, etcd, coderd",
            Self::OperatorCpu => "CPU-s operator",
            Self::ResidentMegabytes => "RSS MB",
            Self::AnonymousMegabytes => "anonymous RSS MB",
            Self::BinaryMegabytes => "binary MB",
            Self::BusyCores => "cores busy before",
        }
    }

    /// Whether the figure is a number of requests.
    pub(super) fn is_count(self) -> bool {
        matches!(
            self,
            Self::Writes
                | Self::Events
                | Self::Reads
                | Self::FurtherReads
                | Self::Watches
                | Self::FurtherWatches
                | Self::LeaseWrites
                | Self::Calls
        )
    }

    /// Whether the figure grows with the time that is measured.
    pub(super) fn is_rate(self) -> bool {
        self.is_count()
            || matches!(
                self,
                Self::CallMegabytes
                    | Self::ApiServerCpu
                    | Self::EtcdCpu
                    | Self::CoderdCpu
                    | Self::ServersCpu
                    | Self::OperatorCpu
            )
    }

    /// Returns the unit of a count for a work.
    pub(super) fn unit(self, work: Work) -> &'static str {
        if self.is_count() && work.is_per_object() { " an object" } else { "" }
    }
}

/// The figures of one work in one round. Counts are of the whole work.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Figures(BTreeMap<Measure, f64>);

impl Figures {
    pub(super) fn set(&mut self, measure: Measure, value: f64) {
        self.0.insert(measure, value);
    }

    /// Returns a figure as the tables show it: counts of a burst are divided by its objects. `None` where it was not measured.
    pub(super) fn shown(&self, measure: Measure, work: Work) -> Option<f64> {
        let value = *self.0.get(&measure)?;
        let is_divided = measure.is_count() && work.is_per_object();
        Some(if is_divided { value / f64::from(work.objects().max(1)) } else { value })
    }

    /// Scales everything that grows with the time that is measured.
    pub(super) fn scale(&mut self, factor: f64) {
        for (measure, value) in &mut self.0 {
            if measure.is_rate() {
                *value *= factor;
            }
        }
    }
}

/// The figures of one work in every round.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Rounds(Vec<Figures>);

/// A median, and between which values it was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Median {
    pub(super) value: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Rounds {
    pub(super) fn push(&mut self, figures: Figures) {
        self.0.push(figures);
    }

    /// Returns the median of a figure. `None` where no round measured it.
    pub(super) fn median(&self, measure: Measure, work: Work) -> Option<Median> {
        let values: Vec<f64> = self.0.iter().filter_map(|it| it.shown(measure, work)).collect();
        median(values)
    }
}

fn median(mut values: Vec<f64>) -> Option<Median> {
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let lower = if values.len().is_multiple_of(2) { *values.get(middle - 1)? } else { upper };
    Some(Median { value: f64::midpoint(lower, upper), least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        let of = |values: &[f64]| median(values.to_vec());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 9.0]), Some(Median { value: 3.0, least: 1.0, most: 9.0 }));
        assert_eq!(of(&[4.0, 1.0]), Some(Median { value: 2.5, least: 1.0, most: 4.0 }));
    }

    #[test]
    fn counts_of_a_burst_are_shown_for_each_object() {
        let mut figures = Figures::default();
        figures.set(Measure::Writes, 400.0);
        figures.set(Measure::Seconds, 12.0);
        assert_eq!(figures.shown(Measure::Writes, Work::Provisioners200), Some(2.0));
        assert_eq!(figures.shown(Measure::Writes, Work::Restart), Some(400.0));
        assert_eq!(figures.shown(Measure::Seconds, Work::Provisioners200), Some(12.0));
        assert_eq!(figures.shown(Measure::Calls, Work::Restart), None);
    }

    #[test]
    fn scaling_changes_counts_and_cpu_time_but_no_memory() {
        let mut figures = Figures::default();
        for measure in [Measure::LeaseWrites, Measure::OperatorCpu, Measure::ResidentMegabytes] {
            figures.set(measure, 12.0);
        }
        figures.scale(10.0);
        let shown = |measure| figures.shown(measure, Work::Idle);
        assert_eq!(shown(Measure::LeaseWrites), Some(120.0));
        assert_eq!(shown(Measure::OperatorCpu), Some(120.0));
        assert_eq!(shown(Measure::ResidentMegabytes), Some(12.0));
    }
}
