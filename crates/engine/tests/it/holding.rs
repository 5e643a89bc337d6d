//! What is ours, when it becomes so, and what becomes of it in the end.

use std::sync::Arc;

use engine::{Contact, Decision, Outcome, Refusal, Verdict, kinds};
use serde_json::{Value, json};
use sim::state::State;
use uuid::Uuid;

use crate::{
    examples, memory,
    support::{self, assess, holding, pass, secret, subject},
    wire::Wire,
};

const ORGANIZATION: &str = "00000000-0000-4000-8000-0000000000a0";
const GROUP: &str = "00000000-0000-4000-8000-000000000101";

fn id(text: &str) -> Uuid {
    text.parse().unwrap()
}

/// A deployment with an organization, and with a group and two documents in it.
fn filled(organization: &str) -> State {
    memory::described(&json!({
        "organizations": {ORGANIZATION: {"name": organization, "display_name": "Alpha"}},
        "groups": {GROUP: {"organization_id": ORGANIZATION, "name": "developers"}},
        "group_sync": {ORGANIZATION: {"field": "groups", "mapping": {"/g": [GROUP]}, "regex_filter": null,
            "auto_create_missing_groups": false}},
        "role_sync": {ORGANIZATION: {"field": "groups", "mapping": {}}},
    }))
}

/// Whether the group and the documents are gone.
fn is_empty(state: &State) -> bool {
    let home = id(ORGANIZATION);
    !state.groups.contains_key(&id(GROUP))
        && [&state.group_sync[&home], &state.role_sync[&home]].map(|it| &it["field"]) == ["", ""]
}

fn organization(spec: &Value) -> Value {
    let mut manifest = examples::of("CoderOrganization");
    manifest["spec"] = json!({"controlPlaneRef": {"name": "main"}, "name": "alpha", "displayName": "Alpha"});
    for (key, value) in spec.as_object().unwrap() {
        manifest["spec"][key] = value.clone();
    }
    manifest
}

async fn outcome(manifest: &Value, state: State) -> (Outcome, Option<String>, usize) {
    let wire = Wire::new(state);
    let report = pass(manifest, &wire.coder()).await;
    (report.outcome, report.id.map(|it| it.to_string()), wire.writes().len())
}

#[tokio::test]
async fn what_was_stopped_ends_as_it_was_stopped() {
    let (waiting, id, writes) =
        outcome(&organization(&json!({})), memory::described(&json!({"features": []}))).await;
    assert!(matches!(&waiting, Outcome::Blocked(it) if it.reason == api::Reason::NotEntitled), "{waiting:?}");
    assert!(!waiting.is_ready());
    assert_eq!((id, writes), (None, 0));
    let invalid = organization(&json!({"displayName": ""}));
    let (invalid, ..) = outcome(&invalid, memory::licensed()).await;
    assert!(matches!(&invalid, Outcome::Invalid(_)), "{invalid:?}");
}

#[tokio::test]
async fn what_is_equal_is_taken_over_unless_it_is_only_looked_at() {
    let state = || filled("alpha");
    let ours = Some(ORGANIZATION.to_owned());
    let (equal, id, _) = outcome(&organization(&json!({})), state()).await;
    assert!(equal.is_ready());
    assert_eq!(id, ours);
    let observing = organization(&json!({"mode": "Observe"}));
    let (equal, id, _) = outcome(&observing, state()).await;
    assert!(equal.is_ready());
    assert_eq!(
        id, None,
        "an object that was only looked at could be overwritten later without being adopted"
    );
    let (_, id, _) = outcome(&holding(&observing, ORGANIZATION), state()).await;
    assert_eq!(id, ours, "what was held before stays held");
}

#[tokio::test]
async fn what_is_refused_is_not_ours_and_what_is_held_stays_so() {
    let state = || filled("alpha");
    let (refused, id, _) = outcome(&organization(&json!({"displayName": "Other"})), state()).await;
    assert!(matches!(refused, Outcome::Refused(Refusal::NotEqual)));
    assert_eq!(id, None);
    let manual = organization(&json!({"displayName": "Other", "approval": "Manual"}));
    let (refused, id, _) = outcome(&holding(&manual, ORGANIZATION), state()).await;
    assert!(matches!(refused, Outcome::Refused(Refusal::NotApproved)));
    assert_eq!(id, Some(ORGANIZATION.to_owned()));
}

#[tokio::test]
async fn what_could_not_be_adopted_is_not_ours() {
    let wire = Wire::new(filled("alpha"));
    let coder = wire.coder();
    let mut subject = subject(&organization(&json!({"displayName": "Other", "adoptionPolicy": "Adopt"})));
    let assessment = subject.assess(&coder, engine::Door::Controller).await;
    wire.deployment.edit(|it| it.organizations.get_mut(&id(ORGANIZATION)).unwrap().deleted = true);
    let report = subject.carry_out(&assessment, &coder).await;
    assert!(matches!(report.outcome, Outcome::Failed(_)), "{:?}", report.outcome);
    assert_eq!((report.id, report.done), (None, 0));
}

#[tokio::test]
async fn a_write_is_seen_by_whoever_looks_next() {
    let coder = Wire::new(memory::licensed()).coder();
    let group = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": "dev"},
        "spec": {"controlPlaneRef": {"name": "main"}, "organization": "alpha"}});
    assert!(matches!(assess(&group, &coder).await.verdict, Verdict::Stopped(Outcome::Blocked(_))));
    assert!(pass(&organization(&json!({"name": "alpha"})), &coder).await.outcome.is_ready());
    let made = pass(&group, &coder).await;
    assert!(matches!(made.outcome, Outcome::Applied), "{:?}", made.outcome);
    let again = pass(&holding(&group, made.id.unwrap()), &coder).await;
    assert!(matches!(again.outcome, Outcome::Equal), "{:?}", again.outcome);
}

#[tokio::test]
async fn every_kind_leaves_what_it_does_not_hold_and_what_is_to_be_retained() {
    for kind in kinds::names() {
        let wire = Wire::new(filled("alpha"));
        let coder = wire.coder();
        let mut manifest = examples::of(&kind);
        for (policy, mode, held) in
            [("Retain", "Enforce", true), ("Delete", "Observe", true), ("Delete", "Enforce", false)]
        {
            manifest["spec"]["deletionPolicy"] = policy.into();
            manifest["spec"]["mode"] = mode.into();
            let ours = if held { holding(&manifest, ORGANIZATION) } else { manifest.clone() };
            let mut subject = subject(&ours);
            let assessment = subject.assess_deletion(&coder).await;
            assert!(
                matches!(assessment.verdict, Verdict::Decided(Decision::Nothing)),
                "{kind} {policy} {mode}"
            );
            subject.carry_out(&assessment, &coder).await;
        }
        assert_eq!(wire.asked(), [""; 0], "{kind}");
    }
}

#[tokio::test]
async fn a_deletion_does_not_wait_for_what_the_manifest_refers_to() {
    let wire = Wire::new(filled("alpha"));
    let coder = wire.coder();
    let spec =
        json!({"controlPlaneRef": {"name": "main"}, "organization": "alpha", "deletionPolicy": "Delete"});
    let manifest = |kind: &str, field: &str, value: Value| {
        let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": "developers"}, "spec": spec});
        manifest["spec"][field] = value;
        manifest
    };
    let sync = holding(&manifest("CoderGroupSync", "mapping", json!({"/g": ["ghosts"]})), ORGANIZATION);
    let roles = holding(&manifest("CoderRoleSync", "mapping", json!({"/g": ["ghosts"]})), ORGANIZATION);
    let group = holding(&manifest("CoderGroup", "members", json!(["nobody"])), GROUP);
    for manifest in [&sync, &roles, &group] {
        let mut subject = subject(manifest);
        let assessment = subject.assess_deletion(&coder).await;
        assert!(matches!(assessment.verdict, Verdict::Decided(Decision::Apply)), "{:?}", assessment.verdict);
        let report = subject.carry_out(&assessment, &coder).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    }
    assert!(wire.deployment.read(is_empty));
    // And with the organization everything in it is gone.
    wire.deployment.edit(|it| it.organizations.get_mut(&id(ORGANIZATION)).unwrap().deleted = true);
    let coder = coder.anew();
    let assessment = subject(&sync).assess_deletion(&coder).await;
    assert!(matches!(assessment.verdict, Verdict::Decided(Decision::Nothing)), "{:?}", assessment.verdict);
}

#[tokio::test]
async fn a_group_that_is_gone_already_is_deleted() {
    let wire = Wire::new(filled("alpha"));
    let coder = wire.coder();
    let mut manifest = examples::of("CoderGroup");
    manifest["spec"]["deletionPolicy"] = "Delete".into();
    let mut subject = subject(&holding(&manifest, GROUP));
    let assessment = subject.assess_deletion(&coder).await;
    wire.deployment.edit(|it| drop(it.groups.remove(&id(GROUP))));
    let report = subject.carry_out(&assessment, &coder).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
}

#[tokio::test]
async fn what_took_the_place_of_what_we_held_is_not_deleted() {
    let wire = Wire::new(memory::described(&json!({"users": {memory::OWNER: {"username": "admin"}}})));
    let cluster = support::cluster();
    cluster.set(&secret(examples::AI_KEYS, &examples::ai_keys()));
    let coder = wire.coder().reading(Arc::new(cluster));
    // A model is known by its id alone, and keys by more than an id.
    let others = ["CoderAIModel", "CoderControlPlane", "CoderProvisioner", "CoderProvisionerKey"];
    let is_named = |it: &Value| !others.contains(&it["kind"].as_str().unwrap());
    let manifests: Vec<Value> = examples::all().into_iter().filter(is_named).collect();
    for manifest in &manifests {
        let report = pass(manifest, &coder).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{}: {:?}", manifest["kind"], report.outcome);
    }
    let before = wire.writes().len();
    for mut manifest in manifests {
        manifest["spec"]["deletionPolicy"] = "Delete".into();
        let mut subject = subject(&holding(&manifest, Uuid::from_u128(7)));
        let assessment = subject.assess_deletion(&coder).await;
        assert_eq!(assessment.contact, Some(Contact::Foreign), "{}", manifest["kind"]);
        subject.carry_out(&assessment, &coder).await;
        assert_eq!(wire.writes().len(), before, "{}", manifest["kind"]);
    }
}

#[tokio::test]
async fn what_is_in_a_renamed_organization_is_found_by_its_id_when_it_is_deleted() {
    let wire = Wire::new(filled("omega"));
    let coder = wire.coder();
    for (kind, id) in
        [("CoderGroup", GROUP), ("CoderGroupSync", ORGANIZATION), ("CoderRoleSync", ORGANIZATION)]
    {
        let mut manifest = examples::of(kind);
        manifest["spec"]["deletionPolicy"] = "Delete".into();
        let mut subject = subject(&holding(&manifest, id));
        let assessment = subject.assess_deletion(&coder).await;
        let report = subject.carry_out(&assessment, &coder).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{kind}: {:?}", report.outcome);
    }
    assert!(wire.deployment.read(is_empty));
}

#[tokio::test]
async fn what_our_own_first_step_left_is_ours_and_what_looks_otherwise_is_not() {
    const ALICE: &str = "00000000-0000-4000-8000-000000000201";
    let people = json!({ALICE: {"username": "alice"}, ORGANIZATION: {"username": "bob"}});
    let mut described = json!({"users": people, "organizations": {ORGANIZATION:
        {"name": "alpha", "display_name": "Alpha", "members": [ALICE, ORGANIZATION]}}});
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": "dev"},
        "spec": {"controlPlaneRef": {"name": "main"}, "organization": "alpha", "members": ["alice"]}});
    let rest = assess(&manifest, &Wire::new(memory::described(&described)).coder()).await.rest.unwrap();
    // The call came through, and its answer did not.
    described["groups"] = json!({GROUP: {"organization_id": ORGANIZATION, "name": "dev"}});
    let coder = Wire::new(memory::described(&described)).coder();
    assert_eq!(
        assess(&manifest, &coder).await.contact,
        Some(Contact::Foreign),
        "nothing says that it is ours"
    );
    manifest["status"] = json!({"creating": rest});
    let found = assess(&manifest, &coder).await;
    assert_eq!((found.contact, found.id.unwrap()), (Some(Contact::Held), id(GROUP)));
    described["groups"][GROUP]["members"] = json!([ORGANIZATION]);
    let found = assess(&manifest, &Wire::new(memory::described(&described)).coder()).await;
    assert!(
        matches!(found.verdict, Verdict::Decided(Decision::Refuse(Refusal::NotEqual))),
        "{:?}",
        found.verdict
    );
}
