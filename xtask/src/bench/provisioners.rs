//! Works on provisioners: a burst, nothing to do, a restart, deletion.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
    runtime::watcher::Event,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Outcome, burst,
    cluster::{Cluster, LIMIT, Progress, condition, events, is_current},
    fixture::{AT_ONCE, Bench, Fixture},
    meter::{Measured, Meter},
    works::Work,
};
use crate::terminal::say;

const KIND: &str = "CoderProvisioner";
const KEYS: &str = "/api/v2/organizations/default/provisionerkeys";
/// The time to which `idle` is scaled.
const IDLE_SCALE_SECONDS: f64 = 600.0;

/// Runs one burst in a fixture of its own, and then the works that continue from it.
pub(super) async fn run(bench: &Bench<'_>, works: &[Work], outcome: &mut Outcome) -> Result<()> {
    let mut fixture = Fixture::connected(bench).await?;
    for work in works {
        say(&format!("measuring {}", work.name()));
        let measured = match work {
            Work::Idle => idle(&fixture).await?,
            Work::Restart => restart(&mut fixture, KIND, work.objects()).await?,
            Work::Delete200 => delete(&fixture).await?,
            _ => burst(&fixture, work.objects()).await?,
        };
        outcome.add(*work, measured);
    }
    fixture.end().await
}

/// Applies provisioners side by side, waits until all have converged, and proves their keys.
async fn burst(fixture: &Fixture<'_>, count: u32) -> Result<Measured> {
    let manifests: Vec<Value> = (0..count).map(|number| manifest(fixture, number)).collect();
    let waiting = wait_until_converged(&fixture.cluster, manifests.len());
    let measured = burst::measure(fixture, &manifests, waiting).await?;
    prove_keys(fixture, manifests.len()).await?;
    Ok(measured)
}

fn manifest(fixture: &Fixture<'_>, number: u32) -> Value {
    let replicas = u32::from(number < fixture.bench.daemons);
    // Daemons connect past the proxy: their requests are not the operator's.
    let direct = json!([{"name": "CODER_URL", "value": fixture.coderd.owner.url}]);
    let spec = json!({"controlPlaneRef": {"name": "main"}, "image": fixture.bench.bed.info().image("bed/coder"),
        "replicas": replicas, "terminationGracePeriodSeconds": 5, "extraEnv": direct});
    json!({"apiVersion": "coder.com/v1alpha1", "kind": KIND, "metadata": {"name": format!("bench-{number:04}")},
        "spec": spec})
}

/// What is known of one provisioner.
#[derive(Debug, Default)]
struct Seen {
    /// The checksum of the key in a status of this generation that reports key, Secret and Deployment.
    reported: Option<String>,
    /// The checksum on the pods of the Deployment.
    stamped: Option<String>,
}

impl Seen {
    fn is_converged(&self) -> bool {
        self.reported.is_some() && self.reported == self.stamped
    }
}

/// Waits until provisioners have converged, and returns when each of them did.
async fn wait_until_converged(cluster: &Cluster, count: usize) -> Result<BTreeMap<String, Timestamp>> {
    let mut progress = Progress::default();
    let mut seen = BTreeMap::<String, Seen>::new();
    let provisioners = events(cluster.kind(KIND)).map(|it| (true, it));
    let deployments = events(cluster.of("apps/v1", "Deployment")).map(|it| (false, it));
    let mut both = stream::select(provisioners.boxed(), deployments.boxed());
    let waiting = async {
        while progress.done() < count {
            let Some((is_provisioner, event)) = both.next().await else { bail!("the watches ended") };
            let (Event::Apply(object) | Event::InitApply(object)) = event else { continue };
            let name = if is_provisioner { Some(object.name_any()) } else { owner(&object) };
            let Some(name) = name else { continue };
            let known = seen.entry(name.clone()).or_default();
            if is_provisioner {
                known.reported = reported(&object);
            } else {
                known.stamped = stamped(&object);
            }
            progress.note(&name, &object.data["status"], known.is_converged());
        }
        Ok(())
    };
    let waited = timeout(LIMIT, waiting).await;
    progress.ended(waited, "CoderProvisioner converged", count)
}

/// Returns the checksum of the key that a status of this generation reports, beside its Secret and its Deployment.
fn reported(object: &DynamicObject) -> Option<String> {
    let status = &object.data["status"];
    let is = |kind: &str| condition(object, kind) == Some("True");
    let has_key = is(api::condition::PROVISIONER_KEY) && status["provisionerKeyID"].is_string();
    let has_secret = is(api::condition::PROVISIONER_KEY_SECRET) && status["secretRef"]["name"].is_string();
    // Pods may still be on their way.
    let has_deployment = condition(object, api::condition::DEPLOYMENT).is_some_and(|it| it != "Unknown");
    let is_whole = is_current(object) && has_key && has_secret && has_deployment;
    let checksum = status["provisionerKeyChecksum"].as_str().filter(|_| is_whole);
    checksum.map(str::to_owned)
}

fn stamped(deployment: &DynamicObject) -> Option<String> {
    let annotations = &deployment.data["spec"]["template"]["metadata"]["annotations"];
    annotations[api::annotation::PROVISIONER_KEY_CHECKSUM].as_str().map(str::to_owned)
}

/// Returns the provisioner that owns an object.
fn owner(object: &DynamicObject) -> Option<String> {
    let owners = object.metadata.owner_references.iter().flatten();
    owners.into_iter().find(|it| it.kind == KIND).map(|it| it.name.clone())
}

/// Proves with each Secret that coderd accepts the key in it, and that it is the one that the status names.
async fn prove_keys(fixture: &Fixture<'_>, count: usize) -> Result<()> {
    let found =
        fixture.cluster.kind(KIND).list(&ListParams::default()).await.context("list provisioners")?.items;
    ensure!(found.len() == count, "{} of {count} provisioners are there", found.len());
    let http = reqwest::Client::builder().no_proxy().build().context("make an HTTP client")?;
    let secrets = fixture.cluster.of("v1", "Secret");
    let proving = found.iter().map(|it| prove_key(it, &secrets, &http, &fixture.coderd.owner.url));
    stream::iter(proving).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let keys = fixture.get(KEYS).await?;
    let keys = keys.as_array().map_or(0, Vec::len);
    ensure!(keys == count, "coderd has {keys} keys for {count} provisioners");
    Ok(())
}

async fn prove_key(
    provisioner: &DynamicObject,
    secrets: &Api<DynamicObject>,
    http: &reqwest::Client,
    url: &str,
) -> Result<()> {
    let status = &provisioner.data["status"];
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let (name, key) = (text(&status["secretRef"]["name"]), text(&status["secretRef"]["key"]));
    let secret = secrets.get(&name).await.with_context(|| format!("read Secret {name}"))?;
    let value: k8s_openapi::ByteString = serde_json::from_value(secret.data["data"][&key].clone())
        .with_context(|| format!("Secret {name} has no {key}"))?;
    let request = http.get(format!("{url}/api/v2/provisionerkeys/x"));
    let answer =
        request.header("Coder-Provisioner-Daemon-Key", value.0).send().await.context("prove a key")?;
    ensure!(answer.status().is_success(), "the key in Secret {name} is not valid: {}", answer.status());
    let known: Value = answer.json().await.context("read the answer to a key")?;
    ensure!(
        known["id"] == status["provisionerKeyID"],
        "Secret {name} holds another key than the status names"
    );
    Ok(())
}

/// Counts while nothing changes; scaled to ten minutes.
async fn idle(fixture: &Fixture<'_>) -> Result<Measured> {
    let meter = Meter::start(fixture).await?;
    let began = Instant::now();
    sleep(fixture.bench.idle).await;
    let seconds = began.elapsed().as_secs_f64();
    let mut measured = meter.stop_at_once(fixture, seconds)?;
    measured.figures.scale(IDLE_SCALE_SECONDS / seconds);
    Ok(measured)
}

/// Restarts the operator, and waits until each object of a kind has been reconciled.
pub(super) async fn restart(fixture: &mut Fixture<'_>, kind: &str, count: u32) -> Result<Measured> {
    fixture.stop_operator().await?;
    let meter = Meter::start(fixture).await?;
    let began = Instant::now();
    fixture.start_operator().await?;
    fixture.operator()?.wait_until_reconciled(kind, count).await?;
    let seconds = began.elapsed().as_secs_f64();
    meter.stop(fixture, seconds).await
}

/// Deletes all provisioners side by side, and waits until they are gone.
async fn delete(fixture: &Fixture<'_>) -> Result<Measured> {
    let provisioners = fixture.cluster.kind(KIND);
    let found = provisioners.list_metadata(&ListParams::default()).await.context("list provisioners")?.items;
    let names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
    let meter = Meter::start(fixture).await?;
    let began = Timestamp::now();
    let deleting = stream::iter(&names).map(|it| fixture.cluster.delete(KIND, it));
    let deleting = deleting.buffer_unordered(AT_ONCE).try_collect::<()>();
    let ((), gone) = tokio::try_join!(deleting, fixture.cluster.wait_until_gone(KIND))?;
    let last = gone.values().max().copied().unwrap_or(began);
    let measured = meter.stop(fixture, last.duration_since(began).as_secs_f64()).await?;
    let keys = fixture.get(KEYS).await?;
    ensure!(keys.as_array().is_some_and(Vec::is_empty), "keys are left in coderd: {keys}");
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provisioner(status: &Value) -> DynamicObject {
        let whole = json!({"apiVersion": "coder.com/v1alpha1", "kind": KIND,
            "metadata": {"name": "alpha", "generation": 2}, "status": status});
        serde_json::from_value(whole).unwrap()
    }

    fn status(generation: i64, deployment: &str) -> Value {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        json!({"observedGeneration": generation, "provisionerKeyID": "1", "provisionerKeyChecksum": "abc",
            "secretRef": {"name": "alpha-provisioner-key", "key": "key"},
            "conditions": [condition("ProvisionerKeyReady", "True"), condition("ProvisionerKeySecretReady", "True"),
                condition("DeploymentReady", deployment)]})
    }

    #[test]
    fn status_counts_at_its_generation_with_key_secret_and_deployment() {
        assert_eq!(reported(&provisioner(&status(2, "False"))).as_deref(), Some("abc"));
        assert_eq!(reported(&provisioner(&status(1, "True"))), None);
        assert_eq!(reported(&provisioner(&status(2, "Unknown"))), None);
        assert_eq!(reported(&provisioner(&Value::Null)), None);
    }

    #[test]
    fn provisioner_has_converged_when_the_stamp_is_the_reported_checksum() {
        let seen = |reported: Option<&str>, stamped: Option<&str>| Seen {
            reported: reported.map(str::to_owned),
            stamped: stamped.map(str::to_owned),
        };
        assert!(seen(Some("abc"), Some("abc")).is_converged());
        assert!(!seen(Some("abc"), Some("old")).is_converged());
        assert!(!seen(None, None).is_converged());
    }
}
