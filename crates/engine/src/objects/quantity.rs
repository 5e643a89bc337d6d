//! Quantities of Kubernetes: `1` and `1000m` are the same, and the API server writes the shorter one.

/// A thousand millionth is the smallest part that a quantity can have.
const WHOLE: i128 = 1_000_000_000;

/// Whether two texts are the same quantity.
pub(super) fn equal(one: &str, other: &str) -> bool {
    one == other || parse(one).is_some_and(|it| Some(it) == parse(other))
}

/// The quantity in thousand millionths, rounded up.
fn parse(text: &str) -> Option<i128> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let (numerator, denominator) = factor(suffix)?;
    let numerator = digits.checked_mul(numerator)?.checked_mul(WHOLE)?;
    let denominator = denominator.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    Some(sign * (numerator / denominator + i128::from(numerator % denominator != 0)))
}

/// What a suffix multiplies by and divides by.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| 1024_i128.checked_pow(power).map(|it| (it, 1));
    let decimal = |power: u32| 1000_i128.checked_pow(power).map(|it| (it, 1));
    match suffix {
        "n" => Some((1, WHOLE)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "" => Some((1, 1)),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let ten = 10_i128.checked_pow(power.unsigned_abs())?;
            Some(if power < 0 { (1, ten) } else { (ten, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::equal;

    #[test]
    fn quantities_are_equal_however_they_are_written() {
        for (one, other) in [
            ("1", "1000m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1Gi", "1024Mi"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("2E", "2000P"),
            ("1E3", "1000"),
            ("1e-3", "1m"),
            ("-1", "-1000m"),
            ("100", "100"),
        ] {
            assert!(equal(one, other), "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_quantity_equals_only_itself() {
        for (one, other) in
            [("1", "1001m"), ("1G", "1Gi"), ("1", "-1"), ("", "0"), ("m", "0"), ("1x", "1"), ("1e", "1")]
        {
            assert!(!equal(one, other), "{one} {other}");
        }
        assert!(equal("words", "words"));
    }
}
