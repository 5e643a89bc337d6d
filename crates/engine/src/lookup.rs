//! What manifests refer to, wherever it is kept: in a cluster, or in files beside the manifests.

use std::{collections::BTreeMap, fmt};

use api::{CoderControlPlane, Reason};
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use crate::{
    pipeline::outcome::Blocked,
    ports::{Cluster, ClusterError, Reading},
    secrets::own_secrets,
};

/// Where references are followed. Two of them are all that a door needs to be the same engine.
pub trait Lookup: Send + Sync {
    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> LookupAnswer<'a, Values>;
    fn control_plane<'a>(&'a self, namespace: &'a str, name: &'a str) -> LookupAnswer<'a, CoderControlPlane>;
}

/// What was found; nothing when it does not exist.
pub type LookupAnswer<'a, T> = BoxFuture<'a, Result<Option<T>, Unreadable>>;

/// Why something that may exist was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// It cannot be read just now.
    Unavailable(String),
    /// Nobody may refer to it: see [`own_secrets`](crate::secrets::own_secrets).
    NotAllowed(String),
}

impl Unreadable {
    /// The words that say why.
    pub fn words(&self) -> &str {
        match self {
            Self::Unavailable(words) | Self::NotAllowed(words) => words,
        }
    }

    /// What a condition says of a Secret that was not read.
    pub fn of_secret(self, name: &str) -> Blocked {
        match self {
            Self::Unavailable(why) => Blocked {
                reason: Reason::SecretUnreadable,
                message: format!("Secret {name} cannot be read: {why}"),
            },
            Self::NotAllowed(message) => Blocked { reason: Reason::SecretNotAllowed, message },
        }
    }
}

impl From<ClusterError> for Unreadable {
    fn from(error: ClusterError) -> Self {
        Self::Unavailable(match error.code() {
            // What is not there is no error: then the whole kind is not.
            Some(404) => {
                "the cluster does not know this kind: install the definitions with `coder-operator crds | \
                kubectl apply -f -`"
                    .to_owned()
            }
            _ => error.to_string(),
        })
    }
}

/// Follows references in a cluster.
#[derive(Debug, Clone, Copy)]
pub struct InCluster<'a>(pub &'a dyn Cluster);

impl InCluster<'_> {
    /// Reads a Secret that a manifest refers to. Every such read goes through here, so that the operator's own Secrets are
    /// refused to all of them. Their owners read them by themselves, and check that they are the owner.
    pub async fn read(&self, namespace: &str, name: &str) -> Result<Option<Secret>, Unreadable> {
        let found = self.0.secret(namespace, name, "").await?;
        match found.as_ref().and_then(|it| own_secrets::refusal(&it.metadata, None)) {
            Some(why) => Err(Unreadable::NotAllowed(why)),
            None => Ok(found),
        }
    }
}

impl Lookup for InCluster<'_> {
    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> LookupAnswer<'a, Values> {
        async {
            let values = |it: Secret| it.data.into_iter().flatten().map(|(key, value)| (key, value.0));
            Ok(self.read(namespace, name).await?.map(|it| Values::new(values(it))))
        }
        .boxed()
    }

    fn control_plane<'a>(&'a self, namespace: &'a str, name: &'a str) -> LookupAnswer<'a, CoderControlPlane> {
        async { Ok(self.0.read(namespace, name, Reading::Now).await?) }.boxed()
    }
}

/// The values of a Secret, which nobody sees by accident.
pub struct Values(BTreeMap<String, SecretSlice<u8>>);

impl Values {
    pub fn new(values: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        Self(values.into_iter().map(|(key, value)| (key, value.into())).collect())
    }

    /// A value that is not empty.
    pub fn get(&self, key: &str) -> Option<&SecretSlice<u8>> {
        self.0.get(key).filter(|it| !it.expose_secret().is_empty())
    }

    /// Every key.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A value as text, without the blanks and line ends that editors leave around it.
    pub fn text(&self, key: &str) -> Option<SecretString> {
        let text = str::from_utf8(self.get(key)?.expose_secret()).ok()?.trim();
        (!text.is_empty()).then(|| SecretString::from(text))
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.keys()).finish()
    }
}

/// The values of a Secret that has to be there.
pub async fn secret(lookup: &dyn Lookup, namespace: &str, name: &str) -> Result<Values, Blocked> {
    match lookup.secret(namespace, name).await {
        Ok(Some(values)) => Ok(values),
        Ok(None) => Err(Blocked {
            reason: Reason::SecretNotFound,
            message: format!("there is no Secret {name}: create it"),
        }),
        Err(unreadable) => Err(unreadable.of_secret(name)),
    }
}

/// A key of a Secret is missing, or holds nothing that can be used.
pub fn no_value(name: &str, key: &str) -> Blocked {
    Blocked {
        reason: Reason::SecretNotFound,
        message: format!("Secret {name} has no text under {key}: add it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_trimmed_and_an_empty_one_is_none() {
        let values = Values::new([
            ("token".to_owned(), b" hunter2\n".to_vec()),
            ("blank".to_owned(), b" \n".to_vec()),
            ("bytes".to_owned(), vec![0xff]),
        ]);
        assert_eq!(values.text("token").unwrap().expose_secret(), "hunter2");
        assert!(
            values.text("blank").is_none() && values.text("bytes").is_none() && values.text("no").is_none()
        );
        assert!(!format!("{values:?}").contains("hunter2"));
    }
}
