//! Accounts of a deployment: the credentials of one, and the names of the account that the operator makes for itself.

use secrecy::SecretString;

/// No address can ever be there, so no mail goes anywhere.
const MAIL_DOMAIN: &str = "coder-operator.invalid";
const PREFIX: &str = "coder-operator";
const OF_UID: usize = 8;

/// What a person gave us.
#[derive(Debug, Clone)]
pub struct Account {
    pub email: String,
    pub password: SecretString,
}

/// What the account of a control plane is called. A later one, where an earlier one can no longer be entered, has a number.
pub fn username(control_plane_uid: &str, number: u32) -> String {
    let uid: String = control_plane_uid.chars().filter(char::is_ascii_alphanumeric).take(OF_UID).collect();
    if number <= 1 { format!("{PREFIX}-{uid}") } else { format!("{PREFIX}-{uid}-{number}") }
}

/// Its e-mail, which coderd asks for and nobody reads.
pub fn email(username: &str) -> String {
    format!("{username}@{MAIL_DOMAIN}")
}

/// The full name of an account of ours.
pub(super) fn full_name(marker: &str) -> String {
    format!("Coder operator {marker}")
}
