//! What becomes of a plan: the policies that every kind has, in one pure function.

use api::{AdoptionPolicy, Approval, Mode, Policy};

use crate::pipeline::plan::Impact;

/// Through which door the engine was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The controller: nobody is there to ask.
    Controller,
    /// The command line: the manifest plus the person's confirmation is the adoption.
    CommandLine,
}

/// How the object stands to us, before anything is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// It does not exist, or is a document that still shows the server's default.
    Absent,
    /// We recorded its id: it is ours.
    Held,
    /// It exists, and we have not held it before.
    Foreign,
}

/// Everything that a decision looks at.
#[derive(Debug)]
pub struct Situation<'a> {
    pub policy: &'a Policy,
    pub door: Door,
    pub contact: Contact,
    /// The gravest impact of the plan; nothing when the plan is empty.
    pub impact: Option<Impact>,
    pub hash: &'a str,
    /// The plan that a person approved, by its hash.
    pub approved: Option<&'a str>,
}

/// What is done with a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The deployment is as declared.
    Nothing,
    Apply,
    /// The plan is shown and left alone.
    Observe,
    Refuse(Refusal),
}

/// Why a plan is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The object exists and differs, and may only be taken over when it is equal.
    NotEqual,
    /// The object exists, and may never be taken over.
    NotOurs,
    /// No person has approved this very plan.
    NotApproved,
    /// People's data would go, and nobody said that it may.
    Destructive,
}

pub fn decide(situation: &Situation<'_>) -> Decision {
    let Situation { policy, door, contact, impact, hash, approved } = situation;
    let is_approved = *approved == Some(*hash);
    if *impact == Some(Impact::Upkeep) && *contact != Contact::Foreign {
        // It follows from a change that was decided before.
        return Decision::Apply;
    }
    if policy.mode() == Mode::Observe {
        return if impact.is_some() { Decision::Observe } else { Decision::Nothing };
    }
    if *contact == Contact::Foreign {
        match (policy.adoption_policy(), impact, door) {
            (AdoptionPolicy::Never, ..) => return Decision::Refuse(Refusal::NotOurs),
            (AdoptionPolicy::IfEqual, Some(_), Door::Controller) => {
                return Decision::Refuse(Refusal::NotEqual);
            }
            (AdoptionPolicy::IfEqual | AdoptionPolicy::Adopt, ..) => {}
        }
    }
    match impact {
        None => Decision::Nothing,
        Some(_) if policy.approval() == Approval::Manual && !is_approved => {
            Decision::Refuse(Refusal::NotApproved)
        }
        Some(Impact::Destructive) if !policy.allows_destructive() && !is_approved => {
            Decision::Refuse(Refusal::Destructive)
        }
        Some(_) => Decision::Apply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(policy: &Policy, contact: Contact, impact: Option<Impact>) -> Decision {
        let (door, hash, approved) = (Door::Controller, "h", None);
        decide(&Situation { policy, door, contact, impact, hash, approved })
    }

    #[test]
    fn what_is_equal_needs_nothing_and_what_differs_is_applied() {
        let policy = Policy::default();
        assert_eq!(situation(&policy, Contact::Held, None), Decision::Nothing);
        assert_eq!(situation(&policy, Contact::Held, Some(Impact::Safe)), Decision::Apply);
        assert_eq!(situation(&policy, Contact::Absent, Some(Impact::Disruptive)), Decision::Apply);
    }

    #[test]
    fn an_object_of_somebody_else_is_taken_over_only_as_the_policy_says() {
        let safe = Some(Impact::Safe);
        let with = |adoption_policy| Policy { adoption_policy: Some(adoption_policy), ..Policy::default() };
        assert_eq!(
            situation(&Policy::default(), Contact::Foreign, safe),
            Decision::Refuse(Refusal::NotEqual)
        );
        assert_eq!(situation(&Policy::default(), Contact::Foreign, None), Decision::Nothing);
        assert_eq!(situation(&with(AdoptionPolicy::Adopt), Contact::Foreign, safe), Decision::Apply);
        for impact in [None, safe] {
            let decision = situation(&with(AdoptionPolicy::Never), Contact::Foreign, impact);
            assert_eq!(decision, Decision::Refuse(Refusal::NotOurs));
        }
    }

    #[test]
    fn on_the_command_line_the_confirmation_is_the_adoption_unless_it_is_never() {
        let ask = |policy: &Policy| {
            let (door, contact, impact) = (Door::CommandLine, Contact::Foreign, Some(Impact::Safe));
            decide(&Situation { policy, door, contact, impact, hash: "h", approved: None })
        };
        assert_eq!(ask(&Policy::default()), Decision::Apply);
        let never = Policy { adoption_policy: Some(AdoptionPolicy::Never), ..Policy::default() };
        assert_eq!(ask(&never), Decision::Refuse(Refusal::NotOurs));
    }

    #[test]
    fn observing_changes_nothing_whatever_else_is_said() {
        let policy = Policy {
            mode: Some(Mode::Observe),
            adoption_policy: Some(AdoptionPolicy::Adopt),
            allow_destructive: Some(true),
            ..Policy::default()
        };
        for contact in [Contact::Absent, Contact::Held, Contact::Foreign] {
            assert_eq!(situation(&policy, contact, Some(Impact::Destructive)), Decision::Observe);
            assert_eq!(situation(&policy, contact, None), Decision::Nothing);
        }
    }

    #[test]
    fn an_approval_counts_for_the_plan_that_it_names_and_no_other() {
        let policy = Policy { approval: Some(Approval::Manual), ..Policy::default() };
        let ask = |approved, impact| {
            let (door, contact) = (Door::Controller, Contact::Held);
            decide(&Situation { policy: &policy, door, contact, impact: Some(impact), hash: "h", approved })
        };
        assert_eq!(ask(None, Impact::Safe), Decision::Refuse(Refusal::NotApproved));
        assert_eq!(ask(Some("other"), Impact::Safe), Decision::Refuse(Refusal::NotApproved));
        assert_eq!(ask(Some("h"), Impact::Destructive), Decision::Apply);
    }

    #[test]
    fn destruction_needs_the_word_or_an_approval() {
        let destructive = Some(Impact::Destructive);
        let refused = Decision::Refuse(Refusal::Destructive);
        assert_eq!(situation(&Policy::default(), Contact::Held, destructive), refused);
        let allowed = Policy { allow_destructive: Some(true), ..Policy::default() };
        assert_eq!(situation(&allowed, Contact::Held, destructive), Decision::Apply);
    }
}
