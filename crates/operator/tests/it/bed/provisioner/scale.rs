//! What two hundred provisioners cost: requests to coderd, writes to Kubernetes, time and memory.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use api::annotation::{RECONCILE_REQUESTED_AT, ROTATE_REQUESTED_AT};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        operator::requests,
        proxy::Proxy,
        stage::{Stage, eventually, is_ready},
    },
    keys, provisioner,
};

/// How many the test asks for at once.
const AT_ONCE: usize = 16;
/// Far more than anything here takes, also where everything is slow; only a failure ever waits this long.
const LIMIT: Duration = Duration::from_mins(20);
/// How long a list is good for.
const LIST_LIVES: Duration = Duration::from_secs(10);
/// How many lists begin while requests arrive at once, whatever their number.
const FEW: usize = 10;

fn name(number: usize) -> String {
    format!("scale-{number}")
}

async fn create(stage: &Stage, numbers: std::ops::Range<usize>) {
    let apply = |number: usize| async move {
        // Real daemons are large: two of them are enough to see that they come.
        let replicas = usize::from(number < 2);
        // What daemons ask is not counted.
        let around = json!([{"name": "CODER_URL", "value": stage.coderd.owner.url}]);
        let spec = json!({"replicas": replicas, "interval": "1h", "extraEnv": around});
        stage.apply(&provisioner(&name(number), &spec)).await;
    };
    stream::iter(numbers).map(apply).buffer_unordered(AT_ONCE).collect::<()>().await;
}

async fn annotate(stage: &Stage, count: usize, annotation: &str, value: &str) {
    let annotate = |number| async move {
        stage.annotate("CoderProvisioner", &name(number), annotation, Some(value)).await;
    };
    stream::iter(0..count).map(annotate).buffer_unordered(AT_ONCE).collect::<()>().await;
}

/// Waits until all of them are like that.
async fn all(stage: &Stage, count: usize, what: &str, is: impl Fn(&Value) -> bool) {
    let since = Instant::now();
    loop {
        let found = stage.kind("CoderProvisioner").list(&ListParams::default()).await.unwrap().items;
        let found: Vec<Value> = found.iter().map(|it| serde_json::to_value(it).unwrap()).collect();
        let others: Vec<&Value> = found.iter().filter(|it| !is(it)).collect();
        if found.len() == count && others.is_empty() {
            return;
        }
        assert!(since.elapsed() < LIMIT, "{} are not {what}, such as {:#?}", others.len(), others.first());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// What happened between two moments.
struct Cost {
    /// Requests about keys, and all of them, without those that the control plane makes for itself.
    requests: BTreeMap<String, usize>,
    writes: BTreeMap<String, usize>,
    /// Reads of the API server, as `VERB RESOURCE`.
    reads: BTreeMap<String, usize>,
    took: Duration,
}

impl Cost {
    fn asked(&self, what: &str) -> usize {
        self.requests.get(what).copied().unwrap_or_default()
    }
}

struct Meter<'a> {
    stage: &'a Stage,
    proxy: &'a Proxy,
    since: (usize, usize, Instant),
}

impl<'a> Meter<'a> {
    async fn start(stage: &'a Stage, proxy: &'a Proxy) -> Self {
        let sent = requests(&stage.namespace).await.len();
        let since = (proxy.requests().len(), sent, Instant::now());
        Self { stage, proxy, since }
    }

    #[expect(clippy::print_stderr, reason = "it says what it measured")]
    async fn read(self, what: &str, count: usize) -> Cost {
        let (asked_before, sent_before, since) = self.since;
        let took = since.elapsed();
        let mut asked = BTreeMap::<String, usize>::new();
        for it in self.proxy.requests().iter().skip(asked_before) {
            let is_keys = it.path.contains("provisionerkeys");
            let what = if !is_keys {
                it.path.rsplit('/').next().unwrap_or_default()
            } else if it.path.ends_with("/daemons") {
                "list"
            } else if it.path.ends_with("/own") {
                "prove"
            } else {
                it.method.as_str()
            };
            *asked.entry(what.to_owned()).or_default() += 1;
        }
        let mut written = BTreeMap::<String, usize>::new();
        let mut reads = BTreeMap::<String, usize>::new();
        for it in requests(&self.stage.namespace).await.iter().skip(sent_before) {
            let text = |field: &str| it["objectRef"][field].as_str().unwrap_or_default().to_owned();
            let verb = it["verb"].as_str().unwrap_or_default();
            if ["get", "list"].contains(&verb) {
                *reads.entry(format!("{verb} {}", text("resource"))).or_default() += 1;
            } else {
                *written.entry(format!("{} {}", text("resource"), text("subresource"))).or_default() += 1;
            }
        }
        let total: usize = written.values().sum();
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let each = |it: usize| it as f64 / count as f64;
        eprintln!(
            "{what}, {count}: {:.1} s, {:.2} requests and {:.2} writes each; requests {asked:?}; writes {written:?}; reads {reads:?}; {}",
            took.as_secs_f64(),
            each(asked.values().sum()),
            each(total),
            memory(self.stage)
        );
        Cost { requests: asked, writes: written, reads, took }
    }
}

/// The operator's memory as the kernel counts it.
fn memory(stage: &Stage) -> String {
    let path = format!("/proc/{}/status", stage.operator.process.id());
    let status = std::fs::read_to_string(path).unwrap_or_default();
    let line = status.lines().find(|it| it.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn created(stage: &Stage, proxy: &Proxy, numbers: std::ops::Range<usize>) -> Cost {
    let (meter, there) = (Meter::start(stage, proxy).await, numbers.end);
    let count = numbers.len();
    create(stage, numbers).await;
    all(stage, there, "ready", is_ready).await;
    meter.read("create", count).await
}

/// A requested reconcile of each of them in which there is nothing to do. The operator sees all requests at once.
async fn converged(stage: &Stage, proxy: &Proxy, count: usize) -> Cost {
    stage.operator.tell("-STOP");
    let request = format!("converged-{count}");
    annotate(stage, count, RECONCILE_REQUESTED_AT, &request).await;
    let meter = Meter::start(stage, proxy).await;
    stage.operator.tell("-CONT");
    all(stage, count, "looked at", |it| it["status"]["lastHandledReconcileAt"] == request).await;
    meter.read("converged", count).await
}

/// How often the operator has sent each kind of request since then, as `VERB RESOURCE CODE`.
async fn sent(stage: &Stage, since: usize) -> BTreeMap<String, usize> {
    let mut sent = BTreeMap::new();
    for it in requests(&stage.namespace).await.iter().skip(since) {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let code = &it["responseStatus"]["code"];
        let request = format!("{} {} {code}", text(&it["verb"]), text(&it["objectRef"]["resource"]));
        *sent.entry(request).or_default() += 1;
    }
    sent
}

#[tokio::test]
async fn deletions_at_the_same_time_share_their_reads() {
    const COUNT: usize = 50;
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    // None of these has daemons.
    create(&stage, 2..2 + COUNT).await;
    all(&stage, COUNT, "ready", is_ready).await;
    stage.operator.tell("-STOP");
    let before = requests(&stage.namespace).await.len();
    let meter = Meter::start(&stage, &proxy).await;
    let names: Vec<String> = (2..2 + COUNT).map(name).collect();
    let delete = stream::iter(&names).map(|it| stage.delete("CoderProvisioner", it));
    delete.buffer_unordered(AT_ONCE).collect::<()>().await;
    stage.operator.tell("-CONT");
    all(&stage, 0, "gone", |_| true).await;
    let cost = meter.read("delete", COUNT).await;
    // Deployments go, Secrets and accounts are deleted by their owner references: all of that wakes the provisioners again.
    let deployments = stage.api::<Deployment>();
    eventually(
        "no Deployments",
        || async { deployments.list_metadata(&ListParams::default()).await.unwrap().items.len() },
        |it| *it == 0,
    )
    .await;
    let sent = sent(&stage, before).await;
    let of = |request: &str| sent.get(request).copied().unwrap_or_default();
    assert_eq!(of("delete deployments 200"), COUNT, "{sent:?}");
    assert_eq!(of("patch coderprovisioners 200"), COUNT, "one finalizer each: {sent:?}");
    let is_read = |it: &str| it.starts_with("get ") || it.starts_with("list ");
    // The control plane reads its credentials for itself when it is reconciled meanwhile.
    let is_shared = |it: &str| ["list pods 200", "get secrets 200"].contains(&it) && of(it) <= FEW;
    let reads = sent.keys().filter(|it| is_read(it) && !is_shared(it));
    assert_eq!(reads.collect::<Vec<_>>(), [""; 0], "{sent:?}");
    let refused = sent.keys().filter(|it| !it.ends_with(" 200") && !it.ends_with(" 201"));
    assert_eq!(refused.collect::<Vec<_>>(), [""; 0], "{sent:?}");
    assert_eq!(cost.asked("DELETE"), COUNT, "{:?}", cost.requests);
    assert!(cost.asked("list") <= FEW, "{:?}", cost.requests);
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
}

#[tokio::test]
async fn two_hundred_provisioners_cost_what_they_need_and_nothing_when_nothing_is_to_be_done() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    Meter::start(&stage, &proxy).await.read("nothing", 1).await;
    let first = created(&stage, &proxy, 0..100).await;
    let half = converged(&stage, &proxy, 100).await;
    let second = created(&stage, &proxy, 100..200).await;
    let whole = converged(&stage, &proxy, 200).await;
    for cost in [&first, &second] {
        assert_eq!(cost.asked("POST"), 100, "one key each: {:?}", cost.requests);
        assert_eq!(cost.asked("prove"), 0, "the answer is the proof: {:?}", cost.requests);
        // Lists are shared, however many provisioners there are: one a second for the ids of keys, all others while they are young.
        let seconds = usize::try_from(cost.took.as_secs()).unwrap();
        assert!(cost.asked("list") <= seconds + FEW, "{:?} in {:?}", cost.requests, cost.took);
        // The control plane reads for itself, too, each time that it is reconciled.
        let lives = usize::try_from(cost.took.as_secs() / LIST_LIVES.as_secs()).unwrap();
        let at_most = cost.asked("me") + 2 * lives + FEW;
        let others = cost.asked("organizations").max(cost.asked("buildinfo"));
        assert!(others <= at_most, "{:?} in {:?}", cost.requests, cost.took);
        let written = |what: &str| cost.writes.get(what).copied().unwrap_or_default();
        for once in
            ["coderprovisioners ", "secrets ", "deployments ", "roles ", "rolebindings ", "serviceaccounts "]
        {
            assert_eq!(written(once), 100, "{once}: {:?}", cost.writes);
        }
        assert!(written("events ") <= 100 + FEW, "one Event each: {:?}", cost.writes);
        // The creation of an object finds out whether its name is free. The Secret of the key is read first.
        let (gets, lists): (Vec<_>, Vec<_>) = cost.reads.iter().partition(|it| it.0.starts_with("get "));
        assert!(gets.iter().map(|it| it.1).sum::<usize>() <= 100 + FEW, "{:?}", cost.reads);
        assert!(lists.iter().all(|it| *it.1 <= seconds + FEW), "shared: {:?}", cost.reads);
    }
    for cost in [&half, &whole] {
        // The answer to the request is the one write. A list that began after the requests serves all of them.
        assert_eq!(cost.writes.keys().collect::<Vec<_>>(), ["coderprovisioners status"], "{:?}", cost.writes);
        let lists = usize::try_from(cost.took.as_secs() / LIST_LIVES.as_secs()).unwrap();
        assert!(cost.asked("list") <= lists + FEW, "{:?} in {:?}", cost.requests, cost.took);
        assert_eq!((cost.asked("prove"), cost.asked("POST")), (0, 0), "{:?}", cost.requests);
    }
    assert_eq!(keys(&stage.coderd).await.len(), 200);

    let meter = Meter::start(&stage, &proxy).await;
    annotate(&stage, 200, ROTATE_REQUESTED_AT, "now").await;
    let turned = |it: &Value| {
        it["status"]["lastHandledRotateAt"] == "now" && it["status"]["retiringKeys"].is_null() && is_ready(it)
    };
    all(&stage, 200, "rotated", turned).await;
    let rotation = meter.read("rotation", 200).await;
    assert_eq!((rotation.asked("POST"), rotation.asked("DELETE")), (200, 200));
    assert_eq!(keys(&stage.coderd).await.len(), 200);
}
