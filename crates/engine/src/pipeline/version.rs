//! Versions of Coder, as builds and images name them.

use std::cmp::Ordering;

/// The words by which Coder calls what is not released yet.
const BEFORE_A_RELEASE: [&str; 6] = ["alpha", "beta", "devel", "nightly", "pre", "rc"];

/// A version such as `v2.36.0` or `2.37.0-rc.1+abc`. What comes after `+` tells builds apart and says nothing of age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    numbers: [u32; 3],
    /// What is before a release, piece by piece; nothing for a release.
    before: Vec<String>,
}

impl Version {
    /// Reads a version; nothing when it is none that can be compared, like that of a development build.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let text = text.split_once('+').map_or(text, |(version, _)| version);
        let (numbers, before) = text.split_once('-').unwrap_or((text, ""));
        let mut parts = numbers.split('.');
        let numbers = [parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?];
        if parts.next().is_some() || numbers == [0, 0, 0] {
            return None;
        }
        // A build of somebody's own, such as `v2.36.0-acme.1`, is as old as the release that it is made from.
        let before = if BEFORE_A_RELEASE.iter().any(|it| before.starts_with(it)) { before } else { "" };
        let before = before.split('.').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        Some(Self { numbers, before })
    }

    /// The version that an image's tag names. A digest alone, or a word such as `latest`, names none.
    pub fn of_image(image: &str) -> Option<Self> {
        let image = image.split_once('@').map_or(image, |(image, _)| image);
        let (_, tag) = image.rsplit_once(':')?;
        if tag.contains('/') { None } else { Self::parse(tag) }
    }

    /// The first two numbers, by which features come.
    pub fn minor(&self) -> (u32, u32) {
        let [major, minor, _] = self.numbers;
        (major, minor)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_numbers = self.numbers.cmp(&other.numbers);
        by_numbers.then_with(|| match (self.before.is_empty(), other.before.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_pieces(&self.before, &other.before),
        })
    }
}

/// Numbers by size and before words, and more pieces after fewer.
fn compare_pieces(one: &[String], other: &[String]) -> Ordering {
    let pieces = one.iter().zip(other).map(|(one, other)| match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one.cmp(&other),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => one.cmp(other),
    });
    pieces.into_iter().find(|it| it.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_age() {
        let ordered =
            ["v2.9.0", "2.36.0-devel", "v2.36.0-rc.2", "v2.36.0-rc.10", "v2.36.0+abc", "2.36.1", "v3.0.0"];
        let versions: Vec<Version> = ordered.iter().map(|it| Version::parse(it).unwrap()).collect();
        assert!(versions.is_sorted_by(|one, other| one < other), "{versions:?}");
        for own in ["v2.36.0+abc", "v2.36.0-acme.1", "2.36.0-1"] {
            assert_eq!(Version::parse(own), Version::parse("2.36.0"), "{own}");
        }
    }

    #[test]
    fn what_names_no_version_is_none() {
        for text in ["", "latest", "v2", "v2.36", "v2.36.0.1", "v0.0.0-devel+abc", "main"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_image_names_a_version_by_its_tag() {
        let of = |image: &str| Version::of_image(image);
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(of("registry.example.com:5000/coder/coder:v2.36.0"), Version::parse("2.36.0"));
        assert_eq!(of(&format!("coder:v2.36.0@{digest}")), Version::parse("2.36.0"));
        for image in ["coder", "coder:latest", "registry.example.com:5000/coder", &format!("coder@{digest}")]
        {
            assert_eq!(of(image), None, "{image}");
        }
    }
}
