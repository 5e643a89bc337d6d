//! The keys that external provisioner daemons sign in with. Only the enterprise build has these routes.
//!
//! A key is shown once, when it is made; there is no update, and it is deleted by its name.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{delete_by_name, get, post, routes},
    text::shown,
};

/// How a daemon shows its key.
const KEY_HEADER: &str = "coder-provisioner-daemon-key";
/// The length of every key; coderd looks at nothing else.
const KEY_LENGTH: usize = 43;
/// What stands in the path of a proof. coderd does not read it, and access logs do: never the key.
const NOT_THE_KEY: &str = "own";
/// coderd's words for a key that it does not have. The ones for no key at all are others: then somebody on the way
/// took the header out, and that says nothing about the key.
const INVALID: &str = "provisioner daemon key invalid";

/// The last of the three keys that coderd has for itself: `built-in`, `user-auth` and `psk`.
const LAST_RESERVED: Uuid = Uuid::from_u128(3);

/// A key as it is listed: everything but its value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ProvisionerKey {
    pub id: Uuid,
    pub created_at: Timestamp,
    /// The id of the organization.
    pub organization: Uuid,
    /// In small letters, however it was sent: coderd keeps no others, and takes a name in any.
    pub name: String,
    /// What the daemons are chosen by, word for word as it was sent. Fixed for the key's life.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: BTreeMap<String, String>,
}

/// A key, and the daemons that used it within the last three minutes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct KeyWithDaemons {
    pub key: ProvisionerKey,
    /// One whose pod has died stays here for up to three minutes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub daemons: Vec<ProvisionerDaemon>,
}

/// A daemon that runs the builds of templates and workspaces.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ProvisionerDaemon {
    pub id: Uuid,
    pub key_id: Uuid,
    pub created_at: Timestamp,
    #[serde(default)]
    pub last_seen_at: Option<Timestamp>,
    /// The pod's name, where it runs in one.
    #[serde(default)]
    pub name: String,
    #[serde(default, deserialize_with = "shown")]
    pub version: String,
    #[serde(default)]
    pub api_version: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub provisioners: Vec<String>,
    /// The key's, with `scope` and `owner` added.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: BTreeMap<String, String>,
    /// Not said in a list of keys.
    #[serde(default)]
    pub key_name: Option<String>,
    /// `offline`, `idle` or `busy`. Not said in a list of keys.
    #[serde(default)]
    pub status: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CreateProvisionerKey<'a> {
    name: &'a str,
    tags: &'a BTreeMap<String, String>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct CreatedProvisionerKey {
    #[schemars(with = "String")]
    key: SecretString,
}

impl ProvisionerKey {
    /// Whether it is one of those that coderd has for itself, which nobody can make, show or delete.
    pub fn is_reserved(&self) -> bool {
        self.id <= LAST_RESERVED
    }
}

routes! {
    LIST_PROVISIONER_KEYS = get("/api/v2/organizations/{organization}/provisionerkeys/daemons")
        .reads::<Vec<KeyWithDaemons>>();
    CREATE_PROVISIONER_KEY = post("/api/v2/organizations/{organization}/provisionerkeys")
        .sends::<CreateProvisionerKey<'static>>().reads::<CreatedProvisionerKey>();
    // By its name, and not repeatable: the name may be another key's by then.
    DELETE_PROVISIONER_KEY = delete_by_name("/api/v2/organizations/{organization}/provisionerkeys/{provisionerkey}");
    PROVISIONER_KEY = get("/api/v2/provisionerkeys/{provisionerkey}").without_token().reads::<ProvisionerKey>();
}

impl Client {
    /// Makes a key. This is the only time that its value is shown, and its id is not told at all: see
    /// [`Client::prove_provisioner_key`]. A lost answer leaves a key of that name. Tags are taken as they are.
    pub async fn create_provisioner_key(
        &self,
        organization: Uuid,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<SecretString, Error> {
        let body = CreateProvisionerKey { name, tags };
        let call = self.call(&CREATE_PROVISIONER_KEY).parameter("organization", &organization);
        Ok(call.body(&body).read::<CreatedProvisionerKey>().await?.key)
    }

    /// Reads the keys of an organization with the daemons that use them; coderd's own keys are left out.
    pub async fn list_provisioner_keys(&self, organization: Uuid) -> Result<Vec<KeyWithDaemons>, Error> {
        let call = self.call(&LIST_PROVISIONER_KEYS).parameter("organization", &organization);
        let mut keys: Vec<KeyWithDaemons> = call.list().await?;
        keys.retain(|it| !it.key.is_reserved());
        Ok(keys)
    }

    /// Deletes a key by its name. One that is not there and one that the account may not delete look the same; the
    /// list, which every member may read, tells them apart. Daemons that are connected may go on until they restart.
    pub async fn delete_provisioner_key(&self, organization: Uuid, name: &str) -> Result<(), Error> {
        let call = self.call(&DELETE_PROVISIONER_KEY).parameter("organization", &organization);
        call.parameter("provisionerkey", &name).done().await
    }

    /// Asks which key a value is; nothing when it is none. Neither a token is sent nor a licence needed. What cannot
    /// be a key is not sent.
    pub async fn prove_provisioner_key(&self, value: &SecretString) -> Result<Option<ProvisionerKey>, Error> {
        let text = value.expose_secret();
        if text.len() != KEY_LENGTH || !text.bytes().all(|it| it.is_ascii_graphic()) {
            return Ok(None);
        }
        let call = self.call(&PROVISIONER_KEY).parameter("provisionerkey", &NOT_THE_KEY);
        match call.secret_header(KEY_HEADER, value).read().await {
            Ok(key) => Ok(Some(key)),
            Err(error) if error.begins_with(INVALID) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
