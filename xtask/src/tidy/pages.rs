//! Pages for readers: links lead somewhere, every page is in the book, and every shell block is run by a test or says why
//! it is not.

use std::{collections::BTreeSet, path::Path};

use super::tree::{Complaint, Tree};

/// The languages of blocks that a reader pastes into a shell.
const SHELLS: [&str; 4] = ["sh", "bash", "shell", "console"];
/// The pages of the book.
const BOOK: &str = "docs/";
const CONTENTS: &str = "docs/SUMMARY.md";

/// The tests that run blocks, on the bed and on the sandbox. Another name in a mark would keep the block from being run.
const RUNNERS: [&str; 2] = ["shell_blocks_of_the_docs_run", "shell_blocks_of_the_sandbox_run"];

const UNMARKED: &str = "a shell block needs `<!-- runs: shell_blocks_of_the_docs_run -->` or `<!-- not run: REASON -->` before it";

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let paths: BTreeSet<&str> = tree.files.iter().map(|it| it.path.as_str()).collect();
    let text_of = |path: &str| tree.text(path).map(String::as_str);
    let mut complaints = Vec::new();
    for (path, text) in tree.with_ending(".md") {
        let lines = classified(text);
        complaints.extend(blocks(path, &lines));
        complaints.extend(links(path, &lines, &paths, &text_of));
    }
    complaints.extend(left_out(&paths, text_of(CONTENTS).unwrap_or_default()));
    complaints
}

/// A line of a page.
enum Line<'a> {
    Text(&'a str),
    /// The first line of a block, with its language.
    Fence(&'a str),
    Code,
}

fn classified(text: &str) -> Vec<Line<'_>> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let fence = line.trim_start().strip_prefix("```");
        lines.push(match fence {
            Some(language) if !is_code => Line::Fence(language.trim()),
            None if !is_code => Line::Text(line),
            _ => Line::Code,
        });
        is_code ^= fence.is_some();
    }
    lines
}

fn blocks(path: &str, lines: &[Line<'_>]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut before = "";
    for (index, line) in lines.iter().enumerate() {
        match line {
            Line::Text(text) if !text.trim().is_empty() => before = text.trim(),
            Line::Fence(language) if SHELLS.contains(language) => {
                let what = complaint_about(before);
                complaints.extend(what.map(|it| Complaint::new(path, index + 1, it)));
            }
            _ => {}
        }
        if matches!(line, Line::Code) {
            before = "";
        }
    }
    complaints
}

fn complaint_about(mark: &str) -> Option<String> {
    let note = mark.strip_prefix("<!--").and_then(|it| it.strip_suffix("-->")).map(str::trim);
    let Some(note) = note else { return Some(UNMARKED.to_owned()) };
    if let Some(test) = note.strip_prefix("runs:").map(str::trim) {
        let expected = RUNNERS.join(" or ");
        return (!RUNNERS.contains(&test))
            .then(|| format!("names {test}, which does not run the block: write {expected}"));
    }
    let reason = note.strip_prefix("not run:").map(str::trim).unwrap_or_default();
    reason.is_empty().then(|| UNMARKED.to_owned())
}

fn links<'a>(
    path: &str,
    lines: &[Line<'_>],
    paths: &BTreeSet<&str>,
    text_of: &impl Fn(&str) -> Option<&'a str>,
) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Line::Text(text) = line else { continue };
        for target in targets(text) {
            let what = dead(path, target, paths, text_of);
            complaints.extend(what.map(|it| Complaint::new(path, index + 1, it)));
        }
    }
    complaints
}

/// The targets of the links of a line, outside of code.
fn targets(line: &str) -> Vec<&str> {
    let prose = line.split('`').step_by(2);
    let links = prose.flat_map(|it| it.split("](").skip(1));
    let targets = links.filter_map(|it| it.split_once(')').map(|(target, _)| target));
    targets.filter(|it| !it.contains("://") && !it.starts_with("mailto:")).collect()
}

fn dead<'a>(
    path: &str,
    target: &str,
    paths: &BTreeSet<&str>,
    text_of: &impl Fn(&str) -> Option<&'a str>,
) -> Option<String> {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let resolved = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
    let folder = format!("{}/", resolved.trim_end_matches('/'));
    if !paths.contains(resolved.as_str()) && !paths.iter().any(|it| it.starts_with(&folder)) {
        return Some(format!("links to {target}, which does not exist"));
    }
    if path.starts_with(BOOK) && !resolved.starts_with(BOOK) {
        return Some(format!("links to {target}, which is outside of the book: name the file instead"));
    }
    let anchor = anchor?;
    let text = text_of(&resolved).unwrap_or_default();
    let has_anchor = text.lines().any(|it| it.starts_with('#') && slug(it.trim_start_matches('#')) == anchor);
    (!has_anchor).then(|| format!("links to {target}, and there is no such heading"))
}

fn resolve(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> =
        Path::new(page).parent().into_iter().flat_map(Path::iter).filter_map(|it| it.to_str()).collect();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|it| it == "md")
}

/// Pages that no reader of the book finds.
fn left_out(paths: &BTreeSet<&str>, contents: &str) -> Vec<Complaint> {
    let listed: BTreeSet<String> =
        contents.lines().flat_map(targets).map(|it| resolve(CONTENTS, it)).collect();
    let pages = paths.iter().filter(|it| it.starts_with(BOOK) && is_page(it) && **it != CONTENTS);
    let missing = pages.filter(|it| !listed.contains(**it));
    missing.map(|it| Complaint::new(it, 1, format!("is not in {CONTENTS}: add it"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let lines = classified(text);
        let paths = ["docs/a.md", "docs/b/c.md", "README.md", "examples/kinds/x.yaml"].into();
        let text_of =
            |path: &str| (path == "docs/b/c.md").then_some("# Title\n\n## The `first` part, again\n");
        let mut complaints = blocks("docs/a.md", &lines);
        complaints.extend(links("docs/a.md", &lines, &paths, &text_of));
        complaints.into_iter().map(|it| (it.line, it.what)).collect()
    }

    #[test]
    fn shell_block_needs_a_test_or_a_reason() {
        let fine = "<!-- runs: shell_blocks_of_the_docs_run -->\n\n```sh\nls\n```\n\n<!-- runs: shell_blocks_of_the_sandbox_run -->\n```sh\nls\n```\n\n<!-- not run: needs a registry -->\n```bash\nls\n```\n\n```yaml\na: b\n```\n";
        assert_eq!(found(fine), []);
        for (mark, words) in [
            ("Some text.", "needs `<!-- runs"),
            ("<!-- runs: another_test -->", "another_test, which does not run the block"),
            ("<!-- not run: -->", "needs `<!-- runs"),
        ] {
            let complaints = found(&format!("{mark}\n\n```sh\nls\n```\n"));
            assert!(matches!(&complaints[..], [(3, what)] if what.contains(words)), "{mark}: {complaints:?}");
        }
        let one_mark = "<!-- runs: shell_blocks_of_the_docs_run -->\n```sh\nls\n```\n```sh\nls\n```\n";
        assert!(matches!(&found(one_mark)[..], [(5, _)]), "a mark is for one block");
    }

    #[test]
    fn dead_link_is_found() {
        assert_eq!(found("[a](b/c.md#the-first-part-again), [site](https://example.com), `[x](y)`"), []);
        for (link, words) in [
            ("[a](gone.md)", "does not exist"),
            ("[a](b/c.md#second)", "no such heading"),
            ("[a](../examples/kinds/x.yaml)", "outside of the book"),
        ] {
            let complaints = found(link);
            assert!(matches!(&complaints[..], [(1, what)] if what.contains(words)), "{link}: {complaints:?}");
        }
    }

    #[test]
    fn page_that_is_not_in_the_contents_is_found() {
        let paths = ["docs/a.md", "docs/b/c.md", CONTENTS].into();
        let complaints = left_out(&paths, "- [A](a.md)\n");
        assert!(matches!(&complaints[..], [it] if it.path == "docs/b/c.md"), "{complaints:?}");
    }
}
