//! Accounts and the tokens that they sign in with.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::{
    client::Client,
    error::{Class, Error},
    null::null_as_default,
    route::{delete, get, post, routes},
};

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
    #[serde(default)]
    pub avatar_url: String,
    /// `active`, `dormant` or `suspended`.
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub login_type: String,
    #[serde(default)]
    pub is_service_account: bool,
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

/// The first account of a deployment: its owner.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CreateFirstUser {
    pub email: String,
    pub username: String,
    #[serde(serialize_with = "exposed")]
    #[schemars(with = "String")]
    pub password: SecretString,
}

/// An account to be made: a person with a password or one from an identity provider, or a service account, which has
/// neither e-mail nor password and needs a licence.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct CreateUser {
    pub username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "exposed_if_any")]
    #[schemars(with = "Option<String>")]
    pub password: Option<SecretString>,
    /// `password`, `oidc`, `github`, or `none` for a service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_type: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub service_account: bool,
    /// `suspended` for one that cannot sign in yet; absent for one that becomes active with its first request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_status: Option<String>,
    /// At least one.
    pub organization_ids: Vec<Uuid>,
    /// Of the whole deployment. One that the caller may not give is a 500.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

impl User {
    /// Whether it has a role of the whole deployment.
    pub fn has_role(&self, name: &str) -> bool {
        self.roles.iter().any(|it| it.name == name)
    }
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
    /// `token`; of a session it is how somebody signed in, and its end moves for as long as it is used.
    #[serde(default)]
    pub login_type: String,
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

/// What the deployment allows for the tokens of one account; an owner's may be shorter than others'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) struct TokenLimits {
    /// In nanoseconds.
    max_token_lifetime: i64,
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

/// The ways to sign in, as far as we use them.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct AuthMethods {
    password: AuthMethod,
}

#[derive(Deserialize, JsonSchema)]
struct AuthMethod {
    enabled: bool,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct LoggedIn {
    #[schemars(with = "String")]
    session_token: SecretString,
}

routes! {
    FIRST_USER = get("/api/v2/users/first").without_token();
    CREATE_FIRST_USER = post("/api/v2/users/first").without_token().sends::<CreateFirstUser>();
    AUTH_METHODS = get("/api/v2/users/authmethods").without_token().reads::<AuthMethods>();
    LOGIN = post("/api/v2/users/login").without_token().sends::<Login<'static>>().reads::<LoggedIn>();
    // What a second one finds is a session that has ended, and that is what the first one was for.
    LOGOUT = post("/api/v2/users/logout").may_be_repeated();
    USER = get("/api/v2/users/{user}").reads::<User>();
    CREATE_USER = post("/api/v2/users").sends::<CreateUser>().reads::<User>();
    DELETE_USER = delete("/api/v2/users/{user}");
    TOKEN_LIMITS = get("/api/v2/users/{user}/keys/tokens/tokenconfig").reads::<TokenLimits>();
    LIST_TOKENS = get("/api/v2/users/{user}/keys/tokens").reads::<Vec<Token>>();
    CREATE_TOKEN = post("/api/v2/users/{user}/keys/tokens").sends::<CreateToken>().reads::<CreatedToken>();
    TOKEN = get("/api/v2/users/{user}/keys/{keyid}").reads::<Token>();
    DELETE_TOKEN = delete("/api/v2/users/{user}/keys/{keyid}");
}

impl Client {
    /// Reads the account that the token belongs to.
    pub async fn current_user(&self) -> Result<User, Error> {
        self.user(ME).await
    }

    /// Reads an account by id or name. By id also a deleted one is found, and nothing marks it as such.
    pub async fn user(&self, user: &str) -> Result<User, Error> {
        self.call(&USER).parameter("user", &user).read().await
    }

    /// Reads an account by its name, if one has it. A deleted one has not.
    pub async fn user_named(&self, name: &str) -> Result<Option<User>, Error> {
        match self.user(name).await {
            Ok(user) => Ok(Some(user)),
            Err(error) if error.class() == Class::Missing && !error.route_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads an account by its id, if it is not deleted: then its name does not lead to it any more.
    pub async fn living_user(&self, id: Uuid) -> Result<Option<User>, Error> {
        let Some(user) = self.user_named(&id.to_string()).await? else { return Ok(None) };
        Ok(self.user_named(&user.username).await?.filter(|it| it.id == id))
    }

    /// Whether the deployment has an account at all. No token is sent.
    pub async fn has_users(&self) -> Result<bool, Error> {
        match self.call(&FIRST_USER).done().await {
            Ok(()) => Ok(true),
            Err(error) if error.class() == Class::Missing && !error.route_missing() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether anybody can sign in with a password. No token is sent.
    pub async fn takes_passwords(&self) -> Result<bool, Error> {
        Ok(self.call(&AUTH_METHODS).read::<AuthMethods>().await?.password.enabled)
    }

    /// Makes the owner of a deployment that has no account yet; a conflict where it has one. No token is sent. What
    /// it answers is not read: now and then it is nothing, although the account is there.
    pub async fn create_first_user(&self, wanted: &CreateFirstUser) -> Result<(), Error> {
        self.call(&CREATE_FIRST_USER).body(wanted).carries(&wanted.password).done().await
    }

    /// Makes an account.
    pub async fn create_user(&self, wanted: &CreateUser) -> Result<User, Error> {
        let call = self.call(&CREATE_USER).body(wanted);
        match &wanted.password {
            Some(password) => call.carries(password).read().await,
            None => call.read().await,
        }
    }

    /// Deletes an account, which nobody can do to their own.
    pub async fn delete_user(&self, id: Uuid) -> Result<(), Error> {
        self.call(&DELETE_USER).parameter("user", &id).done().await
    }

    /// Reads how long a new token of an account may live.
    pub async fn longest_token_lifetime(&self, user: &str) -> Result<Duration, Error> {
        let call = self.call(&TOKEN_LIMITS).parameter("user", &user);
        let nanoseconds = call.read::<TokenLimits>().await?.max_token_lifetime;
        Ok(Duration::from_nanos(nanoseconds.unsigned_abs()))
    }

    /// Makes a token. This is the only time that its secret is shown; a lost answer leaves a token of that name.
    pub async fn create_token(&self, user: &str, wanted: &CreateToken) -> Result<SecretString, Error> {
        let call = self.call(&CREATE_TOKEN).parameter("user", &user).body(wanted);
        Ok(call.read::<CreatedToken>().await?.key)
    }

    /// Reads the tokens of an account, expired ones included: they still hold their names.
    pub async fn list_tokens(&self, user: &str) -> Result<Vec<Token>, Error> {
        let call = self.call(&LIST_TOKENS).parameter("user", &user);
        call.query("include_expired", &true).list().await
    }

    /// Reads a token, or what a session is known by, by its id.
    pub async fn token(&self, user: &str, id: &str) -> Result<Token, Error> {
        self.call(&TOKEN).parameter("user", &user).parameter("keyid", &id).read().await
    }

    /// Deletes a token by its id, which frees its name.
    pub async fn delete_token(&self, user: &str, id: &str) -> Result<(), Error> {
        self.call(&DELETE_TOKEN).parameter("user", &user).parameter("keyid", &id).done().await
    }

    /// Signs in with a password, and returns the session's token. No token is sent.
    pub async fn login(&self, email: &str, password: &SecretString) -> Result<SecretString, Error> {
        let body = Login { email, password: password.expose_secret() };
        let call = self.call(&LOGIN).body(&body).carries(password);
        Ok(call.read::<LoggedIn>().await?.session_token)
    }

    /// Ends the session that the token belongs to. One that has ended already is no failure.
    pub async fn logout(&self) -> Result<(), Error> {
        match self.call(&LOGOUT).done().await {
            Err(error) if error.class() == Class::SignedOut => Ok(()),
            done => done,
        }
    }
}

#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn nanoseconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let nanoseconds = duration.map(|it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX));
    nanoseconds.serialize(serializer)
}

/// The one way in which a password leaves: into the body of the request that needs it.
fn exposed<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose_secret())
}

#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn exposed_if_any<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(SecretString::expose_secret).serialize(serializer)
}
