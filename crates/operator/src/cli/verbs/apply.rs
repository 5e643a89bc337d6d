//! `apply`: shows the plan, asks, and applies what was shown and nothing else.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use api::Reason;
use client::Class;
use engine::{
    Assessment, Coder, Decision, Door, Outcome, Report, Trouble, Verdict, pipeline::status::message,
};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep};

use super::{
    approvals::Approvals,
    exit_of_outcome,
    session::{Access, LOOK_AGAIN, Opened, Session, assess, view},
    targets::Target,
};
use crate::cli::{
    exit::{Exit, Failure},
    manifests::Placed,
    render::{Done, Ended, Row},
    terminal::{Progress, ask, can_ask, say},
};

/// How long `--wait` waits without `--timeout`.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);

pub(super) async fn apply(
    session: &Session,
    yes: bool,
    approvals: &Approvals,
    wait: Option<Duration>,
    parallelism: NonZeroUsize,
) -> Result<Exit, Failure> {
    let deadline = Instant::now() + wait.unwrap_or_default();
    let Opened { mut targets, skipped } = session.open(Access::Write { yes }, deadline).await?;
    let (shown, mut rows) = assess(&mut targets, approvals).await;
    let references = targets.iter().flat_map(|it| &it.subjects).map(|it| it.subject.reference());
    approvals.check(references.zip(&shown))?;
    let question = question(&targets, &shown);
    session.announce(&view(&targets, &rows, &skipped), question.is_some() && !yes)?;
    let subjects = targets.iter().flat_map(|it| &it.subjects);
    for (placed, assessment) in subjects.zip(&shown) {
        if let Some(advice) = Approvals::advice(assessment) {
            session.note(&format!("{}: {advice}", placed.subject.reference()));
        }
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let exit = match agreed(question.as_ref(), yes).await {
        Ok(true) => {
            // The time of the answer does not count.
            let terms = Terms { yes, approvals, deadline: Instant::now() + left, parallelism };
            let exit = carry_out_all(session, &mut targets, &shown, &mut rows, terms).await;
            identify_again(&mut targets, &mut rows).await;
            if question.is_some() || wait.is_some() {
                summaries(&targets, &rows).for_each(|it| session.note(&it));
            }
            Ok(exit)
        }
        Ok(false) => {
            for target in &targets {
                session.note(&format!("nothing was changed in {}", target.deployment));
            }
            Ok(Exit::Refused)
        }
        Err(failure) => Err(failure),
    };
    session.conclude(&view(&targets, &rows, &skipped))?;
    exit
}

/// What was agreed to.
#[derive(Clone, Copy)]
struct Terms<'a> {
    /// Changes that could not be shown, too.
    yes: bool,
    approvals: &'a Approvals,
    /// How long to wait for dependencies.
    deadline: Instant,
    /// How many objects are applied side by side.
    parallelism: NonZeroUsize,
}

/// A deployment that answered only while the command waited gets its version and id in the result.
async fn identify_again(targets: &mut [Target], rows: &mut [Row]) {
    let mut rows = rows.iter_mut();
    for Target { deployment, coder, subjects, .. } in targets {
        deployment.identify(coder.client()).await;
        rows.by_ref().take(subjects.len()).for_each(|row| row.set_deployment(deployment));
    }
}

/// Applies what was shown, and records the result of each object. Objects of one rank refer to none of each other and are
/// applied side by side.
async fn carry_out_all(
    session: &Session,
    targets: &mut [Target],
    shown: &[Assessment],
    rows: &mut [Row],
    terms: Terms<'_>,
) -> Exit {
    let total = shown.len();
    let mut all = shown.iter().zip(rows).enumerate();
    let mut worst = Exit::Success;
    for Target { coder, subjects, .. } in targets {
        // The state that the plan was made from may be outdated.
        *coder = coder.anew();
        for rank in subjects.chunk_by_mut(|one, next| one.subject.rank() == next.subject.rank()) {
            let items: Vec<_> = rank.iter_mut().zip(&mut all).collect();
            let ends = stream::iter(items).map(async |(placed, (index, (shown, row)))| {
                let reference = placed.subject.reference().to_string();
                let progress = Progress::new(session.quiet, index + 1, total, &reference);
                let end = carry_out_in_time(placed, shown, coder, terms, &progress).await;
                progress.end(end.state.word());
                if let Some(message) = end.message.as_ref().filter(|_| !row.has_reason(end.reason)) {
                    say(&format!("{reference}: {message}"));
                }
                row.end(Done { state: end.state, message: end.message });
                end.exit
            });
            let exits = ends.buffer_unordered(terms.parallelism.get());
            worst = exits.fold(worst, async |worst, exit| worst.max(exit)).await;
            if rank.iter().any(|it| it.subject.rank() == 0) {
                // What is licensed now.
                *coder = coder.anew();
            }
        }
    }
    worst
}

/// Applies one object, and waits for its dependencies as long as agreed.
async fn carry_out_in_time(
    placed: &mut Placed,
    shown: &Assessment,
    coder: &Coder,
    terms: Terms<'_>,
    progress: &Progress,
) -> End {
    let mut coder = coder.clone();
    let mut was_stale = false;
    loop {
        let end = carry_out(placed, shown, &coder, terms, progress).await;
        if end.goes_on {
            // The next round of the same plan.
            was_stale = false;
        } else if end.is_stale && !was_stale {
            was_stale = true;
        } else if !end.may_come || Instant::now() >= terms.deadline {
            return end;
        } else {
            let why = end.message.as_deref().unwrap_or_else(|| end.reason.map_or("", Reason::as_str));
            progress.now(&format!("waiting, {why}"));
            sleep(LOOK_AGAIN).await;
        }
        coder = coder.anew();
    }
}

/// The results in each deployment, as `2 applied, 1 waiting in https://…`.
fn summaries(targets: &[Target], rows: &[Row]) -> impl Iterator<Item = String> {
    let mut rows = rows.iter();
    targets.iter().map(move |Target { deployment, subjects, .. }| {
        let mut counts = BTreeMap::<Ended, usize>::new();
        for ended in rows.by_ref().take(subjects.len()).filter_map(Row::ended) {
            *counts.entry(ended).or_default() += 1;
        }
        let counts: Vec<String> =
            counts.into_iter().map(|(ended, count)| format!("{count} {}", ended.word())).collect();
        format!("{} in {deployment}", counts.join(", "))
    })
}

/// What a person is asked before anything is changed.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    /// How many objects change, and in which deployments.
    change: String,
    /// The host name that the answer has to be, where the address came only from the environment; else the answer is `yes`.
    host: Option<String>,
}

/// `None` when no object changes.
fn question(targets: &[Target], shown: &[Assessment]) -> Option<Question> {
    let mut shown = shown.iter();
    let mut count = 0;
    let (mut deployments, mut host) = (Vec::new(), None);
    for target in targets {
        let changes = shown.by_ref().take(target.subjects.len()).filter(|it| it.is_to_apply()).count();
        if changes > 0 {
            count += changes;
            deployments.push(target.deployment.to_string());
            host = host.or_else(|| target.host.clone());
        }
    }
    let objects = if count == 1 { "1 object".to_owned() } else { format!("{count} objects") };
    let change = format!("{objects} in {}", deployments.join(" and "));
    (count > 0).then_some(Question { change, host })
}

/// Whether a person agrees to the changes, by `--yes` or by the answer to the question.
async fn agreed(question: Option<&Question>, yes: bool) -> Result<bool, Failure> {
    let Some(Question { change, host }) = question.filter(|_| !yes) else { return Ok(true) };
    if !can_ask() {
        return Err(Failure::usage(format!(
            "apply would change {change}, and there is no terminal to ask on: give --yes"
        )));
    }
    let (text, expected) = match host {
        None => (format!("Change {change}? Only `yes` is accepted:"), "yes"),
        Some(host) => {
            let why = "The address came only from the environment variable CODER_URL.";
            (format!("Change {change}? {why} Type the host name to continue ({host}):"), host.as_str())
        }
    };
    let answer = ask(text).await.map_err(anyhow::Error::from)?;
    Ok(answer == expected)
}

/// The result of one object.
struct End {
    exit: Exit,
    state: Ended,
    /// The reason of the condition. `None` for an object that is as declared.
    reason: Option<Reason>,
    message: Option<String>,
    /// Whether trying again may succeed.
    may_come: bool,
    /// Whether the object changed while it was compared.
    is_stale: bool,
    /// Whether the next round of the plan can begin.
    goes_on: bool,
}

/// Assesses one object again, and applies its plan if that is still the plan that was shown.
async fn carry_out(
    placed: &mut Placed,
    shown: &Assessment,
    coder: &Coder,
    terms: Terms<'_>,
    progress: &Progress,
) -> End {
    progress.now("comparing");
    let now = terms.approvals.grant(placed.subject.assess(coder, Door::CommandLine).await);
    let end = |exit, state| End {
        exit,
        state,
        reason: None,
        message: None,
        may_come: false,
        is_stale: false,
        goes_on: false,
    };
    match &now.verdict {
        Verdict::Decided(Decision::Apply) => {}
        Verdict::Decided(Decision::Nothing) => {
            return match &now.unsupported {
                Some(fields) => ended(&Outcome::Unsupported(fields.clone()), &now, ""),
                None => end(Exit::Success, Ended::Equal),
            };
        }
        Verdict::Decided(Decision::Observe) => return end(Exit::Success, Ended::Observed),
        Verdict::Decided(Decision::Refuse(refusal)) => {
            return ended(&Outcome::Refused(*refusal), &now, "");
        }
        Verdict::Stopped(outcome) => return ended(outcome, &now, ""),
    }
    // An object that waited or could not be read was shown without a plan, and one with unsupported fields without these: a
    // licence that was installed since may cover them. Only `--yes` agrees to a plan that was not shown.
    let was_partial = matches!(shown.verdict, Verdict::Stopped(Outcome::Blocked(_) | Outcome::Failed(_)))
        || shown.unsupported.is_some();
    // A later round has the steps that are left of the plan that was shown. Steps that need no approval may have come since.
    let target = placed.subject.target();
    let was_shown = now.plan.is_empty() && shown.plan.is_empty()
        || !shown.plan.is_empty() && now.plan.is_part_of(&shown.plan.step_ids(&target), &target)
        || terms.yes && was_partial;
    if !was_shown {
        let message = "the plan has changed since it was shown, and was not applied: run the command again";
        let end = end(Exit::Failure, Ended::Skipped);
        return End { message: Some(message.to_owned()), ..end };
    }
    progress.now(&format!("applying, {}", now.plan.summary));
    let Report { outcome, done, .. } = placed.subject.carry_out(&now, coder).await;
    let end = ended(&outcome, &now, &format!("{done} of {} steps were done: ", now.plan.steps.len()));
    End { goes_on: outcome.goes_on(done), ..end }
}

/// The result that an outcome stands for.
fn ended(outcome: &Outcome, now: &Assessment, before: &str) -> End {
    let text = || format!("{before}{}: {}", outcome.reason(), message(outcome, &now.plan));
    End {
        exit: exit_of_outcome(outcome),
        state: outcome.into(),
        reason: Some(outcome.reason()),
        message: (!outcome.is_ready()).then(text),
        may_come: may_come(outcome),
        is_stale: outcome.is_stale(),
        goes_on: false,
    }
}

/// Whether waiting may help: a dependency is missing, or the deployment does not answer.
fn may_come(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Blocked(waiting) => !waiting.reason.ends_waiting(),
        Outcome::Failed(Trouble::Blocked(_) | Trouble::Stale) => true,
        Outcome::Failed(Trouble::Remote(error)) => {
            matches!(error.class(), Class::Transient | Class::RateLimited)
        }
        _ => false,
    }
}
