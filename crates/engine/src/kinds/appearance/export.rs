//! The appearance as a manifest. Pure.

use api::{AnnouncementBanner, CoderAppearance, CoderAppearanceSpec};
use client::appearance::Appearance;

use crate::pipeline::export::{Draft, said};

const NAME: &str = "appearance";

/// `None` for the appearance that Coder has by itself.
pub(super) fn draft(found: Appearance) -> Option<Draft<CoderAppearance>> {
    let banners: Vec<AnnouncementBanner> = found
        .announcement_banners
        .into_iter()
        .map(|it| AnnouncementBanner {
            enabled: Some(it.enabled),
            message: said(&it.message),
            background_color: it.background_color,
        })
        .collect();
    let spec = CoderAppearanceSpec {
        application_name: said(&found.application_name),
        logo_url: said(&found.logo_url),
        announcement_banners: (!banners.is_empty()).then_some(banners),
        ..CoderAppearanceSpec::default()
    };
    (spec != CoderAppearanceSpec::default()).then(|| Draft::new(NAME, CoderAppearance::new(NAME, spec)))
}
