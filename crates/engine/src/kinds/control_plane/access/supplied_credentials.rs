//! What people supply for the operator's own account: the first user, and credentials of an administrator.

use api::CoderControlPlane;
use kube::ResourceExt as _;
use secrecy::ExposeSecret as _;

use super::{AdminCredentials, FirstUser, FromSecret};
use crate::{
    kinds::control_plane::account::Account,
    pipeline::outcome::Blocked,
    ports::Cluster,
    secrets::referenced::{self, Values},
};

#[derive(Debug)]
pub(super) struct SuppliedCredentials {
    pub(super) first_user: FromSecret<FirstUser>,
    pub(super) admin: FromSecret<AdminCredentials>,
}

impl SuppliedCredentials {
    /// Reads the Secrets that the manifest names.
    pub(super) async fn of(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<Self, Blocked> {
        let access = plane.spec.operator_access.as_ref();
        let first_user = match access.and_then(|it| it.first_user_secret_ref.as_ref()) {
            None => FromSecret::NotDeclared,
            Some(it) => from_secret(&it.name, secret(plane, &it.name, cluster).await?.as_ref(), first_user),
        };
        let admin = match access.and_then(|it| it.admin_credentials_secret_ref.as_ref()) {
            None => FromSecret::NotDeclared,
            Some(it) => from_secret(&it.name, secret(plane, &it.name, cluster).await?.as_ref(), admin),
        };
        Ok(Self { first_user, admin })
    }
}

async fn secret(
    plane: &CoderControlPlane,
    name: &str,
    cluster: &dyn Cluster,
) -> Result<Option<Values>, Blocked> {
    let namespace = plane.namespace().unwrap_or_default();
    referenced::values(cluster, &namespace, name).await.map_err(|it| it.of_secret(name))
}

fn from_secret<T>(
    name: &str,
    values: Option<&Values>,
    read: fn(&Values) -> Result<T, &'static str>,
) -> FromSecret<T> {
    match values.map(read) {
        None => FromSecret::Missing(format!("there is no Secret {name}: create it")),
        Some(Err(keys)) => FromSecret::Missing(format!("Secret {name} has to have {keys}")),
        Some(Ok(found)) => FromSecret::There(found),
    }
}

fn text(values: &Values, key: &str) -> Option<String> {
    values.text(key).map(|it| it.expose_secret().to_owned())
}

fn first_user(values: &Values) -> Result<FirstUser, &'static str> {
    let missing = "email, username and password";
    Ok(FirstUser {
        email: text(values, "email").ok_or(missing)?,
        username: text(values, "username").ok_or(missing)?,
        password: values.text("password").ok_or(missing)?,
    })
}

fn admin(values: &Values) -> Result<AdminCredentials, &'static str> {
    if let Some(token) = values.text("token") {
        return Ok(AdminCredentials::Token(token));
    }
    let missing = "email and password, or a token";
    let email = text(values, "email").ok_or(missing)?;
    let password = values.text("password").ok_or(missing)?;
    Ok(AdminCredentials::Password(Account { email, password }))
}
