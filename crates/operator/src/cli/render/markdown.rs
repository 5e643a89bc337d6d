//! The diff as Markdown, for the comment of a pull request.
//!
//! Names and values come from manifests and from Coder: they stand in fenced blocks, which nothing in them can end.

use std::fmt::Write as _;

use super::{State, View, text};
use crate::cli::terminal::printable;

pub(super) fn render(view: &View<'_>, verbose: bool) -> String {
    let mut page = format!("### coder-operator: {}\n", text::counts(view));
    for deployment in &view.deployments {
        let plane =
            deployment.control_plane().map(|it| format!(", CoderControlPlane {it}")).unwrap_or_default();
        // Writing to a string cannot fail.
        writeln!(page, "\nDeployment {}", code(&format!("{deployment}{plane}"))).ok();
        let rows = view.objects.iter().filter(|it| it.control_plane == **deployment);
        let mut diff = String::new();
        for row in rows.filter(|it| verbose || it.state != State::Equal) {
            text::write_row(&mut diff, row);
        }
        if !diff.is_empty() {
            page += &fenced(&diff);
        }
    }
    if !view.skipped.is_empty() {
        let lines: Vec<String> = view.skipped.iter().map(ToString::to_string).collect();
        writeln!(page, "\nSkipped:\n{}", fenced(&lines.join("\n")).trim_end()).ok();
    }
    page
}

/// The text as a block of code, with a fence that the text does not contain.
pub(in crate::cli) fn fenced(text: &str) -> String {
    let text = printable(text);
    let fence = fence(&text, 3);
    format!("\n{fence}diff\n{}\n{fence}\n", text.trim_end())
}

/// The text as code within a line.
fn code(text: &str) -> String {
    let text = printable(text).replace('\n', " ");
    let fence = fence(&text, 1);
    format!("{fence} {text} {fence}")
}

/// Backticks, at least `least`, and more than the text has in a row.
fn fence(text: &str, least: usize) -> String {
    let longest = text.split(|it| it != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(least.max(longest + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_leave_its_block() {
        let block = fenced("a\n````\n@somebody\n");
        assert_eq!(block, "\n`````diff\na\n````\n@somebody\n`````\n");
        assert_eq!(fenced("plain"), "\n```diff\nplain\n```\n");
        assert_eq!(code("a`b"), "`` a`b ``");
    }
}
