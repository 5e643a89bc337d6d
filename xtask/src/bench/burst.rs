//! Objects that are applied side by side, measured until the last of them has converged.

use std::collections::BTreeMap;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    figures::Measure,
    fixture::{AT_ONCE, Fixture},
    meter::{Measured, Meter},
    timeline::Arrival,
};

/// Applies manifests while `waiting` waits for the objects and returns when each of them converged.
pub(super) async fn measure(
    fixture: &Fixture<'_>,
    manifests: &[Value],
    waiting: impl Future<Output = Result<BTreeMap<String, Timestamp>>>,
) -> Result<Measured> {
    let meter = Meter::start(fixture).await?;
    let began = Timestamp::now();
    let (applied, converged) = tokio::try_join!(apply_all(fixture, manifests), waiting)?;
    let last = converged.values().max().copied().unwrap_or(began);
    let mut measured = meter.stop(fixture, last.duration_since(began).as_secs_f64()).await?;
    let arrivals = converged.into_iter().filter_map(|(name, converged)| {
        let applied = *applied.get(&name)?;
        Some(Arrival { name, applied, converged })
    });
    measured.line.arrivals = arrivals.collect();
    if let Some(seconds) = measured.line.seconds_to(50) {
        measured.figures.set(Measure::SecondsToHalf, seconds);
    }
    Ok(measured)
}

/// Applies manifests side by side, and returns when each was sent.
async fn apply_all(fixture: &Fixture<'_>, manifests: &[Value]) -> Result<BTreeMap<String, Timestamp>> {
    let applying = stream::iter(manifests).map(|manifest| async move {
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let applied = Timestamp::now();
        fixture.cluster.apply(manifest).await.map(|()| (name, applied))
    });
    applying.buffer_unordered(AT_ONCE).try_collect().await
}
