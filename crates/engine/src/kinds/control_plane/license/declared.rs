//! A licence that a manifest declares: its place there, its text and its claims.

use client::licenses::License;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::{
    claims::{Claims, NotALicense},
    term::Phase,
};

/// A licence that a manifest names.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The place in the manifest that it has: `licenseSecretRef`, whatever Secret that names, or the Secret and key of
    /// one of `licenseSecretRefs`. Another licence in the same place is a renewal.
    pub slot: String,
    /// `None` while the Secret or its key is missing or empty.
    pub jwt: Option<Jwt>,
}

/// The text of a licence, trimmed, and what it says.
#[derive(Debug, Clone)]
pub struct Jwt {
    secret: SecretString,
    hash: String,
    claims: Result<Claims, NotALicense>,
}

impl Jwt {
    /// Takes the value of a Secret's key. Blanks around it go: coderd would take them for another licence.
    pub fn new(text: &SecretString) -> Option<Self> {
        let text = text.expose_secret().trim();
        if text.is_empty() {
            return None;
        }
        Some(Self {
            secret: SecretString::from(text),
            hash: base16ct::lower::encode_string(&Sha256::digest(text)),
            claims: Claims::decode(text),
        })
    }

    pub fn secret(&self) -> &SecretString {
        &self.secret
    }

    /// SHA-256 of the trimmed text, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub fn claims(&self) -> Result<&Claims, NotALicense> {
        self.claims.as_ref().map_err(|error| *error)
    }
}

impl Declared {
    pub fn claims(&self) -> Option<&Claims> {
        self.jwt.as_ref()?.claims.as_ref().ok()
    }

    pub fn identity(&self) -> Option<String> {
        self.claims().map(Claims::identity)
    }

    pub(super) fn hash(&self) -> Option<&str> {
        self.jwt.as_ref().map(Jwt::hash)
    }

    /// The licence as the deployment has it, whoever installed it.
    pub fn find<'a>(&self, live: &'a [License]) -> Option<&'a License> {
        let identity = self.identity()?;
        live.iter().rfind(|it| Claims::of(it).identity() == identity)
    }

    pub(super) fn is_in_force(&self, live: &[License], now: Timestamp) -> bool {
        let counts = |it: &Claims| matches!(Phase::of(it, now), Phase::Valid | Phase::Grace);
        self.find(live).is_some() && self.claims().is_some_and(counts)
    }
}
