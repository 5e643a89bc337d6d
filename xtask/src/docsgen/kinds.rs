//! A reference page per kind, from its definition, its examples and the tables of conditions and reasons.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{
    FOLDER, NOTE,
    markdown::{Table, code},
    reasons, schema,
};
use crate::{bed::root, generated::File};

const EXAMPLES: &str = "examples/kinds";
const SUMMARY: &str = "docs/SUMMARY.md";
/// What the lines of the kinds' pages in the summary contain.
const IN_SUMMARY: &str = "](reference/kinds/";

/// The page of every kind, and the summary that lists these pages.
pub(super) fn files() -> Result<Vec<File>> {
    let crds = api::crds();
    let pages = crds.iter().map(|it| serde_json::to_value(it).context("write a definition as JSON"));
    let mut files = pages.map(|crd| page(&crd?)).collect::<Result<Vec<File>>>()?;
    files.push(summary(crds.iter().map(|it| it.spec.names.kind.as_str()))?);
    Ok(files)
}

/// The summary with a line for every kind in the place of those that it has. The rest is written by people.
fn summary<'a>(kinds: impl Iterator<Item = &'a str>) -> Result<File> {
    let written = fs::read_to_string(root().join(SUMMARY)).with_context(|| format!("read {SUMMARY}"))?;
    let before = written.lines().take_while(|it| !it.contains(IN_SUMMARY));
    let after =
        written.lines().skip_while(|it| !it.contains(IN_SUMMARY)).filter(|it| !it.contains(IN_SUMMARY));
    let kinds = kinds.map(|it| format!("- [{it}{IN_SUMMARY}{}.md)", it.to_lowercase()));
    let lines: Vec<String> = before.map(str::to_owned).chain(kinds).chain(after.map(str::to_owned)).collect();
    Ok(File { path: SUMMARY.to_owned(), text: lines.join("\n") + "\n" })
}

fn page(crd: &Value) -> Result<File> {
    let names = &crd["spec"]["names"];
    let kind = names["kind"].as_str().context("a definition without a kind")?;
    let version = &crd["spec"]["versions"][0];
    let root = &version["schema"]["openAPIV3Schema"];
    let (spec, status) = (&root["properties"]["spec"], &root["properties"]["status"]);
    let mut text = format!("# {kind}\n\n{NOTE}\n\n");
    let description = spec["description"].as_str().unwrap_or_default();
    writeln!(text, "{description}\n\n{}", at_a_glance(crd, version))?;
    for example in examples(&kind.to_lowercase())? {
        writeln!(text, "\n```yaml\n{}\n```", example.trim_end())?;
    }
    writeln!(text, "\n## Spec\n\n{}", schema::table("spec", spec))?;
    let rules: Vec<String> = [schema::rules(root), schema::rules(spec)].concat();
    for rule in &rules {
        writeln!(text, "- {rule}")?;
    }
    if !rules.is_empty() {
        text.push('\n');
    }
    writeln!(text, "## Status\n\n{}", schema::table("status", status))?;
    write!(text, "## Conditions\n\n{}", reasons::conditions(kind))?;
    for group in reasons::groups(kind) {
        let conditions: Vec<String> = group.conditions.iter().map(|it| code(it)).collect();
        write!(text, "\n## Reasons: {}\n\nOf {}.\n\n", group.title, conditions.join(", "))?;
        text.push_str(&reasons::table(group));
    }
    Ok(File { path: format!("{FOLDER}kinds/{}.md", kind.to_lowercase()), text })
}

/// Names and columns, as `kubectl` knows them.
fn at_a_glance(crd: &Value, version: &Value) -> String {
    let names = &crd["spec"]["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| {
        let values = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        values.map(code).collect::<Vec<_>>().join(", ")
    };
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    let columns: Vec<String> =
        columns.map(|it| format!("{} (`{}`)", text(&it["name"]), text(&it["jsonPath"]))).collect();
    let group = format!("{}/{}", text(&crd["spec"]["group"]), text(&version["name"]));
    let mut table = Table::new(&["", ""]);
    table.row(["API version".to_owned(), code(&group)]);
    table.row(["scope".to_owned(), text(&crd["spec"]["scope"])]);
    table.row(["resource".to_owned(), code(&text(&names["plural"]))]);
    table.row(["short names".to_owned(), list(&names["shortNames"])]);
    table.row(["categories".to_owned(), list(&names["categories"])]);
    table.row(["columns".to_owned(), columns.join(", ")]);
    table.finish()
}

/// The examples of a kind: the file with its name, then those with a suffix.
fn examples(kind: &str) -> Result<Vec<String>> {
    let folder = root().join(EXAMPLES);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        paths.push(entry.context("list the examples")?.path());
    }
    paths.sort();
    let mut texts = Vec::new();
    for path in paths {
        let stem = path.file_stem().and_then(|it| it.to_str()).unwrap_or_default();
        if stem == kind || stem.strip_prefix(kind).is_some_and(|it| it.starts_with('-')) {
            texts.push(fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?);
        }
    }
    // `codergroup-x.yaml` sorts before `codergroup.yaml`, and the plain one comes first.
    let plain_is_last = usize::from(!texts.is_empty());
    texts.rotate_right(plain_is_last);
    Ok(texts)
}
