//! Secrets that manifests refer to, read through the port `Cluster`: from a cluster, or from files beside the manifests.

use std::{collections::BTreeMap, fmt};

use api::Reason;
use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use super::own_secrets;
use crate::{
    pipeline::outcome::Blocked,
    ports::{Cluster, ClusterError},
};

/// Why an object that a manifest refers to was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// It cannot be read just now.
    Unavailable(String),
    /// The files do not have it, and there is no cluster.
    Nowhere(String),
    /// No manifest may refer to it: see [`own_secrets`].
    NotAllowed(String),
}

impl Unreadable {
    /// The words that say why.
    pub fn words(&self) -> &str {
        match self {
            Self::Unavailable(words) | Self::Nowhere(words) | Self::NotAllowed(words) => words,
        }
    }

    /// What a condition says of a Secret that was not read.
    pub fn of_secret(self, name: &str) -> Blocked {
        let reason = self.reason();
        let message = match self {
            Self::Unavailable(why) | Self::Nowhere(why) => format!("Secret {name} cannot be read: {why}"),
            Self::NotAllowed(message) => message,
        };
        Blocked { reason, message }
    }

    /// The reason of a condition about a Secret that was not read.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unavailable(_) => Reason::SecretUnreadable,
            Self::Nowhere(_) => Reason::SecretNotFound,
            Self::NotAllowed(_) => Reason::SecretNotAllowed,
        }
    }
}

impl From<ClusterError> for Unreadable {
    fn from(error: ClusterError) -> Self {
        if let ClusterError::NoCluster(why) = error {
            return Self::Nowhere(why);
        }
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

/// Reads a Secret that a manifest refers to. `None` where it does not exist. Every such read goes through here, so that the
/// operator's own Secrets are refused to all of them. Their owners read them by themselves, and check that they are the owner.
pub async fn find(cluster: &dyn Cluster, namespace: &str, name: &str) -> Result<Option<Secret>, Unreadable> {
    let found = cluster.secret(namespace, name, "").await?;
    match found.as_ref().and_then(|it| own_secrets::refusal(&it.metadata, None)) {
        Some(why) => Err(Unreadable::NotAllowed(why)),
        None => Ok(found),
    }
}

/// Reads the values of a Secret that a manifest refers to. `None` where it does not exist.
pub async fn values(
    cluster: &dyn Cluster,
    namespace: &str,
    name: &str,
) -> Result<Option<Values>, Unreadable> {
    let found = find(cluster, namespace, name).await?;
    Ok(found.map(|it| Values::new(it.data.into_iter().flatten().map(|(key, value)| (key, value.0)))))
}

/// Reads the values of a Secret that has to exist.
pub async fn required(cluster: &dyn Cluster, namespace: &str, name: &str) -> Result<Values, Blocked> {
    match values(cluster, namespace, name).await {
        Ok(Some(values)) => Ok(values),
        Ok(None) => Err(Blocked {
            reason: Reason::SecretNotFound,
            message: format!("there is no Secret {name}: create it"),
        }),
        Err(unreadable) => Err(unreadable.of_secret(name)),
    }
}

/// The values of a Secret. `Debug` shows the keys only.
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
