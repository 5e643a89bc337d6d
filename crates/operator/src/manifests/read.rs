//! Where manifests come from: files, folders, standard input; several documents each, YAML or JSON.

use std::{
    fmt, fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{Mistake, lines::Lines};

/// A text and what to call it.
pub(super) struct Source {
    name: String,
    text: String,
}

/// One document of a source.
pub(super) struct Document {
    pub(super) value: Value,
    source: String,
    /// How many lines of the source come before the text that its own lines are counted in.
    before: usize,
    lines: Lines,
}

/// A line of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    file: String,
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file, self.line)
    }
}

/// Reads every path; a folder stands for the manifests in it and below, in the order of their names.
pub(super) fn sources(paths: &[PathBuf]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin()
                .lock()
                .read_to_string(&mut text)
                .context("read manifests from standard input")?;
            sources.push(Source { name: "<standard input>".to_owned(), text });
            continue;
        }
        let mut files = Vec::new();
        collect(path, &mut files)?;
        if files.is_empty() {
            bail!("{} holds no manifest: files that end in .yaml, .yml or .json are taken", path.display());
        }
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            sources.push(Source { name: file.display().to_string(), text });
        }
    }
    Ok(sources)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !fs::metadata(path).with_context(|| format!("look at {}", path.display()))?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(path).with_context(|| format!("list {}", path.display()))?;
    let mut entries: Vec<PathBuf> = entries
        .map(|entry| entry.map(|it| it.path()))
        .collect::<std::io::Result<_>>()
        .context("list a folder")?;
    entries.sort();
    for entry in entries {
        let is_manifest = entry.extension().is_some_and(|it| it == "yaml" || it == "yml" || it == "json");
        if entry.is_dir() || is_manifest {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

impl Source {
    /// The documents that are not empty; a list, as `kubectl get` prints it, stands for what is in it.
    pub(super) fn documents(&self) -> Result<Vec<Document>, Mistake> {
        let mut documents = Vec::new();
        for (first_line, text) in split(&self.text) {
            let value = parse(&text).map_err(|error| Mistake {
                place: Place { file: self.name.clone(), line: first_line + error.line.saturating_sub(1) },
                message: error.message,
            })?;
            let document = Document {
                value,
                source: self.name.clone(),
                before: first_line - 1,
                lines: Lines::read(&text),
            };
            if document.is_list() {
                documents.extend(document.items());
            } else if !document.value.is_null() {
                documents.push(document);
            }
        }
        Ok(documents)
    }
}

impl Document {
    /// A field at the top, as text; empty when it is not there.
    pub(super) fn text(&self, field: &str) -> &str {
        self.value.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// The place of a field, as far as it is there.
    pub(super) fn place(&self, path: &str) -> Place {
        Place { file: self.source.clone(), line: self.before + self.lines.at(path).line() }
    }

    fn is_list(&self) -> bool {
        self.text("kind").ends_with("List") && self.value.get("items").is_some_and(Value::is_array)
    }

    fn items(&self) -> impl Iterator<Item = Self> {
        let lines = self.lines.at("items");
        let items = self.value.get("items").and_then(Value::as_array).into_iter().flatten();
        items.enumerate().map(move |(index, item)| Self {
            value: item.clone(),
            source: self.source.clone(),
            before: self.before,
            lines: lines.item(index).unwrap_or(lines).clone(),
        })
    }
}

/// The documents of a text, with the line on which each begins.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") {
            documents.push((index + 2, String::new()));
        } else if let Some((_, document)) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents.retain(|(_, text)| {
        text.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    });
    documents
}

struct Unreadable {
    line: usize,
    message: String,
}

/// How a text is read: octal numbers as kubectl reads them.
pub(super) fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { legacy_octal_numbers: true }
}

/// Reads YAML, of which JSON is a part.
fn parse(text: &str) -> Result<Value, Unreadable> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| Unreadable {
        line: error.location().map_or(1, |it| usize::try_from(it.line()).unwrap_or(1)),
        message: cause(&error.to_string()).to_owned(),
    })
}

/// What the parser says, without what is said elsewhere: the place, which it counts from the document's own first line, the
/// text around it, and its own options.
fn cause(words: &str) -> &str {
    let line = words.lines().next().unwrap_or("cannot be read");
    let line = match line.split_once("column ").and_then(|(_, rest)| rest.split_once(": ")) {
        Some((column, cause)) if column.bytes().all(|it| it.is_ascii_digit()) => cause,
        _ => line,
    };
    line.split(", set DuplicateKeyPolicy").next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source { name: "a.yaml".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn documents_know_their_lines_and_empty_ones_do_not_count() {
        let documents =
            source("# head\n---\n\n---\nkind: A\nspec:\n  name: x\n---\nkind: B\n").documents().unwrap();
        let kinds: Vec<&str> = documents.iter().map(|it| it.text("kind")).collect();
        assert_eq!(kinds, ["A", "B"]);
        assert_eq!(documents[0].place("spec.name").to_string(), "a.yaml:7");
        assert_eq!(documents[1].place("").to_string(), "a.yaml:9");
    }

    #[test]
    fn a_text_that_is_not_yaml_is_told_with_its_line() {
        let mistake = source("kind: A\n---\nkind: [\n").documents().err().unwrap();
        assert!(mistake.place.to_string().starts_with("a.yaml:3"), "{mistake:?}");
    }

    #[test]
    fn a_key_that_is_there_twice_is_told_in_words_for_a_person() {
        let mistake = source("kind: A\n---\nkind: B\nkind: C\n").documents().err().unwrap();
        assert_eq!(
            (mistake.place.to_string().as_str(), mistake.message.as_str()),
            ("a.yaml:4", "duplicate mapping key: kind")
        );
    }

    #[test]
    fn json_is_read_as_well() {
        let documents = source("{\"kind\": \"A\"}").documents().unwrap();
        assert_eq!(documents[0].text("kind"), "A");
    }

    #[test]
    fn a_list_stands_for_what_is_in_it() {
        let text =
            "# head\n---\nkind: List\nitems:\n- kind: A\n  spec: {x: 1}\n- kind: B\n  spec:\n    y: 2\n";
        let documents = source(text).documents().unwrap();
        let kinds: Vec<&str> = documents.iter().map(|it| it.text("kind")).collect();
        assert_eq!(kinds, ["A", "B"]);
        assert_eq!(documents[0].place("spec.x").to_string(), "a.yaml:6");
        assert_eq!(documents[1].place("").to_string(), "a.yaml:7");
        assert_eq!(documents[1].place("spec.y").to_string(), "a.yaml:9");
    }

    #[test]
    fn words_that_only_look_like_booleans_in_old_yaml_are_kept_as_kubectl_keeps_them() {
        let documents = source("mode: 0644\n").documents().unwrap();
        assert_eq!(documents[0].value["mode"], 420);
    }
}
