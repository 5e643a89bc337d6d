//! From create to delete, for every registered kind.

use engine::{Contact, Decision, Door, Outcome, Verdict};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::deployment::{Deployment, applied, drift, licensed, one_of_every_kind};
use crate::{
    examples::{all, edit, request},
    support::{assess, holding, pass, promises, subject},
};

/// What is held and as declared: nothing is planned and nothing is written.
async fn is_settled(manifest: &Value, deployment: &Deployment) {
    deployment.asked();
    let coder = deployment.coder();
    let assessment = assess(manifest, &coder).await;
    assert_eq!(assessment.contact, Some(Contact::Held), "{}", manifest["kind"]);
    assert_eq!(assessment.plan.steps, [], "{}", manifest["kind"]);
    let report = pass(manifest, &coder).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{}: {:?}", manifest["kind"], report.outcome);
    assert_eq!(deployment.writes(), Vec::<String>::new(), "{}", manifest["kind"]);
}

#[tokio::test]
async fn every_kind_is_created_once_and_then_left_alone() {
    let (_coderd, deployment) = licensed().await;
    let mut made = Vec::new();
    for manifest in all() {
        let assessment = assess(&manifest, &deployment.coder()).await;
        assert_eq!(assessment.contact, Some(Contact::Absent), "{}", manifest["kind"]);
        assert!(matches!(assessment.verdict, Verdict::Decided(Decision::Apply)), "{:?}", assessment.verdict);
        deployment.asked();
        let (held, _) = applied(&manifest, &deployment).await;
        // Not one write more than there were steps.
        assert_eq!(deployment.writes().len(), assessment.plan.steps.len(), "{}", manifest["kind"]);
        is_settled(&held, &deployment).await;
        made.push(held);
    }
    for held in &made {
        is_settled(held, &deployment).await;
    }
}

#[tokio::test]
async fn one_changed_field_of_a_manifest_is_one_step_and_one_write() {
    let (_coderd, deployment) = licensed().await;
    for (held, _) in one_of_every_kind(&deployment).await {
        let kind = held["kind"].as_str().unwrap();
        if kind == "CoderProvisionerKey" {
            continue;
        }
        let (field, value) = edit(kind);
        let mut edited = held.clone();
        edited["spec"][&field] = value;
        let assessment = assess(&edited, &deployment.coder()).await;
        let fields: Vec<&str> = assessment.plan.changes().map(|it| it.field.as_str()).collect();
        assert_eq!((assessment.plan.steps.len(), fields), (1, vec![field.as_str()]), "{kind}");
        deployment.asked();
        applied(&edited, &deployment).await;
        assert_eq!(deployment.writes().len(), 1, "{kind}");
        is_settled(&edited, &deployment).await;
    }
}

#[tokio::test]
async fn what_is_changed_by_hand_is_shown_by_field_only_looked_at_on_request_and_healed() {
    let (coderd, deployment) = licensed().await;
    for (held, id) in one_of_every_kind(&deployment).await {
        let kind = held["kind"].as_str().unwrap();
        if kind == "CoderProvisionerKey" {
            continue;
        }
        let (field, value) = edit(kind);
        drift(&held, id, &coderd, &deployment).await;

        let mut observing = held.clone();
        observing["spec"]["mode"] = "Observe".into();
        let report = pass(&observing, &deployment.coder()).await;
        assert!(matches!(report.outcome, Outcome::Observed), "{kind}: {:?}", report.outcome);
        assert_eq!(report.id, Some(id), "{kind}");
        let assessment = assess(&observing, &deployment.coder()).await;
        let fields: Vec<&str> = assessment.plan.changes().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, [field.as_str()], "{kind}");
        assert_eq!(assessment.plan.changes().next().unwrap().before, value, "{kind}");
        assert_eq!(deployment.writes(), Vec::<String>::new(), "{kind}");

        applied(&held, &deployment).await;
        assert_eq!(deployment.writes().len(), 1, "{kind}");
        is_settled(&held, &deployment).await;
    }
}

#[tokio::test]
async fn what_is_deleted_behind_our_back_is_created_again_and_what_pointed_at_it_is_mended() {
    let (coderd, deployment) = licensed().await;
    let held = one_of_every_kind(&deployment).await;
    let id_of = |held: &[(Value, Uuid)], kind: &str| {
        held.iter().find(|(it, _)| it["kind"] == kind).map(|(_, id)| *id).unwrap()
    };
    // The group alone: the mapping that named it by its id has to name the new one.
    let group = id_of(&held, "CoderGroup");
    request(&coderd.owner, Method::DELETE, &format!("/api/v2/groups/{group}"), None).await;
    let mut again = Vec::new();
    for (manifest, _) in &held {
        let report = pass(manifest, &deployment.coder()).await;
        let is_concerned = ["CoderGroup", "CoderGroupSync"].contains(&manifest["kind"].as_str().unwrap());
        assert_eq!(
            matches!(report.outcome, Outcome::Applied),
            is_concerned,
            "{}: {:?}",
            manifest["kind"],
            report.outcome
        );
        again.push((holding(manifest, report.id.unwrap()), report.id.unwrap()));
    }
    let remade = id_of(&again, "CoderGroup");
    assert_ne!(remade, group);
    // And the whole organization, which takes its documents with it.
    let home = id_of(&again, "CoderOrganization");
    request(&coderd.owner, Method::DELETE, &format!("/api/v2/groups/{remade}"), None).await;
    // Coder deletes no organization that has a key.
    let key = format!("/api/v2/organizations/{home}/provisionerkeys/alpha-eks");
    request(&coderd.owner, Method::DELETE, &key, None).await;
    request(&coderd.owner, Method::DELETE, &format!("/api/v2/organizations/{home}"), None).await;
    for (manifest, id) in &again {
        let report = pass(manifest, &deployment.coder()).await;
        if manifest["kind"] == "CoderProvisionerKey" {
            // Nobody has asked for another one.
            let is_said =
                matches!(&report.outcome, Outcome::Blocked(it) if it.reason == api::Reason::KeyRevoked);
            assert!(is_said, "{:?}", report.outcome);
            continue;
        }
        // What is in no organization stays, and of that only the organization sync refers to one.
        let is_in_organization = !manifest["spec"]["organization"].is_null()
            || ["CoderOrganization", "CoderOrganizationSync"].contains(&manifest["kind"].as_str().unwrap());
        let is_elsewhere = !is_in_organization;
        assert_eq!(
            matches!(report.outcome, Outcome::Equal),
            is_elsewhere,
            "{}: {:?}",
            manifest["kind"],
            report.outcome
        );
        assert!(report.outcome.is_ready(), "{}: {:?}", manifest["kind"], report.outcome);
        let is_of_the_deployment = is_elsewhere || manifest["kind"] == "CoderOrganizationSync";
        assert_eq!(report.id == Some(*id), is_of_the_deployment, "{}", manifest["kind"]);
        is_settled(&holding(manifest, report.id.unwrap()), &deployment).await;
    }
}

#[tokio::test]
async fn what_is_renamed_behind_our_back_is_found_by_its_id_and_renamed_back() {
    let (coderd, deployment) = licensed().await;
    for (held, id) in one_of_every_kind(&deployment).await {
        let path = match held["kind"].as_str().unwrap() {
            "CoderOrganization" => format!("/api/v2/organizations/{id}"),
            "CoderGroup" => format!("/api/v2/groups/{id}"),
            _ => continue,
        };
        request(&coderd.owner, Method::PATCH, &path, Some(&json!({"name": "renamed"}))).await;
        let assessment = assess(&held, &deployment.coder()).await;
        let fields: Vec<&str> = assessment.plan.changes().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["name"]);
        let (_, after) = applied(&held, &deployment).await;
        assert_eq!(after, id);
        is_settled(&held, &deployment).await;
    }
}

#[tokio::test]
async fn a_deletion_takes_away_what_is_held_and_leaves_what_is_to_be_retained() {
    let (_coderd, deployment) = licensed().await;
    let held = one_of_every_kind(&deployment).await;
    deployment.asked();
    for (manifest, _) in held.iter().rev() {
        let mut retained = subject(manifest);
        let assessment = retained.assess_deletion(&deployment.coder()).await;
        retained.carry_out(&assessment, &deployment.coder()).await;
        assert_eq!(deployment.asked(), Vec::<String>::new(), "{}", manifest["kind"]);
    }
    for (manifest, _) in held.iter().rev() {
        let kind = &manifest["kind"];
        let mut manifest = manifest.clone();
        manifest["spec"]["deletionPolicy"] = "Delete".into();
        let mut deleted = subject(&manifest);
        let assessment = deleted.assess_deletion(&deployment.coder()).await;
        assert_eq!(assessment.plan.summary, "1 to delete", "{kind}");
        let report = deleted.carry_out(&assessment, &deployment.coder()).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{kind}: {:?}", report.outcome);
        assert_eq!(deployment.writes().len(), 1, "{kind}");
        let again = subject(&manifest).assess_deletion(&deployment.coder()).await;
        assert!(matches!(again.verdict, Verdict::Decided(Decision::Nothing)), "{kind}: {:?}", again.verdict);
    }
    // What is gone, or shows the server's default again, is absent for whoever comes next.
    for (manifest, _) in &held {
        let mut fresh = manifest.clone();
        fresh.as_object_mut().unwrap().remove("status");
        let assessment = assess(&fresh, &deployment.coder()).await;
        let contact = match &assessment.verdict {
            Verdict::Stopped(Outcome::Blocked(_)) => Contact::Absent,
            _ => assessment.contact.unwrap(),
        };
        assert_eq!(contact, Contact::Absent, "{}", manifest["kind"]);
    }
}

#[tokio::test]
async fn a_whole_set_is_planned_before_any_of_it_exists_and_applied_as_it_was_planned() {
    let (_coderd, deployment) = licensed().await;
    let manifests = all();
    let coder = deployment.coder_with(promises(&manifests));
    let mut shown = Vec::new();
    for manifest in &manifests {
        let mut subject = subject(manifest);
        let assessment = subject.assess(&coder, Door::CommandLine).await;
        assert!(matches!(assessment.verdict, Verdict::Decided(Decision::Apply)), "{:?}", assessment.verdict);
        shown.push((subject, assessment.plan.hash));
    }
    assert_eq!(deployment.writes(), Vec::<String>::new());
    let coder = coder.anew();
    for (mut subject, hash) in shown {
        let assessment = subject.assess(&coder, Door::CommandLine).await;
        assert_eq!(assessment.plan.hash, hash, "{}", subject.target());
        let report = subject.carry_out(&assessment, &coder).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{}: {:?}", subject.target(), report.outcome);
    }
    deployment.asked();
    let coder = deployment.coder_with(promises(&manifests));
    for manifest in &manifests {
        let mut subject = subject(manifest);
        let assessment = subject.assess(&coder, Door::CommandLine).await;
        assert_eq!(assessment.plan.steps, [], "{}", subject.target());
        subject.carry_out(&assessment, &coder).await;
    }
    assert_eq!(deployment.writes(), Vec::<String>::new());
}
