//! Where manifests come from: files, folders, standard input; several documents each, YAML or JSON.

use std::{
    fmt, fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::Mistake;

/// A text and what to call it.
pub(super) struct Source {
    name: String,
    text: String,
}

/// One document of a source.
pub(super) struct Document {
    pub(super) value: Value,
    source: String,
    text: String,
    /// The line of the source on which it begins.
    first_line: usize,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The documents that are not empty.
    pub(super) fn documents(&self) -> Result<Vec<Document>, Mistake> {
        let mut documents = Vec::new();
        for (first_line, text) in split(&self.text) {
            let value = parse(&text).map_err(|error| Mistake {
                place: Place { file: self.name.clone(), line: first_line + error.line.saturating_sub(1) },
                message: error.message,
            })?;
            if !value.is_null() {
                documents.push(Document { value, source: self.name.clone(), text, first_line });
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

    /// The line of a field, as far as it can be found: the last of its keys that stands in the text.
    pub(super) fn place(&self, path: &[&str]) -> Place {
        let mut line = 0;
        let lines: Vec<&str> = self.text.lines().collect();
        for key in path.iter().map(|it| it.split('[').next().unwrap_or(it)) {
            let from = lines.iter().enumerate().skip(line);
            match from.into_iter().find(|(_, text)| names_key(text, key)) {
                Some((found, _)) => line = found,
                None => break,
            }
        }
        Place { file: self.source.clone(), line: self.first_line + line }
    }
}

/// Whether a line holds a key, at its beginning or in braces.
fn names_key(line: &str, key: &str) -> bool {
    let spelled = [format!("{key}:"), format!("\"{key}\":")];
    spelled.iter().any(|spelled| {
        line.match_indices(spelled.as_str()).any(|(at, _)| {
            line.get(..at)
                .is_some_and(|before| before.trim_end().is_empty() || before.ends_with([' ', '{', ',', '-']))
        })
    })
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

/// Reads YAML, of which JSON is a part, with octal numbers as kubectl reads them.
fn parse(text: &str) -> Result<Value, Unreadable> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| Unreadable {
        line: error.location().map_or(1, |it| usize::try_from(it.line()).unwrap_or(1)),
        message: error.to_string().lines().next().unwrap_or("cannot be read").to_owned(),
    })
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
        assert_eq!(documents[0].place(&["spec", "name"]).to_string(), "a.yaml:7");
        assert_eq!(documents[1].place(&[]).to_string(), "a.yaml:9");
    }

    #[test]
    fn a_text_that_is_not_yaml_is_told_with_its_line() {
        let mistake = source("kind: A\n---\nkind: [\n").documents().err().unwrap();
        assert!(mistake.place.to_string().starts_with("a.yaml:3"), "{mistake:?}");
    }

    #[test]
    fn json_is_read_as_well() {
        let documents = source("{\"kind\": \"A\"}").documents().unwrap();
        assert_eq!(documents[0].text("kind"), "A");
    }

    #[test]
    fn words_that_only_look_like_booleans_in_old_yaml_are_kept_as_kubectl_keeps_them() {
        let documents = source("mode: 0644\n").documents().unwrap();
        assert_eq!(documents[0].value["mode"], 420);
    }
}
