//! Fingerprints of secret values, made with a key that only the operator has: they stand where more people may read than
//! the Secrets.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use secrecy::{ExposeSecret as _, SecretSlice};
use sha2::{Digest as _, Sha256};

/// The keys of fingerprints that were last in use, by the namespace and the name of the control plane.
#[derive(Debug, Default)]
pub struct FingerprintKeys(Mutex<HashMap<(String, String), SecretSlice<u8>>>);

impl FingerprintKeys {
    pub fn forget(&self, name: &(String, String)) {
        self.lock().remove(name);
    }

    /// The key that is in use, which is made where there is none.
    pub(crate) fn get_or_make(
        &self,
        name: (String, String),
        make: impl FnOnce() -> SecretSlice<u8>,
    ) -> SecretSlice<u8> {
        self.lock().entry(name).or_insert_with(make).clone()
    }

    pub(crate) fn keep(&self, name: (String, String), key: SecretSlice<u8>) {
        self.lock().insert(name, key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), SecretSlice<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fingerprint of a list of values: another one for other values, another order and another key.
pub(crate) fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>, key: &SecretSlice<u8>) -> String {
    let mut hash = Sha256::new();
    hash.update(key.expose_secret());
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    base16ct::lower::encode_string(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_depends_on_the_key_the_values_and_their_borders() {
        let of = |parts: &[&str], key: &str| {
            fingerprint(parts.iter().map(|it| it.as_bytes()), &key.as_bytes().to_vec().into())
        };
        assert_eq!(of(&["a", "b"], "k"), of(&["a", "b"], "k"));
        for (parts, key) in
            [(&["a", "b"][..], "l"), (&["b", "a"], "k"), (&["ab"], "k"), (&["a", "b", ""], "k")]
        {
            assert_ne!(of(parts, key), of(&["a", "b"], "k"), "{parts:?} {key}");
        }
    }
}
