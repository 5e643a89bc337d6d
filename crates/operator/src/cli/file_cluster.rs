//! The port `Cluster` of the command line: values of `--secret` and files, with the cluster of the kubeconfig behind them.
//!
//! A client of the cluster is made when something is really needed from it, so that a set of files that is complete needs
//! no cluster at all. Secrets, ConfigMaps and control planes of the files hide those of the cluster; everything else is the cluster's, and
//! so is every write.

use std::{collections::BTreeMap, fmt, sync::Arc};

use api::{CoderControlPlane, Reason};
use engine::{
    Cluster,
    objects::{Key, Live},
    ports::{
        Answer, ClusterError, Event, List, Log, Only, RandomBytes, Reading, Watch, WatchEvent, WatchEvents,
        Write,
    },
};
use futures::{StreamExt as _, future::BoxFuture, stream};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString, Resource as _,
    api::core::v1::{ConfigMap, ObjectReference, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource as _, ResourceExt as _, core::SelectorExt as _};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{
    cli::{
        manifests::{FileSecret, Named},
        secrets::Given,
        terminal::say,
    },
    cluster::{self, fence::Fence, port::KubeCluster},
};

/// Secrets, ConfigMaps and control planes in files, and the cluster behind them. A manifest without a namespace is in the empty one here, and
/// in the namespace of the kubeconfig's context in a cluster.
#[derive(Default)]
pub(crate) struct FileCluster {
    pub(crate) given: Given,
    pub(crate) secrets: BTreeMap<Named, FileSecret>,
    pub(crate) planes: BTreeMap<Named, CoderControlPlane>,
    /// ConfigMaps of the files, for manifests that refer to them.
    pub(crate) config_maps: BTreeMap<Named, Value>,
    /// Empty until something is needed from the cluster.
    pub(crate) cluster: OnceCell<Result<Arc<KubeCluster>, String>>,
}

impl FileCluster {
    /// Whether the cluster was asked for something. An object that is not in the cluster may come later.
    pub(crate) fn has_asked(&self) -> bool {
        self.cluster.get().is_some_and(Result::is_ok)
    }

    /// The cluster of the kubeconfig. The error is why there is none.
    pub(crate) async fn cluster(&self) -> Result<&Arc<KubeCluster>, &str> {
        let connect = || async {
            cluster::clients(Fence::open())
                .await
                .map(|it| Arc::new(KubeCluster::for_command(it.acting, say)))
                .map_err(|error| format!("{error:#}"))
        };
        self.cluster.get_or_init(connect).await.as_ref().map_err(String::as_str)
    }

    /// The cluster, for a read that the files do not answer.
    async fn behind(&self) -> Result<&KubeCluster, ClusterError> {
        self.cluster().await.map(|it| &**it).map_err(absent)
    }

    /// The cluster, for a write.
    async fn writable(&self, what: &str) -> Result<&KubeCluster, ClusterError> {
        self.cluster().await.map(|it| &**it).map_err(|why| {
            ClusterError::NoAnswer(format!(
                "cannot {what}: there is no cluster ({why}): set KUBECONFIG, or run in a pod"
            ))
        })
    }

    /// A Secret that `--secret` or the files name; the former win key by key.
    fn secret_of_files(&self, namespace: &str, name: &str) -> Option<Secret> {
        let file = self.secrets.get(&Named::new(namespace, name)).map(|it| &it.values);
        let given = self.given.get(name);
        if file.is_none() && given.is_none() {
            return None;
        }
        let values = file.into_iter().flatten().chain(given.into_iter().flatten());
        let data = values.map(|(key, value)| (key.clone(), ByteString(value.expose_secret().to_vec())));
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        Some(Secret { metadata, data: Some(data.collect()), ..Secret::default() })
    }

    /// A control plane of the files.
    fn plane_of_files(&self, key: &Key) -> Option<Live> {
        let is_plane = key.kind == CoderControlPlane::kind(&())
            && key.api_version == CoderControlPlane::api_version(&());
        let found = self.in_files(&self.planes, key).filter(|_| is_plane)?;
        Live::with_key(key.clone(), serde_json::to_value(found).ok()?)
    }

    /// An object of the files. One without a namespace is in that of the kubeconfig's context, once that is known.
    fn in_files<'a, T>(&self, objects: &'a BTreeMap<Named, T>, key: &Key) -> Option<&'a T> {
        let connected = self.cluster.get().and_then(|it| it.as_ref().ok());
        let is_default = connected.is_some_and(|it| it.default_namespace() == key.namespace);
        let without = || objects.get(&Named::new("", &key.name)).filter(|_| is_default);
        objects.get(&Named::new(&key.namespace, &key.name)).or_else(without)
    }
}

impl FileCluster {
    /// A ConfigMap of the files.
    fn config_map_of_files(&self, key: &Key) -> Option<Live> {
        let is_map = key.kind == ConfigMap::KIND && key.api_version == ConfigMap::API_VERSION;
        let found = self.config_maps.get(&Named::new(&key.namespace, &key.name)).filter(|_| is_map)?;
        Live::with_key(key.clone(), found.clone())
    }

    /// The control planes of the files that a watch covers.
    fn planes_of(&self, watch: &Watch) -> Vec<Live> {
        let planes = self.planes.iter().filter_map(|(named, plane)| {
            let key = Key::new(&watch.api_version, &watch.kind, &named.namespace, &named.name);
            let is_covered = watch.namespace.as_ref().is_none_or(|it| *it == named.namespace)
                && watch.labels.matches(plane.labels());
            self.plane_of_files(&key).filter(|_| is_covered)
        });
        planes.collect()
    }
}

/// The events of a watch, with those objects in place of others of the same key.
fn over(files: Vec<Live>, events: WatchEvents) -> WatchEvents {
    let events = events.flat_map(move |event| {
        let is_hidden = match &event {
            Ok(WatchEvent::InitApply(it) | WatchEvent::Apply(it) | WatchEvent::Delete(it)) => {
                files.iter().any(|file| file.key == it.key)
            }
            _ => false,
        };
        let begins = matches!(event, Ok(WatchEvent::Init));
        let own = files.iter().filter(|_| begins).map(|it| Ok(WatchEvent::InitApply(it.clone())));
        let events: Vec<_> = [event].into_iter().filter(|_| !is_hidden).chain(own).collect();
        stream::iter(events)
    });
    events.boxed()
}

fn absent(why: &str) -> ClusterError {
    ClusterError::NoCluster(format!("it is not among the files, and there is no cluster to ask ({why})"))
}

impl fmt::Debug for FileCluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FileCluster")
    }
}

impl Cluster for FileCluster {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn random(&self) -> RandomBytes {
        cluster::random()
    }

    fn get<'a>(&'a self, key: &'a Key, reading: Reading) -> Answer<'a, Option<Live>> {
        Box::pin(async move {
            if let Some(found) = self.plane_of_files(key).or_else(|| self.config_map_of_files(key)) {
                return Ok(Some(found));
            }
            let cluster = self.behind().await?;
            let namespace = in_cluster(cluster, &key.namespace);
            cluster.get(&Key::new(&key.api_version, &key.kind, namespace, &key.name), reading).await
        })
    }

    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        reader: &'a str,
    ) -> Answer<'a, Option<Secret>> {
        Box::pin(async move {
            if let Some(found) = self.secret_of_files(namespace, name) {
                return Ok(Some(found));
            }
            let cluster = self.behind().await?;
            cluster.secret(in_cluster(cluster, namespace), name, reader).await
        })
    }

    fn secrets<'a>(&'a self, namespace: &'a str) -> Answer<'a, Vec<ObjectMeta>> {
        Box::pin(async move {
            let cluster = self.behind().await?;
            cluster.secrets(in_cluster(cluster, namespace)).await
        })
    }

    fn namespace<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        Box::pin(async move { self.behind().await?.namespace(name).await })
    }

    fn list<'a>(&'a self, list: &'a List<'a>, reading: Reading) -> Answer<'a, Vec<Live>> {
        Box::pin(async move { self.behind().await?.list(list, reading).await })
    }

    /// The events of the cluster. A control plane of the files stands in place of the cluster's of the same name, and never changes.
    fn watch(self: Arc<Self>, watch: Watch) -> WatchEvents {
        let events = async move {
            let planes = self.planes_of(&watch);
            match self.cluster().await {
                Ok(cluster) => over(planes, Arc::clone(cluster).watch(watch)),
                Err(_) if !planes.is_empty() => {
                    let list = stream::iter([Ok(WatchEvent::Init), Ok(WatchEvent::InitDone)]);
                    over(planes, list.chain(stream::pending()).boxed())
                }
                Err(why) => stream::iter([Err(absent(why))]).chain(stream::pending()).boxed(),
            }
        };
        stream::once(events).flatten().boxed()
    }

    fn log<'a>(&'a self, log: &'a Log<'a>) -> Answer<'a, String> {
        Box::pin(async move { self.behind().await?.log(log).await })
    }

    fn write<'a>(&'a self, write: Write<'a>, writer: &'a str) -> Answer<'a, Live> {
        Box::pin(async move { self.writable(&format!("{write:?}")).await?.write(write, writer).await })
    }

    fn delete<'a>(&'a self, key: &'a Key, only: Only<'a>) -> Answer<'a, ()> {
        Box::pin(async move { self.writable(&format!("delete {key}")).await?.delete(key, only).await })
    }

    fn event<'a>(&'a self, about: &'a ObjectReference, event: Event<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Ok(cluster) = self.cluster().await {
                cluster.event(about, event).await;
            }
        })
    }

    fn left_behind<'a>(
        &'a self,
        about: &'a ObjectReference,
        reason: Reason,
        note: &'a str,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match self.cluster().await {
                Ok(cluster) => cluster.left_behind(about, reason, note).await,
                Err(_) => say(note),
            }
        })
    }
}

fn in_cluster<'a>(cluster: &'a KubeCluster, namespace: &'a str) -> &'a str {
    if namespace.is_empty() { cluster.default_namespace() } else { namespace }
}

#[cfg(test)]
mod tests {
    use engine::secrets::referenced::{Unreadable, values as read};
    use secrecy::SecretSlice;
    use serde_json::json;

    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, SecretSlice<u8>> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec().into()));
        pairs.collect()
    }

    fn files() -> FileCluster {
        let secret = FileSecret::of(values(&[("token", "file"), ("ca.crt", "file")]));
        FileCluster {
            config_maps: BTreeMap::new(),
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
        let values = read(&files(), namespace, name).await.unwrap();
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
        let Err(why) = read(&files(), "a", "third").await else { panic!("no file has it") };
        assert_eq!(why.words(), "it is not among the files, and there is no cluster to ask (nowhere)");
        assert!(!files().has_asked());
    }

    #[tokio::test]
    async fn control_plane_of_the_files_is_read_and_another_is_asked_of_the_cluster() {
        let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main"}, "spec": {"image": "coder:v2.36.0"}});
        let plane: CoderControlPlane = serde_json::from_value(plane).unwrap();
        let planes = BTreeMap::from([(Named::new("", "main"), plane.clone())]);
        let files = FileCluster { planes, ..files() };
        let cluster: &dyn Cluster = &files;
        let found = cluster.read::<CoderControlPlane>("", "main", Reading::Now).await.unwrap().unwrap();
        assert_eq!(serde_json::to_value(&found).unwrap(), serde_json::to_value(&plane).unwrap());
        for (namespace, name) in [("a", "main"), ("", "other")] {
            let read = cluster.read::<CoderControlPlane>(namespace, name, Reading::Now).await;
            let why = Unreadable::from(read.unwrap_err());
            assert!(why.words().starts_with("it is not among the files"), "{}", why.words());
        }
    }

    #[tokio::test]
    async fn watch_shows_control_planes_of_the_files_in_place_of_others() {
        let plane = |image: &str| -> CoderControlPlane {
            let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
                "metadata": {"name": "main", "namespace": "a"}, "spec": {"image": image}});
            serde_json::from_value(plane).unwrap()
        };
        let planes = BTreeMap::from([(Named::new("a", "main"), plane("of-the-file"))]);
        let files = Arc::new(FileCluster { planes, ..files() });
        let watch = Watch::all::<CoderControlPlane>();
        let alone: Vec<String> = Arc::clone(&files)
            .watch(watch.clone())
            .take(3)
            .map(|it| format!("{:?}", it.unwrap()))
            .collect()
            .await;
        assert_eq!(alone, ["Init", "InitApply CoderControlPlane a/main in version None", "InitDone"]);
        let other = Live::typed(&plane("of-the-cluster")).unwrap();
        let behind = [WatchEvent::Init, WatchEvent::InitApply(other.clone()), WatchEvent::InitDone];
        let events = behind.into_iter().chain([WatchEvent::Apply(other)]).map(Ok);
        let shown: Vec<_> =
            over(files.planes_of(&watch), stream::iter(events).boxed()).map(Result::unwrap).collect().await;
        let [WatchEvent::Init, WatchEvent::InitApply(shown), WatchEvent::InitDone] = shown.as_slice() else {
            panic!("{shown:?}")
        };
        assert_eq!(shown.object["spec"]["image"], "of-the-file");
        let mut groups = files.watch(Watch::all::<api::CoderGroup>());
        let why = groups.next().await.unwrap().unwrap_err().to_string();
        assert!(why.starts_with("it is not among the files"), "{why}");
        assert!(futures::poll!(groups.next()).is_pending(), "a watch never ends");
    }

    #[tokio::test]
    async fn write_without_a_cluster_is_refused_and_names_the_object() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"token": "hunter2"},
            "metadata": {"name": "key", "namespace": "a"}});
        let written = files().write(Write::Create(&secret), "").await.unwrap_err().to_string();
        assert_eq!(
            written,
            "cannot create Secret a/key: there is no cluster (nowhere): set KUBECONFIG, or run in a pod"
        );
        let key = Key::of(&secret).unwrap();
        let deleted = files().delete(&key, Only { uid: "1", version: None }).await.unwrap_err().to_string();
        assert!(deleted.starts_with("cannot delete Secret a/key: there is no cluster"), "{deleted}");
    }
}
