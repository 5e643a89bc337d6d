//! The result as Markdown tables and as JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use super::{
    figures::{Measure, Median, Rounds},
    goals::{GOALS, Goal},
    works::Work,
};

/// The figures of every work that was measured.
pub(super) type Results = BTreeMap<Work, Rounds>;

/// The columns of the table of all figures.
const COLUMNS: [Measure; 16] = [
    Measure::Seconds,
    Measure::SecondsToHalf,
    Measure::Writes,
    Measure::Events,
    Measure::Reads,
    Measure::Watches,
    Measure::LeaseWrites,
    Measure::Calls,
    Measure::CallMegabytes,
    Measure::ApiServerCpu,
    Measure::EtcdCpu,
    Measure::CoderdCpu,
    Measure::OperatorCpu,
    Measure::ResidentMegabytes,
    Measure::AnonymousMegabytes,
    Measure::BusyCores,
];

/// Returns the figures that have a goal, beside it.
pub(super) fn goals(results: &Results) -> String {
    let mut text =
        "| work | figure | median | least to most | goal | met |\n|---|---|---|---|---|---|\n".to_owned();
    for Goal { work, measure, at_most } in GOALS {
        let Some(found) = results.get(&work).and_then(|it| it.median(measure, work)) else { continue };
        let Median { value, least, most } = found;
        let is_met = if rounded(value) <= at_most { "yes" } else { "**no**" };
        writeln!(
            text,
            "| {} | {}{} | {} | {} to {} | {} | {is_met} |",
            work.name(),
            measure.title(),
            measure.unit(work),
            number(value),
            number(least),
            number(most),
            number(at_most)
        )
        .ok();
    }
    text
}

/// Returns the medians of all figures.
pub(super) fn all(results: &Results) -> String {
    let titles: Vec<&str> = COLUMNS.iter().map(|it| it.title()).collect();
    let mut text =
        format!("| work | requests | {} |\n|---|---|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
    for (work, rounds) in results {
        let cells = COLUMNS.map(|measure| {
            rounds.median(measure, *work).map_or_else(|| "–".to_owned(), |it| number(it.value))
        });
        let unit = if work.is_per_object() { "an object" } else { "in all" };
        writeln!(text, "| {} | {unit} | {} |", work.name(), cells.join(" | ")).ok();
    }
    text
}

/// Returns every round of every work; counts are of the whole work.
pub(super) fn json(results: &Results) -> Value {
    let works = results.iter().map(|(work, rounds)| {
        let goals = GOALS.iter().filter(|it| it.work == *work);
        let goals: Vec<Value> = goals
            .map(|it| json!({"figure": it.measure, "atMost": it.at_most, "perObject": is_divided(it)}))
            .collect();
        json!({"work": work.name(), "objects": work.objects(), "rounds": rounds, "goals": goals})
    });
    works.collect()
}

fn is_divided(goal: &Goal) -> bool {
    goal.measure.is_count() && goal.work.is_per_object()
}

/// Returns a number with as many digits as are worth reading.
pub(super) fn number(value: f64) -> String {
    let value = rounded(value);
    if value.fract().abs() < f64::EPSILON {
        format!("{value:.0}")
    } else if value < 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

/// Returns the value that [`number`] shows.
fn rounded(value: f64) -> f64 {
    let digits = if value < 10.0 {
        100.0
    } else if value < 100.0 {
        10.0
    } else {
        1.0
    };
    (value * digits).round() / digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::Figures;

    fn results() -> Results {
        let mut rounds = Rounds::default();
        for seconds in [9.0, 12.25, 10.0] {
            let mut figures = Figures::default();
            figures.set(Measure::Seconds, seconds);
            figures.set(Measure::Writes, 2000.0);
            rounds.push(figures);
        }
        Results::from([(Work::Provisioners200, rounds)])
    }

    #[test]
    fn goals_are_beside_the_median() {
        let table = goals(&results());
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| provisioners-200 | seconds | 10 | 9 to 12.3 | 10 | yes |",
                "| provisioners-200 | writes an object | 10 | 10 to 10 | 9.20 | **no** |",
            ]
        );
    }

    #[test]
    fn figure_that_was_not_measured_is_a_dash() {
        let table = all(&results());
        let line = table.lines().nth(2).unwrap();
        assert!(line.starts_with("| provisioners-200 | an object | 10 | – | 10 | – |"), "{line}");
        let columns = |line: &str| line.matches('|').count();
        assert_eq!(table.lines().map(columns).collect::<Vec<_>>(), [19; 3]);
    }

    #[test]
    fn json_has_every_round_and_the_goals() {
        let value = json(&results());
        assert_eq!(value[0]["work"], "provisioners-200");
        assert_eq!(value[0]["rounds"][1]["seconds"], 12.25);
        assert_eq!(value[0]["goals"][1]["atMost"], 9.2);
        assert_eq!(value[0]["goals"][1]["perObject"], true);
    }

    #[test]
    fn numbers_have_the_digits_that_are_worth_reading() {
        let shown = [0.0, 0.254, 9.25, 45.42, 812.4].map(number);
        assert_eq!(shown, ["0", "0.25", "9.25", "45.4", "812"]);
    }
}
