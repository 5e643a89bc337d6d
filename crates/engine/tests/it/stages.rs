//! What the driver does around the stages of every kind: fields that a deployment does not support, and Secrets that a manifest
//! refers to. The kind here stands for all of them.

use std::sync::Arc;

use api::{CoderGroup, Reason};
use engine::{
    Action, Blocked, Change, Coder, Door, Impact, Invalid, Kind, Object, Outcome, Plan, Ref, Report, Step,
    Trouble,
    coder::Beside,
    kinds::fingerprint,
    pipeline::{field_gate::FieldGate, gate::Gate},
    secrets::{SecretPlace, SecretValues},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};
use sim::MemoryCluster;
use uuid::Uuid;

use crate::{memory, support, wire::Wire};

const PREMIUM: Gate = Gate { feature: "made_up", license: "Premium" };

/// A kind whose manifests name a Secret in `avatarURL`, and whose remote object is always absent.
#[derive(Debug)]
struct Probe;

/// What the stages were given.
#[derive(Debug, Clone)]
struct Given {
    display_name: Option<String>,
    quota: Option<i32>,
    value: Option<SecretString>,
}

impl Kind for Probe {
    type Manifest = CoderGroup;
    type Desired = Given;
    type Observed = ();
    type Effect = Given;

    const FIELD_GATES: &'static [FieldGate] =
        &[FieldGate::since("displayName", 2, 36), FieldGate::licensed("quotaAllowance", PREMIUM)];
    const RANK: u8 = 1;

    fn target(_: &CoderGroup) -> String {
        "probe".to_owned()
    }

    fn desire(manifest: &CoderGroup) -> Result<Given, Invalid> {
        let (display_name, quota) = (manifest.spec.display_name.clone(), manifest.spec.quota_allowance);
        Ok(Given { display_name, quota, value: None })
    }

    fn secret_refs(manifest: &CoderGroup) -> Vec<SecretPlace> {
        let named = manifest.spec.avatar_url.iter();
        named.map(|it| SecretPlace { name: it.clone(), key: "key".to_owned() }).collect()
    }

    fn with_secrets(desired: Given, values: &SecretValues) -> Result<Given, Invalid> {
        let place = SecretPlace { name: "keys".to_owned(), key: "key".to_owned() };
        assert!(!format!("{values:?}").contains("hunter2"), "values are not printed");
        Ok(Given { value: values.text(&place), ..desired })
    }

    async fn observe(_: &Given, _: Option<Uuid>, _: &Coder) -> Result<(), Trouble> {
        Ok(())
    }

    fn is_default((): &()) -> bool {
        false
    }

    fn id((): &()) -> Option<Uuid> {
        None
    }

    fn plan(desired: &Given, (): &()) -> Plan<Given> {
        let mut changes = vec![Change::new("name", Value::Null, "probe")];
        changes.extend(
            desired.display_name.iter().map(|it| Change::new("displayName", Value::Null, it.as_str())),
        );
        changes.extend(desired.quota.map(|it| Change::new("quotaAllowance", Value::Null, it)));
        let (action, impact, reason) = (Action::Create, Impact::Safe, "it does not exist".to_owned());
        Plan::of(Step { action, impact, reason, changes, effect: desired.clone() })
    }

    fn plan_deletion((): &()) -> Plan<Given> {
        Plan::empty()
    }

    async fn apply(_: &Given, _: &Coder) -> Result<Option<Uuid>, Trouble> {
        Ok(Some(Uuid::from_u128(7)))
    }

    fn recorded(effect: &Given) -> Map<String, Value> {
        let length = effect.value.as_ref().map(|it| it.expose_secret().len());
        json!({"length": length}).as_object().unwrap().clone()
    }
}

fn probe(spec: &Value) -> Object<Probe> {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup",
        "metadata": {"name": "probe", "namespace": "platform"}, "spec": {"controlPlaneRef": {"name": "main"}}});
    manifest["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    Object::parse(&manifest).unwrap()
}

fn secret(cluster: &MemoryCluster, value: &str) {
    let data = json!({"key": k8s_openapi::ByteString(value.as_bytes().to_vec())});
    cluster.set(&json!({"apiVersion": "v1", "kind": "Secret", "data": data,
        "metadata": {"name": "keys", "namespace": "platform"}}));
}

/// One pass at a deployment of that version, without a licence; the fields that were planned with it.
async fn pass(spec: &Value, version: &str, cluster: &Arc<MemoryCluster>) -> (Report, Vec<String>) {
    let unlicensed = memory::described(&json!({"features": []}));
    let wire = Wire::to(memory::coder_of_version(version, unlicensed));
    let coder = wire.coder().reading(Arc::clone(cluster) as _);
    let mut object = probe(spec);
    let assessment = object.assess(&coder, Door::Controller).await;
    let fields = assessment.plan.changes().map(|it| it.field.clone()).collect();
    (object.carry_out(&assessment, &coder).await, fields)
}

fn blocked(outcome: &Outcome) -> &Blocked {
    match outcome {
        Outcome::Unsupported(it) | Outcome::Blocked(it) => it,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn unsupported_fields_are_left_out_and_the_others_are_applied() {
    let cluster = Arc::new(support::cluster());
    let spec = json!({"displayName": "Developers", "quotaAllowance": 3});
    let (report, fields) = pass(&spec, "v2.35.2", &cluster).await;
    assert_eq!((report.done, fields), (1, vec!["name".to_owned()]), "the others are applied");
    let Blocked { reason, message } = blocked(&report.outcome);
    assert_eq!(*reason, Reason::VersionNotSupported);
    for words in ["spec.displayName needs Coder >= 2.36", "spec.quotaAllowance needs a Premium licence"] {
        assert!(message.contains(words), "{message}");
    }
    let (report, fields) = pass(&json!({"displayName": "Developers"}), "v2.36.0", &cluster).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    assert_eq!(fields, ["name", "displayName"]);
}

#[tokio::test]
async fn missing_secret_is_named_and_a_value_reaches_the_stages() {
    let cluster = Arc::new(support::cluster());
    let spec = json!({"avatarURL": "keys"});
    let (missing, _) = pass(&spec, "v2.36.0", &cluster).await;
    let Blocked { reason, message } = blocked(&missing.outcome);
    assert_eq!((*reason, message.contains("Secret keys")), (Reason::SecretNotFound, true), "{message}");
    secret(&cluster, " \n");
    let (blank, _) = pass(&spec, "v2.36.0", &cluster).await;
    let Blocked { reason, message } = blocked(&blank.outcome);
    assert_eq!(
        (*reason, message.contains("Secret keys has no text under key")),
        (Reason::SecretNotFound, true)
    );
    secret(&cluster, "hunter2\n");
    let (applied, _) = pass(&spec, "v2.36.0", &cluster).await;
    assert!(matches!(applied.outcome, Outcome::Applied), "{:?}", applied.outcome);
    assert_eq!(Value::Object(applied.recorded), json!({"length": 7}));
    assert_eq!(Probe::refs(&probe(&spec).manifest), [Ref::Secret("keys".to_owned())]);
}

#[tokio::test]
async fn secret_of_the_operator_is_refused() {
    let cluster = Arc::new(support::cluster());
    secret(&cluster, "hunter2");
    let access = json!({(api::annotation::OPERATOR_ACCESS): "{}"});
    cluster.edit("Secret", "keys", |it| it["metadata"]["annotations"] = access);
    let (refused, _) = pass(&json!({"avatarURL": "keys"}), "v2.36.0", &cluster).await;
    assert_eq!(blocked(&refused.outcome).reason, Reason::SecretNotAllowed);
}

#[tokio::test]
async fn fingerprint_is_made_with_a_key_of_the_control_plane() {
    let cluster = Arc::new(support::cluster());
    let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "spec": {},
        "metadata": {"name": "main", "namespace": "platform", "uid": "u"}});
    cluster.set(&plane);
    let beside = |fingerprints| Beside {
        cluster: Arc::clone(&cluster) as _,
        references: Arc::clone(&cluster) as _,
        memory: Arc::default(),
        writes_status: true,
        fingerprints,
        allowed_rules: None,
        tokens: Arc::default(),
    };
    let wire = Wire::new(memory::licensed());
    let of = async |value: &str, beside| {
        let coder = wire.coder().beside(beside);
        let value = [SecretString::from(value)];
        let made = fingerprint::of_values("platform", "main", &value, &coder).await.unwrap();
        fingerprint::store_key(&coder).await.unwrap();
        made
    };
    let known = || Some(Arc::default());
    let one = of("hunter2", beside(known())).await.unwrap();
    assert_eq!(
        of("hunter2", beside(known())).await.as_ref(),
        Some(&one),
        "the key is kept in the token Secret"
    );
    assert_ne!(of("hunter3", beside(known())).await.as_ref(), Some(&one));
    assert_eq!(of("hunter2", beside(None)).await, None, "the command line has none");
    cluster.remove("Secret", "main-operator-token");
    assert_ne!(of("hunter2", beside(known())).await.as_ref(), Some(&one), "another key");
}
