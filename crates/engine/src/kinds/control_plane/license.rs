//! The licences of a deployment: which ones are declared, which ones it has, and the way from one to the other.
//!
//! A licence is known by what it says ([`Claims::identity`]), because coderd shows that and never the JWT. So another licence
//! is not taken for ours, one that somebody else installed counts as present, and an upload whose answer was lost is
//! found again. Only what [`LicenseRecord`] says we uploaded is ever deleted, and only when what takes its place is in
//! force.

mod applied;
pub mod apply;
pub mod claims;
mod declared;
mod deletion;
mod kind;
mod outcome;
pub mod plan;
pub mod record;
pub mod term;
pub mod verdict;

pub use applied::{Applied, applied};
pub use apply::{Done, apply};
pub use claims::{Claims, NotALicense};
pub use declared::{Declared, Jwt};
pub use deletion::{delete, entry};
pub use kind::{Licenses, ObservedLicenses, declared, recorded};
pub use outcome::{Licensing, Unread};
pub use plan::{LicenseEffect, Observed, plan, plan_cleanup};
pub use record::{LicenseRecord, Refused, ReportedThreshold, Uploaded};
pub use term::{Announcement, LicenseView, Phase, THRESHOLDS, crossed, day};
pub(crate) use verdict::is_retried;
pub use verdict::{LicenseVerdict, Obstacle, verdict};
