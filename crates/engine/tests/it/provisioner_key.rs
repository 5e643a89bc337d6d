//! Keys for daemons that run elsewhere, in memory: what is planned, what is asked of coderd, and what never happens by itself.

use std::sync::Arc;

use engine::{
    Assessment, Cluster as _, Coder, Contact, Outcome, Report, Verdict,
    coder::Beside,
    secrets::{Held, Holder, Intent, KeyMemory, Record, Retiring, mirror::of_status},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sim::{ManualClock, MemoryCluster, state::ProvisionerKey};
use uuid::Uuid;

use crate::{
    examples, memory,
    support::{assess, holding, pass, subject},
    wire::Wire,
};

const HOME: &str = "00000000-0000-4000-8000-0000000000a0";
const SECRET: &str = "example-provisioner-key";
const UID: &str = "1a2b3c4d-5e6f-4711-8aaa-000000000001";

fn id(text: &str) -> Uuid {
    text.parse().unwrap()
}

/// A deployment and a cluster in memory, and a manifest.
struct Scene {
    wire: Arc<Wire>,
    clock: ManualClock,
    cluster: Arc<MemoryCluster>,
    memory: Arc<KeyMemory>,
    manifest: Value,
}

impl Scene {
    fn new() -> Self {
        let home = json!({HOME: {"name": "alpha", "display_name": "Alpha"}});
        let mut manifest = examples::of("CoderProvisionerKey");
        manifest["metadata"]["uid"] = UID.into();
        let clock = ManualClock::new(memory::start());
        let state = memory::described(&json!({"organizations": home}));
        let wire = Wire::to(memory::coder(clock.clock(), state));
        let cluster = Arc::new(MemoryCluster::new(clock.clock(), 1));
        Self { wire, clock, cluster, memory: Arc::default(), manifest }
    }

    /// What a pass that begins now sees.
    fn coder(&self) -> Coder {
        self.wire.coder().beside(Beside {
            cluster: Arc::clone(&self.cluster) as _,
            references: Arc::clone(&self.cluster) as _,
            memory: Arc::clone(&self.memory),
            writes_status: true,
            fingerprints: None,
            allowed_rules: None,
            tokens: Arc::default(),
        })
    }

    async fn look(&self) -> Assessment {
        assess(&self.manifest, &self.coder()).await
    }

    async fn pass(&self) -> Report {
        self.cluster.set(&self.manifest);
        pass(&self.manifest, &self.coder()).await
    }

    /// One pass that has to change something; the manifest holds what came of it.
    async fn applied(&mut self) {
        let report = self.pass().await;
        assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
        self.manifest = holding(&self.manifest, report.id.unwrap());
        let aside = self.look().await.aside;
        self.manifest["status"].as_object_mut().unwrap().extend(aside.status);
    }

    /// The reason for which a pass waits, having written nothing.
    async fn waits(&self) -> String {
        let before = self.wire.writes().len();
        let report = self.pass().await;
        assert_eq!(self.wire.writes().len(), before);
        match report.outcome {
            Outcome::Blocked(waiting) => waiting.reason.as_str().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, when: &str) {
        self.manifest["metadata"]["annotations"] = json!({"coder.com/rotate-requested-at": when});
    }

    fn later(&self, by: SignedDuration) {
        self.clock.advance(by);
    }

    /// The names of the keys in coderd.
    fn keys(&self) -> Vec<String> {
        let state = self.wire.deployment.state();
        let mut keys: Vec<_> =
            state.provisioner_keys.into_values().filter(|it| it.organization_id == id(HOME)).collect();
        keys.sort_by_key(|it| it.number);
        keys.into_iter().map(|it| it.name).collect()
    }

    /// A key with the declared tags that another client made.
    fn add_key(&self, name: &str, created_at: Timestamp) {
        let key = ProvisionerKey {
            id: id(UID),
            number: 0,
            organization_id: id(HOME),
            name: name.to_owned(),
            tags: [("cluster".to_owned(), "alpha-eks".to_owned())].into(),
            secret: "unknown".to_owned(),
            created_at,
        };
        self.wire.deployment.edit(|it| drop(it.provisioner_keys.insert(key.id, key)));
    }

    fn value(&self) -> Option<String> {
        let secret = self.cluster.find("Secret", SECRET)?;
        secret["data"]["key"].as_str().map(str::to_owned)
    }

    fn lose_secret(&self) {
        self.cluster.remove("Secret", SECRET);
    }

    /// What the status says of the keys.
    fn mirrored(&self) -> Record {
        let name = self.manifest["metadata"]["name"].as_str().unwrap();
        let object = self.cluster.find("CoderProvisionerKey", name).unwrap();
        of_status(&serde_json::from_value(object["status"].clone()).unwrap(), UID)
    }

    /// Changes the record in the Secret.
    fn edit_record(&self, edit: impl FnOnce(&mut Record)) {
        self.cluster.edit("Secret", SECRET, |secret| {
            let text = &mut secret["metadata"]["annotations"]["coder.com/provisioner-key"];
            let mut record = serde_json::from_str(text.as_str().unwrap()).unwrap();
            edit(&mut record);
            *text = serde_json::to_string(&record).unwrap().into();
        });
    }
}

/// A provisioner of the same name.
fn provisioner(uid: &str, status: &Value) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
        "metadata": {"name": "example", "namespace": "platform", "uid": uid},
        "spec": {"controlPlaneRef": {"name": "main"}}, "status": status})
}

/// What a plan shows: an action and the fields that it changes, for each step.
fn shown(assessment: &Assessment) -> Vec<(String, String)> {
    let step = |it: &engine::pipeline::plan::StepView| {
        let changes = it.changes.iter().map(|it| format!("{} {} {}", it.field, it.before, it.after));
        (format!("{:?}", it.action), changes.collect::<Vec<_>>().join("; "))
    };
    assessment.plan.steps.iter().map(step).collect()
}

#[tokio::test]
async fn a_key_is_made_once_and_its_plan_names_it() {
    let mut scene = Scene::new();
    let first = scene.look().await;
    assert_eq!(first.contact, Some(Contact::Absent));
    assert_eq!(first.plan.summary, "1 to create");
    assert!(first.plan.steps[0].reason.contains("a key named alpha-eks is created and written into Secret"));
    assert_eq!(scene.look().await.plan.hash, first.plan.hash, "the same plan has the same hash");
    scene.applied().await;
    assert_eq!(scene.keys(), ["alpha-eks"]);
    assert_eq!(scene.manifest["status"]["provisionerKeyName"], "alpha-eks");
    let value = scene.value().unwrap();
    assert!(!scene.manifest.to_string().contains(&value));
    for _ in 0..2 {
        let report = scene.pass().await;
        assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
        assert!(scene.look().await.aside.status.is_empty(), "the status is as it should be");
    }
    assert_eq!(scene.wire.writes().len(), 1);
    // A status that was lost is filled again, and nothing else happens.
    scene.manifest.as_object_mut().unwrap().remove("status");
    let again = scene.look().await;
    assert_eq!((again.contact, again.plan.steps.len()), (Some(Contact::Held), 0));
    assert_eq!(again.aside.status["provisionerKeyName"], "alpha-eks");
}

#[tokio::test]
async fn a_lost_secret_and_a_revoked_key_wait_for_somebody_who_asks() {
    let mut scene = Scene::new();
    scene.applied().await;
    scene.lose_secret();
    assert_eq!(scene.waits().await, "SecretMissing");
    assert_eq!(scene.keys(), ["alpha-eks"]);
    scene.ask("one");
    let plan = shown(&scene.look().await);
    assert_eq!(plan, [("Update".to_owned(), r#"name "alpha-eks" "alpha-eks-1a2b-2""#.to_owned())]);
    scene.applied().await;
    assert_eq!(scene.keys(), ["alpha-eks", "alpha-eks-1a2b-2"]);

    scene.wire.deployment.edit(|it| it.provisioner_keys.clear());
    assert_eq!(scene.waits().await, "KeyRevoked");
    scene.ask("two");
    scene.applied().await;
    assert_eq!(scene.keys(), ["alpha-eks-1a2b-3"]);
    let report = scene.pass().await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
}

#[tokio::test]
async fn both_keys_are_valid_until_the_overlap_is_over() {
    let mut scene = Scene::new();
    scene.applied().await;
    scene.later(SignedDuration::from_hours(2160));
    let plan = scene.look().await;
    assert!(plan.plan.steps[0].reason.contains("the rotation is due"), "{:?}", plan.plan);
    scene.applied().await;
    assert_eq!(scene.keys(), ["alpha-eks", "alpha-eks-1a2b-2"]);
    let rests = scene.look().await;
    assert!(rests.plan.is_empty());
    let overlap = rests.aside.again_at.unwrap().duration_since(scene.cluster.now());
    assert!(
        overlap > SignedDuration::from_hours(23) && overlap <= SignedDuration::from_hours(24),
        "{overlap}"
    );
    scene.later(SignedDuration::from_hours(24));
    let plan = shown(&scene.look().await);
    assert_eq!(plan, [("Delete".to_owned(), r#"keys.alpha-eks "valid" "revoked""#.to_owned())]);
    scene.applied().await;
    assert_eq!(scene.keys(), ["alpha-eks-1a2b-2"]);
}

#[tokio::test]
async fn a_name_that_is_taken_is_left_to_whoever_has_it() {
    let scene = Scene::new();
    scene.add_key("alpha-eks", memory::start() - SignedDuration::from_hours(24));
    assert_eq!(scene.waits().await, "NameTaken");
    let mut deleted = scene.manifest.clone();
    deleted["spec"]["deletionPolicy"] = "Delete".into();
    let mut deleted = subject(&holding(&deleted, UID));
    let assessment = deleted.assess_deletion(&scene.coder()).await;
    deleted.carry_out(&assessment, &scene.coder()).await;
    assert_eq!(scene.keys(), ["alpha-eks"]);
}

#[tokio::test]
async fn a_deletion_takes_every_key_of_ours_and_the_secret_and_knows_them_without_it() {
    for has_secret in [true, false] {
        let mut scene = Scene::new();
        scene.applied().await;
        scene.ask("one");
        scene.applied().await;
        scene.add_key("other", memory::start());
        if !has_secret {
            scene.lose_secret();
        }
        scene.manifest["spec"]["deletionPolicy"] = "Delete".into();
        let mut deleted = subject(&scene.manifest);
        let assessment = deleted.assess_deletion(&scene.coder()).await;
        assert_eq!(assessment.plan.summary, "1 to delete");
        let report = deleted.carry_out(&assessment, &scene.coder()).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
        assert_eq!(scene.keys(), ["other"]);
        assert_eq!(scene.cluster.find("Secret", SECRET), None);
    }
}

#[tokio::test]
async fn a_key_that_was_begun_is_taken_away_though_no_id_was_ever_written_down() {
    let mut scene = Scene::new();
    let report = scene.pass().await;
    assert!(report.outcome.is_ready());
    // The operator died before the status was written; the name was written down before the key was made.
    let pending = scene.mirrored();
    assert_eq!(pending.intent.as_ref().unwrap().name, "alpha-eks");
    let status = engine::secrets::mirror::to_status(&pending);
    scene.manifest["status"] = serde_json::to_value(status).unwrap();
    scene.manifest["spec"]["deletionPolicy"] = "Delete".into();
    let mut deleted = subject(&scene.manifest);
    let assessment = deleted.assess_deletion(&scene.coder()).await;
    deleted.carry_out(&assessment, &scene.coder()).await;
    assert_eq!(scene.keys(), [""; 0]);
}

#[tokio::test]
async fn without_a_cluster_it_says_where_it_belongs_and_asks_for_nothing() {
    let scene = Scene::new();
    let assessment = assess(&scene.manifest, &scene.wire.coder()).await;
    let Verdict::Stopped(Outcome::Blocked(waiting)) = assessment.verdict else {
        panic!("{:?}", assessment.verdict)
    };
    assert_eq!(waiting.reason, api::Reason::NeedsCluster);
    assert!(waiting.message.contains("set KUBECONFIG"), "{}", waiting.message);
    assert!(!scene.wire.asked().iter().any(|it| it.contains("provisionerkeys")));
}

#[tokio::test]
async fn many_keys_that_are_as_declared_cost_as_many_requests_as_one() {
    let scene = Scene::new();
    let manifests: Vec<Value> = (0..20)
        .map(|number| {
            let mut manifest = scene.manifest.clone();
            manifest["metadata"]["name"] = format!("key-{number}").into();
            manifest["metadata"]["uid"] = format!("{number:04}0000-0000-4000-8000-000000000000").into();
            manifest["spec"]["name"] = format!("key-{number}").into();
            manifest["spec"]["secretName"] = format!("key-{number}").into();
            manifest
        })
        .collect();
    for manifest in &manifests {
        scene.cluster.set(manifest);
        assert!(pass(manifest, &scene.coder()).await.outcome.is_ready());
    }
    let mut costs = Vec::new();
    for count in [1, 20] {
        scene.wire.asked();
        let coder = scene.coder();
        for manifest in &manifests[..count] {
            let report = pass(manifest, &coder).await;
            assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
        }
        costs.push(scene.wire.asked());
    }
    assert_eq!(costs[0], costs[1]);
}

#[tokio::test]
async fn a_name_that_was_given_up_is_kept_in_mind_and_is_no_step_of_a_plan() {
    let mut scene = Scene::new();
    scene.applied().await;
    let lost = scene.mirrored().intent.unwrap();
    let held = Held { name: "given-up".to_owned(), ..lost.held() };
    scene.edit_record(|it| it.retiring.push(Retiring { held, since: lost.since, lost: true }));
    let assessment = scene.look().await;
    assert_eq!(assessment.plan.steps, []);
    assert_eq!(assessment.aside.status["retiringKeys"][0]["name"], "given-up");
    scene.later(SignedDuration::from_mins(16));
    scene.applied().await;
    assert!(scene.look().await.plan.is_empty());
    assert_eq!(scene.keys(), ["alpha-eks"]);
}

#[tokio::test]
async fn a_name_that_another_object_has_meanwhile_is_left_to_it() {
    let mut scene = Scene::new();
    scene.applied().await;
    let lost = scene.mirrored().intent.unwrap();
    scene.add_key("given-up", memory::start());
    let held = Held { name: "given-up".to_owned(), ..lost.held() };
    scene.edit_record(|it| it.retiring.push(Retiring { held, since: lost.since, lost: true }));
    let revokes = [("Delete".to_owned(), r#"keys.given-up "valid" "revoked""#.to_owned())];
    assert_eq!(shown(&scene.look().await), revokes, "for all we know it is the one that was lost");

    let status = json!({"provisionerKeyName": "given-up", "organizationID": HOME,
        "controlPlaneRefName": lost.place.control_plane, "controlPlaneURL": lost.place.url,
        "deploymentID": lost.place.deployment_id, "provisionerKeyIsOurs": true});
    scene.cluster.set(&provisioner("another", &status));
    assert_eq!(scene.look().await.plan.steps, []);
    scene.later(SignedDuration::from_mins(16));
    scene.applied().await;
    assert!(scene.look().await.plan.is_empty(), "its name is forgotten");
    scene.manifest["spec"]["deletionPolicy"] = "Delete".into();
    let mut deleted = subject(&scene.manifest);
    let assessment = deleted.assess_deletion(&scene.coder()).await;
    deleted.carry_out(&assessment, &scene.coder()).await;
    assert_eq!(scene.keys(), ["given-up"]);
}

#[tokio::test]
async fn a_secret_that_another_object_keeps_is_neither_used_nor_written() {
    let mut scene = Scene::new();
    scene.applied().await;
    // Another object comes, and finds the Secret.
    let (first, held) = (scene.manifest.clone(), scene.value());
    scene.manifest = Scene::new().manifest;
    scene.manifest["metadata"]["uid"] = "ffff3c4d-5e6f-4711-8aaa-000000000001".into();
    scene.memory.clear();
    scene.cluster.set(&provisioner(UID, &json!({})));
    scene.wire.asked();
    assert_eq!(scene.waits().await, "HeldByOther");
    let proofs = scene.wire.asked().iter().filter(|it| it.contains("/provisionerkeys/own")).count();
    assert_eq!((proofs, scene.value()), (0, held), "the value is not shown to anybody");

    // When the other one is gone, it is a Secret like every other.
    scene.cluster.remove("CoderProvisioner", "example");
    let report = scene.pass().await;
    assert!(report.outcome.is_ready(), "{:?}", report.outcome);
    assert_eq!(report.id, Some(first["status"]["id"].as_str().unwrap().parse().unwrap()));
    assert_eq!(scene.keys(), ["alpha-eks"]);
}

#[tokio::test]
async fn whatever_the_next_key_will_be_is_in_its_plan() {
    let mut scene = Scene::new();
    scene.applied().await;
    scene.ask("one");
    let asked = scene.look().await;
    scene.manifest["spec"]["tags"] = json!({"site": "other"});
    let tags = scene.look().await;
    assert!(shown(&tags)[0].1.contains("; tags "), "{:?}", shown(&tags));
    scene.lose_secret();
    scene.manifest["spec"]["secretName"] = "elsewhere".into();
    let elsewhere = scene.look().await;
    assert!(shown(&elsewhere)[0].1.contains("secretName"), "{:?}", shown(&elsewhere));
    let hashes = [&asked, &tags, &elsewhere].map(|it| it.plan.hash.clone());
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2], "{hashes:?}");
}

#[tokio::test]
async fn a_key_of_a_deployment_that_is_gone_stays_written_down_while_nobody_names_it() {
    let mut scene = Scene::new();
    scene.applied().await;
    let status = &mut scene.manifest["status"];
    (status["provisionerKeyName"], status["provisionerKeyID"]) = ("before".into(), UID.into());
    status["deploymentID"] = "ffff3c4d-5e6f-4711-8aaa-000000000002".into();
    // The Secret is a person's by now, with a key of this deployment.
    scene.cluster.edit("Secret", SECRET, |it| {
        it["metadata"].as_object_mut().unwrap().remove("annotations");
    });
    scene.memory.clear();
    let looked = scene.look().await;
    assert!(looked.plan.is_empty(), "{:?}", shown(&looked));
    assert_eq!(looked.aside.status["retiringKeys"][0]["name"], "before", "{:?}", looked.aside.status);
    scene.manifest["status"].as_object_mut().unwrap().extend(looked.aside.status);
    scene.later(SignedDuration::from_mins(5));
    assert_eq!(scene.look().await.aside.status, serde_json::Map::new(), "it is written once");
}

#[tokio::test]
async fn key_minted_from_a_file_is_that_of_the_object_of_the_same_kind_and_name() {
    for (kind, expected) in [("CoderProvisionerKey", Contact::Held), ("CoderProvisioner", Contact::Foreign)] {
        let mut scene = Scene::new();
        scene.manifest["metadata"]["uid"] = Holder::uid_of_file(kind, "platform", "example").into();
        scene.applied().await;
        // The manifest is applied to the cluster, and its controller finds the Secret.
        scene.manifest["metadata"]["uid"] = UID.into();
        scene.manifest.as_object_mut().unwrap().remove("status");
        scene.memory.clear();
        scene.cluster.set(&scene.manifest);
        let found = scene.look().await;
        assert_eq!(found.contact, Some(expected), "{kind}: {:?}", found.verdict);
        assert_eq!(scene.keys(), ["alpha-eks"]);
        if expected == Contact::Held {
            // Its deletion takes the Secret away, too.
            scene.manifest["status"] = json!({"id": found.id});
            scene.manifest["spec"]["deletionPolicy"] = "Delete".into();
            let mut deleted = subject(&scene.manifest);
            let assessment = deleted.assess_deletion(&scene.coder()).await;
            deleted.carry_out(&assessment, &scene.coder()).await;
            assert_eq!(scene.cluster.find("Secret", SECRET), None);
        }
    }
}

#[tokio::test]
async fn key_that_was_replaced_is_revoked_while_a_plan_waits() {
    for policy in [json!({"approval": "Manual"}), json!({"mode": "Observe"})] {
        let mut scene = Scene::new();
        scene.applied().await;
        scene.ask("one");
        scene.applied().await;
        let [replaced, current] = scene.keys().try_into().unwrap();
        scene.manifest["spec"].as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
        scene.ask("two");
        scene.later(SignedDuration::from_hours(25));
        let found = scene.look().await;
        let kept_up = &found.carried_out().steps;
        assert!(kept_up.len() == 1 && kept_up[0].reason.contains(&replaced), "{kept_up:?}");
        let report = scene.pass().await;
        assert!(matches!(report.outcome, Outcome::Refused(_) | Outcome::Observed), "{:?}", report.outcome);
        assert_eq!((report.done, scene.keys()), (1, vec![current.clone()]), "{policy}");

        // No key is minted by that, however often it is looked at.
        let asked = scene.look().await;
        assert!(asked.carried_out().is_empty() && !asked.plan.is_empty(), "{:?}", asked.plan);
        assert_eq!(
            asked.aside.status["retiringKeys"],
            Value::Null,
            "the status follows: {:?}",
            asked.aside.status
        );
        let report = scene.pass().await;
        assert_eq!((report.done, scene.keys()), (0, vec![current]), "{policy}");
    }
}

#[tokio::test]
async fn key_that_was_begun_is_not_minted_by_upkeep() {
    for policy in [json!({"approval": "Manual"}), json!({"mode": "Observe"})] {
        let mut scene = Scene::new();
        scene.applied().await;
        scene.ask("one");
        scene.applied().await;
        let [_, current] = scene.keys().try_into().unwrap();
        scene.later(SignedDuration::from_hours(25));
        // Another process has begun a key, and died.
        let since = scene.clock.now().checked_sub(SignedDuration::from_hours(1)).unwrap();
        scene.edit_record(|record| {
            let Held { organization_id, organization_name, tags_hash, place, .. } =
                record.current.clone().unwrap();
            let name = "alpha-eks-1a2b-9".to_owned();
            record.intent =
                Some(Intent { name, organization_id, organization_name, tags_hash, place, since });
            record.epoch = record.epoch.map(|it| it + 1);
        });
        scene.memory.clear();
        scene.manifest["spec"].as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
        scene.ask("two");
        let value = scene.value();
        for _ in 0..2 {
            scene.pass().await;
            scene.later(SignedDuration::from_mins(6));
        }
        assert_eq!((scene.keys(), scene.value()), (vec![current], value), "{policy}");
    }
}

#[tokio::test]
async fn key_in_use_stays_while_the_one_that_replaces_it_waits() {
    let mut scene = Scene::new();
    scene.applied().await;
    scene.lose_secret();
    scene.ask("one");
    scene.manifest["spec"]["approval"] = json!("Manual");
    scene.later(SignedDuration::from_hours(25));
    let keys = scene.keys();
    let report = scene.pass().await;
    assert!(matches!(report.outcome, Outcome::Refused(_)), "{:?}", report.outcome);
    assert_eq!((report.done, scene.keys()), (0, keys));
}
