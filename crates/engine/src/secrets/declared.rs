//! The values of the Secrets that an app-state manifest refers to.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    record::SecretPlace,
    referenced::{self, Values, no_value},
};
use crate::{pipeline::outcome::Blocked, ports::Cluster};

/// The values of every Secret that a manifest refers to. `Debug` shows names only.
#[derive(Default)]
pub struct SecretValues(BTreeMap<String, Values>);

impl SecretValues {
    /// Reads the Secrets. Fails where one is missing, is the operator's own, or has no text under a key that is referred to.
    pub async fn read(
        cluster: &dyn Cluster,
        namespace: &str,
        places: &[SecretPlace],
    ) -> Result<Self, Blocked> {
        let mut secrets = BTreeMap::new();
        for SecretPlace { name, key } in places {
            let values = match secrets.entry(name.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(referenced::required(cluster, namespace, name).await?),
            };
            if values.text(key).is_none() {
                return Err(no_value(name, key));
            }
        }
        Ok(Self(secrets))
    }

    /// A value without the blanks and line ends that editors leave around it: for keys, tokens and passwords.
    pub fn text(&self, place: &SecretPlace) -> Option<SecretString> {
        self.0.get(&place.name)?.text(&place.key)
    }

    /// A value as it stands in the Secret.
    pub fn exact(&self, place: &SecretPlace) -> Option<SecretString> {
        let bytes = self.0.get(&place.name)?.get(&place.key)?;
        str::from_utf8(bytes.expose_secret()).ok().map(SecretString::from)
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(&self.0).finish()
    }
}
