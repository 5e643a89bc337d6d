//! Results for people and programs.

mod markdown;
mod style;
mod text;

pub(in crate::cli) use markdown::fenced;

use anyhow::{Context as _, Result};
use api::Reason;
use engine::{
    Assessment, Decision, Outcome, PlanView, Verdict,
    pipeline::{attribution::Attribution, status::message},
};
use serde::Serialize;

use crate::{
    args::Output,
    cli::{
        deployment::DeploymentRef,
        manifests::{Placed, Skipped},
    },
};

/// One object of a result. The JSON form is documented in `docs/cli.md`; it only grows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// The deployment that the manifest goes to.
    control_plane: DeploymentRef,
    /// The remote object in words.
    target: String,
    state: State,
    /// The reason of the state, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Why fields that refer to Secrets were not compared, with --skip-missing-secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_compared: Option<String>,
    plan: PlanView,
    /// Who changed the fields that differ, by Coder's audit log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changed_by: Vec<Attribution>,
    /// The result of `apply`.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Done>,
}

/// The result of `apply` for an object.
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
    Blocked,
    Refused,
    /// The plan was no longer the one that was shown.
    Skipped,
    Invalid,
    Failed,
}

impl Ended {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Equal => "equal",
            Self::Observed => "observed",
            Self::Blocked => "waiting",
            Self::Refused => "refused",
            Self::Skipped => "skipped",
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
            Outcome::Unsupported(_) | Outcome::Blocked(_) => Self::Blocked,
            Outcome::Refused(_) => Self::Refused,
            Outcome::Invalid(_) => Self::Invalid,
            Outcome::Failed(_) => Self::Failed,
        }
    }
}

/// How an object compares with its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum State {
    Equal,
    Differs,
    Observed,
    Refused,
    Blocked,
    Invalid,
    Failed,
}

impl Row {
    pub(crate) fn assessed(placed: &Placed, deployment: &DeploymentRef, assessment: &Assessment) -> Self {
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
        let (state, reason, message) = match &assessment.unsupported {
            None => (state, reason, message),
            Some(fields) => {
                let is_blocked = state == State::Equal || fields.reason.blocks_rollout();
                let state = if is_blocked { State::Blocked } else { state };
                let words = message
                    .map_or_else(|| fields.message.clone(), |it| format!("{it}. Also: {}", fields.message));
                (state, reason.or(Some(fields.reason)), Some(words))
            }
        };
        Self {
            kind: reference.kind,
            namespace: reference.namespace,
            name: reference.name,
            control_plane: deployment.clone(),
            target: placed.subject.target(),
            state,
            reason,
            message,
            not_compared: assessment.unknown.as_ref().map(|it| it.message.clone()),
            plan: assessment.plan.clone(),
            changed_by: assessment.attributions.clone(),
            result: None,
        }
    }

    /// A note about fields that were not compared. `None` where all were.
    pub(crate) fn not_compared(&self) -> Option<String> {
        let why = self.not_compared.as_ref()?;
        Some(format!(
            "{} {}: fields that refer to Secrets are unknown and not compared: {why}",
            self.kind, self.name
        ))
    }

    pub(crate) fn set_deployment(&mut self, deployment: &DeploymentRef) {
        self.control_plane = deployment.clone();
    }

    /// Whether this reason was shown already, with its message.
    pub(crate) fn has_reason(&self, reason: Option<Reason>) -> bool {
        reason.is_some() && self.reason == reason
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
        Outcome::Unsupported(_) | Outcome::Blocked(_) => State::Blocked,
        Outcome::Refused(_) => State::Refused,
        Outcome::Invalid(_) => State::Invalid,
        Outcome::Failed(_) => State::Failed,
    }
}

/// A result: the deployments, their objects, and the documents that were not handled.
#[derive(Debug, Serialize)]
pub(crate) struct View<'a> {
    deployments: Vec<&'a DeploymentRef>,
    objects: &'a [Row],
    skipped: &'a [Skipped],
}

impl<'a> View<'a> {
    pub(crate) fn new(
        deployments: impl Iterator<Item = &'a DeploymentRef>,
        objects: &'a [Row],
        skipped: &'a [Skipped],
    ) -> Self {
        Self { deployments: deployments.collect(), objects, skipped }
    }

    /// The result in the given format; text has styles.
    pub(crate) fn render(&self, output: Output, verbose: bool) -> Result<String> {
        match output {
            Output::Text => Ok(style::paint(&text::render(self, verbose))),
            Output::Json => serde_json::to_string_pretty(self).map(|it| it + "\n").context("write JSON"),
            Output::Markdown => Ok(markdown::render(self, verbose)),
            Output::Yaml => serde_saphyr::to_string(self).context("write YAML"),
        }
    }
}
