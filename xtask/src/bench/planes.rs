//! Works without other objects: an operator that has nothing to do, and a control plane with its first licence.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::{
    Outcome,
    cluster::is_ready,
    figures::Measure,
    fixture::{Bench, Fixture},
    meter::Meter,
    works::Work,
};
use crate::terminal::say;

const KIND: &str = "CoderControlPlane";
const LICENSE: &str = "coder-license";

/// Starts an operator in a namespace without objects.
pub(super) async fn empty(bench: &Bench<'_>, outcome: &mut Outcome) -> Result<()> {
    say(&format!("measuring {}", Work::Empty.name()));
    let mut fixture = Fixture::bare(bench).await?;
    let meter = Meter::start(&fixture).await?;
    let began = Instant::now();
    fixture.start_operator().await?;
    let seconds = began.elapsed().as_secs_f64();
    let mut measured = meter.stop(&fixture, seconds).await?;
    let binary = bench.binary.metadata().context("find the operator's program")?.len();
    measured
        .figures
        .set(Measure::BinaryMegabytes, f64::from(u32::try_from(binary).unwrap_or(u32::MAX)) / 1e6);
    outcome.add(Work::Empty, measured);
    fixture.end().await
}

/// Applies a control plane that runs elsewhere, with a licence.
pub(super) async fn plane_and_license(bench: &Bench<'_>, outcome: &mut Outcome) -> Result<()> {
    say(&format!("measuring {}", Work::PlaneAndLicense.name()));
    let mut fixture = Fixture::bare(bench).await?;
    fixture.start_operator().await?;
    fixture.write_token().await?;
    fixture.write_secret(LICENSE, "license", &fixture.license().await?).await?;
    let mut plane = fixture.plane();
    plane["spec"]["licenseSecretRef"] = json!({"name": LICENSE});
    let meter = Meter::start(&fixture).await?;
    let began = Timestamp::now();
    fixture.cluster.apply(&plane).await?;
    let is_premium =
        |it: &kube::api::DynamicObject| is_ready(it) && it.data["status"]["licenseTier"] == "premium";
    let ready = fixture.cluster.wait_for(KIND, 1, "Ready and premium", is_premium).await?;
    let last = ready.values().max().copied().unwrap_or(began);
    let seconds = last.duration_since(began).as_secs_f64();
    let measured = meter.stop(&fixture, seconds).await?;
    let licenses = fixture.get("/api/v2/licenses").await?;
    ensure!(licenses.as_array().is_some_and(|it| it.len() == 1), "coderd has other licences: {licenses}");
    outcome.add(Work::PlaneAndLicense, measured);
    fixture.end().await
}
