//! The verbs, and what they share.

mod apply;
mod plan;
mod session;
mod targets;

use engine::{Assessment, Decision, Outcome, Verdict};

use crate::{
    args::{Args, Verb},
    exit::{Exit, Failure},
    terminal::print,
};
use session::Session;
pub(crate) use targets::Plane;

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let Args { verb, quiet, verbose } = args;
    match verb {
        Verb::Plan { input, exit_code } => {
            Session::run(input, quiet, verbose, async |it| plan::plan(it, exit_code).await).await
        }
        Verb::Verify { input } => {
            Session::run(input, quiet, verbose, async |it| plan::plan(it, true).await).await
        }
        Verb::Apply { input, yes, wait, timeout } => {
            let wait = timeout.or_else(|| wait.then_some(apply::DEFAULT_TIMEOUT));
            Session::run(input, quiet, verbose, async |it| apply::apply(it, yes, wait).await).await
        }
        Verb::Run(args) => Ok(crate::run::run(args).await),
        Verb::Crds => {
            for crd in api::crds() {
                let text = serde_saphyr::to_string(&crd).map_err(anyhow::Error::from)?;
                print(&format!("---\n{text}")).map_err(anyhow::Error::from)?;
            }
            Ok(Exit::Success)
        }
    }
}

/// What a script is told of an assessment; `differs` is what a difference means to the verb.
fn exit_of(assessment: &Assessment, differs: Exit) -> Exit {
    match &assessment.verdict {
        Verdict::Decided(Decision::Nothing) => Exit::Success,
        Verdict::Decided(Decision::Apply | Decision::Observe) => differs,
        Verdict::Decided(Decision::Refuse(_)) => Exit::Refused,
        Verdict::Stopped(outcome) => exit_of_outcome(outcome),
    }
}

fn exit_of_outcome(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Equal | Outcome::Applied | Outcome::Observed => Exit::Success,
        Outcome::Waiting(_) => Exit::Waiting,
        Outcome::Refused(_) => Exit::Refused,
        Outcome::Invalid(_) => Exit::Usage,
        Outcome::Failed(_) => Exit::Failure,
    }
}
