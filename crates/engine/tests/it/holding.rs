//! What is ours, when it becomes so, and what becomes of it in the end.

use engine::{Coder, Contact, Decision, Outcome, Refusal, Verdict, coder::Promises, kinds};
use serde_json::{Value, json};

use crate::{
    examples,
    sheet::Sheet,
    support::{assess, holding, pass, subject},
};

const ORGANIZATION: &str = "00000000-0000-4000-8000-0000000000a0";
const GROUP: &str = "00000000-0000-4000-8000-000000000101";

fn organizations() -> Value {
    json!([{"id": ORGANIZATION, "name": "alpha", "display_name": "Alpha", "is_default": false}])
}

fn organization(spec: &Value) -> Value {
    let mut manifest = examples::of("CoderOrganization");
    manifest["spec"] = json!({"controlPlaneRef": {"name": "main"}, "name": "alpha", "displayName": "Alpha"});
    for (key, value) in spec.as_object().unwrap() {
        manifest["spec"][key] = value.clone();
    }
    manifest
}

async fn outcome(manifest: &Value, state: &Value) -> (Outcome, Option<String>, usize) {
    let sheet = Sheet::new(state);
    let report = pass(manifest, &Coder::new(sheet.client(), Promises::default())).await;
    (report.outcome, report.id.map(|it| it.to_string()), sheet.writes().len())
}

#[tokio::test]
async fn what_was_stopped_ends_as_it_was_stopped() {
    let (waiting, id, writes) = outcome(&organization(&json!({})), &json!({"features": []})).await;
    assert!(matches!(&waiting, Outcome::Blocked(it) if it.reason == api::Reason::NotEntitled), "{waiting:?}");
    assert!(!waiting.is_ready());
    assert_eq!((id, writes), (None, 0));
    let invalid = organization(&json!({"displayName": ""}));
    let (invalid, ..) = outcome(&invalid, &json!({})).await;
    assert!(matches!(&invalid, Outcome::Invalid(_)), "{invalid:?}");
}

#[tokio::test]
async fn what_is_equal_is_taken_over_unless_it_is_only_looked_at() {
    let state = json!({"organizations": organizations()});
    let ours = Some(ORGANIZATION.to_owned());
    let (equal, id, _) = outcome(&organization(&json!({})), &state).await;
    assert!(equal.is_ready());
    assert_eq!(id, ours);
    let observing = organization(&json!({"mode": "Observe"}));
    let (equal, id, _) = outcome(&observing, &state).await;
    assert!(equal.is_ready());
    assert_eq!(
        id, None,
        "an object that was only looked at could be overwritten later without being adopted"
    );
    let (_, id, _) = outcome(&holding(&observing, ORGANIZATION), &state).await;
    assert_eq!(id, ours, "what was held before stays held");
}

#[tokio::test]
async fn what_is_refused_is_not_ours_and_what_is_held_stays_so() {
    let state = json!({"organizations": organizations()});
    let (refused, id, _) = outcome(&organization(&json!({"displayName": "Other"})), &state).await;
    assert!(matches!(refused, Outcome::Refused(Refusal::NotEqual)));
    assert_eq!(id, None);
    let manual = organization(&json!({"displayName": "Other", "approval": "Manual"}));
    let (refused, id, _) = outcome(&holding(&manual, ORGANIZATION), &state).await;
    assert!(matches!(refused, Outcome::Refused(Refusal::NotApproved)));
    assert_eq!(id, Some(ORGANIZATION.to_owned()));
}

#[tokio::test]
async fn what_could_not_be_adopted_is_not_ours() {
    let sheet = Sheet::new(&json!({"organizations": organizations()}));
    let coder = Coder::new(sheet.client(), Promises::default());
    let mut subject = subject(&organization(&json!({"displayName": "Other", "adoptionPolicy": "Adopt"})));
    let assessment = subject.assess(&coder, engine::Door::Controller).await;
    sheet.set("organizations", json!([]));
    let report = subject.carry_out(&assessment, &coder).await;
    assert!(matches!(report.outcome, Outcome::Failed(_)), "{:?}", report.outcome);
    assert_eq!((report.id, report.done), (None, 0));
}

#[tokio::test]
async fn a_write_is_seen_by_whoever_looks_next() {
    let sheet = Sheet::new(&json!({}));
    let coder = Coder::new(sheet.client(), Promises::default());
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
        let sheet = Sheet::new(&json!({"organizations": organizations()}));
        let coder = Coder::new(sheet.client(), Promises::default());
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
        assert_eq!(sheet.asked(), Vec::<String>::new(), "{kind}");
    }
}

#[tokio::test]
async fn a_deletion_does_not_wait_for_what_the_manifest_refers_to() {
    let sheet = Sheet::new(&json!({
        "organizations": organizations(),
        "groups": {ORGANIZATION: [{"id": GROUP, "organization_id": ORGANIZATION, "name": "developers"}]},
        "group_sync": {ORGANIZATION: {"field": "groups", "mapping": {"/g": [GROUP]}, "regex_filter": null}},
    }));
    let coder = Coder::new(sheet.client(), Promises::default());
    let spec =
        json!({"controlPlaneRef": {"name": "main"}, "organization": "alpha", "deletionPolicy": "Delete"});
    let manifest = |kind: &str, field: &str, value: Value| {
        let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": "developers"}, "spec": spec});
        manifest["spec"][field] = value;
        manifest
    };
    let sync = holding(&manifest("CoderGroupSync", "mapping", json!({"/g": ["ghosts"]})), ORGANIZATION);
    let group = holding(&manifest("CoderGroup", "members", json!(["nobody"])), GROUP);
    for manifest in [&sync, &group] {
        let mut subject = subject(manifest);
        let assessment = subject.assess_deletion(&coder).await;
        assert!(matches!(assessment.verdict, Verdict::Decided(Decision::Apply)), "{:?}", assessment.verdict);
        let report = subject.carry_out(&assessment, &coder).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    }
    assert_eq!(sheet.state()["groups"][ORGANIZATION], json!([]));
    assert_eq!(sheet.state()["group_sync"][ORGANIZATION]["field"], "");
    // And with the organization everything in it is gone.
    sheet.set("organizations", json!([]));
    let coder = coder.anew();
    let assessment = subject(&sync).assess_deletion(&coder).await;
    assert!(matches!(assessment.verdict, Verdict::Decided(Decision::Nothing)), "{:?}", assessment.verdict);
}

#[tokio::test]
async fn a_group_that_is_gone_already_is_deleted() {
    let sheet = Sheet::new(&json!({
        "organizations": organizations(),
        "groups": {ORGANIZATION: [{"id": GROUP, "organization_id": ORGANIZATION, "name": "developers"}]},
    }));
    let coder = Coder::new(sheet.client(), Promises::default());
    let mut manifest = examples::of("CoderGroup");
    manifest["spec"]["deletionPolicy"] = "Delete".into();
    let mut subject = subject(&holding(&manifest, GROUP));
    let assessment = subject.assess_deletion(&coder).await;
    sheet.set("groups", json!({}));
    let report = subject.carry_out(&assessment, &coder).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
}

#[tokio::test]
async fn what_took_the_place_of_what_we_held_is_not_deleted() {
    let sheet = Sheet::new(&json!({
        "organizations": organizations(),
        "groups": {ORGANIZATION: [{"id": GROUP, "organization_id": ORGANIZATION, "name": "developers"}]},
        "group_sync": {ORGANIZATION: {"field": "groups", "mapping": {}, "regex_filter": null}},
        "role_sync": {ORGANIZATION: {"field": "groups", "mapping": {}}},
        "organization_sync": {"field": "groups", "mapping": {}, "organization_assign_default": true},
        "appearance": {"application_name": "Theirs"},
    }));
    let coder = Coder::new(sheet.client(), Promises::default());
    for kind in kinds::names() {
        // What somebody else made of a kind that is not described is not known here; the bed has every kind.
        let is_on_paper = !["CoderAIModel", "CoderAIProvider"].contains(&kind.as_str());
        let is_described =
            kind == "CoderProvisionerKey" || (is_on_paper && examples::by_hand(&kind).is_some());
        if !is_described {
            continue;
        }
        let mut manifest = examples::of(&kind);
        manifest["spec"]["deletionPolicy"] = "Delete".into();
        let mut subject = subject(&holding(&manifest, uuid::Uuid::from_u128(7)));
        let assessment = subject.assess_deletion(&coder).await;
        // A key is known by more than an id, and without its record there is none.
        let is_known = kind != "CoderProvisionerKey";
        assert_eq!(assessment.contact, is_known.then_some(Contact::Foreign), "{kind}");
        subject.carry_out(&assessment, &coder).await;
        assert_eq!(sheet.writes().len(), 0, "{kind}");
    }
}

#[tokio::test]
async fn what_is_in_a_renamed_organization_is_found_by_its_id_when_it_is_deleted() {
    let mut renamed = organizations();
    renamed[0]["name"] = "omega".into();
    let sheet = Sheet::new(&json!({
        "organizations": renamed,
        "groups": {ORGANIZATION: [{"id": GROUP, "organization_id": ORGANIZATION, "name": "developers"}]},
        "group_sync": {ORGANIZATION: {"field": "groups", "mapping": {}, "regex_filter": null}},
        "role_sync": {ORGANIZATION: {"field": "groups", "mapping": {}}},
    }));
    let coder = Coder::new(sheet.client(), Promises::default());
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
    assert_eq!(sheet.state()["groups"][ORGANIZATION], json!([]));
    assert_eq!(sheet.state()["group_sync"][ORGANIZATION]["field"], "");
    assert_eq!(sheet.state()["role_sync"][ORGANIZATION]["field"], "");
}

#[tokio::test]
async fn what_our_own_first_step_left_is_ours_and_what_looks_otherwise_is_not() {
    let sheet = Sheet::new(&json!({
        "organizations": organizations(),
        "members": {ORGANIZATION: [{"user_id": GROUP, "username": "alice", "email": "alice@example.com"}]},
    }));
    let coder = Coder::new(sheet.client(), Promises::default());
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": "dev"},
        "spec": {"controlPlaneRef": {"name": "main"}, "organization": "alpha", "members": ["alice"]}});
    let rest = assess(&manifest, &coder).await.rest.unwrap();
    // The call came through, and its answer did not.
    let half = |fields: Value| {
        let mut group =
            json!({"id": GROUP, "organization_id": ORGANIZATION, "name": "dev", "display_name": ""});
        group.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ORGANIZATION: [group]})
    };
    sheet.set("groups", half(json!({})));
    let coder = coder.anew();
    assert_eq!(
        assess(&manifest, &coder).await.contact,
        Some(Contact::Foreign),
        "nothing says that it is ours"
    );
    manifest["status"] = json!({"creating": rest});
    let found = assess(&manifest, &coder).await;
    assert_eq!((found.contact, found.id.unwrap().to_string()), (Some(Contact::Held), GROUP.to_owned()));
    let bob = json!({"id": ORGANIZATION, "username": "bob", "email": "bob@example.com"});
    sheet.set("groups", half(json!({"members": [bob]})));
    let coder = coder.anew();
    let found = assess(&manifest, &coder).await;
    assert!(
        matches!(found.verdict, Verdict::Decided(Decision::Refuse(Refusal::NotEqual))),
        "{:?}",
        found.verdict
    );
}
