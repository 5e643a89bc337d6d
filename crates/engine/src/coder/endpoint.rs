//! How a control plane is reached: its address, whom to trust, and the credentials for it.

use std::fmt;

use api::{CoderControlPlane, External, Reason};
use kube::ResourceExt as _;
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::{
    coder::address,
    pipeline::outcome::Blocked,
    ports::Cluster,
    secrets::referenced::{self, Values},
};

/// The keys of an account from which tokens are made.
const EMAIL: &str = "email";
const PASSWORD: &str = "password";
/// The keys of a Secret with a certificate that pods serve.
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";

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
#[derive(Debug, Clone)]
pub enum Credentials {
    /// Used as it is.
    Token(SecretString),
    /// Tokens are made from it, and renewed.
    Account { email: String, password: SecretString },
    /// We run it, and come to an account of our own.
    Ours,
}

/// What a manifest and the Secrets behind it say of a deployment, part by part. A part that cannot be read says why.
#[derive(Debug)]
pub struct DeclaredEndpoint {
    url: Result<Url, Blocked>,
    authority: Result<Option<SecretSlice<u8>>, Blocked>,
    credentials: Result<Credentials, Blocked>,
    /// The Secrets that hold the certificates and the credentials, as `NAME/KEY`.
    authority_ref: Option<String>,
    credentials_ref: Option<String>,
}

impl DeclaredEndpoint {
    /// All parts, or what is wrong with the first of them.
    pub fn endpoint(self) -> Result<Endpoint, Blocked> {
        let Self { url, authority, credentials, .. } = self;
        Ok(Endpoint { credentials: credentials?, url: url?, authority: authority? })
    }

    /// What tells this origin from others.
    pub fn origin(&self) -> DeclaredOrigin {
        let authority = self.authority.as_ref().ok();
        let authority = authority.map(|it| it.as_ref().map_or(&[][..], |it| it.expose_secret()));
        let credentials = self.credentials.as_ref().ok();
        DeclaredOrigin {
            url: self.url.as_ref().ok().cloned(),
            authority: authority.map(|it| digest(&[it])),
            credentials: credentials.map(Credentials::digest),
            authority_ref: self.authority_ref.clone(),
            credentials_ref: self.credentials_ref.clone(),
        }
    }
}

/// The address, the certificates and the credentials of a deployment, as a value to compare. A part that cannot be read now is
/// `None`.
#[derive(Clone)]
pub struct DeclaredOrigin {
    url: Option<Url>,
    authority: Option<[u8; 32]>,
    credentials: Option<[u8; 32]>,
    authority_ref: Option<String>,
    credentials_ref: Option<String>,
}

impl fmt::Debug for DeclaredOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A digest of a short secret is nearly the secret.
        formatter.debug_struct("DeclaredOrigin").field("url", &self.url).finish_non_exhaustive()
    }
}

impl DeclaredOrigin {
    /// Whether any part is another one. Where the value of a Secret is not known of both, their references are compared: a
    /// Secret that is gone or cannot be read says nothing as long as the manifest names the same Secret.
    pub fn differs_from(&self, other: &Self) -> bool {
        let has_other_authority = match (&self.authority, &other.authority) {
            (Some(one), Some(other)) => one != other,
            _ => self.authority_ref != other.authority_ref,
        };
        let has_other_credentials = match (&self.credentials, &other.credentials) {
            (Some(one), Some(other)) => one != other,
            _ => self.credentials_ref != other.credentials_ref,
        };
        self.url != other.url || has_other_authority || has_other_credentials
    }

    /// The same place, whatever the credentials.
    #[must_use]
    pub fn without_credentials(self) -> Self {
        Self { credentials: None, credentials_ref: None, ..self }
    }

    /// The same place with another token.
    #[must_use]
    pub fn with_token(self, token: &SecretString) -> Self {
        Self { credentials: Some(Credentials::Token(token.clone()).digest()), credentials_ref: None, ..self }
    }
}

impl Credentials {
    fn digest(&self) -> [u8; 32] {
        match self {
            Self::Token(token) => digest(&[b"token", token.expose_secret().as_bytes()]),
            Self::Account { email, password } => {
                digest(&[b"account", email.as_bytes(), password.expose_secret().as_bytes()])
            }
            Self::Ours => digest(&[b"ours"]),
        }
    }
}

/// Something that was made from these parts and from no others, as a client from an address and credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Origin([u8; 32]);

impl fmt::Debug for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A digest of a short secret is nearly the secret.
        formatter.write_str("Origin")
    }
}

impl Origin {
    pub fn new(parts: &[&[u8]]) -> Self {
        Self(digest(parts))
    }

    /// The same with one more part.
    #[must_use]
    pub fn with(&self, part: &[u8]) -> Self {
        Self::new(&[&self.0, part])
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Reads what a control plane declares of its deployment.
pub async fn declared(plane: &CoderControlPlane, references: &dyn Cluster) -> DeclaredEndpoint {
    let credentials = match &plane.spec.external {
        Some(external) => credentials_of(plane, external, references).await,
        None => Ok(Credentials::Ours),
    };
    let named = plane.spec.external.as_ref();
    let credentials_ref = named.map(|it| format!("{}/{}", it.credentials_secret_ref.name, it.token_key()));
    DeclaredEndpoint { credentials, credentials_ref, ..declared_place(plane, references).await }
}

/// The names of the Secrets that `declared` reads for a control plane.
pub fn origin_secrets(plane: &CoderControlPlane) -> impl Iterator<Item = &str> {
    let external = plane.spec.external.as_ref();
    let authority = external.and_then(External::ca).map(|(name, _)| name);
    let credentials = external.map(|it| it.credentials_secret_ref.name.as_str());
    let served = if external.is_some() { Vec::new() } else { plane.spec.tls_secrets() };
    served.into_iter().chain(authority).chain(credentials)
}

/// Reads what a control plane declares of its deployment. The error says what to do.
pub async fn endpoint(plane: &CoderControlPlane, references: &dyn Cluster) -> Result<Endpoint, Blocked> {
    declared(plane, references).await.endpoint()
}

/// The same without the credentials, for whoever brings their own.
pub async fn declared_place(plane: &CoderControlPlane, references: &dyn Cluster) -> DeclaredEndpoint {
    let (declared, field) = match &plane.spec.external {
        Some(external) => (external.url.clone(), "spec.external.url"),
        None => (address::internal(plane), "its Service"),
    };
    let url = declared
        .parse()
        .map_err(|error| Blocked { reason: Reason::Invalid, message: format!("{field}: {error}") });
    let authority_ref = match &plane.spec.external {
        Some(external) => external.ca().map(|(name, key)| format!("{name}/{key}")),
        None => Some(plane.spec.tls_secrets().join(",")).filter(|it| !it.is_empty()),
    };
    DeclaredEndpoint {
        url,
        authority: authority_of(plane, references).await,
        credentials: Ok(Credentials::Ours),
        authority_ref,
        credentials_ref: None,
    }
}

/// The same, all of it readable. The error says what to do.
pub async fn place(plane: &CoderControlPlane, references: &dyn Cluster) -> Result<Endpoint, Blocked> {
    declared_place(plane, references).await.endpoint()
}

async fn credentials_of(
    plane: &CoderControlPlane,
    external: &External,
    references: &dyn Cluster,
) -> Result<Credentials, Blocked> {
    let name = &external.credentials_secret_ref.name;
    let values = referenced::required(references, &plane.namespace().unwrap_or_default(), name).await?;
    credentials(external, &values).ok_or_else(|| {
        let wanted = format!("{}, nor under {EMAIL} and {PASSWORD}", external.token_key());
        referenced::no_value(name, &wanted)
    })
}

async fn authority_of(
    plane: &CoderControlPlane,
    references: &dyn Cluster,
) -> Result<Option<SecretSlice<u8>>, Blocked> {
    let Some(external) = &plane.spec.external else { return authority_of_pods(plane, references).await };
    let Some((name, key)) = external.ca() else { return Ok(None) };
    let values = referenced::required(references, &plane.namespace().unwrap_or_default(), name).await?;
    values.get(key).cloned().map(Some).ok_or_else(|| referenced::no_value(name, key))
}

/// The certificates to trust for a managed control plane: of each Secret that its pods serve, the authority's, or the
/// certificate itself where it is self-signed. The pods of a Secret that is missing do not start, so it is no error here.
async fn authority_of_pods(
    plane: &CoderControlPlane,
    references: &dyn Cluster,
) -> Result<Option<SecretSlice<u8>>, Blocked> {
    let namespace = plane.namespace().unwrap_or_default();
    let mut trusted = Vec::new();
    for name in plane.spec.tls_secrets() {
        let found =
            referenced::values(references, &namespace, name).await.map_err(|why| why.of_secret(name))?;
        let Some(values) = found else { continue };
        if let Some(pem) = [AUTHORITY, CERTIFICATE].into_iter().find_map(|it| values.get(it)) {
            trusted.extend_from_slice(pem.expose_secret());
            trusted.push(b'\n');
        }
    }
    Ok((!trusted.is_empty()).then(|| trusted.into()))
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
    use std::sync::Arc;

    use super::*;
    use futures::future::BoxFuture;
    use k8s_openapi::{
        ByteString,
        api::core::v1::{ObjectReference, Secret},
        apimachinery::pkg::apis::meta::v1::ObjectMeta,
    };

    use crate::ports::{
        Answer, ClusterError, Event, List, Log, Only, RandomBytes, Reading, Watch, WatchEvents, Write,
        object::{Key, Live},
    };

    /// A namespace with one Secret, or with none that can be read.
    #[derive(Debug)]
    struct Namespace(Result<Vec<(&'static str, &'static str)>, &'static str>);

    /// What a test does not ask for.
    fn refused<'a, T: Send + 'a>() -> Answer<'a, T> {
        Box::pin(async { Err(ClusterError::NoAnswer("there are Secrets only".to_owned())) })
    }

    impl Cluster for Namespace {
        fn now(&self) -> jiff::Timestamp {
            jiff::Timestamp::UNIX_EPOCH
        }

        fn random(&self) -> RandomBytes {
            RandomBytes::new([0; 32])
        }

        fn get<'a>(&'a self, _: &'a Key, _: Reading) -> Answer<'a, Option<Live>> {
            refused()
        }

        fn secret<'a>(&'a self, _: &'a str, name: &'a str, _: &'a str) -> Answer<'a, Option<Secret>> {
            let data = |it: &Vec<(&str, &str)>| {
                let bytes = |value: &str| ByteString(value.as_bytes().to_vec());
                it.iter().map(|(key, value)| ((*key).to_owned(), bytes(value))).collect()
            };
            let secret = |it| Secret { data: Some(data(it)), ..Secret::default() };
            let found = self.0.as_ref().map_err(|why| ClusterError::NoAnswer((*why).to_owned()));
            Box::pin(std::future::ready(found.map(|it| (name == "coder").then(|| secret(it)))))
        }

        fn secrets<'a>(&'a self, _: &'a str) -> Answer<'a, Vec<ObjectMeta>> {
            refused()
        }

        fn namespace<'a>(&'a self, _: &'a str) -> Answer<'a, Option<ObjectMeta>> {
            refused()
        }

        fn list<'a>(&'a self, _: &'a List<'a>, _: Reading) -> Answer<'a, Vec<Live>> {
            refused()
        }

        fn watch(self: Arc<Self>, _: Watch) -> WatchEvents {
            Box::pin(futures::stream::pending())
        }

        fn log<'a>(&'a self, _: &'a Log<'a>) -> Answer<'a, String> {
            refused()
        }

        fn write<'a>(&'a self, _: Write<'a>, _: &'a str) -> Answer<'a, Live> {
            refused()
        }

        fn delete<'a>(&'a self, _: &'a Key, _: Only<'a>) -> Answer<'a, ()> {
            refused()
        }

        fn event<'a>(&'a self, _: &'a ObjectReference, _: Event<'a>) -> BoxFuture<'a, ()> {
            Box::pin(async {})
        }

        fn left_behind<'a>(&'a self, _: &'a ObjectReference, _: Reason, _: &'a str) -> BoxFuture<'a, ()> {
            Box::pin(async {})
        }
    }

    async fn ask(external: serde_json::Value, namespace: Namespace) -> Result<Endpoint, Blocked> {
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
        assert_eq!(half.reason, Reason::SecretNotFound);
        assert!(half.message.contains("token, nor under email and password"), "{}", half.message);
    }

    #[tokio::test]
    async fn a_secret_that_is_missing_is_told_from_one_that_cannot_be_read() {
        let missing = ask(at("other"), Namespace(Ok(vec![]))).await.unwrap_err();
        assert_eq!(missing.reason, Reason::SecretNotFound);
        let unreadable = ask(at("coder"), Namespace(Err("forbidden"))).await.unwrap_err();
        assert_eq!(unreadable.reason, Reason::SecretUnreadable);
        assert!(unreadable.message.contains("forbidden"), "{}", unreadable.message);
    }

    #[tokio::test]
    async fn authority_of_a_served_certificate_is_trusted() {
        let plane = serde_json::from_value::<CoderControlPlane>(serde_json::json!({
            "apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main", "namespace": "platform"},
            "spec": {"tls": {"secretNames": ["missing", "coder"]}}}));
        let plane = plane.unwrap();
        assert_eq!(origin_secrets(&plane).collect::<Vec<_>>(), ["missing", "coder"]);
        for (values, trusted) in [
            (vec![("tls.crt", "leaf"), ("tls.key", "key"), ("ca.crt", "authority")], "authority\n"),
            (vec![("tls.crt", "leaf"), ("tls.key", "key"), ("ca.crt", "")], "leaf\n"),
            (vec![], ""),
        ] {
            let found = endpoint(&plane, &Namespace(Ok(values))).await.unwrap();
            assert_eq!(found.url.as_str(), "https://main.platform.svc.cluster.local/");
            assert_eq!(found.authority(), trusted.as_bytes());
        }
        let unreadable = endpoint(&plane, &Namespace(Err("forbidden"))).await.unwrap_err();
        assert_eq!(unreadable.reason, Reason::SecretUnreadable, "nothing is sent to somebody unknown");
    }

    async fn origin(external: serde_json::Value, secret: Namespace) -> DeclaredOrigin {
        let plane = serde_json::from_value(serde_json::json!({"apiVersion": "coder.com/v1alpha1",
            "kind": "CoderControlPlane", "metadata": {"name": "main"}, "spec": {"external": external}}));
        declared(&plane.unwrap(), &secret).await.origin()
    }

    #[tokio::test]
    async fn an_origin_differs_by_address_certificates_or_credentials() {
        let mut trusting = at("coder");
        trusting["caSecretRef"] = serde_json::json!({"name": "coder"});
        let known = |token, authority| Namespace(Ok(vec![("token", token), ("ca.crt", authority)]));
        let before = origin(trusting.clone(), known("t", "one")).await;
        assert!(!origin(trusting.clone(), known("t", "one")).await.differs_from(&before));
        assert!(origin(trusting.clone(), known("u", "one")).await.differs_from(&before));
        assert!(origin(trusting.clone(), known("t", "two")).await.differs_from(&before));
        assert!(origin(at("coder"), known("t", "one")).await.differs_from(&before), "no certificates at all");
        let mut elsewhere = trusting.clone();
        elsewhere["url"] = "https://coder.example.org".into();
        assert!(origin(elsewhere.clone(), known("t", "one")).await.differs_from(&before));
        // What cannot be read says nothing, and what can be still counts.
        let mut renamed = trusting.clone();
        renamed["credentialsSecretRef"] = serde_json::json!({"name": "other"});
        assert!(origin(renamed, Namespace(Err("forbidden"))).await.differs_from(&before), "another Secret");
        assert!(!origin(trusting, Namespace(Err("forbidden"))).await.differs_from(&before));
        assert!(origin(elsewhere, Namespace(Err("forbidden"))).await.differs_from(&before));
    }

    #[tokio::test]
    async fn authority_that_comes_or_goes_counts_while_no_secret_can_be_read() {
        let trusting = |name: &str| {
            let mut external = at("coder");
            external["caSecretRef"] = serde_json::json!({"name": name});
            external
        };
        let readable = || Namespace(Ok(vec![("token", "t"), ("ca.crt", "one")]));
        let unreadable = || Namespace(Err("forbidden"));
        let before = origin(at("coder"), readable()).await;
        for secrets in [readable(), unreadable()] {
            assert!(origin(trusting("missing"), secrets).await.differs_from(&before), "it was added");
        }
        let before = origin(trusting("coder"), readable()).await;
        assert!(origin(at("coder"), unreadable()).await.differs_from(&before), "it was removed");
        assert!(origin(trusting("missing"), readable()).await.differs_from(&before), "another Secret");
        let mut invalid = trusting("coder");
        invalid["url"] = "coder".into();
        assert!(origin(invalid, unreadable()).await.differs_from(&before), "an invalid address");
    }
}
