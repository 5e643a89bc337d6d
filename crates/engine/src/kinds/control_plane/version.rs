//! Which image may work on a database, and which daemons on a plane.
//!
//! A newer Coder changes the tables of its database when it starts. An older one does not know them and destroys what it does
//! not know, so it is never started on them.

use api::Reason;

use crate::pipeline::{outcome::Blocked, version::Version};

/// Whether an image may be started on a database. One that names no version is let through: what it is shows once it
/// runs, see [`check_running`].
pub fn check(image: &str, database: Option<&str>) -> Result<(), Blocked> {
    let pair = Version::of_image(image).zip(database.and_then(Version::parse));
    match (pair, database) {
        (Some((image_version, known)), Some(database)) if image_version < known => Err(Blocked {
            reason: Reason::DowngradeRefused,
            message: format!(
                "image {image} is older than {database}: {database} has migrated the database, and an older Coder can corrupt it; \
                 name that version or a newer one, or restore a backup into another database to go back"
            ),
        }),
        _ => Ok(()),
    }
}

/// What there is to say of an image that names no version.
pub fn check_named(image: &str) -> Option<Blocked> {
    Version::of_image(image).is_none().then(|| Blocked {
        reason: Reason::VersionUnknown,
        message: format!(
            "image {image} names no version, so an older one is noticed only once it runs: name a version, with a digest if \
             you like"
        ),
    })
}

/// Whether the build that answers may stay, where the image could not say what it is.
pub fn check_running(build: &str, database: Option<&str>) -> Result<(), Blocked> {
    let pair = Version::parse(build).zip(database.and_then(Version::parse));
    match (pair, database) {
        (Some((running, known)), Some(database)) if running < known => Err(Blocked {
            reason: Reason::DowngradeRefused,
            message: format!(
                "{build} answers, but {database} has migrated the database, and an older Coder can corrupt it; set an image of \
                 {database} or a newer one now"
            ),
        }),
        _ => Ok(()),
    }
}

/// The newest version that has worked on the database: what was known, the build that answers, and the images of containers
/// that were started, because Coder changes the tables before it answers anybody.
pub fn newest<'a>(
    known: Option<&'a str>,
    answers: Option<&'a str>,
    started: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let tags = started.into_iter().filter_map(|it| Some((Version::of_image(it)?, tag(it)?)));
    let texts = known.into_iter().chain(answers).filter_map(|it| Some((Version::parse(it)?, it)));
    // Of two that are equal the first stays, so that the status does not move.
    let newest = texts.chain(tags).reduce(|newest, it| if it.0 > newest.0 { it } else { newest });
    newest.map(|(_, text)| text.to_owned())
}

/// Whether daemons of an image may work for a plane. A plane speaks with older daemons, not with newer ones.
pub fn check_daemon(image: &str, plane: Option<&str>) -> Result<(), Blocked> {
    let pair = Version::of_image(image).zip(plane.and_then(Version::parse));
    match (pair, plane) {
        (Some((daemon, known)), Some(plane)) if daemon > known => Err(Blocked {
            reason: Reason::ControlPlaneNotReady,
            message: format!(
                "daemons of {image} wait until the control plane, which runs {plane}, is upgraded"
            ),
        }),
        _ => Ok(()),
    }
}

fn tag(image: &str) -> Option<&str> {
    let image = image.split_once('@').map_or(image, |(image, _)| image);
    image.rsplit_once(':').map(|(_, tag)| tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_image_is_refused_and_the_refusal_says_what_to_do() {
        let image = |tag: &str| format!("registry.example.com/coder:{tag}");
        for tag in ["v2.36.0", "v2.36.1", "v3.0.0"] {
            assert_eq!(check(&image(tag), Some("v2.36.0+abc")), Ok(()), "{tag}");
        }
        for tag in ["v2.35.9", "v2.36.0-rc.1"] {
            let refusal = check(&image(tag), Some("v2.36.0+abc")).unwrap_err();
            assert_eq!(refusal.reason, api::Reason::DowngradeRefused);
            assert!(
                refusal.message.contains(tag) && refusal.message.contains("restore a backup"),
                "{refusal:?}"
            );
        }
        assert_eq!(check(&image("v2.35.9"), None), Ok(()), "a new database has no age");
    }

    #[test]
    fn an_image_without_a_version_is_told_and_goes_by_what_runs() {
        for image in ["coder:latest", "coder@sha256:abc"] {
            assert_eq!(check(image, Some("v2.36.0")), Ok(()));
            assert!(check_named(image).unwrap().message.contains("once it runs"));
        }
        assert_eq!(check_named("coder:v2.36.0@sha256:abc"), None);
        assert_eq!(check_running("v2.36.0+abc", Some("v2.36.0")), Ok(()));
        assert_eq!(check_running("v0.0.0-devel", Some("v2.36.0")), Ok(()));
        assert!(check_running("v2.35.0+abc", Some("v2.36.0")).is_err());
    }

    #[test]
    fn an_image_that_was_started_counts_even_if_it_never_answered() {
        let started = ["coder:v2.37.0", "coder:latest"];
        assert_eq!(newest(Some("v2.36.0"), Some("v2.36.0+abc"), started).as_deref(), Some("v2.37.0"));
        assert_eq!(newest(Some("v2.36.0"), Some("v2.36.0+abc"), []).as_deref(), Some("v2.36.0"));
        assert_eq!(newest(None, Some("v2.36.0+abc"), []).as_deref(), Some("v2.36.0+abc"));
        assert_eq!(newest(None, None, ["coder:latest"]), None);
    }

    #[test]
    fn newer_daemons_wait_for_the_plane() {
        assert!(check_daemon("coder:v2.37.0", Some("v2.36.0")).is_err());
        for (image, plane) in [
            ("coder:v2.36.0", Some("v2.36.0+a")),
            ("coder:v2.35.0", Some("v2.36.0")),
            ("coder:latest", Some("v2.36.0")),
            ("coder:v2.37.0", None),
        ] {
            assert_eq!(check_daemon(image, plane), Ok(()), "{image}");
        }
    }
}
