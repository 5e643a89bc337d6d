//! Results as people and programs read them.

mod text;

use anyhow::{Context as _, Result};
use engine::{Assessment, Decision, Outcome, PlanView, Verdict, status::message};
use serde::Serialize;

use crate::{args::Output, manifests::Placed, verbs::Plane};

/// One object of a result. The JSON form is documented in `docs/cli.md`; it only grows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// Where it goes.
    control_plane: Plane,
    /// The remote object in words.
    target: String,
    state: State,
    /// Why it is in that state, where there is something to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    plan: PlanView,
    /// What `apply` made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Done>,
}

/// What became of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Done {
    pub(crate) state: Ended,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// How `apply` left an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Ended {
    Applied,
    Equal,
    Observed,
    Waiting,
    Refused,
    /// Its plan was no longer the one that was shown.
    LeftAlone,
    Invalid,
    Failed,
}

impl Ended {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Equal => "equal",
            Self::Observed => "observed",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
            Self::LeftAlone => "left alone",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
        }
    }
}

impl From<&Outcome> for Ended {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Equal => Self::Equal,
            Outcome::Applied => Self::Applied,
            Outcome::Observed => Self::Observed,
            Outcome::Waiting(_) => Self::Waiting,
            Outcome::Refused(_) => Self::Refused,
            Outcome::Invalid(_) => Self::Invalid,
            Outcome::Failed(_) => Self::Failed,
        }
    }
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
    pub(crate) fn assessed(placed: &Placed, plane: &Plane, assessment: &Assessment) -> Self {
        let reference = placed.subject.reference();
        let (state, reason, message) = match &assessment.verdict {
            Verdict::Decided(Decision::Nothing) => (State::Equal, None, None),
            Verdict::Decided(Decision::Apply) => (State::Differs, None, None),
            Verdict::Decided(Decision::Observe) => {
                (State::Observed, None, Some("mode is Observe".to_owned()))
            }
            Verdict::Decided(Decision::Refuse(refusal)) => {
                let outcome = Outcome::Refused(*refusal);
                (State::Refused, Some(outcome.reason()), Some(message(&outcome, &assessment.plan)))
            }
            Verdict::Stopped(outcome) => {
                (state_of(outcome), Some(outcome.reason()), Some(message(outcome, &assessment.plan)))
            }
        };
        Self {
            kind: reference.kind,
            namespace: reference.namespace,
            name: reference.name,
            control_plane: plane.clone(),
            target: placed.subject.target(),
            state,
            reason,
            message,
            plan: assessment.plan.clone(),
            result: None,
        }
    }

    /// Whether this reason was shown already, with its words.
    pub(crate) fn tells(&self, reason: &str) -> bool {
        self.reason == Some(reason)
    }

    pub(crate) fn end(&mut self, done: Done) {
        self.result = Some(done);
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.result.as_ref().map(|it| it.state)
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
