//! The cluster as the engine reads and writes it: Kubernetes itself, a set of files, or a model in memory.
//!
//! Every write names what it rests on: the uid and the version of the object that was read stand in the object or the patch
//! that is written, and a creation fails where the name is taken.

pub mod finalizers;
pub mod object;
mod random;
mod watch;

use std::{
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use api::Reason;
use futures::future::{BoxFuture, try_join_all};
use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ObjectReference, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    ResourceExt as _,
    core::{Selector, Status},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use self::object::{Key, Live};

pub use random::RandomBytes;
pub use watch::{Watch, WatchEvent, WatchEvents};

/// What a cluster answers.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, ClusterError>>;

/// How an object is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// As a watch has shown it, where one covers it.
    Known,
    /// As it is now.
    Now,
}

/// Why there is no answer, or which.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClusterError {
    /// The API server refused.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    /// There was no answer, or it could not be read.
    #[error("{0}")]
    NoAnswer(String),
    /// There is no cluster: the command line has only its files.
    #[error("{0}")]
    NoCluster(String),
}

impl ClusterError {
    /// A refusal that the API server did not send.
    pub fn refusal(code: u16, reason: &str, message: &str) -> Self {
        Self::Refused(Status::failure(message, reason).with_code(code).boxed())
    }

    /// The status code of the answer. `None` where there was none.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            Self::NoAnswer(_) | Self::NoCluster(_) => None,
        }
    }

    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    pub fn is_missing(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether a write that failed may have taken effect, or may still do so. The API server refuses with a code below 500 before
    /// anything is stored, and so does admission, whose failures have the reason `InternalError`.
    pub fn may_have_taken_effect(&self) -> bool {
        match self {
            Self::Refused(status) => status.code >= 500 && status.reason != "InternalError",
            Self::NoAnswer(_) => true,
            Self::NoCluster(_) => false,
        }
    }

    fn undecodable(key: &Key, error: &serde_json::Error) -> Self {
        Self::NoAnswer(format!("{key} cannot be decoded: {error}"))
    }
}

/// A list of objects of one resource.
#[derive(Debug, Clone)]
pub struct List<'a> {
    /// As `apps/v1`.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// The namespace. `None` for all that the operator serves.
    pub namespace: Option<&'a str>,
    pub labels: Selector,
}

/// The log of a container.
#[derive(Debug, Clone, Copy)]
pub struct Log<'a> {
    pub namespace: &'a str,
    pub pod: &'a str,
    pub container: &'a str,
    /// Whether it is the log of the container before its last restart.
    pub previous: bool,
    /// How many of its last lines are read, and how many bytes of these.
    pub lines: i64,
    pub bytes: i64,
}

/// One write.
#[derive(Clone, Copy)]
pub enum Write<'a> {
    Create(&'a Value),
    /// Of the version that stands in the object.
    Replace(&'a Value),
    /// A server-side apply, with force, over the version that stands in the object, if one does.
    Apply(&'a Value),
    /// A server-side apply of an object that does not exist. Refused with a conflict where one of that name does.
    ApplyNew(&'a Value),
    /// A merge patch, of the version that stands in the patch.
    Merge {
        key: &'a Key,
        patch: &'a Value,
    },
    /// The status of the version that stands in the object.
    ReplaceStatus(&'a Value),
    /// A merge patch of the status, of the version that stands in the patch.
    MergeStatus {
        key: &'a Key,
        patch: &'a Value,
    },
}

/// Names the object and nothing of what is written, which may be a Secret.
impl fmt::Debug for Write<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, key) = match *self {
            Self::Create(object) => ("create", Key::of(object)),
            Self::Replace(object) => ("replace", Key::of(object)),
            Self::Apply(object) | Self::ApplyNew(object) => ("apply", Key::of(object)),
            Self::Merge { key, .. } => ("merge", Some(key.clone())),
            Self::ReplaceStatus(object) => ("replace the status of", Key::of(object)),
            Self::MergeStatus { key, .. } => ("merge the status of", Some(key.clone())),
        };
        match key {
            Some(key) => write!(formatter, "{verb} {key}"),
            None => write!(formatter, "{verb} an object without a name"),
        }
    }
}

/// Which object is deleted: this very one, in this version, and no later one of its name.
#[derive(Debug, Clone, Copy)]
pub struct Only<'a> {
    pub uid: &'a str,
    /// `None` for whichever version.
    pub version: Option<&'a str>,
}

/// What people are told of an object.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    pub is_warning: bool,
    pub reason: Reason,
    pub action: &'static str,
    pub note: &'a str,
    /// Whether it must not be skipped, however many there are about the object, and is waited for.
    pub must_be_written: bool,
}

/// A cluster.
pub trait Cluster: Debug + Send + Sync {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Waits that long, before a call is made once more.
    fn pause(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    /// Random bytes, other ones each time.
    fn random(&self) -> RandomBytes;

    fn get<'a>(&'a self, key: &'a Key, reading: Reading) -> Answer<'a, Option<Live>>;

    /// A Secret with its values, as it is now, for the object with the uid `reader`.
    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str, reader: &'a str)
    -> Answer<'a, Option<Secret>>;

    /// The metadata of a Secret, as a watch has shown it where one covers it.
    fn secret_metadata<'a>(&'a self, namespace: &'a str, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        Box::pin(async move { Ok(self.secret(namespace, name, "").await?.map(|it| it.metadata)) })
    }

    /// The metadata of all Secrets of a namespace, as it is now.
    fn secrets<'a>(&'a self, namespace: &'a str) -> Answer<'a, Vec<ObjectMeta>>;

    /// The metadata of a Namespace, as it is now.
    fn namespace<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ObjectMeta>>;

    /// The only namespace that the operator serves. `None` where it serves all.
    fn served_namespace(&self) -> Option<String> {
        None
    }

    fn list<'a>(&'a self, list: &'a List<'a>, reading: Reading) -> Answer<'a, Vec<Live>>;

    /// Watches objects: a list of them, then every change in the order of their versions. A watch that fails reports the failure
    /// and begins anew with a list, after a while where that is a request. The stream never ends.
    fn watch(self: Arc<Self>, watch: Watch) -> WatchEvents;

    /// The end of the log of a container.
    fn log<'a>(&'a self, log: &'a Log<'a>) -> Answer<'a, String>;

    /// Writes an object for the object with the uid `writer`.
    fn write<'a>(&'a self, write: Write<'a>, writer: &'a str) -> Answer<'a, Live>;

    /// Deletes an object. One that is gone already is no error.
    fn delete<'a>(&'a self, key: &'a Key, only: Only<'a>) -> Answer<'a, ()>;

    /// Tells people what happened to an object. Never fails: what cannot be written is in the log.
    fn event<'a>(&'a self, about: &'a ObjectReference, event: Event<'a>) -> BoxFuture<'a, ()>;

    /// Names something of ours that stays behind: in an Event, a log line and a metric, once.
    fn left_behind<'a>(
        &'a self,
        about: &'a ObjectReference,
        reason: Reason,
        note: &'a str,
    ) -> BoxFuture<'a, ()>;
}

impl dyn Cluster + '_ {
    /// Reads an object of a known type.
    pub async fn read<K>(
        &self,
        namespace: &str,
        name: &str,
        reading: Reading,
    ) -> Result<Option<K>, ClusterError>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        let key = Key::new(&K::api_version(&()), &K::kind(&()), namespace, name);
        self.get(&key, reading).await?.map(typed).transpose()
    }

    /// Lists objects of a known type by their labels.
    pub async fn find<K>(
        &self,
        namespace: &str,
        labels: &Selector,
        reading: Reading,
    ) -> Result<Vec<K>, ClusterError>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        let (api_version, kind) = (K::api_version(&()), K::kind(&()));
        let labels = labels.clone();
        let list = List { api_version: &api_version, kind: &kind, namespace: Some(namespace), labels };
        self.list(&list, reading).await?.into_iter().map(typed).collect()
    }

    /// Creates an object of a known type, or replaces the version of it that was read. Returns the object as it is then.
    pub async fn put<K>(&self, object: &K, is_there: bool, writer: &str) -> Result<K, ClusterError>
    where
        K: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let value = value_of(object);
        let write = if is_there { Write::Replace(&value) } else { Write::Create(&value) };
        typed(self.write(write, writer).await?)
    }

    /// Writes the status of an object of a known type, on the version that was read. Returns the object as it is then.
    pub async fn put_status<K>(&self, object: &K) -> Result<K, ClusterError>
    where
        K: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let uid = object.meta().uid.as_deref().unwrap_or_default();
        typed(self.write(Write::ReplaceStatus(&value_of(object)), uid).await?)
    }

    /// Lists objects of these kinds (group, version, kind) by their labels, as they are now.
    pub async fn labelled(
        &self,
        kinds: &[(&str, &str, &str)],
        namespace: Option<&str>,
        labels: &Selector,
    ) -> Result<Vec<Live>, ClusterError> {
        let lists = kinds.iter().map(async |(group, version, kind)| {
            let api_version =
                if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
            let list = List { api_version: &api_version, kind, namespace, labels: labels.clone() };
            self.list(&list, Reading::Now).await
        });
        Ok(try_join_all(lists).await?.into_iter().flatten().collect())
    }

    /// Whether a namespace is being deleted, or is gone.
    pub async fn is_terminating(&self, namespace: &str) -> Result<bool, ClusterError> {
        let found = self.namespace(namespace).await?;
        Ok(found.is_none_or(|it| it.deletion_timestamp.is_some()))
    }

    /// Writes a few fields into the status of this very object, on whichever version of it: they must stand there whatever
    /// else happens to the manifest meanwhile, its deletion included. `fields` returns the fields for the version that is
    /// written, or `None` to refuse the write as a conflict. Returns the version that has the fields.
    pub async fn mark<K>(
        &self,
        object: &K,
        fields: impl Fn(&K) -> Option<Map<String, Value>> + Send + Sync,
    ) -> Result<K, ClusterError>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Send
            + Sync,
    {
        let conflict = |message: &str| ClusterError::refusal(409, "Conflict", message);
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let key = Key::new(&K::api_version(&()), &K::kind(&()), &namespace, &name);
        let mut now = object.clone();
        loop {
            let fields = fields(&now).ok_or_else(|| conflict("its status is newer than what is written"))?;
            if fields.is_empty() {
                return Ok(now);
            }
            let patch = json!({"metadata": {"resourceVersion": now.resource_version()}, "status": fields});
            let uid = object.uid().unwrap_or_default();
            match self.write(Write::MergeStatus { key: &key, patch: &patch }, &uid).await {
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
                Ok(written) => {
                    return serde_json::from_value(written.object)
                        .map_err(|error| ClusterError::undecodable(&key, &error));
                }
            }
            let missing = || ClusterError::refusal(404, "NotFound", &format!("{key} is gone"));
            now = self.read(&namespace, &name, Reading::Now).await?.ok_or_else(missing)?;
            // A patch knows no uid: another object of the same name must not get what is not its own.
            if now.uid() != object.uid() {
                return Err(conflict("another object has taken its name"));
            }
        }
    }
}

/// An object of a known type as JSON, with its kind.
fn value_of<K: kube::Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = K::api_version(&()).into();
    value["kind"] = K::kind(&()).into();
    value
}

fn typed<K: DeserializeOwned>(found: Live) -> Result<K, ClusterError> {
    serde_json::from_value(found.object).map_err(|error| ClusterError::undecodable(&found.key, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_before_storage_has_taken_no_effect() {
        for (code, reason, expected) in [
            (403, "Forbidden", false),
            (409, "Conflict", false),
            (429, "TooManyRequests", false),
            (500, "InternalError", false),
            (500, "ServerTimeout", true),
            (504, "Timeout", true),
        ] {
            let refused = ClusterError::refusal(code, reason, "it cannot be written");
            assert_eq!(refused.may_have_taken_effect(), expected, "{code} {reason}");
        }
        assert!(ClusterError::NoAnswer("reset".to_owned()).may_have_taken_effect());
        assert!(!ClusterError::NoCluster("files only".to_owned()).may_have_taken_effect());
    }

    #[test]
    fn write_is_shown_without_what_is_written() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "b"},
            "stringData": {"token": "hunter2"}});
        let key = Key::of(&secret).unwrap();
        for write in
            [Write::Create(&secret), Write::Apply(&secret), Write::Merge { key: &key, patch: &secret }]
        {
            let shown = format!("{write:?}");
            assert!(shown.ends_with("Secret b/a") && !shown.contains("hunter2"), "{shown}");
        }
    }
}
