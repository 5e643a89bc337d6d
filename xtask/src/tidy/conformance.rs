//! A page that promises tests promises tests that there are, and a recommendation names what there is: a manifest, a command.

use std::collections::BTreeSet;

use super::tree::{Complaint, Tree};

/// The page that says which of our tests show what coder-k8s' tests show.
const PAGE: &str = "docs/conformance.md";
/// The column of our tests, counted from the bar before the first one.
const COLUMN: usize = 2;
/// The section whose rows name a test, a manifest and a command each.
const RECOMMENDATIONS: &str = "## GitOps for Coder's application state";
/// The page with the verbs of the command line.
const VERBS: &str = "docs/reference/cli.md";

/// What rows may name beside tests.
struct Known<'a> {
    verbs: BTreeSet<&'a str>,
    /// Files of the repository.
    paths: BTreeSet<&'a str>,
}

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let tests: BTreeSet<&str> = tree.with_ending(".rs").flat_map(|(_, text)| tests_in(text)).collect();
    let page = tree.text(PAGE).map(String::as_str).unwrap_or_default();
    let verbs = tree.text(VERBS).map(String::as_str).unwrap_or_default();
    let known = Known {
        verbs: verbs
            .lines()
            .filter_map(|it| it.strip_prefix("## `coder-operator ")?.strip_suffix('`'))
            .collect(),
        paths: tree.files.iter().map(|it| it.path.as_str()).collect(),
    };
    let mut found = complaints(page, &tests);
    found.extend(incomplete_rows(page, &known));
    found
}

/// Complains of recommendations without a test, a manifest or a command that there is.
fn incomplete_rows(page: &str, known: &Known<'_>) -> Vec<Complaint> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| *line != RECOMMENDATIONS).skip(1);
    let section = lines.take_while(|(_, line)| !line.starts_with("## "));
    // The first two rows are the head.
    let rows: Vec<(usize, &str)> = section.filter(|(_, line)| line.starts_with('|')).skip(2).collect();
    if rows.is_empty() {
        return vec![Complaint::new(PAGE, 1, format!("has no table below {RECOMMENDATIONS:?}"))];
    }
    let missing = rows.into_iter().flat_map(|(index, row)| {
        let cell = |number: usize| row.split('|').nth(number).unwrap_or_default();
        let complain =
            move |what: &str| Complaint::new(PAGE, index + 1, format!("names no {what} that there is"));
        [
            tests_of(row).is_empty().then(|| complain("test")),
            (!known.has_manifest(cell(COLUMN + 1))).then(|| complain("kind or file")),
            (!known.has_command(cell(COLUMN + 2))).then(|| complain("command")),
        ]
    });
    missing.flatten().collect()
}

impl Known<'_> {
    /// Whether a cell names kinds and files, and all of them exist.
    fn has_manifest(&self, cell: &str) -> bool {
        let is_word = |it: char| it.is_ascii_alphanumeric();
        let kinds: Vec<&str> =
            cell.split(|it| !is_word(it)).filter(|it| it.len() > 5 && it.starts_with("Coder")).collect();
        let files: Vec<&str> = quoted(cell).filter(|it| it.contains('/')).collect();
        let has_all = kinds.iter().all(|it| api::kinds::ALL.contains(it))
            && files.iter().all(|it| self.paths.iter().any(|path| path.starts_with(it)));
        has_all && !(kinds.is_empty() && files.is_empty())
    }

    /// Whether a cell names a verb of the command line, or a command of kubectl.
    fn has_command(&self, cell: &str) -> bool {
        let mut first = quoted(cell).filter_map(|it| it.split(' ').next());
        first.any(|it| self.verbs.contains(it) || it == "kubectl")
    }
}

/// What is in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
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
    quoted(column).collect()
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
    fn recommendation_names_a_test_a_manifest_and_a_command() {
        let known = Known { verbs: ["apply", "run"].into(), paths: ["deploy/argocd/jobs/a.yaml"].into() };
        let page = |row: &str| {
            format!(
                "{RECOMMENDATIONS}\n\n| a | b | c | d |\n|---|---|---|---|\n{row}\n## Other\n| x | | | |\n"
            )
        };
        let found = |row: &str| {
            let found = incomplete_rows(&page(row), &known);
            found.into_iter().map(|it| (it.line, it.what)).collect::<Vec<_>>()
        };
        for row in [
            "| a | `one` | CoderGroup, CoderRole | `apply --yes` |",
            "| a | `one` | `deploy/argocd/jobs` | Job `x`: `run` |",
            "| a | `one` | every kind, as CoderGroup | `kubectl apply` |",
        ] {
            assert_eq!(found(row), [], "{row}");
        }
        for (row, what) in [
            ("| a | | CoderGroup | `apply` |", "test"),
            ("| a | `one` | | `apply` |", "kind or file"),
            ("| a | `one` | CoderGroupe | `apply` |", "kind or file"),
            ("| a | `one` | `deploy/nowhere` | `apply` |", "kind or file"),
            ("| a | `one` | CoderGroup | as above |", "command"),
            ("| a | `one` | CoderGroup | `destroy` |", "command"),
        ] {
            assert_eq!(found(row), [(5, format!("names no {what} that there is"))], "{row}");
        }
        assert_eq!(incomplete_rows("", &known).len(), 1, "without the table nothing is checked");
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
