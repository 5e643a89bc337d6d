//! What is remembered beside a token: whose it is, which deployment it is for, and what was about to be done.

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::account::username;

/// What is written down beside the token, in the same Secret. Nothing of it is secret.
///
/// It needs no epoch. There is one copy, which is replaced only in the version that was read, and the numbers in the names of tokens
/// grow with it: an older copy from a backup neither takes a name again nor keeps a later token alive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRecord {
    /// The deployment that the token was minted on. It is sent to no other.
    #[serde(default, rename = "deploymentID", skip_serializing_if = "Option::is_none")]
    pub deployment_id: Option<Uuid>,
    /// The address at which the token was minted, where that is `spec.external.url`; absent for a control plane that we run. The
    /// token is sent to no other address.
    #[serde(default, rename = "externalURL", skip_serializing_if = "Option::is_none")]
    pub external_url: Option<String>,
    /// The account that the token belongs to.
    #[serde(default, rename = "userID", skip_serializing_if = "Option::is_none")]
    pub user_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenKept>,
    /// The name of a token that is about to be minted, or that was minted and lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minting: Option<String>,
    /// The account that we made for ourselves, or are about to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<OwnAccount>,
    /// What goes as soon as coderd has taken the token that is kept now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Former>,
}

/// An account of our own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnAccount {
    pub username: String,
    /// A random word in the account's full name, written down before the account is made. It tells an account that we made
    /// just before a crash from one that somebody else made under the same name.
    pub marker: String,
    /// `None` until the account is known to exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
}

impl OwnAccount {
    /// The first account of a control plane whose record was lost, by the id that is known of it.
    pub fn remembered(control_plane_uid: &str, id: Uuid) -> Self {
        Self { username: username(control_plane_uid, 1), marker: String::new(), id: Some(id) }
    }
}

/// Something that was ours before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Former {
    #[serde(rename = "userID")]
    pub user_id: Uuid,
    /// A token of that account; without one it is the account itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl Former {
    pub fn words(&self) -> String {
        let Self { user_id, token } = self;
        let what = token.as_ref().map_or(String::new(), |it| format!("the token {it} of "));
        format!("{what}the account {user_id}, a former account of the operator")
    }
}

/// A token that we minted, without its secret. The times are read from our own clock: coderd's may be another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenKept {
    pub name: String,
    pub minted_at: Timestamp,
    pub expires_at: Timestamp,
}

impl TokenRecord {
    /// Whether the token beside this record may be sent to the declared address; `None` is that of a control plane that we run.
    pub fn is_for(&self, external_url: Option<&str>) -> bool {
        self.external_url.as_deref() == external_url
    }
}

/// The half of a token that is no secret, and by which coderd finds it.
pub fn id_of(token: &SecretString) -> Option<&str> {
    token.expose_secret().split_once('-').map(|(id, _)| id).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_without_an_id_is_not_taken_for_one() {
        let id = |text: &str| id_of(&SecretString::from(text)).map(str::to_owned);
        assert_eq!(id("0123456789-abc-def").as_deref(), Some("0123456789"));
        assert_eq!([id("abc"), id("-abc"), id("")], [None, None, None]);
    }
}
