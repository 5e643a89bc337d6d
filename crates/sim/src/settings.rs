//! What handlers know of the options of a deployment.

use jiff::SignedDuration;

/// Which licences a deployment accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LicenseCheck {
    /// Licences of [`Coder::sign_license`](crate::Coder::sign_license).
    Signature,
    /// Every JWT with the claims of a licence, so that real licences work in a sandbox.
    ClaimsOnly,
}

/// The part of the options that handlers read.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) url: String,
    pub(crate) version: String,
    pub(crate) license_check: LicenseCheck,
    pub(crate) build_time: SignedDuration,
}
