//! A Secret that is lost and restored from an older backup: the live key lives, and a request gives a new one.

use api::CoderProvisionerKey;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        operator::Operator,
        provisioner::{keys, revocations},
        proxy::Proxy,
        stage::{Stage, is_held_up, is_ready, until, words},
    },
    KIND, key, name_of, proof,
};

/// One of the keys, and what is done to it.
struct Case {
    name: &'static str,
    /// Whether the old key is revoked by the time the backup is restored.
    is_over: bool,
    /// Whether the status is lost too.
    loses_status: bool,
}

const CASES: [Case; 4] = [
    Case { name: "within", is_over: false, loses_status: false },
    Case { name: "within-bare", is_over: false, loses_status: true },
    Case { name: "after", is_over: true, loses_status: false },
    Case { name: "after-bare", is_over: true, loses_status: true },
];

impl Case {
    fn manifest(&self) -> Value {
        let overlap = if self.is_over { "10s" } else { "1h" };
        let mut manifest = key(&json!({"rotation": {"overlap": overlap}}));
        manifest["metadata"]["name"] = json!(self.name);
        manifest
    }

    fn secret(&self) -> String {
        format!("{}-provisioner-key", self.name)
    }

    async fn stored(&self, stage: &Stage) -> Secret {
        stage.api::<Secret>().get(&self.secret()).await.unwrap()
    }

    async fn value(&self, stage: &Stage) -> String {
        let secret = self.stored(stage).await;
        String::from_utf8(secret.data.unwrap()["key"].0.clone()).unwrap()
    }

    async fn rotate(&self, stage: &Stage) {
        let now = uuid::Uuid::new_v4().to_string();
        stage.annotate(KIND, self.name, api::annotation::ROTATE_REQUESTED_AT, Some(&now)).await;
    }

    async fn wait(&self, stage: &Stage, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        stage.wait::<CoderProvisionerKey>(self.name, what, is).await
    }

    /// Waits until the key in use is of that generation, and no other one is valid if the overlap is over by then.
    async fn has_generation(&self, stage: &Stage, generation: u32) -> Value {
        let end = format!("-{generation}");
        let is = |it: &Value| {
            let name = it["status"]["provisionerKeyName"].as_str().unwrap_or_default();
            is_ready(it) && name.ends_with(&end) && (!self.is_over || it["status"]["retiringKeys"].is_null())
        };
        self.wait(stage, "rotated", is).await
    }

    /// The Secret as a backup brings it back.
    async fn restore(&self, stage: &Stage, backup: &Secret) {
        let mut secret = backup.clone();
        secret.metadata.resource_version = None;
        secret.metadata.uid = None;
        secret.metadata.managed_fields = None;
        stage.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    }

    async fn lose_status(&self, stage: &Stage) {
        let empty = Patch::Merge(json!({"status": null}));
        stage.kind(KIND).patch_status(self.name, &PatchParams::default(), &empty).await.unwrap();
    }
}

/// Restores every Secret, and takes the status of some.
async fn restore_all(stage: &Stage, backups: &[Secret]) {
    for (case, backup) in CASES.iter().zip(backups) {
        case.restore(stage, backup).await;
        if case.loses_status {
            case.lose_status(stage).await;
        }
    }
}

/// Each object reports the older Secret, and over time nothing is minted or revoked.
async fn all_are_held(stage: &Stage, proxy: &Proxy, live: &[String]) {
    let (writes, before) = (proxy.writes(), keys(&stage.coderd).await);
    for (case, live) in CASES.iter().zip(live) {
        let told = case.wait(stage, "outdated", is_held_up("SecretOutdated")).await;
        for part in [live.as_str(), case.name, "restore the newer Secret", "coder.com/rotate-requested-at"] {
            assert!(words(&told).contains(part), "{part}: {}", words(&told));
        }
        assert_eq!(name_of(&told), *live, "the status names the live key");
    }
    // More time than an overlap of ten seconds goes by, and everybody is looked at again and again.
    let lists = proxy.reads("/provisionerkeys/daemons");
    until("looked at", || proxy.reads("/provisionerkeys/daemons") >= lists + 2).await;
    for (case, live) in CASES.iter().zip(live) {
        let told = stage.look_again(KIND, case.name).await;
        assert!(is_held_up("SecretOutdated")(&told), "{told:#}");
        assert!(keys(&stage.coderd).await.contains(live), "{live} is gone");
    }
    assert_eq!((proxy.writes(), keys(&stage.coderd).await), (writes, before));
}

#[tokio::test]
async fn a_restored_backup_does_not_cost_the_live_key_and_is_reported() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let mut stage = Stage::at(coderd, &proxy.url).await;
    let (mut backups, mut live, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for case in &CASES {
        stage.apply(&case.manifest()).await;
    }
    for case in &CASES {
        case.wait(&stage, "ready", is_ready).await;
        backups.push(case.stored(&stage).await);
        case.rotate(&stage).await;
    }
    for case in &CASES {
        live.push(name_of(&case.has_generation(&stage, 2).await));
        values.push(case.value(&stage).await);
        if case.is_over {
            let why = format!("provisioner key {} was revoked: key {}", case.name, live.last().unwrap());
            assert_eq!(revocations(&stage, case.name).await, [format!("{why} has replaced it")]);
            stage.operator.says(&["was revoked", case.name, "has replaced it"]).await;
        }
    }
    let newer: Vec<Secret> = futures::future::join_all(CASES.iter().map(|it| it.stored(&stage))).await;

    // The Secrets are lost while the operator runs; the remedies are named.
    let secrets = stage.api::<Secret>();
    for case in &CASES {
        secrets.delete(&case.secret(), &DeleteParams::default()).await.unwrap();
        let told = case.wait(&stage, "missing", is_held_up("SecretMissing")).await;
        for part in ["restore the newest copy", "coder.com/rotate-requested-at", &case.secret()] {
            assert!(words(&told).contains(part), "{part}: {}", words(&told));
        }
    }
    restore_all(&stage, &backups).await;
    all_are_held(&stage, &proxy, &live).await;

    // The same while no operator runs, so that nothing is remembered but what is in the cluster.
    stage.operator.process.kill().unwrap();
    stage.operator.ended().await;
    for case in &CASES {
        secrets.delete(&case.secret(), &DeleteParams::default()).await.unwrap();
    }
    restore_all(&stage, &backups).await;
    stage.operator = Operator::start(&stage.namespace, &[]);
    all_are_held(&stage, &proxy, &live).await;
    for (live, value) in live.iter().zip(&values) {
        assert_eq!(proof(&stage, value).await.as_ref(), Some(live), "whoever has it goes on");
    }

    // One remedy: the newer Secret.
    secrets.delete(&CASES[0].secret(), &DeleteParams::default()).await.unwrap();
    CASES[0].restore(&stage, &newer[0]).await;
    let well = CASES[0].wait(&stage, "ready", is_ready).await;
    assert_eq!(name_of(&well), live[0]);

    // The other one: a new key, which replaces the restored value. The live one stays for its overlap.
    for case in &CASES[1..] {
        case.rotate(&stage).await;
    }
    for (case, live) in CASES.iter().zip(&live).skip(1) {
        let turned = case.has_generation(&stage, 3).await;
        assert_eq!(proof(&stage, &case.value(&stage).await).await, Some(name_of(&turned)));
        assert_eq!(keys(&stage.coderd).await.contains(live), !case.is_over, "{live}");
    }
}
