//! A page that promises tests promises tests that there are.

use std::collections::BTreeSet;

use super::tree::{Complaint, Tree};

/// The page that says which of our tests show what coder-k8s' tests show.
const PAGE: &str = "docs/conformance.md";
/// The column of our tests, counted from the bar before the first one.
const COLUMN: usize = 2;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let functions: BTreeSet<&str> = tree.with_ending(".rs").flat_map(|(_, text)| functions(text)).collect();
    let page = tree.text(PAGE).map(String::as_str).unwrap_or_default();
    complaints(page, &functions)
}

fn complaints(page: &str, functions: &BTreeSet<&str>) -> Vec<Complaint> {
    let lines = page.lines().enumerate();
    let missing = lines.flat_map(|(index, line)| {
        let named = tests_of(line).into_iter().filter(|it| !functions.contains(it));
        named.map(move |name| {
            Complaint::new(PAGE, index + 1, format!("names a test that there is not: {name}"))
        })
    });
    missing.collect()
}

/// The tests that a row of a table names: what is in backticks in their column.
fn tests_of(line: &str) -> Vec<&str> {
    if !line.starts_with('|') {
        return Vec::new();
    }
    let column = line.split('|').nth(COLUMN).unwrap_or_default();
    column.split('`').skip(1).step_by(2).collect()
}

/// The names of functions in a source.
pub(super) fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("fn ")?;
        rest.split_once('(').map(|(name, _)| name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_there_is_not_is_found() {
        let functions: BTreeSet<&str> =
            functions("    fn one_holds() {\nasync fn two_holds() {\nlet fn_three = 3;\n").collect();
        assert_eq!(functions, ["one_holds", "two_holds"].into());
        let page = "| theirs | ours | why not |\n|---|---|---|\n| `TestA` | `one_holds`, `two_holds` | |\n\
                    | `TestB` | `three_holds` | |\n| `TestC` | | no such `thing` |\n`four_holds` is not in a table\n";
        let found = complaints(page, &functions);
        let expected = Complaint::new(PAGE, 4, "names a test that there is not: three_holds");
        assert_eq!(found, [expected]);
    }
}
