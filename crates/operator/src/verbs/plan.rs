//! `plan` and `verify`: what differs. Neither changes anything.

use tokio::time::Instant;

use super::{
    exit_of,
    session::{Session, assess},
};
use crate::exit::{Exit, Failure};

pub(super) async fn plan(session: &Session, tells: bool) -> Result<Exit, Failure> {
    let mut targets = session.open(Instant::now()).await?;
    let (assessments, rows) = assess(&mut targets).await;
    session.show(&rows)?;
    let differs = if tells { Exit::Drift } else { Exit::Success };
    Ok(assessments.iter().map(|it| exit_of(it, differs)).max().unwrap_or(Exit::Success))
}
