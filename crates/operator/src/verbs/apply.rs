//! `apply`: shows the plan, asks, and does what was shown and nothing else.

use std::time::Duration;

use client::Class;
use engine::{Assessment, Decision, Door, Outcome, Report, Trouble, Verdict, World, status::message};
use tokio::time::{Instant, sleep};

use super::{
    exit_of, exit_of_outcome,
    session::{LOOK_AGAIN, Session, assess},
    targets::Target,
};
use crate::{
    exit::{Exit, Failure},
    manifests::Placed,
    terminal::{Progress, can_ask, confirms, say},
};

/// How long `--wait` stays unless said otherwise.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);

pub(super) async fn apply(session: &Session, yes: bool, wait: Option<Duration>) -> Result<Exit, Failure> {
    let deadline = Instant::now() + wait.unwrap_or_default();
    let mut targets = session.open(deadline).await?;
    let (shown, rows) = assess(&mut targets).await;
    session.show(&rows)?;
    let left = deadline.saturating_duration_since(Instant::now());
    let changes = shown.iter().filter(|it| is_to_apply(it)).count();
    if changes > 0 && !yes && !is_confirmed(changes).await? {
        session.note("nothing was changed");
        return Ok(Exit::Refused);
    }
    // How long somebody thought about it does not count.
    let deadline = Instant::now() + left;
    let total = shown.len();
    let mut all = shown.iter().enumerate();
    let mut worst = Exit::Success;
    for Target { world, subjects, .. } in &mut targets {
        // What was read for the plan may be old by now.
        world.forget().await;
        for (placed, (index, shown)) in subjects.iter_mut().zip(&mut all) {
            let reference = placed.subject.reference().to_string();
            let progress = Progress::new(session.quiet, index + 1, total, &reference);
            let end = loop {
                let end = carry_out(placed, shown, world, yes, &progress).await;
                if !end.may_come || Instant::now() >= deadline {
                    break end;
                }
                progress.now(&format!("waiting, {}", end.word));
                sleep(LOOK_AGAIN).await;
                world.forget().await;
            };
            progress.end(end.word);
            if let Some(message) = end.message {
                say(&format!("{reference}: {message}"));
            }
            worst = worst.max(end.exit);
        }
    }
    Ok(worst)
}

fn is_to_apply(assessment: &Assessment) -> bool {
    matches!(assessment.verdict, Verdict::Decided(Decision::Apply))
}

async fn is_confirmed(changes: usize) -> Result<bool, Failure> {
    let objects = if changes == 1 { "1 object".to_owned() } else { format!("{changes} objects") };
    if !can_ask() {
        return Err(Failure::usage(format!(
            "{objects} would be changed and nobody can be asked: give --yes"
        )));
    }
    confirms(format!("Change {objects}?")).await.map_err(|error| anyhow::Error::from(error).into())
}

/// What became of one object.
struct End {
    exit: Exit,
    /// The same in a word for the line of progress.
    word: &'static str,
    /// What a person has to know.
    message: Option<String>,
    /// Whether looking again may end in another way.
    may_come: bool,
}

/// Looks once more at one object, and does what was shown, if that still is what there is to do.
async fn carry_out(
    placed: &mut Placed,
    shown: &Assessment,
    world: &World,
    yes: bool,
    progress: &Progress,
) -> End {
    progress.now("comparing");
    let now = placed.subject.assess(world, Door::CommandLine).await;
    if !is_to_apply(&now) {
        return left(&now);
    }
    // What had to wait, or could not be read, was shown without a plan. Only `--yes` agrees to what nobody has seen.
    let was_shown = now.plan.hash == shown.plan.hash
        || yes && matches!(shown.verdict, Verdict::Stopped(Outcome::Waiting(_) | Outcome::Failed(_)));
    if !was_shown {
        let message = "there is another plan now than the one that was shown; nothing was done, run it again"
            .to_owned();
        return End { exit: Exit::Failure, word: "left alone", message: Some(message), may_come: false };
    }
    progress.now(&format!("applying, {}", now.plan.summary));
    let Report { outcome, id: _, done } = placed.subject.carry_out(&now, world).await;
    let steps = now.plan.steps.len();
    let failed = || {
        format!("{done} of {steps} steps were done: {}: {}", outcome.reason(), message(&outcome, &now.plan))
    };
    End {
        exit: exit_of_outcome(&outcome),
        word: word_of(&outcome),
        message: (!outcome.is_ready()).then(failed),
        may_come: may_come(&outcome),
    }
}

/// The end of an object to which nothing is to be done now.
fn left(now: &Assessment) -> End {
    let (word, told, may_come) = match &now.verdict {
        Verdict::Decided(Decision::Nothing | Decision::Apply) => ("equal", None, false),
        Verdict::Decided(Decision::Observe) => ("observed", None, false),
        Verdict::Decided(Decision::Refuse(_)) => ("refused", None, false),
        Verdict::Stopped(outcome) => {
            let told = format!("{}: {}", outcome.reason(), message(outcome, &now.plan));
            (word_of(outcome), Some(told), may_come(outcome))
        }
    };
    End { exit: exit_of(now, Exit::Success), word, message: told, may_come }
}

fn word_of(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Equal => "equal",
        Outcome::Applied => "applied",
        Outcome::Observed => "observed",
        // Why is in one word, which is all that a line has room for.
        Outcome::Waiting(_) => outcome.reason(),
        Outcome::Refused(_) => "refused",
        Outcome::Invalid(_) => "invalid",
        Outcome::Failed(_) => "failed",
    }
}

/// Whether it is worth waiting: something has to come first, or the deployment does not answer just now.
fn may_come(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Waiting(_) | Outcome::Failed(Trouble::Waiting(_)) => true,
        Outcome::Failed(Trouble::Remote(error)) => {
            matches!(error.class(), Class::Transient | Class::RateLimited)
        }
        _ => false,
    }
}
