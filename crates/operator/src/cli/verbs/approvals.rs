//! Plans that the command line approves, by their hashes.

use engine::{Assessment, Decision, Refusal, Verdict};

/// The hashes of `--approve`.
#[derive(Debug, Default)]
pub(super) struct Approvals(pub(super) Vec<String>);

impl Approvals {
    /// Lets a plan through that was refused only because nobody had approved it. The annotation `coder.com/approved-plan` does
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
mod tests {
    use engine::{Aside, Outcome, PlanView};

    use super::*;

    fn assessed(verdict: Verdict) -> Assessment {
        let plan = PlanView { hash: "h".to_owned(), summary: String::new(), steps: Vec::new() };
        Assessment { contact: None, id: None, rest: None, plan, aside: Aside::default(), verdict }
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
    fn only_a_plan_that_needs_an_approval_has_advice() {
        let advice = Approvals::advice(&refused(Refusal::NotApproved)).unwrap();
        assert!(advice.ends_with("--approve h"), "{advice}");
        assert_eq!(Approvals::advice(&refused(Refusal::NotOurs)), None);
    }
}
