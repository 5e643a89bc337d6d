//! The page of all reasons, and the parts of it that a kind's page repeats.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use api::reasons::{CONDITIONS, REASONS, ReasonGroup};

use super::{
    FOLDER, NOTE,
    markdown::{Table, code},
};
use crate::generated::File;

const INTRODUCTION: &str = "\
Every condition has a reason in CamelCase. Reasons are stable: alerts, scripts and health checks may match on them. \
The message beside a reason names the objects and quotes Coder's or Kubernetes' answer, without secrets.";

pub(super) fn file() -> Result<File> {
    let mut text = format!("# Reasons\n\n{NOTE}\n\n{INTRODUCTION}\n");
    for group in REASONS {
        write!(text, "\n## {}\n\nOn {}.\n\n", group.title, group.kinds.join(", "))
            .context("write a title")?;
        text.push_str(&table(group));
    }
    Ok(File { path: format!("{FOLDER}reasons.md"), text })
}

/// The conditions that a kind reports.
pub(super) fn conditions(kind: &str) -> String {
    let mut table = Table::new(&["condition", "`True` means"]);
    for condition in CONDITIONS.iter().copied().flatten().filter(|it| it.kinds.contains(&kind)) {
        table.row([code(condition.condition), condition.meaning.to_owned()]);
    }
    table.finish()
}

/// The groups of reasons that a kind reports.
pub(super) fn groups(kind: &str) -> impl Iterator<Item = &'static ReasonGroup> {
    REASONS.iter().filter(move |it| it.kinds.contains(&kind) && !it.conditions.is_empty())
}

pub(super) fn table(group: &ReasonGroup) -> String {
    let mut table = Table::new(&["reason", "meaning", "what to do"]);
    for row in group.reasons {
        table.row([code(row.reason.as_str()), row.meaning.to_owned(), row.action.to_owned()]);
    }
    table.finish()
}
