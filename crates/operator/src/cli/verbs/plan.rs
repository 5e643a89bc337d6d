//! `plan` and `verify`: compare, and change nothing.

use tokio::time::Instant;

use super::{
    approvals::Approvals,
    exit_of,
    session::{Access, Opened, Session, assess, view},
};
use crate::cli::exit::{Exit, Failure};

/// `reports`: whether a difference is an exit code of its own.
pub(super) async fn plan(session: &Session, reports: bool) -> Result<Exit, Failure> {
    let Opened { mut targets, skipped } = session.open(Access::Read, Instant::now()).await?;
    let (assessments, rows) = assess(&mut targets, &Approvals::default()).await;
    session.show(&view(&targets, &rows, &skipped))?;
    let differs = if reports { Exit::Drift } else { Exit::Success };
    Ok(assessments.iter().map(|it| exit_of(it, differs)).max().unwrap_or(Exit::Success))
}
