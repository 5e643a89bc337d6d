//! What became of the licences in one reconcile.

use client::Class;

use super::{Announcement, Applied, LicenseRecord, LicenseVerdict, LicenseView};
use crate::{
    kinds::control_plane::entitlements::Summary,
    pipeline::outcome::{Outcome, Trouble},
};

/// How it stands with licences, and with what they cover.
#[derive(Debug, Clone)]
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
    /// Expiry warnings that are due. `record` has them as sent.
    pub announcements: Vec<Announcement>,
}

impl Licensing {
    /// Licences or their Secrets could not be read: what the status has of them stays.
    pub(super) fn unread(verdict: LicenseVerdict, record: LicenseRecord, unread: Option<Unread>) -> Self {
        let announcements = Vec::new();
        Self { verdict, licenses: None, entitlements: None, unread, record, applied: None, announcements }
    }

    /// The same after steps that ended like this.
    #[must_use]
    pub fn after(self, outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Failed(Trouble::Remote(error)) if self.unread.is_none() => {
                Self { verdict: LicenseVerdict::failed(error), ..self }
            }
            _ => self,
        }
    }
}

/// Why licences and entitlements could not be read.
#[derive(Debug, Clone)]
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
