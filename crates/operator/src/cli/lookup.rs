//! Where the command line follows references: what `--secret` gives, then the files, then the cluster.
//!
//! A client of the cluster is made when something is really needed from it, so that a set of files that is complete needs
//! no cluster at all.

use std::collections::BTreeMap;

use api::CoderControlPlane;
use engine::lookup::{Lookup, LookupAnswer, Unreadable, Values};
use futures::FutureExt as _;
use secrecy::ExposeSecret as _;
use tokio::sync::OnceCell;

use crate::{
    cli::{
        manifests::{FileSecret, Named},
        secrets::Given,
    },
    cluster::{self, Cluster, fence::Fence},
};

/// The three of them. A manifest without a namespace is one with an empty one here, and in the one of the kubeconfig's
/// context in a cluster.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) given: Given,
    pub(crate) secrets: BTreeMap<Named, FileSecret>,
    pub(crate) planes: BTreeMap<Named, CoderControlPlane>,
    pub(crate) cluster: OnceCell<Result<Cluster, String>>,
}

impl Sources {
    /// Whether there is a cluster that was asked for something. What is not in it may come later.
    pub(crate) fn has_asked(&self) -> bool {
        self.cluster.get().is_some_and(Result::is_ok)
    }

    pub(crate) async fn cluster(&self) -> Result<&Cluster, Unreadable> {
        let connect = || async {
            cluster::clients(Fence::open())
                .await
                .map(|it| Cluster(it.acting))
                .map_err(|error| format!("{error:#}"))
        };
        self.cluster.get_or_init(connect).await.as_ref().map_err(|why| {
            Unreadable::Unavailable(format!(
                "it is not among the files, and there is no cluster to ask ({why})"
            ))
        })
    }

    /// The values of a Secret that `--secret` or the files name; the former win key by key.
    fn values(&self, namespace: &str, name: &str) -> Option<Values> {
        let file = self.secrets.get(&Named::new(namespace, name)).map(|it| &it.values);
        let given = self.given.get(name);
        if file.is_none() && given.is_none() {
            return None;
        }
        let all = file.into_iter().flatten().chain(given.into_iter().flatten());
        Some(Values::new(all.map(|(key, value)| (key.clone(), value.expose_secret().to_vec()))))
    }
}

impl Lookup for Sources {
    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> LookupAnswer<'a, Values> {
        async move {
            if let Some(values) = self.values(namespace, name) {
                return Ok(Some(values));
            }
            let cluster = self.cluster().await?;
            cluster.secret(in_cluster(cluster, namespace), name).await
        }
        .boxed()
    }

    fn control_plane<'a>(&'a self, namespace: &'a str, name: &'a str) -> LookupAnswer<'a, CoderControlPlane> {
        async move {
            if let Some(plane) = self.planes.get(&Named::new(namespace, name)) {
                return Ok(Some(plane.clone()));
            }
            let cluster = self.cluster().await?;
            cluster.control_plane(in_cluster(cluster, namespace), name).await
        }
        .boxed()
    }
}

fn in_cluster<'a>(cluster: &'a Cluster, namespace: &'a str) -> &'a str {
    if namespace.is_empty() { cluster.0.default_namespace() } else { namespace }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretSlice;

    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, SecretSlice<u8>> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec().into()));
        pairs.collect()
    }

    fn sources() -> Sources {
        let secret = FileSecret::of(values(&[("token", "file"), ("ca.crt", "file")]));
        Sources {
            given: Given::from([
                ("coder".to_owned(), values(&[("token", "given")])),
                ("other".to_owned(), values(&[("token", "given")])),
            ]),
            secrets: BTreeMap::from([(Named::new("a", "coder"), secret)]),
            planes: BTreeMap::new(),
            cluster: OnceCell::new_with(Some(Err("nowhere".to_owned()))),
        }
    }

    async fn text(namespace: &str, name: &str, key: &str) -> Option<String> {
        let values = sources().secret(namespace, name).await.unwrap();
        values.unwrap().text(key).map(|it| it.expose_secret().to_owned())
    }

    #[tokio::test]
    async fn what_is_given_wins_over_files_key_by_key_and_in_every_namespace() {
        assert_eq!(text("a", "coder", "token").await.as_deref(), Some("given"));
        assert_eq!(text("a", "coder", "ca.crt").await.as_deref(), Some("file"));
        assert_eq!(text("b", "coder", "token").await.as_deref(), Some("given"));
        assert_eq!(text("b", "coder", "ca.crt").await, None);
        assert_eq!(text("", "other", "token").await.as_deref(), Some("given"));
    }

    #[tokio::test]
    async fn what_is_nowhere_is_asked_of_the_cluster() {
        let Err(why) = sources().secret("a", "third").await else { panic!("nobody has it") };
        assert_eq!(why.words(), "it is not among the files, and there is no cluster to ask (nowhere)");
        assert!(!sources().has_asked());
    }
}
