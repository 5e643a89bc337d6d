//! How the dashboard presents itself.
//!
//! Without the licensed feature a write is taken and kept, and reading goes on to show the defaults: look at the
//! entitlements first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{get, put, routes},
};

/// What the dashboard shows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Appearance {
    #[serde(default)]
    pub application_name: String,
    #[serde(default)]
    pub logo_url: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub announcement_banners: Vec<AnnouncementBanner>,
    /// Set in the server's environment, not by [`Client::put_appearance`].
    #[serde(default)]
    pub docs_url: String,
}

/// A line across the top of the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnnouncementBanner {
    #[serde(default)]
    pub enabled: bool,
    #[serde(default)]
    pub message: String,
    /// `#` and six hexadecimal digits, also where the banner is not enabled.
    #[serde(default)]
    pub background_color: String,
}

/// All that can be written, and always all of it: coderd clears what is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UpdateAppearance {
    pub application_name: String,
    pub logo_url: String,
    pub announcement_banners: Vec<AnnouncementBanner>,
}

routes! {
    APPEARANCE = get("/api/v2/appearance").reads::<Appearance>();
    PUT_APPEARANCE = put("/api/v2/appearance").sends::<UpdateAppearance>();
}

impl Client {
    pub async fn appearance(&self) -> Result<Appearance, Error> {
        self.call(&APPEARANCE).read().await
    }

    /// Replaces the appearance. The answer only repeats what was sent, so read again to see what is shown.
    pub async fn put_appearance(&self, wanted: &UpdateAppearance) -> Result<(), Error> {
        self.call(&PUT_APPEARANCE).body(wanted).done().await
    }
}
