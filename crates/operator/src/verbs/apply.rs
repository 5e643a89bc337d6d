//! `apply`: shows the plan, asks, and does what was shown and nothing else.

use std::time::Duration;

use engine::{Assessment, Decision, Door, Outcome, Report, Verdict, World, status::message};
use tokio::time::{Instant, sleep};

use super::{Session, exit_of, exit_of_outcome};
use crate::{
    exit::{Exit, Failure},
    manifests::Placed,
    render::Row,
    terminal::{can_ask, confirms, say, shows_progress},
};

/// How often it is looked whether what has to come first has come.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

pub(super) async fn apply(session: &Session, yes: bool, wait: Option<Duration>) -> Result<Exit, Failure> {
    let mut subjects = session.load()?;
    let world = session.world(&subjects);
    let shown = session.assess(&mut subjects, &world).await;
    let rows: Vec<Row> =
        subjects.iter().zip(&shown).map(|(it, assessment)| Row::assessed(it, assessment)).collect();
    session.show(&rows)?;
    let changes = shown.iter().filter(|it| is_to_apply(it)).count();
    if changes > 0 && !yes && !is_confirmed(changes)? {
        session.note("nothing was changed");
        return Ok(Exit::Refused);
    }
    // What was read for the plan may be old by now: somebody took their time to read it.
    world.forget().await;
    let deadline = Instant::now() + wait.unwrap_or_default();
    let mut worst = Exit::Success;
    for (placed, shown) in subjects.iter_mut().zip(&shown) {
        let exit = loop {
            let exit = carry_out(session, placed, shown, &world, yes).await;
            if exit != Exit::Waiting || Instant::now() >= deadline {
                break exit;
            }
            sleep(LOOK_AGAIN).await;
            world.forget().await;
        };
        worst = worst.max(exit);
    }
    Ok(worst)
}

fn is_to_apply(assessment: &Assessment) -> bool {
    matches!(assessment.verdict, Verdict::Decided(Decision::Apply))
}

fn is_confirmed(changes: usize) -> Result<bool, Failure> {
    if !can_ask() {
        return Err(Failure::usage(format!(
            "{changes} objects would be changed and nobody can be asked: give --yes"
        )));
    }
    confirms(&format!("Change {changes} objects?")).map_err(|error| anyhow::Error::from(error).into())
}

/// Looks once more at one object, and does what was shown, if that still is what there is to do.
async fn carry_out(
    session: &Session,
    placed: &mut Placed,
    shown: &Assessment,
    world: &World,
    yes: bool,
) -> Exit {
    let reference = placed.subject.reference();
    let now = placed.subject.assess(world, Door::CommandLine).await;
    if !is_to_apply(&now) {
        if let Verdict::Stopped(outcome) = &now.verdict {
            say(&format!("{reference}: {}", message(outcome, &now.plan)));
        }
        return exit_of(&now, Exit::Success);
    }
    let was_shown = now.plan.hash == shown.plan.hash
        || yes && matches!(shown.verdict, Verdict::Stopped(Outcome::Waiting(_)));
    if !was_shown {
        say(&format!(
            "{reference}: there is another plan now than the one that was shown; nothing was done, run it again"
        ));
        return Exit::Failure;
    }
    if shows_progress() {
        session.note(&format!("{reference}: {}", now.plan.summary));
    }
    let Report { outcome, id: _, done } = placed.subject.carry_out(&now, world).await;
    if !outcome.is_ready() {
        let steps = now.plan.steps.len();
        say(&format!("{reference}: {done} of {steps} steps were done: {}", message(&outcome, &now.plan)));
    }
    exit_of_outcome(&outcome)
}
