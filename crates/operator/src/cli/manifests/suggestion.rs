//! The name that a person probably meant.

/// How alike two names have to be.
const ALIKE: f64 = 0.85;

/// The end of a sentence that names the known word most like this one. Empty where none is.
pub(super) fn of(word: &str, known: &[&str]) -> String {
    let score = |it: &&str| strsim::jaro_winkler(&word.to_lowercase(), &it.to_lowercase());
    let best = known.iter().max_by(|one, two| score(one).total_cmp(&score(two)));
    best.filter(|it| score(it) >= ALIKE).map(|it| format!("; did you mean {it}?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_the_likest_name_or_none() {
        let known = ["displayName", "members", "organization", "quotaAllowance"];
        for (word, expected) in [
            ("quota", "; did you mean quotaAllowance?"),
            ("displayname", "; did you mean displayName?"),
            ("organisation", "; did you mean organization?"),
            ("member", "; did you mean members?"),
            ("replicas", ""),
            ("", ""),
        ] {
            assert_eq!(of(word, &known), expected, "{word}");
        }
        assert_eq!(of("x", &[]), "");
    }
}
