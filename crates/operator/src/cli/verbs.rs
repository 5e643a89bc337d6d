//! The verbs, and what they share.

mod apply;
mod approvals;
mod approve;
mod diff;
mod export;
mod pages;
mod plan;
mod sandbox;
mod schema;
mod session;
mod status;
mod targets;
mod uninstall_check;
mod validate;

use engine::{Assessment, Decision, Outcome, Verdict};

use crate::{
    args::{Args, Verb},
    cli::{
        exit::{Exit, Failure},
        terminal::print,
    },
};
use approvals::Approvals;
use session::Session;

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let Args { verb, quiet, verbose } = args;
    match verb {
        Verb::Plan { input, exit_code, unknown } => {
            let plan = async |it: &Session| plan::plan(it, exit_code, unknown.skip_missing_secrets).await;
            Session::run(input, quiet, verbose, plan).await
        }
        Verb::Verify { input, unknown } => {
            let plan = async |it: &Session| plan::plan(it, true, unknown.skip_missing_secrets).await;
            Session::run(input, quiet, verbose, plan).await
        }
        Verb::Apply { input, yes, approve, wait, timeout, parallelism } => {
            let wait = timeout.or_else(|| wait.then_some(apply::DEFAULT_TIMEOUT));
            let approvals = Approvals(approve);
            let apply = async |it: &Session| apply::apply(it, yes, &approvals, wait, parallelism).await;
            Session::run(input, quiet, verbose, apply).await
        }
        Verb::Export(args) => export::export(args, quiet).await,
        Verb::Status(args) => status::status(&args, quiet).await,
        Verb::Diff(args) => diff::diff(args, quiet, verbose).await,
        Verb::Approve(args) => approve::approve(&args).await,
        Verb::Validate(args) => validate::validate(&args, quiet),
        Verb::Schema(args) => schema::schema(&args),
        Verb::Sandbox(args) => sandbox::sandbox(&args, quiet).await,
        Verb::Run(args) => {
            let is_success = crate::controller::run(args).await;
            Ok(if is_success { Exit::Success } else { Exit::Failure })
        }
        Verb::Completion { shell } => {
            print(&pages::completion(shell)).map_err(anyhow::Error::from)?;
            Ok(Exit::Success)
        }
        Verb::Man { verb } => {
            print(&pages::manual(verb.as_deref())?).map_err(anyhow::Error::from)?;
            Ok(Exit::Success)
        }
        Verb::Crds => {
            for crd in api::crds() {
                let text = serde_saphyr::to_string(&crd).map_err(anyhow::Error::from)?;
                print(&format!("---\n{text}")).map_err(anyhow::Error::from)?;
            }
            Ok(Exit::Success)
        }
        Verb::UninstallCheck(args) => uninstall_check::uninstall_check(&args).await,
    }
}

/// The exit code of an assessment; `differs` is that of a difference.
fn exit_of(assessment: &Assessment, differs: Exit) -> Exit {
    match &assessment.verdict {
        Verdict::Decided(Decision::Nothing) if assessment.unsupported.is_some() => Exit::Blocked,
        Verdict::Decided(Decision::Nothing) => Exit::Success,
        // Objects of the cluster stay as they are for a reason that only a person can do something about.
        Verdict::Decided(_) if blocks_rollout(assessment) => Exit::Blocked,
        Verdict::Decided(Decision::Apply | Decision::Observe) => differs,
        Verdict::Decided(Decision::Refuse(_)) => Exit::Refused,
        Verdict::Stopped(outcome) => exit_of_outcome(outcome),
    }
}

fn blocks_rollout(assessment: &Assessment) -> bool {
    assessment.unsupported.as_ref().is_some_and(|it| it.reason.blocks_rollout())
}

fn exit_of_outcome(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Equal | Outcome::Applied | Outcome::Observed => Exit::Success,
        Outcome::Blocked(waiting) if waiting.reason.ends_waiting() => Exit::Failure,
        Outcome::Unsupported(_) | Outcome::Blocked(_) => Exit::Blocked,
        Outcome::Refused(_) => Exit::Refused,
        Outcome::Invalid(_) => Exit::Usage,
        Outcome::Failed(_) => Exit::Failure,
    }
}

#[cfg(test)]
mod tests {
    use api::Reason;
    use engine::Blocked;

    use super::{approvals::tests::assessed, *};

    #[test]
    fn plan_fails_where_pods_stay_as_they_are() {
        let exit = |reason| {
            let unsupported = Some(Blocked { reason, message: String::new() });
            exit_of(&Assessment { unsupported, ..assessed(Verdict::Decided(Decision::Apply)) }, Exit::Drift)
        };
        for reason in [Reason::DowngradeRefused, Reason::NotOurs, Reason::SecretNotFound] {
            assert_eq!(exit(reason), Exit::Blocked, "{reason}");
        }
        assert_eq!(exit(Reason::NotSupported), Exit::Drift, "the other fields are applied");
    }
}
