//! Accounts of a deployment: the credentials of one, and the names of the account that the operator makes for itself.

use secrecy::SecretString;

use crate::ports::RandomBytes;

/// No address can ever be there, so no mail goes anywhere.
const MAIL_DOMAIN: &str = "coder-operator.invalid";
const PREFIX: &str = "coder-operator";
const OF_UID: usize = 8;
/// How many random bytes are in a marker; the rest are for a password. Coder takes passwords of up to 64 characters.
const OF_MARKER: usize = 8;

/// The e-mail and the password of an account.
#[derive(Debug, Clone)]
pub struct Account {
    pub email: String,
    pub password: SecretString,
}

/// The username of the operator's account for a control plane. A later one, where an earlier one cannot sign in any more, has a number.
pub fn username(control_plane_uid: &str, number: u32) -> String {
    let uid: String = control_plane_uid.chars().filter(char::is_ascii_alphanumeric).take(OF_UID).collect();
    if number <= 1 { format!("{PREFIX}-{uid}") } else { format!("{PREFIX}-{uid}-{number}") }
}

/// The e-mail of an account of ours, which coderd requires. No mail is sent.
pub fn email(username: &str) -> String {
    format!("{username}@{MAIL_DOMAIN}")
}

/// Whether an account is one that an operator made for itself.
pub(crate) fn is_operators(email: &str) -> bool {
    email.rsplit_once('@').is_some_and(|(_, domain)| domain == MAIL_DOMAIN)
}

/// The full name of an account of ours.
pub(super) fn full_name(marker: &str) -> String {
    format!("Coder operator {marker}")
}

/// A random word for the full name of an account of ours.
pub(super) fn new_marker(random: &RandomBytes) -> String {
    let (marker, _) = random.bytes().split_at(OF_MARKER);
    base16ct::lower::encode_string(marker)
}

/// A password for an account of ours. It shares no byte with the marker from the same random bytes.
pub(super) fn new_password(random: &RandomBytes) -> SecretString {
    let (_, password) = random.bytes().split_at(OF_MARKER);
    SecretString::from(format!("Op-{}", base16ct::lower::encode_string(password)))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn marker_and_password_share_no_random_bytes() {
        let mut bytes = [0; 32];
        bytes[OF_MARKER..].fill(0xab);
        let random = RandomBytes::new(bytes);
        assert_eq!(new_marker(&random), "0".repeat(16));
        let password = new_password(&random).expose_secret().to_owned();
        assert_eq!(password, format!("Op-{}", "ab".repeat(24)));
        assert!(password.len() <= 64 && !format!("{random:?}").contains("ab"));
    }
}
