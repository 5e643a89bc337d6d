//! `approve`: shows the plan in the status of an object, and approves it by its hash.

use api::{Plan, annotation};
use kube::{
    ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    args::Approve,
    cli::{
        exit::{Exit, Failure},
        objects::Objects,
        terminal::{ask, can_ask, printable, say},
    },
};

pub(super) async fn approve(args: &Approve) -> Result<Exit, Failure> {
    let objects = Objects::connect().await?;
    let object = objects.get(&args.object, args.namespace.as_deref()).await?;
    let kind = object.types.as_ref().map(|it| it.kind.clone()).unwrap_or_default();
    let name = format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
    let plan = pending(&object, &name)?;
    if object.annotations().get(annotation::APPROVED_PLAN) == Some(&plan.hash) {
        say(&format!("the plan {} of {name} is approved already", plan.hash));
        return Ok(Exit::Success);
    }
    if args.hash.as_ref().is_some_and(|it| *it != plan.hash) {
        return Err(Failure::refused(format!(
            "{name} has another plan by now: {} ({}); review it, and approve that hash",
            plan.hash, plan.summary
        )));
    }
    for line in lines(&plan, &name) {
        say(&printable(&line));
    }
    // Whoever gives the hash has seen the plan.
    if args.hash.is_none() && !args.yes {
        if !can_ask() {
            return Err(Failure::usage("without a terminal, give the hash with --hash, or --yes"));
        }
        let answer = ask(format!("Approve this plan of {name}? Only `yes` is accepted:")).await;
        if answer.map_err(anyhow::Error::from)? != "yes" {
            return Err(Failure::refused("not approved"));
        }
    }
    // With the version that was read: of an object that has changed since, nobody has seen the plan.
    let change = json!({"metadata": {
        "resourceVersion": object.resource_version(),
        "annotations": {annotation::APPROVED_PLAN: plan.hash},
    }});
    let api = objects.api(&kind, object.namespace().as_deref());
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(change)).await {
        Ok(_) => {
            say(&format!("approved plan {} of {name}", plan.hash));
            Ok(Exit::Success)
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Failure::refused(format!(
            "{name} was changed meanwhile: run the command again, and review the plan"
        ))),
        Err(error) => Err(anyhow::Error::from(error).context(format!("annotate {name}")).into()),
    }
}

/// The plan that waits for an approval.
fn pending(object: &DynamicObject, name: &str) -> Result<Plan, Failure> {
    let status = &object.data["status"];
    if object.metadata.generation.is_some_and(|it| status["observedGeneration"].as_i64() < Some(it)) {
        return Err(Failure::refused(format!(
            "the status of {name} is about an older generation: wait until the operator has reconciled it"
        )));
    }
    let plan = serde_json::from_value::<Option<Plan>>(status["plan"].clone()).ok().flatten();
    plan.ok_or_else(|| {
        Failure::refused(format!("{name} has no plan to approve: nothing is pending, observed or refused"))
    })
}

/// The plan for a person.
fn lines(plan: &Plan, name: &str) -> Vec<String> {
    let mut lines = vec![format!("{name}: {} (plan {})", plan.summary, plan.hash)];
    for step in &plan.steps {
        let field = step.field.as_ref().map(|it| format!(", {it}")).unwrap_or_default();
        let value = |it: &Option<String>| it.clone().unwrap_or_else(|| "absent".to_owned());
        let change = match (&step.before, &step.after) {
            (None, None) => String::new(),
            (before, after) => format!(": {} -> {}", value(before), value(after)),
        };
        lines.push(format!(
            "  {} {}{field}{change} ({}, {})",
            step.action, step.target, step.impact, step.reason
        ));
    }
    if let Some(omitted) = plan.omitted {
        lines.push(format!("  and {omitted} more steps: `coder-operator diff` shows all"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn object(observed: i64, plan: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "generation": 2},
            "status": {"observedGeneration": observed, "plan": plan},
        }))
        .unwrap()
    }

    fn plan() -> Value {
        json!({"hash": "abc", "summary": "1 to update", "omitted": 3, "steps": [{
            "action": "Update", "target": "group a", "field": "quotaAllowance", "before": "3", "after": "20",
            "impact": "Safe", "reason": "the group differs",
        }]})
    }

    #[test]
    fn plan_of_an_older_generation_is_not_approved() {
        assert_eq!(pending(&object(2, &plan()), "a").unwrap().hash, "abc");
        assert!(
            pending(&object(1, &plan()), "a").unwrap_err().error.to_string().contains("older generation")
        );
        assert!(
            pending(&object(2, &Value::Null), "a")
                .unwrap_err()
                .error
                .to_string()
                .contains("no plan to approve")
        );
    }

    #[test]
    fn plan_is_shown_step_by_step() {
        let plan: Plan = serde_json::from_value(plan()).unwrap();
        assert_eq!(
            lines(&plan, "CoderGroup a"),
            [
                "CoderGroup a: 1 to update (plan abc)",
                "  Update group a, quotaAllowance: 3 -> 20 (Safe, the group differs)",
                "  and 3 more steps: `coder-operator diff` shows all",
            ]
        );
    }
}
