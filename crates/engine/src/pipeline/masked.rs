//! Plans without values that may be secret. Pure.

use crate::pipeline::plan::PlanView;

/// What stands for the value of a field that may hold a secret.
pub const MASKED: &str = "(not shown)";
/// Parts of the fields of pods that people put secrets into.
const MAY_BE_SECRET: [&str; 3] = [".env", ".args", ".command"];

/// A plan without the values that may be secret. Its hash is that of the whole plan.
pub fn masked(mut plan: PlanView) -> PlanView {
    for change in plan.steps.iter_mut().flat_map(|it| &mut it.changes) {
        if MAY_BE_SECRET.iter().any(|it| change.field.contains(it)) {
            for value in [&mut change.before, &mut change.after] {
                if !value.is_null() {
                    *value = MASKED.into();
                }
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::plan::{Action, Change, Impact, Plan, Step};

    #[test]
    fn values_of_variables_and_arguments_are_not_shown() {
        let field = "Deployment a: spec.template.spec.containers[a].env[b].value";
        let changes = vec![Change::new(field, "hunter2", "hunter3")];
        let reason = "it differs".to_owned();
        let step = Step { action: Action::Update, impact: Impact::Disruptive, reason, changes, effect: () };
        let plan = Plan::of(step).view("provisioner alpha");
        let shown = masked(plan.clone());
        assert!(!format!("{shown:?}").contains("hunter"), "{shown:?}");
        assert_eq!(shown.hash, plan.hash);
    }
}
