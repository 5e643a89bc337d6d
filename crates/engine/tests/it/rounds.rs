//! A kind whose work takes rounds: first the logo, then, when somebody has set a banner, the name.

use std::sync::Arc;

use api::{CoderAppearance, Reason, annotation};
use client::appearance::{Appearance as Remote, UpdateAppearance};
use engine::{
    Action, Blocked, Change, Coder, Decision, Door, Impact, Invalid, Kind, Object, Outcome, Plan, Report,
    Round, Step, Trouble, Verdict, pipeline::gate::Gate,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    memory::{self, DEPLOYMENT},
    wire::Wire,
};

#[derive(Debug)]
struct InRounds;

#[derive(Debug)]
struct Seen(Remote);

impl Kind for InRounds {
    type Manifest = CoderAppearance;
    type Desired = (String, String);
    type Observed = Seen;
    type Effect = UpdateAppearance;

    const GATE: Option<Gate> = Some(Gate { feature: "appearance", license: "Premium" });
    const RANK: u8 = 1;

    fn target(_: &CoderAppearance) -> String {
        "appearance".to_owned()
    }

    fn desire(manifest: &CoderAppearance) -> Result<(String, String), Invalid> {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        Ok((text(&manifest.spec.logo_url), text(&manifest.spec.application_name)))
    }

    async fn observe(_: &(String, String), _: Option<Uuid>, coder: &Coder) -> Result<Seen, Trouble> {
        Ok(Seen(coder.client().appearance().await?))
    }

    fn is_default(Seen(found): &Seen) -> bool {
        found.logo_url.is_empty() && found.application_name.is_empty()
    }

    fn id(_: &Seen) -> Option<Uuid> {
        Some(DEPLOYMENT.parse().unwrap())
    }

    fn plan((logo, name): &(String, String), Seen(found): &Seen) -> Plan<UpdateAppearance> {
        let step = |field: &str, before: &str, after: &str, name: &str| Step {
            action: Action::Update,
            impact: Impact::Safe,
            reason: "it differs".to_owned(),
            changes: vec![Change::new(field, before, after)],
            effect: UpdateAppearance {
                application_name: name.to_owned(),
                logo_url: logo.clone(),
                announcement_banners: found.announcement_banners.clone(),
            },
        };
        let mut plan = Plan::empty();
        if found.logo_url != *logo {
            plan.steps.push(step("logoURL", &found.logo_url, logo, &found.application_name));
        }
        if found.application_name != *name {
            plan.steps.push(step("applicationName", &found.application_name, name, name));
        }
        plan
    }

    fn round((logo, _): &(String, String), Seen(found): &Seen) -> Round {
        if found.logo_url != *logo {
            return Round { steps: Some(1), waits: None };
        }
        if found.announcement_banners.is_empty() {
            let waits = Blocked { reason: Reason::VersionBuilding, message: "no banner yet".to_owned() };
            return Round { steps: Some(0), waits: Some(waits) };
        }
        Round::default()
    }

    fn plan_deletion(_: &Seen) -> Plan<UpdateAppearance> {
        Plan::empty()
    }

    async fn apply(effect: &UpdateAppearance, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        coder.client().put_appearance(effect).await?;
        Ok(None)
    }
}

fn manifest(approval: &str) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderAppearance",
        "metadata": {"name": "example", "namespace": "platform", "generation": 3},
        "spec": {"controlPlaneRef": {"name": "main"}, "logoURL": "/logo.svg", "applicationName": "Mission Cloud",
            "approval": approval},
        "status": {"id": DEPLOYMENT}})
}

fn banner(wire: &Wire) {
    let banner = json!({"enabled": true, "message": "x", "background_color": "#007a33"});
    wire.deployment.edit(|it| it.appearance.announcement_banners = vec![banner]);
}

async fn pass(manifest: &Value, wire: &Arc<Wire>) -> (Object<InRounds>, engine::Assessment, Report) {
    let mut object = Object::<InRounds>::parse(manifest).unwrap();
    let coder = wire.coder();
    let assessment = object.assess(&coder, Door::Controller).await;
    let report = object.carry_out(&assessment, &coder).await;
    (object, assessment, report)
}

fn fields(assessment: &engine::Assessment) -> Vec<&str> {
    assessment.plan.changes().map(|it| it.field.as_str()).collect()
}

#[tokio::test]
async fn plan_shows_every_round_and_one_round_is_done_at_a_time() {
    let wire = Wire::new(memory::licensed());
    let manifest = manifest("Automatic");
    let (_, first, report) = pass(&manifest, &wire).await;
    assert_eq!(fields(&first), ["logoURL", "applicationName"]);
    assert_eq!((report.done, wire.writes().len()), (1, 1));
    assert!(report.outcome.goes_on(report.done), "{:?}", report.outcome);

    let (_, second, report) = pass(&manifest, &wire).await;
    assert_eq!(fields(&second), ["applicationName"]);
    assert_eq!(report.done, 0);
    assert_eq!(report.outcome.reason(), Reason::VersionBuilding);
    assert!(!report.outcome.goes_on(report.done) && !report.outcome.is_ready());
    assert_eq!(wire.writes().len(), 1, "what waits writes nothing");

    banner(&wire);
    let (_, _, report) = pass(&manifest, &wire).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    assert_eq!(wire.deployment.read(|it| it.appearance.application_name.clone()), "Mission Cloud");
    let (_, _, report) = pass(&manifest, &wire).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
}

#[tokio::test]
async fn object_without_a_step_left_is_not_ready_while_it_waits() {
    let appearance = json!({"application_name": "Mission Cloud", "logo_url": "/logo.svg"});
    let wire = Wire::new(memory::described(&json!({"appearance": appearance})));
    let (_, assessment, report) = pass(&manifest("Automatic"), &wire).await;
    assert!(assessment.plan.is_empty());
    assert_eq!(report.outcome.reason(), Reason::VersionBuilding);
}

#[tokio::test]
async fn approval_holds_for_the_later_rounds_of_its_generation_and_no_longer() {
    let wire = Wire::new(memory::licensed());
    let mut manifest = manifest("Manual");
    let (_, refused, _) = pass(&manifest, &wire).await;
    assert!(matches!(refused.verdict, Verdict::Decided(Decision::Refuse(_))), "{:?}", refused.verdict);

    manifest["metadata"]["annotations"] = json!({annotation::APPROVED_PLAN: refused.plan.hash});
    let (object, _, report) = pass(&manifest, &wire).await;
    assert_eq!(report.done, 1);
    manifest["status"]["approved"] = json!(object.approval().unwrap());

    banner(&wire);
    let mut edited = manifest.clone();
    edited["metadata"]["generation"] = json!(4);
    let (_, other, _) = pass(&edited, &wire).await;
    assert!(matches!(other.verdict, Verdict::Decided(Decision::Refuse(_))), "{:?}", other.verdict);
    let mut another = manifest.clone();
    another["spec"]["applicationName"] = json!("Another Cloud");
    let (_, other, _) = pass(&another, &wire).await;
    assert!(matches!(other.verdict, Verdict::Decided(Decision::Refuse(_))), "{:?}", other.verdict);

    let (_, _, report) = pass(&manifest, &wire).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
}
