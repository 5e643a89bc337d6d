//! A page that promises tests promises tests that there are.

use std::collections::BTreeSet;

use super::tree::{Complaint, Tree};

/// The page that says which of our tests show what coder-k8s' tests show.
const PAGE: &str = "docs/conformance.md";
/// The column of our tests, counted from the bar before the first one.
const COLUMN: usize = 2;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let tests: BTreeSet<&str> = tree.with_ending(".rs").flat_map(|(_, text)| tests_in(text)).collect();
    let page = tree.text(PAGE).map(String::as_str).unwrap_or_default();
    complaints(page, &tests)
}

fn complaints(page: &str, tests: &BTreeSet<&str>) -> Vec<Complaint> {
    let lines = page.lines().enumerate();
    let missing = lines.flat_map(|(index, line)| {
        let named = tests_of(line).into_iter().filter(|it| !tests.contains(it));
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

/// The names of the tests in a source: functions below an attribute that ends in `test`.
fn tests_in(text: &str) -> Vec<&str> {
    let mut tests = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        if let Some(attribute) = line.strip_prefix("#[") {
            let path = attribute.split(['(', ']']).next().unwrap_or_default();
            is_test |= path.split("::").last() == Some("test");
        } else if !line.starts_with("//") {
            let name = line.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
            tests.extend(name.filter(|_| is_test).map(|(name, _)| name));
            is_test = false;
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_count() {
        let source = "#[test]\n#[expect(x)]\n// why\nfn one_holds() {\n    fn helper() {}\n}\n\
            #[tokio::test(flavor = \"multi_thread\")]\nasync fn two_holds() {\n#[cfg(test)]\nmod tests {\n\
            #[must_use]\nfn three_holds() {\n";
        assert_eq!(tests_in(source), ["one_holds", "two_holds"]);
    }

    #[test]
    fn a_test_that_there_is_not_is_found() {
        let tests: BTreeSet<&str> = ["one_holds", "two_holds"].into();
        let page = "| theirs | ours | why not |\n|---|---|---|\n| `TestA` | `one_holds`, `two_holds` | |\n\
                    | `TestB` | `three_holds` | |\n| `TestC` | | no such `thing` |\n`four_holds` is not in a table\n";
        let found = complaints(page, &tests);
        let expected = Complaint::new(PAGE, 4, "names a test that there is not: three_holds");
        assert_eq!(found, [expected]);
    }
}
