//! What became of the licences in one reconcile.

use client::Class;

use super::{Applied, LicenseRecord, LicenseVerdict, LicenseView};
use crate::kinds::control_plane::entitlements::Summary;

/// How it stands with licences, and with what they cover.
#[derive(Debug)]
pub struct Licensing {
    pub verdict: LicenseVerdict,
    /// `None` where they could not be read: those that were found before stay in the status.
    pub licenses: Option<Vec<LicenseView>>,
    /// `None` where they could not be read.
    pub entitlements: Option<Summary>,
    /// Why they could not be read.
    pub unread: Option<Unread>,
    pub record: LicenseRecord,
    /// The declared licence that is installed.
    pub applied: Option<Applied>,
}

/// Why licences and entitlements could not be read.
#[derive(Debug)]
pub struct Unread {
    pub message: String,
    /// Whether the next read may succeed without anybody's doing.
    pub is_transient: bool,
}

impl Unread {
    pub fn of(error: &client::Error) -> Self {
        let is_transient = matches!(error.class(), Class::RateLimited | Class::Transient | Class::Unexpected);
        Self { message: error.words(), is_transient }
    }
}
