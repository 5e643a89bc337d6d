//! Results as people and programs read them.

mod text;

use anyhow::{Context as _, Result};
use engine::{Assessment, Decision, Outcome, PlanView, Refusal, Trouble, Verdict};
use serde::Serialize;

use crate::{args::Output, manifests::Placed};

/// One object of a result. The JSON form is documented in `docs/cli.md`; it only grows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// The remote object in words.
    target: String,
    state: State,
    /// Why it is in that state, where there is something to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    plan: PlanView,
}

/// What is the case with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum State {
    Equal,
    Differs,
    Observed,
    Refused,
    Waiting,
    Invalid,
    Failed,
}

impl Row {
    pub(crate) fn assessed(placed: &Placed, assessment: &Assessment) -> Self {
        let reference = placed.subject.reference();
        let (state, reason, message) = match &assessment.verdict {
            Verdict::Decided(Decision::Nothing) => (State::Equal, None, None),
            Verdict::Decided(Decision::Apply) => (State::Differs, None, None),
            Verdict::Decided(Decision::Observe) => {
                (State::Observed, None, Some("mode is Observe".to_owned()))
            }
            Verdict::Decided(Decision::Refuse(refusal)) => {
                let outcome = Outcome::Refused(*refusal);
                (State::Refused, Some(outcome.reason()), Some(refusal_words(*refusal, &assessment.plan.hash)))
            }
            Verdict::Stopped(outcome) => (state_of(outcome), Some(outcome.reason()), Some(words(outcome))),
        };
        Self {
            kind: reference.kind,
            namespace: reference.namespace,
            name: reference.name,
            target: placed.subject.target(),
            state,
            reason,
            message,
            plan: assessment.plan.clone(),
        }
    }
}

fn state_of(outcome: &Outcome) -> State {
    match outcome {
        Outcome::Equal | Outcome::Applied => State::Equal,
        Outcome::Observed => State::Observed,
        Outcome::Waiting(_) => State::Waiting,
        Outcome::Refused(_) => State::Refused,
        Outcome::Invalid(_) => State::Invalid,
        Outcome::Failed(_) => State::Failed,
    }
}

/// An outcome in words for a person.
pub(crate) fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Equal | Outcome::Applied => "as declared".to_owned(),
        Outcome::Observed => "differs, and is only observed".to_owned(),
        Outcome::Waiting(waiting) | Outcome::Failed(Trouble::Waiting(waiting)) => waiting.message.clone(),
        Outcome::Refused(refusal) => refusal_words(*refusal, ""),
        Outcome::Invalid(invalid) => format!("{}: {}", invalid.field, invalid.message),
        Outcome::Failed(Trouble::Remote(error)) => error.to_string(),
    }
}

fn refusal_words(refusal: Refusal, hash: &str) -> String {
    match refusal {
        Refusal::NotEqual => "it exists and differs: set adoptionPolicy to Adopt to take it over".to_owned(),
        Refusal::NotOurs => "it exists, and adoptionPolicy is Never".to_owned(),
        Refusal::NotApproved => {
            format!(
                "approval is Manual: annotate the manifest with {}: {hash}",
                api::annotation::APPROVED_PLAN
            )
        }
        Refusal::Destructive => format!(
            "people's data would go: set allowDestructive, or annotate the manifest with {}: {hash}",
            api::annotation::APPROVED_PLAN
        ),
    }
}

/// The whole result in the form that was asked for.
pub(crate) fn render(output: Output, rows: &[Row], verbose: bool) -> Result<String> {
    #[derive(Serialize)]
    struct Result<'a> {
        objects: &'a [Row],
    }
    let result = Result { objects: rows };
    match output {
        Output::Text => Ok(text::render(rows, verbose)),
        Output::Json => serde_json::to_string_pretty(&result).map(|it| it + "\n").context("write JSON"),
        Output::Yaml => serde_saphyr::to_string(&result).context("write YAML"),
    }
}
