//! Plans that the command line approves, by their hashes.

use engine::{Assessment, Decision, Reference, Refusal, Verdict};

use crate::cli::exit::Failure;

/// The hashes of `--approve`.
#[derive(Debug, Default)]
pub(super) struct Approvals(pub(super) Vec<String>);

impl Approvals {
    /// Applies a plan that was refused only for lack of an approval. The annotation `coder.com/approved-plan` does
    /// the same for the manifest that has it.
    pub(super) fn grant(&self, assessment: Assessment) -> Assessment {
        let needs_approval = matches!(
            assessment.verdict,
            Verdict::Decided(Decision::Refuse(Refusal::NotApproved | Refusal::Destructive))
        );
        if needs_approval && self.0.contains(&assessment.plan.hash) {
            return Assessment { verdict: Verdict::Decided(Decision::Apply), ..assessment };
        }
        assessment
    }

    /// Refuses a hash that is that of several plans: the approval of one would apply the others, too.
    pub(super) fn check<'a>(
        &self,
        plans: impl Iterator<Item = (Reference, &'a Assessment)>,
    ) -> Result<(), Failure> {
        let plans: Vec<(Reference, &Assessment)> = plans.collect();
        for hash in &self.0 {
            let is_one =
                |it: &&(Reference, &Assessment)| it.1.plan.hash == *hash && !it.1.plan.steps.is_empty();
            let names: Vec<String> = plans.iter().filter(is_one).map(|it| it.0.to_string()).collect();
            if names.len() > 1 {
                return Err(Failure::usage(format!(
                    "--approve {hash} is the plan of {} manifests: {}: apply them one by one, or annotate each with {}",
                    names.len(),
                    names.join(", "),
                    api::annotation::APPROVED_PLAN
                )));
            }
        }
        Ok(())
    }

    /// What to do about a plan that needs an approval. `None` for any other.
    pub(super) fn advice(assessment: &Assessment) -> Option<String> {
        let Verdict::Decided(Decision::Refuse(Refusal::NotApproved | Refusal::Destructive)) =
            assessment.verdict
        else {
            return None;
        };
        Some(format!("to apply this plan, give --approve {}", assessment.plan.hash))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use engine::{Aside, Outcome, PlanView, pipeline::plan::StepView};

    use super::*;

    pub(in crate::cli::verbs) fn assessed(verdict: Verdict) -> Assessment {
        let plan = PlanView { hash: "h".to_owned(), summary: String::new(), steps: Vec::new() };
        Assessment {
            contact: None,
            id: None,
            rest: None,
            upkeep: plan.clone(),
            plan,
            aside: Aside::default(),
            unsupported: None,
            unknown: None,
            attributions: Vec::new(),
            verdict,
        }
    }

    fn refused(refusal: Refusal) -> Assessment {
        assessed(Verdict::Decided(Decision::Refuse(refusal)))
    }

    fn is_applied(assessment: &Assessment) -> bool {
        matches!(assessment.verdict, Verdict::Decided(Decision::Apply))
    }

    #[test]
    fn approval_is_for_one_plan_and_overrides_no_other_refusal() {
        let approvals = Approvals(vec!["other".to_owned(), "h".to_owned()]);
        assert!(is_applied(&approvals.grant(refused(Refusal::NotApproved))));
        assert!(is_applied(&approvals.grant(refused(Refusal::Destructive))));
        assert!(!is_applied(&approvals.grant(refused(Refusal::NotOurs))));
        assert!(!is_applied(&approvals.grant(refused(Refusal::NotEqual))));
        assert!(!is_applied(&approvals.grant(assessed(Verdict::Decided(Decision::Observe)))));
        assert!(!is_applied(&approvals.grant(assessed(Verdict::Stopped(Outcome::Equal)))));
        for others in [vec![], vec!["other".to_owned()]] {
            assert!(!is_applied(&Approvals(others).grant(refused(Refusal::NotApproved))));
        }
    }

    #[test]
    fn hash_of_several_plans_is_refused() {
        let mut plan = assessed(Verdict::Decided(Decision::Refuse(Refusal::NotApproved)));
        let reference = |name: &str| Reference {
            kind: "CoderAppearance".to_owned(),
            namespace: None,
            name: name.to_owned(),
        };
        let approvals = Approvals(vec!["h".to_owned()]);
        let both = |plan: &Assessment| {
            approvals.check([(reference("staging"), plan), (reference("production"), plan)].into_iter())
        };
        assert!(both(&plan).is_ok(), "nothing to apply");
        plan.plan.steps.push(StepView {
            action: engine::Action::Update,
            impact: engine::Impact::Safe,
            reason: String::new(),
            changes: Vec::new(),
        });
        let refused = both(&plan).unwrap_err().error.to_string();
        assert!(refused.contains("staging") && refused.contains("production"), "{refused}");
        assert!(approvals.check(std::iter::once((reference("staging"), &plan))).is_ok());
    }

    #[test]
    fn only_a_plan_that_needs_an_approval_has_advice() {
        let advice = Approvals::advice(&refused(Refusal::NotApproved)).unwrap();
        assert!(advice.ends_with("--approve h"), "{advice}");
        assert_eq!(Approvals::advice(&refused(Refusal::NotOurs)), None);
    }
}
