//! How a control plane is reached: its address, whom to trust, and the credentials for it.

use api::{CoderControlPlane, External, reason};
use kube::ResourceExt as _;
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use url::Url;

use crate::{
    control_plane::address,
    lookup::{self, Lookup, Values},
    outcome::Waiting,
};

/// The keys of an account from which tokens are made.
const EMAIL: &str = "email";
const PASSWORD: &str = "password";

/// Everything that is needed to talk to a deployment.
#[derive(Debug)]
pub struct Endpoint {
    pub url: Url,
    /// Certificates (PEM) to trust beyond the usual ones.
    pub authority: Option<SecretSlice<u8>>,
    pub credentials: Credentials,
}

impl Endpoint {
    /// The certificates as they are, or nothing.
    pub fn authority(&self) -> &[u8] {
        self.authority.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default()
    }
}

/// What a Secret of credentials holds.
#[derive(Debug)]
pub enum Credentials {
    /// Used as it is.
    Token(SecretString),
    /// Tokens are made from it, and renewed.
    Account { email: String, password: SecretString },
    /// We run it, and come to an account of our own.
    Ours,
}

/// Reads what a control plane says of itself. The error says what to do.
pub async fn endpoint(plane: &CoderControlPlane, lookup: &dyn Lookup) -> Result<Endpoint, Waiting> {
    let Some(external) = plane.spec.external.as_ref() else { return place(plane, lookup).await };
    let name = &external.credentials_secret_ref.name;
    let values = lookup::secret(lookup, &plane.namespace().unwrap_or_default(), name).await?;
    let credentials = credentials(external, &values).ok_or_else(|| {
        let wanted = format!("{}, nor under {EMAIL} and {PASSWORD}", external.token_key());
        lookup::no_value(name, &wanted)
    })?;
    Ok(Endpoint { credentials, ..place(plane, lookup).await? })
}

/// The same without the credentials, for whoever brings their own.
pub async fn place(plane: &CoderControlPlane, lookup: &dyn Lookup) -> Result<Endpoint, Waiting> {
    let invalid = |message: String| Waiting { reason: reason::INVALID, message };
    let (declared, field) = match &plane.spec.external {
        Some(external) => (external.url.clone(), "spec.external.url"),
        None => (address::internal(plane), "its Service"),
    };
    let url = declared.parse().map_err(|error| invalid(format!("{field}: {error}")))?;
    let namespace = plane.namespace().unwrap_or_default();
    let authority = match plane.spec.external.as_ref().and_then(External::ca) {
        None => None,
        Some((name, key)) => {
            let values = lookup::secret(lookup, &namespace, name).await?;
            Some(values.get(key).cloned().ok_or_else(|| lookup::no_value(name, key))?)
        }
    };
    Ok(Endpoint { url, authority, credentials: Credentials::Ours })
}

/// A token is more than an account: somebody made it for us.
fn credentials(external: &External, values: &Values) -> Option<Credentials> {
    if let Some(token) = values.text(external.token_key()) {
        return Some(Credentials::Token(token));
    }
    let (email, password) = (values.text(EMAIL)?, values.text(PASSWORD)?);
    Some(Credentials::Account { email: email.expose_secret().to_owned(), password })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::{Answer, Unreadable};
    use futures::FutureExt as _;

    /// A namespace with one Secret, or with none that can be read.
    struct Namespace(Result<Vec<(&'static str, &'static str)>, &'static str>);

    impl Lookup for Namespace {
        fn secret<'a>(&'a self, _: &'a str, name: &'a str) -> Answer<'a, Values> {
            let values = |it: &Vec<(&str, &str)>| {
                Values::new(it.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())))
            };
            let found = self.0.as_ref().map_err(|why| Unreadable((*why).to_owned()));
            let found = found.map(|it| (name == "coder").then(|| values(it)));
            std::future::ready(found).boxed()
        }

        fn control_plane<'a>(&'a self, _: &'a str, _: &'a str) -> Answer<'a, CoderControlPlane> {
            std::future::ready(Ok(None)).boxed()
        }
    }

    async fn ask(external: serde_json::Value, namespace: Namespace) -> Result<Endpoint, Waiting> {
        let plane = serde_json::from_value(serde_json::json!({"apiVersion": "coder.com/v1alpha1",
            "kind": "CoderControlPlane", "metadata": {"name": "main"}, "spec": {"external": external}}));
        endpoint(&plane.unwrap(), &namespace).await
    }

    fn at(secret: &str) -> serde_json::Value {
        serde_json::json!({"url": "https://coder.example.com", "credentialsSecretRef": {"name": secret}})
    }

    #[tokio::test]
    async fn a_token_comes_before_an_account_and_an_account_has_both_of_its_halves() {
        let both = vec![("token", "t"), ("email", "a@b.c"), ("password", "p")];
        let found = ask(at("coder"), Namespace(Ok(both))).await.unwrap().credentials;
        assert!(matches!(found, Credentials::Token(_)), "{found:?}");
        let account = vec![("email", "a@b.c\n"), ("password", "p")];
        let found = ask(at("coder"), Namespace(Ok(account))).await.unwrap().credentials;
        assert!(matches!(&found, Credentials::Account { email, .. } if email == "a@b.c"), "{found:?}");
        let half = ask(at("coder"), Namespace(Ok(vec![("email", "a@b.c")]))).await.unwrap_err();
        assert_eq!(half.reason, reason::SECRET_NOT_FOUND);
        assert!(half.message.contains("token, nor under email and password"), "{}", half.message);
    }

    #[tokio::test]
    async fn a_secret_that_is_missing_is_told_from_one_that_cannot_be_read() {
        let missing = ask(at("other"), Namespace(Ok(vec![]))).await.unwrap_err();
        assert_eq!(missing.reason, reason::SECRET_NOT_FOUND);
        let unreadable = ask(at("coder"), Namespace(Err("forbidden"))).await.unwrap_err();
        assert_eq!(unreadable.reason, reason::SECRET_UNREADABLE);
        assert!(unreadable.message.contains("forbidden"), "{}", unreadable.message);
    }
}
