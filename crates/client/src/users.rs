//! Accounts and the tokens that they sign in with.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::{client::Client, error::Error, null::null_as_default, routes};

/// The account that a call is made with, where a user is asked for.
pub const ME: &str = "me";

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct User {
    pub id: Uuid,
    pub username: String,
    /// Empty for a service account.
    #[serde(default)]
    pub email: String,
    #[serde(default)]
    pub name: String,
    /// `active`, `dormant` or `suspended`.
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub login_type: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub organization_ids: Vec<Uuid>,
    /// Of the whole deployment; the implied `member` is not among them.
    #[serde(default, deserialize_with = "null_as_default")]
    pub roles: Vec<UserRole>,
}

/// A role that an account has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct UserRole {
    pub name: String,
    #[serde(default)]
    pub display_name: String,
}

/// A token as it is listed: everything but the secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Token {
    /// What the secret begins with, and what deletes it.
    pub id: String,
    pub user_id: Uuid,
    #[serde(default)]
    pub token_name: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    #[serde(default, deserialize_with = "null_as_default")]
    pub scopes: Vec<String>,
}

/// A token to be made. The name must be free: also an expired token holds its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CreateToken {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_name: Option<String>,
    /// At most what the deployment allows; it is never extended.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "nanoseconds")]
    #[schemars(with = "Option<i64>")]
    pub lifetime: Option<Duration>,
    /// Nothing means everything that the account may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct CreatedToken {
    #[schemars(with = "String")]
    key: SecretString,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Login<'a> {
    email: &'a str,
    password: &'a str,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct LoggedIn {
    #[schemars(with = "String")]
    session_token: SecretString,
}

impl Client {
    /// Reads the account that the token belongs to.
    pub async fn current_user(&self) -> Result<User, Error> {
        self.user(ME).await
    }

    /// Reads an account by id or name. By id also a deleted one is found, and nothing marks it as such.
    pub async fn user(&self, user: &str) -> Result<User, Error> {
        self.call(&routes::USER).parameter("user", &user).read().await
    }

    /// Makes a token. This is the only time that its secret is shown; a lost answer leaves a token of that name.
    pub async fn create_token(&self, user: &str, wanted: &CreateToken) -> Result<SecretString, Error> {
        let call = self.call(&routes::CREATE_TOKEN).parameter("user", &user).body(wanted);
        Ok(call.read::<CreatedToken>().await?.key)
    }

    /// Reads the tokens of an account, expired ones included: they still hold their names.
    pub async fn list_tokens(&self, user: &str) -> Result<Vec<Token>, Error> {
        let call = self.call(&routes::LIST_TOKENS).parameter("user", &user);
        call.query("include_expired", &true).list().await
    }

    /// Deletes a token by its id, which frees its name.
    pub async fn delete_token(&self, user: &str, id: &str) -> Result<(), Error> {
        self.call(&routes::DELETE_TOKEN).parameter("user", &user).parameter("keyid", &id).done().await
    }

    /// Signs in with a password, and returns the session's token. No token is sent.
    pub async fn login(&self, email: &str, password: &SecretString) -> Result<SecretString, Error> {
        let body = Login { email, password: password.expose_secret() };
        let call = self.call(&routes::LOGIN).body(&body).carries(password);
        Ok(call.read::<LoggedIn>().await?.session_token)
    }
}

#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn nanoseconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let nanoseconds = duration.map(|it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX));
    nanoseconds.serialize(serializer)
}
