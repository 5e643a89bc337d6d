//! `plan` and `verify`: compare, and change nothing.

use tokio::time::Instant;

use super::{
    approvals::Approvals,
    exit_of,
    session::{Access, Opened, Session, assess, view},
};
use crate::cli::{
    exit::{Exit, Failure},
    render::Row,
};

/// `reports`: whether a difference is an exit code of its own. `skips_missing_secrets`: whether fields whose Secrets are missing are
/// left out of the comparison.
pub(super) async fn plan(
    session: &Session,
    reports: bool,
    skips_missing_secrets: bool,
) -> Result<Exit, Failure> {
    let Opened { mut targets, skipped } = session.open(Access::Read, Instant::now()).await?;
    if skips_missing_secrets {
        for target in &mut targets {
            target.coder = target.coder.clone().skipping_missing_secrets();
        }
    }
    let (assessments, rows) = assess(&mut targets, &Approvals::default()).await;
    for note in rows.iter().filter_map(Row::not_compared) {
        session.note(&note);
    }
    session.show(&view(&targets, &rows, &skipped))?;
    let differs = if reports { Exit::Drift } else { Exit::Success };
    Ok(assessments.iter().map(|it| exit_of(it, differs)).max().unwrap_or(Exit::Success))
}
