use std::collections::BTreeSet;

use super::*;
use crate::{
    kind::Kind as _,
    kinds::Provisioner,
    pipeline::{
        decide::Contact,
        outcome::Outcome,
        plan::PlanView,
        status::{self as common, StatusInput},
    },
};
use api::condition::{READY, RECONCILING, STALLED};
use client::provisioner_keys::ProvisionerDaemon;
use jiff::Timestamp;

const NOW: &str = "2026-01-01T12:00:00Z";
const LATER: &str = "2026-01-01T13:00:00Z";

fn provisioner(spec: &Value, generation: i64) -> CoderProvisioner {
    let mut whole = json!({"controlPlaneRef": {"name": "main"}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
        "metadata": {"name": "alpha", "generation": generation}, "spec": whole}))
    .unwrap()
}

fn bare() -> CoderProvisioner {
    provisioner(&json!({}), 1)
}

fn daemons(connected: usize) -> Daemons {
    let names = ["a", "b"].into_iter().take(connected);
    let list: Vec<ProvisionerDaemon> = names
        .map(|name| {
            let id = uuid::Uuid::nil();
            serde_json::from_value(
                json!({"id": id, "key_id": id, "created_at": NOW, "name": name, "version": "v2.36.0"}),
            )
            .unwrap()
        })
        .collect();
    let pods: BTreeSet<String> = list.iter().map(|it| it.name.clone()).collect();
    Daemons::of(&list, &pods, 1, Some("v2.36.0"))
}

/// Everything is as it should be.
fn well() -> Findings {
    Findings {
        control_plane: Some(Ok(())),
        access: Some(Ok(())),
        entitled: Some(Ok(())),
        key: Some(Ok(())),
        secret: Some(Ok(())),
        deployment: Some(Ok(())),
        daemons: Some(Ok(daemons(1))),
        replicas: Some((1, 1)),
        ..Findings::default()
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a stage is what is asked for")]
fn failed(reason: Reason) -> Stage {
    Some(Err(Blocked { reason, message: format!("because of {reason}") }))
}

/// The whole status after a reconcile that had nothing to do.
fn status(
    provisioner: &CoderProvisioner,
    before: &CoderProvisionerStatus,
    findings: &Findings,
    now: Timestamp,
) -> CoderProvisionerStatus {
    let provisioner = CoderProvisioner { status: Some(before.clone()), ..provisioner.clone() };
    let outcome = findings.trouble().map_or(Outcome::Equal, Outcome::Blocked);
    let aside = Provisioner::conclude(&provisioner, Some(findings.aside(&provisioner, None)), None, &outcome);
    let input = StatusInput {
        generation: provisioner.metadata.generation,
        contact: Some(Contact::Held),
        plan: &PlanView::empty(),
        target: "",
        outcome: &outcome,
        unsupported: None,
        attributions: &[],
        own_changes: &[],
        facts: &aside.facts,
        stalls: outcome.reason().stalls(),
        ready: aside.ready.as_deref(),
        id: None,
        deployment: None,
        changed: false,
        requested: None,
        now,
    };
    let mut whole = serde_json::to_value(before).unwrap();
    let next = serde_json::to_value(common::next(Some(&before.common), &input)).unwrap();
    for (field, value) in aside.status.into_iter().chain(next.as_object().unwrap().clone()) {
        whole[field] = value;
    }
    whole.as_object_mut().unwrap().retain(|_, it| !it.is_null());
    serde_json::from_value(whole).unwrap()
}

fn after(provisioner: &CoderProvisioner, findings: &Findings) -> CoderProvisionerStatus {
    status(provisioner, &CoderProvisionerStatus::default(), findings, NOW.parse().unwrap())
}

fn condition<'a>(status: &'a CoderProvisionerStatus, kind: &str) -> (&'a str, &'a str) {
    let found = status.common.conditions.iter().find(|it| it.type_ == kind);
    found.map_or(("absent", ""), |it| (it.status.as_str(), it.reason.as_str()))
}

#[test]
fn every_stage_that_works_has_its_condition_and_ready_is_the_last_to_come() {
    let made = after(&bare(), &well());
    for (kind, reason) in [
        (READY, "UpToDate"),
        (CONTROL_PLANE_READY, "ControlPlaneAvailable"),
        (OPERATOR_ACCESS, "OperatorAccessReady"),
        (PROVISIONERS_ENTITLED, "Entitled"),
        (PROVISIONER_KEY, "ProvisionerKeyReady"),
        (PROVISIONER_KEY_SECRET, "SecretReady"),
        (DEPLOYMENT, "MinimumReplicasReady"),
        (DAEMONS, "DaemonsConnected"),
    ] {
        assert_eq!(condition(&made, kind), ("True", reason), "{kind}");
    }
    for absent in [BOOTSTRAP_SECRET, RECONCILING, STALLED] {
        assert_eq!(condition(&made, absent).0, "absent", "{absent}");
    }
    assert_eq!(made.phase.as_deref(), Some("Ready"));
    assert_eq!((made.replicas, made.ready_replicas, made.daemons), (Some(1), Some(1), Some(1)));
    assert_eq!(made.daemon_versions, ["v2.36.0"]);
    assert!(made.selector.unwrap().contains("app.kubernetes.io/instance=alpha"));
}

#[test]
fn what_comes_after_a_failure_is_unknown_whatever_it_was_before() {
    let before = after(&bare(), &well());
    let entitled = failed(Reason::NotEntitled);
    let gated =
        Findings { control_plane: Some(Ok(())), access: Some(Ok(())), entitled, ..Findings::default() };
    let now = status(&bare(), &before, &gated, LATER.parse().unwrap());
    assert_eq!(condition(&now, READY), ("False", "NotEntitled"));
    assert_eq!(condition(&now, CONTROL_PLANE_READY).0, "True");
    assert_eq!(condition(&now, PROVISIONERS_ENTITLED), ("False", "NotEntitled"));
    for unseen in [PROVISIONER_KEY, PROVISIONER_KEY_SECRET, DEPLOYMENT, DAEMONS] {
        assert_eq!(condition(&now, unseen), ("Unknown", "NotObserved"), "{unseen}");
    }
    assert_eq!(condition(&now, RECONCILING), ("True", "NotEntitled"));
    assert_eq!((now.phase.as_deref(), now.daemons), (Some("Pending"), None));
    assert_eq!(now.daemon_versions, Vec::<String>::new());
    assert_eq!(now.ready_replicas, Some(1), "nobody has looked at the pods");
}

#[test]
fn the_first_stage_that_fails_is_the_reason() {
    type Pick = fn(&mut Findings) -> &mut Stage;
    let stages: [(Pick, &str); 6] = [
        (|it| &mut it.control_plane, CONTROL_PLANE_READY),
        (|it| &mut it.access, OPERATOR_ACCESS),
        (|it| &mut it.entitled, PROVISIONERS_ENTITLED),
        (|it| &mut it.key, PROVISIONER_KEY),
        (|it| &mut it.secret, PROVISIONER_KEY_SECRET),
        (|it| &mut it.deployment, DEPLOYMENT),
    ];
    for (stage, kind) in stages {
        let mut findings = Findings { daemons: Some(Ok(daemons(0))), ..well() };
        *stage(&mut findings) = failed(Reason::Forbidden);
        let made = after(&bare(), &findings);
        assert_eq!(condition(&made, READY), ("False", "Forbidden"), "{kind}");
        assert_eq!(condition(&made, kind), ("False", "Forbidden"));
        assert_eq!(condition(&made, DAEMONS), ("False", "DaemonsNotSeen"));
    }
}

#[test]
fn daemons_that_are_not_seen_and_a_coderd_that_cannot_be_asked_are_told_apart() {
    let unseen = after(&bare(), &Findings { daemons: Some(Ok(daemons(0))), ..well() });
    assert_eq!(condition(&unseen, READY), ("False", "DaemonsNotSeen"));
    assert_eq!(unseen.daemons, Some(0));
    let why = Blocked { reason: Reason::RateLimited, message: "come again".to_owned() };
    let unasked = after(&bare(), &Findings { daemons: Some(Err(why)), ..well() });
    assert_eq!(condition(&unasked, READY), ("False", "RateLimited"));
    assert_eq!((condition(&unasked, DAEMONS), unasked.daemons), (("False", "RateLimited"), None));
}

#[test]
fn whose_credentials_are_used_decides_which_condition_there_is() {
    let own = provisioner(&json!({"bootstrap": {"credentialsSecretRef": {"name": "mine"}}}), 1);
    let made = after(&own, &well());
    assert_eq!(condition(&made, BOOTSTRAP_SECRET), ("True", "SecretReady"));
    assert_eq!(condition(&made, OPERATOR_ACCESS).0, "absent");
    let missing = Findings { access: failed(Reason::SecretNotFound), ..well() };
    let made = after(&own, &missing);
    assert_eq!(condition(&made, BOOTSTRAP_SECRET), ("False", "SecretNotFound"));
    assert_eq!(condition(&made, RECONCILING), ("True", "SecretNotFound"), "another controller may create it");
    assert_eq!(condition(&made, STALLED).0, "absent");
}

#[test]
fn secret_that_pods_must_not_be_given_stalls() {
    let refused = Findings { deployment: failed(Reason::SecretNotAllowed), ..well() };
    let made = after(&bare(), &refused);
    assert_eq!(condition(&made, READY), ("False", "SecretNotAllowed"));
    assert_eq!(condition(&made, STALLED), ("True", "SecretNotAllowed"));
}

#[test]
fn a_pass_that_has_not_come_to_its_end_is_not_ready() {
    let begun = after(&bare(), &Findings::default());
    assert_eq!(condition(&begun, READY), ("False", "Progressing"));
    assert_eq!(condition(&begun, RECONCILING).0, "True");
    assert_eq!(condition(&after(&bare(), &Findings { daemons: None, ..well() }), READY).0, "False");
}

#[test]
fn a_transition_keeps_its_time_and_the_same_findings_make_the_same_status() {
    let first = after(&bare(), &well());
    let again = status(&bare(), &first, &well(), LATER.parse().unwrap());
    assert_eq!(first, again);
    let lost = Findings { entitled: failed(Reason::NotEntitled), ..well() };
    let lost = status(&bare(), &first, &lost, LATER.parse().unwrap());
    let since = |kind: &str| {
        let found = lost.common.conditions.iter().find(|it| it.type_ == kind).unwrap();
        found.last_transition_time.0.to_string()
    };
    assert_eq!((since(READY).as_str(), since(CONTROL_PLANE_READY).as_str()), (LATER, NOW));
}
