//! `plan` and `verify`: what differs. Neither changes anything.

use super::{Session, exit_of};
use crate::{
    exit::{Exit, Failure},
    render::Row,
};

pub(super) async fn plan(session: &Session, tells: bool) -> Result<Exit, Failure> {
    let mut subjects = session.load()?;
    let world = session.world(&subjects);
    let assessments = session.assess(&mut subjects, &world).await;
    let rows: Vec<Row> =
        subjects.iter().zip(&assessments).map(|(it, assessment)| Row::assessed(it, assessment)).collect();
    session.show(&rows)?;
    let differs = if tells { Exit::Drift } else { Exit::Success };
    Ok(assessments.iter().map(|it| exit_of(it, differs)).max().unwrap_or(Exit::Success))
}
