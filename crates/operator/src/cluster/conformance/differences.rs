//! Deliberate differences: the comparison has to find each of them.

use engine::ports::{RandomBytes, Watch, WatchEvent, WatchEvents};
use futures::{StreamExt as _, future::ready};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::*;

/// One mistake that a cluster in memory could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    /// A write over an older version is carried out.
    StaleWrite,
    /// A name that is taken is refused with another code.
    Code,
    /// A change is answered and not done.
    LostWrite,
    /// A read lacks a field.
    Field,
    /// An object with finalizers is gone at once.
    NoFinalizers,
    /// Objects stay when their owner is gone.
    NoGarbageCollection,
    /// A write of a status raises the generation.
    Generation,
    /// A list shows objects whatever their labels are.
    NoSelector,
    /// The metadata of a Secret lacks its annotations.
    NoAnnotations,
    /// A watch does not show that an object is gone.
    NoDeletions,
    /// A watch of metadata shows values.
    ShownValues,
    /// A watch shows objects in another order.
    Order,
}

const MISTAKES: [Mistake; 12] = [
    Mistake::StaleWrite,
    Mistake::Code,
    Mistake::LostWrite,
    Mistake::Field,
    Mistake::NoFinalizers,
    Mistake::NoGarbageCollection,
    Mistake::Generation,
    Mistake::NoSelector,
    Mistake::NoAnnotations,
    Mistake::NoDeletions,
    Mistake::ShownValues,
    Mistake::Order,
];

/// A cluster in memory with one mistake.
#[derive(Debug)]
struct Mistaken {
    inner: MemoryCluster,
    mistake: Mistake,
}

impl Mistaken {
    async fn written(&self, write: Write<'_>, writer: &str) -> Result<Live, ClusterError> {
        match (self.mistake, write) {
            (Mistake::StaleWrite, Write::Replace(object)) => {
                let now = self.inner.get(&Key::of(object).unwrap(), Reading::Now).await?;
                let mut object = object.clone();
                if let Some(now) = now {
                    object["metadata"]["resourceVersion"] = now.object["metadata"]["resourceVersion"].clone();
                }
                self.inner.write(Write::Replace(&object), writer).await
            }
            (Mistake::Code, Write::Create(_)) => self.inner.write(write, writer).await.map_err(|error| {
                if error.is_conflict() { ClusterError::refusal(422, "Invalid", "taken") } else { error }
            }),
            (Mistake::LostWrite, Write::Merge { .. }) => {
                self.inner.copy(Arc::new(Timestamp::now)).write(write, writer).await
            }
            (Mistake::NoGarbageCollection, Write::Create(object)) => {
                let mut object = object.clone();
                object["metadata"]["ownerReferences"] = json!([]);
                self.inner.write(Write::Create(&object), writer).await
            }
            (Mistake::Generation, Write::ReplaceStatus(_)) => {
                let mut written = self.inner.write(write, writer).await?.object;
                written["metadata"]["generation"] = json!(2);
                Ok(Live::new(written).unwrap())
            }
            _ => self.inner.write(write, writer).await,
        }
    }
}

/// An event without what a watch must not leave out, or with what it must not show.
fn mistaken(event: WatchEvent, mistake: Mistake) -> Option<WatchEvent> {
    match event {
        WatchEvent::Delete(_) if mistake == Mistake::NoDeletions => None,
        WatchEvent::InitApply(object) if mistake == Mistake::ShownValues => {
            let mut object = object.object;
            object["data"] = json!({"key": "djE="});
            Live::new(object).map(WatchEvent::InitApply)
        }
        other => Some(other),
    }
}

impl Cluster for Mistaken {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn random(&self) -> RandomBytes {
        self.inner.random()
    }

    fn get<'a>(&'a self, key: &'a Key, reading: Reading) -> Answer<'a, Option<Live>> {
        Box::pin(async move {
            let found = self.inner.get(key, reading).await?;
            Ok(found.and_then(|it| {
                let mut object = it.object;
                if self.mistake == Mistake::Field {
                    object.as_object_mut()?.remove("data");
                }
                Live::new(object)
            }))
        })
    }

    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str, by: &'a str) -> Answer<'a, Option<Secret>> {
        self.inner.secret(namespace, name, by)
    }

    fn secret_metadata<'a>(&'a self, namespace: &'a str, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        Box::pin(async move {
            let found = self.inner.secret_metadata(namespace, name).await?;
            let bare = |it: ObjectMeta| ObjectMeta { annotations: None, ..it };
            Ok(if self.mistake == Mistake::NoAnnotations { found.map(bare) } else { found })
        })
    }

    fn secrets<'a>(&'a self, namespace: &'a str) -> Answer<'a, Vec<ObjectMeta>> {
        self.inner.secrets(namespace)
    }

    fn namespace<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        self.inner.namespace(name)
    }

    fn list<'a>(&'a self, list: &'a List<'a>, reading: Reading) -> Answer<'a, Vec<Live>> {
        Box::pin(async move {
            let mut list = list.clone();
            if self.mistake == Mistake::NoSelector {
                list.labels = Selector::default();
            }
            self.inner.list(&list, reading).await
        })
    }

    fn watch(self: Arc<Self>, watch: Watch) -> WatchEvents {
        let mistake = self.mistake;
        let events = Arc::new(self.inner.clone()).watch(watch);
        if mistake == Mistake::Order {
            // Two events at a time, the later one first.
            let pairs = events.chunks(2).map(|it| futures::stream::iter(it.into_iter().rev()));
            return pairs.flatten().boxed();
        }
        let events = events.filter_map(move |event| ready(event.map(|it| mistaken(it, mistake)).transpose()));
        events.boxed()
    }

    fn log<'a>(&'a self, log: &'a Log<'a>) -> Answer<'a, String> {
        self.inner.log(log)
    }

    fn write<'a>(&'a self, write: Write<'a>, writer: &'a str) -> Answer<'a, Live> {
        Box::pin(self.written(write, writer))
    }

    fn delete<'a>(&'a self, key: &'a Key, only: Only<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            self.inner.delete(key, only).await?;
            if self.mistake == Mistake::NoFinalizers {
                self.inner.remove(&key.kind, &key.name);
            }
            Ok(())
        })
    }

    fn event<'a>(&'a self, about: &'a ObjectReference, event: Event<'a>) -> BoxFuture<'a, ()> {
        self.inner.event(about, event)
    }

    fn left_behind<'a>(
        &'a self,
        about: &'a ObjectReference,
        reason: Reason,
        note: &'a str,
    ) -> BoxFuture<'a, ()> {
        self.inner.left_behind(about, reason, note)
    }
}

#[tokio::test(start_paused = true)]
async fn equal_clusters_answer_equally() {
    let [one, other] = ["one", "other"].map(|name| Side::in_memory(name, "n"));
    assert_eq!(differences([&one, &other]).await, [""; 0]);
}

/// Time passes at once: what a case waits for in vain costs none.
#[tokio::test(start_paused = true)]
async fn every_mistake_of_a_cluster_is_found() {
    for mistake in MISTAKES {
        let (right, other) = (Side::in_memory("memory", "n"), memory_of("n"));
        let cluster = Arc::new(Mistaken { inner: other.clone(), mistake });
        let (workloads, namespace) = (Some(other), "n".to_owned());
        let mistaken = Side { name: "mistaken", cluster, workloads, namespace };
        assert_ne!(differences([&right, &mistaken]).await, [""; 0], "{mistake:?}");
    }
}
