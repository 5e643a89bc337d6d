//! What is counted of control planes: what they were asked, what they answered, and whether they answer.
//!
//! Everything of one plane is one value, so that it goes with the plane. A request that is still under way then is counted
//! in that value and shown nowhere.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use client::{
    Observer,
    observer::{Attempted, CircuitState, Ending},
    routes::Route,
};
use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, NoLabelSet},
    metrics::{MetricType, histogram::Histogram},
    registry::Unit,
};

use super::{
    BOUNDS,
    licences::{self, Figures},
};
use crate::{planes::PlaneName, sent};

/// The counts of all control planes that are declared.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlaneCounts(Arc<Mutex<BTreeMap<PlaneName, Arc<Counts>>>>);

impl PlaneCounts {
    /// The counts of one, from nothing where there are none.
    pub(crate) fn of(&self, plane: &PlaneName) -> Arc<Counts> {
        Arc::clone(lock(&self.0).entry(plane.clone()).or_default())
    }

    pub(crate) fn forget(&self, plane: &PlaneName) {
        lock(&self.0).remove(plane);
    }

    fn all(&self) -> Vec<(PlaneName, Arc<Counts>)> {
        lock(&self.0).iter().map(|(name, counts)| (name.clone(), Arc::clone(counts))).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counts of one control plane.
#[derive(Debug)]
pub(crate) struct Counts {
    requests: Mutex<BTreeMap<Asked, u64>>,
    took: Histogram,
    circuit: Mutex<Option<CircuitState>>,
    tried: Mutex<Tried>,
    licences: Mutex<Option<Figures>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Tried {
    is_up: Option<bool>,
    last_success: Option<i64>,
    token_ends: Option<i64>,
}

impl Default for Counts {
    fn default() -> Self {
        let (requests, circuit, tried) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { requests, took: Histogram::new(BOUNDS), circuit, tried, licences: Mutex::default() }
    }
}

impl Counts {
    pub(crate) fn licensed(&self, figures: Figures) {
        *lock(&self.licences) = Some(figures);
    }

    pub(crate) fn token_ends(&self, ends: Option<Timestamp>) {
        lock(&self.tried).token_ends = ends.map(Timestamp::as_second);
    }

    pub(crate) fn tried(&self, works: bool, now: Timestamp) {
        let mut tried = lock(&self.tried);
        tried.is_up = Some(works);
        if works {
            tried.last_success = Some(now.as_second());
        }
    }
}

impl Observer for Counts {
    fn sends(&self, route: &'static Route) {
        sent::sends(route);
    }

    fn attempted(&self, attempt: Attempted) {
        let Attempted { route, ending, took } = attempt;
        let status = match ending {
            Ending::Answered(status) => Status::Number(status.as_u16()),
            _ => Status::Word(ending.word().unwrap_or_default()),
        };
        let asked = Asked { method: route.method().as_str(), route: route.path(), status };
        *lock(&self.requests).entry(asked).or_default() += 1;
        if !matches!(ending, Ending::CircuitOpen | Ending::ShareUsed) {
            self.took.observe(took.as_secs_f64());
        }
    }

    fn circuit(&self, state: CircuitState) {
        *lock(&self.circuit) = Some(state);
    }
}

/// What was asked, and how that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    method: &'static str,
    route: &'static str,
    status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Number(u16),
    Word(&'static str),
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(formatter),
            Self::Word(word) => word.fmt(formatter),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPlane {
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRequest {
    namespace: String,
    name: String,
    method: &'static str,
    route: &'static str,
    status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    namespace: String,
    name: String,
    state: &'static str,
}

fn of((namespace, name): &PlaneName) -> OfPlane {
    OfPlane { namespace: namespace.clone(), name: name.clone() }
}

impl Collector for PlaneCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let planes = self.all();
        encode_requests(&mut encoder, &planes)?;
        encode_durations(&mut encoder, &planes)?;
        encode_circuits(&mut encoder, &planes)?;
        encode_tries(&mut encoder, &planes)?;
        let figures =
            |(name, it): &(PlaneName, Arc<Counts>)| Some((name.clone(), lock(&it.licences).clone()?));
        licences::encode(&mut encoder, &planes.iter().filter_map(figures).collect::<Vec<_>>())
    }
}

type Planes = [(PlaneName, Arc<Counts>)];

fn encode_requests(encoder: &mut DescriptorEncoder<'_>, planes: &Planes) -> fmt::Result {
    let help = "Requests to coderd, including retries and requests that were not sent";
    let mut family = encoder.encode_descriptor("coder_requests", help, None, MetricType::Counter)?;
    for (plane, counts) in planes {
        for (Asked { method, route, status }, count) in &*lock(&counts.requests) {
            let OfPlane { namespace, name } = of(plane);
            let labels = OfRequest { namespace, name, method, route, status: status.to_string() };
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
    }
    Ok(())
}

fn encode_durations(encoder: &mut DescriptorEncoder<'_>, planes: &Planes) -> fmt::Result {
    let (name, help) = ("coder_request_duration", "How long requests that were sent to coderd took");
    let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (plane, counts) in planes {
        counts.took.encode(family.encode_family(&of(plane))?)?;
    }
    Ok(())
}

fn encode_circuits(encoder: &mut DescriptorEncoder<'_>, planes: &Planes) -> fmt::Result {
    let help = "1 for the current state of the circuit breaker of a control plane";
    let mut family = encoder.encode_descriptor("coder_circuit", help, None, MetricType::Gauge)?;
    for (plane, counts) in planes {
        let Some(now) = *lock(&counts.circuit) else { continue };
        let states =
            [(CircuitState::Closed, "closed"), (CircuitState::Open, "open"), (CircuitState::Trial, "trial")];
        for (state, word) in states {
            let OfPlane { namespace, name } = of(plane);
            let labels = OfState { namespace, name, state: word };
            family.encode_family(&labels)?.encode_gauge(&i64::from(now == state))?;
        }
    }
    Ok(())
}

fn encode_tries(encoder: &mut DescriptorEncoder<'_>, planes: &Planes) -> fmt::Result {
    let tries: Vec<(OfPlane, Tried)> =
        planes.iter().map(|(plane, counts)| (of(plane), *lock(&counts.tried))).collect();
    let help = "Whether coderd answers and accepts the credentials";
    gauge(encoder, &tries, ("control_plane_up", help, None), |it| it.is_up.map(i64::from))?;
    let (name, help) = ("control_plane_last_success_timestamp", "Time of the last success");
    gauge(encoder, &tries, (name, help, Some(&Unit::Seconds)), |it| it.last_success)?;
    let (name, help) = ("control_plane_token_expiry_timestamp", "When the supplied token expires");
    gauge(encoder, &tries, (name, help, Some(&Unit::Seconds)), |it| it.token_ends)
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    tries: &[(OfPlane, Tried)],
    (name, help, unit): (&str, &str, Option<&Unit>),
    value: impl Fn(&Tried) -> Option<i64>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (labels, tried) in tries {
        if let Some(value) = value(tried) {
            family.encode_family(labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}
