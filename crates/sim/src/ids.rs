//! Ids and secrets that follow from a seed and a counter, so that a run can be repeated exactly.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Issues ids and secrets. Holds the counter while a request is served.
#[derive(Debug)]
pub(crate) struct Ids<'a> {
    pub(crate) seed: u64,
    pub(crate) issued: &'a mut u64,
}

impl Ids<'_> {
    pub(crate) fn bytes(&mut self) -> [u8; 32] {
        *self.issued += 1;
        let mut hash = Sha256::new();
        hash.update(self.seed.to_be_bytes());
        hash.update(self.issued.to_be_bytes());
        hash.finalize().into()
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        let bytes = self.bytes();
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[..16]);
        uuid::Builder::from_random_bytes(id).into_uuid()
    }

    /// Letters and digits, at most 32 of them.
    pub(crate) fn letters(&mut self, length: usize) -> String {
        let bytes = self.bytes();
        let letters = bytes.iter().take(length).map(|it| LETTERS[usize::from(*it) % LETTERS.len()]);
        letters.map(char::from).collect()
    }

    /// The value of a provisioner key: 43 characters.
    pub(crate) fn key(&mut self) -> String {
        URL_SAFE_NO_PAD.encode(self.bytes())
    }
}

/// The hash under which a secret is stored.
pub(crate) fn hashed(secret: &str) -> String {
    hash_of(secret.as_bytes())
}

/// The hash of any bytes.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(&Sha256::digest(bytes))
}
