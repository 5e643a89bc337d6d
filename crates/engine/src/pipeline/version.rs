//! Versions of Coder, as builds and images name them.

use semver::Prerelease;

/// The identifiers by which Coder calls a build before its release.
const PRERELEASES: [&str; 6] = ["alpha", "beta", "devel", "nightly", "pre", "rc"];

/// A version such as `v2.36.0` or `2.37.0-rc.1+abc`, in the order of semantic versions. Build metadata, which comes after `+`, is
/// left out: it says nothing of age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(semver::Version);

impl Version {
    /// Parses a version. `None` where it cannot be compared, as that of a development build. Leading zeros and characters that
    /// semantic versions do not have are accepted: tags of images may have them.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let text = text.split_once('+').map_or(text, |(version, _)| version);
        let (numbers, suffix) = text.split_once('-').unwrap_or((text, ""));
        let numbers = numbers.split('.').map(|it| it.parse::<u32>().ok().map(u64::from));
        let [major, minor, patch] = numbers.collect::<Option<Vec<_>>>()?.try_into().ok()?;
        if [major, minor, patch] == [0, 0, 0] {
            return None;
        }
        let mut version = semver::Version::new(major, minor, patch);
        // A build of somebody's own, such as `v2.36.0-acme.1`, is as old as the release that it is made from.
        if PRERELEASES.iter().any(|it| suffix.starts_with(it)) {
            version.pre = prerelease(suffix)?;
        }
        Some(Self(version))
    }

    /// The version that an image's tag names. A digest alone, or a word such as `latest`, names none.
    pub fn of_image(image: &str) -> Option<Self> {
        let image = image.split_once('@').map_or(image, |(image, _)| image);
        let (_, tag) = image.rsplit_once(':')?;
        if tag.contains('/') { None } else { Self::parse(tag) }
    }

    /// The major and the minor version, by which features come.
    pub fn minor(&self) -> (u64, u64) {
        (self.0.major, self.0.minor)
    }
}

/// The pre-release of a suffix, without empty identifiers and leading zeros.
fn prerelease(suffix: &str) -> Option<Prerelease> {
    let identifiers = suffix.split('.').filter(|it| !it.is_empty()).map(|it| match it.parse::<u64>() {
        Ok(number) => number.to_string(),
        Err(_) => it.replace(|it: char| !it.is_ascii_alphanumeric(), "-"),
    });
    Prerelease::new(&identifiers.collect::<Vec<_>>().join(".")).ok()
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
        assert!(
            Version::parse("v2.36.0-rc_1") < Version::parse("v2.36.0"),
            "tags of images have underscores"
        );
        assert_eq!(Version::parse("v2.036.0-rc..02"), Version::parse("v2.36.0-rc.2"));
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
