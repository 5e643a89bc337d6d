//! The time line of one object, and what each kind of request costs: which part of a work takes how long.

use std::{collections::BTreeMap, fmt::Write as _};

use jiff::Timestamp;

use super::{audit::Request, calls::Call, table::number};

/// When an object was applied, and when it was first seen converged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) name: String,
    pub(super) applied: Timestamp,
    pub(super) converged: Timestamp,
}

impl Arrival {
    /// Returns the seconds from apply to converged.
    pub(super) fn seconds(&self) -> f64 {
        self.converged.duration_since(self.applied).as_secs_f64()
    }
}

/// What happened during a work.
#[derive(Debug, Clone)]
pub(super) struct TimeLine {
    pub(super) began: Timestamp,
    /// The objects of a burst; empty for other works.
    pub(super) arrivals: Vec<Arrival>,
    pub(super) requests: Vec<Request>,
    pub(super) calls: Vec<Call>,
}

/// A request on the time line.
struct Line {
    at: Timestamp,
    milliseconds: f64,
    what: String,
}

impl TimeLine {
    /// Returns the seconds after which a share of the objects, in percent, had converged. `None` without objects.
    pub(super) fn seconds_to(&self, percent: usize) -> Option<f64> {
        let mut seconds: Vec<f64> =
            self.arrivals.iter().map(|it| it.converged.duration_since(self.began).as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        let index = (seconds.len() * percent).div_ceil(100).saturating_sub(1);
        seconds.get(index).copied()
    }

    /// Returns the object that took a median time. `None` without objects.
    fn median(&self) -> Option<&Arrival> {
        let mut arrivals: Vec<&Arrival> = self.arrivals.iter().collect();
        arrivals.sort_by(|one, other| one.seconds().total_cmp(&other.seconds()));
        arrivals.get(arrivals.len() / 2).copied()
    }

    /// Returns the whole time line as Markdown.
    pub(super) fn text(&self, title: &str) -> String {
        let mut text = format!("## Time line: {title}\n\n");
        if let Some(median) = self.median() {
            let shares = [1, 25, 50, 75, 90, 100];
            let shares =
                shares.map(|it| format!("{it} % {} s", number(self.seconds_to(it).unwrap_or_default())));
            writeln!(text, "Objects converged after: {}.\n", shares.join(", ")).ok();
            text += &self.of_object(median);
        }
        text += &self.by_kind();
        text
    }

    fn of_object(&self, arrival: &Arrival) -> String {
        let Arrival { name, applied, .. } = arrival;
        // Lists and watches name no object: they are attributed only where there is one.
        let is_alone = self.arrivals.len() == 1;
        let is_its = |it: &&Request| match &it.name {
            Some(it) => is_of(it, name),
            None => is_alone,
        };
        let requests = self.requests.iter().filter(is_its);
        let requests = requests.map(|it| Line {
            at: it.received,
            milliseconds: it.milliseconds(),
            what: format!(
                "{} {} {} = {}",
                it.verb,
                it.resource,
                it.name.as_deref().unwrap_or_default(),
                it.code
            ),
        });
        let is_its = |it: &&Call| {
            is_alone
                || it.subject.as_deref().is_some_and(|it| is_of(it, name))
                || it.path.split('/').any(|it| is_of(it, name))
        };
        let calls = self.calls.iter().filter(is_its).map(|it| Line {
            at: it.sent,
            milliseconds: it.milliseconds(),
            what: format!("coderd: {} {}", it.method, it.path),
        });
        let mut lines: Vec<Line> = requests.chain(calls).collect();
        lines.push(Line { at: arrival.converged, milliseconds: 0.0, what: "seen converged".to_owned() });
        lines.sort_by_key(|it| it.at);
        let mut text = format!(
            "The object of median time, {name}: applied {} s after the first one, converged {} s later. Of several objects, only requests with a name are attributed.\n\n| ms after apply | took ms | request |\n|---|---|---|\n",
            number(applied.duration_since(self.began).as_secs_f64()),
            number(arrival.seconds())
        );
        for Line { at, milliseconds, what } in lines {
            let offset = at.duration_since(*applied).as_secs_f64() * 1e3;
            writeln!(text, "| {offset:.0} | {milliseconds:.0} | {what} |").ok();
        }
        text + "\n"
    }

    /// Returns the number and the times of each kind of request, the most expensive first.
    fn by_kind(&self) -> String {
        let requests = self.requests.iter().map(|it| Line {
            at: it.received,
            milliseconds: it.milliseconds(),
            what: format!("{} {} = {}", it.verb, it.resource, it.code),
        });
        let calls = self.calls.iter().map(|it| Line {
            at: it.sent,
            milliseconds: it.milliseconds(),
            what: format!("coderd: {} {}", it.method, pattern(&it.path)),
        });
        let last = self.arrivals.iter().map(|it| it.converged).max();
        let mut costs = BTreeMap::<String, Cost>::new();
        for Line { at, milliseconds, what } in requests.chain(calls) {
            let cost = costs.entry(what).or_default();
            cost.times.push(milliseconds);
            cost.late += usize::from(last.is_some_and(|last| at > last));
        }
        let mut costs: Vec<(String, Cost)> = costs.into_iter().collect();
        costs.sort_by(|(_, one), (_, other)| other.total().total_cmp(&one.total()));
        let mut text =
            "| request | count | of them after the last object converged | median ms | most ms | seconds in all |\n|---|---|---|---|---|---|\n"
                .to_owned();
        for (what, mut cost) in costs {
            cost.times.sort_by(f64::total_cmp);
            let Cost { times, late } = &cost;
            let middle = times.get(times.len() / 2).copied().unwrap_or_default();
            let most = times.last().copied().unwrap_or_default();
            let seconds = number(cost.total() / 1e3);
            writeln!(text, "| {what} | {} | {late} | {middle:.0} | {most:.0} | {seconds} |", times.len())
                .ok();
        }
        text
    }
}

/// What one kind of request cost.
#[derive(Debug, Default)]
struct Cost {
    /// How long each took, in milliseconds.
    times: Vec<f64>,
    /// How many came after the last object had converged.
    late: usize,
}

impl Cost {
    fn total(&self) -> f64 {
        self.times.iter().sum()
    }
}

/// Whether a name is that of an object, or of something that is called after it.
fn is_of(name: &str, object: &str) -> bool {
    let is_apart = |it: Option<char>| it.is_none_or(|it| matches!(it, '-' | '.'));
    name.match_indices(object).any(|(at, found)| {
        let (before, after) =
            (name.get(..at).unwrap_or_default(), name.get(at + found.len()..).unwrap_or_default());
        is_apart(before.chars().next_back()) && is_apart(after.chars().next())
    })
}

/// Returns a path with placeholders for what differs between objects: ids, and names with a number.
fn pattern(path: &str) -> String {
    let is_variable = |part: &str| part.len() > 2 && part.contains(|it: char| it.is_ascii_digit());
    let parts = path.split('/').map(|part| if is_variable(part) { "…" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::audit::tests::at;

    fn time(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).unwrap()
    }

    fn burst() -> TimeLine {
        let arrival = |name: &str, applied, converged| Arrival {
            name: name.to_owned(),
            applied: time(applied),
            converged: time(converged),
        };
        let call = Call {
            method: "POST".to_owned(),
            path: "/api/v2/organizations/12ab/provisionerkeys".to_owned(),
            subject: Some("a-02".to_owned()),
            sent: time(130),
            answered: Some(time(160)),
        };
        TimeLine {
            began: time(0),
            arrivals: vec![arrival("a-01", 0, 100), arrival("a-02", 50, 300), arrival("a-03", 60, 1060)],
            requests: vec![
                at(110, 20, "patch", "secrets", "a-02-key"),
                at(90, 5, "patch", "coderprovisioners", "a-02"),
                at(2000, 4, "list", "pods", ""),
                at(95, 5, "patch", "secrets", "a-021-key"),
            ],
            calls: vec![call],
        }
    }

    #[test]
    fn time_line_has_the_requests_of_the_median_object_in_order() {
        let text = burst().text("provisioners-200");
        assert!(text.contains("a-02: applied 0.05 s after the first one, converged 0.25 s later"), "{text}");
        let lines: Vec<&str> =
            text.lines().filter(|it| it.contains("a-02") || it.contains("coderd:")).collect();
        assert_eq!(
            &lines[1..4],
            [
                "| 40 | 5 | patch coderprovisioners a-02 = 200 |",
                "| 60 | 20 | patch secrets a-02-key = 200 |",
                "| 80 | 30 | coderd: POST /api/v2/organizations/12ab/provisionerkeys |",
            ]
        );
        assert!(!text.contains("a-021-key"), "another object's: {text}");
    }

    #[test]
    fn kinds_of_requests_are_ordered_by_cost() {
        let text = burst().text("x");
        let kinds: Vec<&str> = text.lines().skip_while(|it| !it.starts_with("| request |")).skip(2).collect();
        assert_eq!(
            kinds,
            [
                "| coderd: POST /api/v2/organizations/…/provisionerkeys | 1 | 0 | 30 | 30 | 0.03 |",
                "| patch secrets = 200 | 2 | 0 | 20 | 20 | 0.03 |",
                "| patch coderprovisioners = 200 | 1 | 0 | 5 | 5 | 0.01 |",
                "| list pods = 200 | 1 | 1 | 4 | 4 | 0 |",
            ]
        );
    }

    #[test]
    fn names_that_are_made_from_the_name_of_an_object_are_its() {
        for name in ["a-02", "a-02-key", "provisioner-a-02", "a-02.18e8c27"] {
            assert!(is_of(name, "a-02"), "{name}");
        }
        for name in ["a-021", "ba-02", "a-03"] {
            assert!(!is_of(name, "a-02"), "{name}");
        }
    }

    #[test]
    fn shares_of_objects_have_their_time() {
        assert_eq!(burst().seconds_to(50), Some(0.3));
        assert_eq!(burst().seconds_to(100), Some(1.06));
        assert_eq!(burst().seconds_to(1), Some(0.1));
    }
}
