//! How often an object is looked at: a duration as Kubernetes and Go write it.

use std::{borrow::Cow, error::Error, fmt, str::FromStr, time::Duration};

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Hours, minutes and seconds in this order: what every reader of such durations agrees on.
pub(crate) const PATTERN: &str = "^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$";

/// Less would be a load on Coder and no gain for anybody.
const SHORTEST: Duration = Duration::from_secs(10);

/// A duration such as `5m`, `90s` or `1h30m`, of at least ten seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Interval(Duration);

/// A text that is no [`Interval`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidInterval(String);

impl Interval {
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Interval {
    type Err = InvalidInterval;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let duration = parse_duration(text).filter(|it| *it >= SHORTEST);
        duration.map(Self).ok_or_else(|| InvalidInterval(text.to_owned()))
    }
}

/// Reads a duration such as `5m`, `90s` or `1h30m`, of any length.
pub fn parse_duration(text: &str) -> Option<Duration> {
    // The parser knows more spellings, which the CRD refuses.
    let is_known = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'h' | b'm' | b's');
    if !text.bytes().all(is_known) || text.contains("ms") {
        return None;
    }
    let parsed: SignedDuration = text.parse().ok()?;
    Duration::try_from(parsed).ok()
}

impl TryFrom<String> for Interval {
    type Error = InvalidInterval;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Interval> for String {
    fn from(interval: Interval) -> Self {
        interval.to_string()
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
        parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .try_for_each(|(count, unit)| write!(formatter, "{count}{unit}"))
    }
}

impl fmt::Display for InvalidInterval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "`{}` is no interval: write it as 5m, 90s or 1h30m, with 10s as the shortest",
            self.0
        )
    }
}

impl Error for InvalidInterval {}

impl JsonSchema for Interval {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Interval".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "maxLength": 18, "pattern": PATTERN})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_kubernetes_writes_them() {
        for (text, seconds) in [("5m", 300), ("90s", 90), ("1h30m", 5400), ("1h0m5s", 3605), ("10s", 10)] {
            assert_eq!(text.parse::<Interval>().unwrap().duration(), Duration::from_secs(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_interval_is_refused_with_an_example() {
        for text in [
            "",
            "5",
            "9s",
            "0h",
            "5 minutes",
            "PT5M",
            "-5m",
            "1.5h",
            "30s5m",
            "5m5m",
            "500ms",
            "20000ms",
            "m",
        ] {
            let error = text.parse::<Interval>().unwrap_err();
            assert!(error.to_string().contains("1h30m"), "{text}");
        }
    }

    #[test]
    fn an_interval_is_written_in_its_largest_units() {
        for (given, written) in [("90s", "1m30s"), ("3600s", "1h"), ("1h30m", "1h30m"), ("65m", "1h5m")] {
            assert_eq!(String::from(given.parse::<Interval>().unwrap()), written);
        }
    }
}
