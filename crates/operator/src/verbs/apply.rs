//! `apply`: shows the plan, asks, and does what was shown and nothing else.

use std::{collections::BTreeMap, time::Duration};

use client::Class;
use engine::{Assessment, Decision, Door, Outcome, Report, Trouble, Verdict, World, status::message};
use tokio::time::{Instant, sleep};

use super::{
    exit_of_outcome,
    session::{LOOK_AGAIN, Session, assess},
    targets::Target,
};
use crate::{
    exit::{Exit, Failure},
    manifests::Placed,
    render::{Done, Ended, Row},
    terminal::{Progress, can_ask, confirms, say},
};

/// How long `--wait` stays unless said otherwise.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);

pub(super) async fn apply(session: &Session, yes: bool, wait: Option<Duration>) -> Result<Exit, Failure> {
    let deadline = Instant::now() + wait.unwrap_or_default();
    let mut targets = session.open(deadline).await?;
    let (shown, mut rows) = assess(&mut targets).await;
    let changes = shown.iter().filter(|it| is_to_apply(it)).count();
    session.announce(&rows, changes > 0 && !yes)?;
    let left = deadline.saturating_duration_since(Instant::now());
    let exit = match agreed(changes, yes).await {
        Ok(true) => {
            // How long somebody thought about it does not count.
            let terms = Terms { yes, deadline: Instant::now() + left };
            let exit = carry_out_all(session, &mut targets, &shown, &mut rows, terms).await;
            if changes > 0 || wait.is_some() {
                session.note(&summary(&rows));
            }
            Ok(exit)
        }
        Ok(false) => {
            session.note("nothing was changed");
            Ok(Exit::Refused)
        }
        Err(failure) => Err(failure),
    };
    session.conclude(&rows)?;
    exit
}

/// What was agreed to.
#[derive(Clone, Copy)]
struct Terms {
    /// Also what could not be shown.
    yes: bool,
    /// How long to wait for what has to come first.
    deadline: Instant,
}

/// Does what was shown, object by object, and writes down what became of each.
async fn carry_out_all(
    session: &Session,
    targets: &mut [Target],
    shown: &[Assessment],
    rows: &mut [Row],
    terms: Terms,
) -> Exit {
    let total = shown.len();
    let mut all = shown.iter().zip(rows).enumerate();
    let mut worst = Exit::Success;
    for Target { world, subjects, .. } in targets {
        // What was read for the plan may be old by now.
        world.forget().await;
        for (placed, (index, (shown, row))) in subjects.iter_mut().zip(&mut all) {
            let reference = placed.subject.reference().to_string();
            let progress = Progress::new(session.quiet, index + 1, total, &reference);
            let end = loop {
                let end = carry_out(placed, shown, world, terms.yes, &progress).await;
                if !end.may_come || Instant::now() >= terms.deadline {
                    break end;
                }
                progress.now(&format!("waiting, {}", end.reason));
                sleep(LOOK_AGAIN).await;
                world.forget().await;
            };
            progress.end(end.state.word());
            if let Some(message) = end.message.as_ref().filter(|_| !row.tells(end.reason)) {
                say(&format!("{reference}: {message}"));
            }
            worst = worst.max(end.exit);
            row.end(Done { state: end.state, message: end.message });
        }
    }
    worst
}

/// What became of all of them: `2 applied, 1 waiting`.
fn summary(rows: &[Row]) -> String {
    let mut counts = BTreeMap::<Ended, usize>::new();
    for ended in rows.iter().filter_map(Row::ended) {
        *counts.entry(ended).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(ended, count)| format!("{count} {}", ended.word())).collect();
    counts.join(", ")
}

fn is_to_apply(assessment: &Assessment) -> bool {
    matches!(assessment.verdict, Verdict::Decided(Decision::Apply))
}

/// Whether somebody agrees to the changes, beforehand or now.
async fn agreed(changes: usize, yes: bool) -> Result<bool, Failure> {
    if changes == 0 || yes {
        return Ok(true);
    }
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
    state: Ended,
    /// The reason in a condition; empty where there is nothing to say.
    reason: &'static str,
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
    let end = |exit, state| End { exit, state, reason: "", message: None, may_come: false };
    match &now.verdict {
        Verdict::Decided(Decision::Apply) => {}
        Verdict::Decided(Decision::Nothing) => return end(Exit::Success, Ended::Equal),
        Verdict::Decided(Decision::Observe) => return end(Exit::Success, Ended::Observed),
        Verdict::Decided(Decision::Refuse(refusal)) => {
            return ended(&Outcome::Refused(*refusal), &now, "");
        }
        Verdict::Stopped(outcome) => return ended(outcome, &now, ""),
    }
    // What had to wait, or could not be read, was shown without a plan. Only `--yes` agrees to what nobody has seen.
    let was_shown = now.plan.hash == shown.plan.hash
        || yes && matches!(shown.verdict, Verdict::Stopped(Outcome::Waiting(_) | Outcome::Failed(_)));
    if !was_shown {
        let message = "there is another plan now than the one that was shown; nothing was done, run it again";
        let end = end(Exit::Failure, Ended::LeftAlone);
        return End { message: Some(message.to_owned()), ..end };
    }
    progress.now(&format!("applying, {}", now.plan.summary));
    let Report { outcome, id: _, done } = placed.subject.carry_out(&now, world).await;
    ended(&outcome, &now, &format!("{done} of {} steps were done: ", now.plan.steps.len()))
}

/// An outcome as a script and a person are told of it.
fn ended(outcome: &Outcome, now: &Assessment, before: &str) -> End {
    let told = || format!("{before}{}: {}", outcome.reason(), message(outcome, &now.plan));
    End {
        exit: exit_of_outcome(outcome),
        state: outcome.into(),
        reason: outcome.reason(),
        message: (!outcome.is_ready()).then(told),
        may_come: may_come(outcome),
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
