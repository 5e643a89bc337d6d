//! How many objects there are and how they are, read from the controllers' own caches when somebody asks: what is gone is
//! gone here, too.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use api::condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::MetricType,
};

use super::OfKind;
use crate::index::KindName;

/// The reason of an object that no reconcile has told of yet.
const UNKNOWN: &str = "Unknown";

/// What a condition set says of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    reason: Cow<'static, str>,
    is_drifted: bool,
}

impl From<&[Condition]> for Seen {
    fn from(conditions: &[Condition]) -> Self {
        let find = |kind: &str| conditions.iter().find(|it| it.type_ == kind);
        let reason =
            find(condition::READY).map_or(Cow::Borrowed(UNKNOWN), |it| Cow::Owned(it.reason.clone()));
        Self { reason, is_drifted: find(condition::DRIFTED).is_some_and(|it| it.status == "True") }
    }
}

/// Looks at every object of a kind.
type Look = Box<dyn Fn() -> Vec<Seen> + Send + Sync>;

#[derive(Clone, Default)]
pub(crate) struct Objects(Arc<Mutex<BTreeMap<KindName, Look>>>);

impl Objects {
    /// From now on the objects of this kind are shown.
    pub(crate) fn show(&self, kind: KindName, look: impl Fn() -> Vec<Seen> + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(kind, Box::new(look));
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Objects").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReady {
    kind: KindName,
    reason: Cow<'static, str>,
}

impl Collector for Objects {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen: Vec<(&KindName, Vec<Seen>)> = looks.iter().map(|(kind, look)| (kind, look())).collect();
        let help = "Objects, by the reason of their condition Ready";
        let mut family = encoder.encode_descriptor("objects", help, None, MetricType::Gauge)?;
        for (kind, objects) in &seen {
            let mut reasons = BTreeMap::<&str, i64>::new();
            for object in objects {
                *reasons.entry(&object.reason).or_default() += 1;
            }
            for (reason, count) in reasons {
                let labels = OfReady { kind: (*kind).clone(), reason: Cow::Owned(reason.to_owned()) };
                family.encode_family(&labels)?.encode_gauge(&count)?;
            }
        }
        let help = "Objects that differ from their manifest now";
        let mut family = encoder.encode_descriptor("drifted_objects", help, None, MetricType::Gauge)?;
        for (kind, objects) in &seen {
            let labels = OfKind { kind: (*kind).clone() };
            let count = objects.iter().filter(|it| it.is_drifted).count();
            family.encode_family(&labels)?.encode_gauge(&i64::try_from(count).unwrap_or(i64::MAX))?;
        }
        Ok(())
    }
}
