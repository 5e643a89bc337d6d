//! Where manifests come from: files, folders, standard input; several documents each, YAML or JSON.

use std::{
    fmt, fs,
    io::Read as _,
    path::{Path, PathBuf},
    rc::Rc,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{
    Mistake,
    lines::{Lines, Position},
};

/// The directory that a template has as its source.
pub(super) const DIRECTORY: &str = "/spec/source/directory";

/// A text and what to call it.
pub(super) struct Source {
    name: String,
    text: String,
    /// The folder that paths are relative to. `None` for an object of the cluster.
    folder: Option<PathBuf>,
}

/// One document of a source.
pub(super) struct Document {
    pub(super) value: Value,
    text: Rc<Text>,
    lines: Lines,
}

/// The text that a document was read from: a part of its source.
struct Text {
    source: String,
    folder: Option<PathBuf>,
    /// How many lines of the source come before.
    before: usize,
    content: String,
    /// Whether a line of the text may be a value of a Secret, which no message may show.
    holds_secret: bool,
}

impl Text {
    fn place(&self, position: Position) -> Place {
        let Position { line, column, key } = position;
        let excerpt = self.content.lines().nth(line - 1).filter(|_| !self.holds_secret).map(str::to_owned);
        Place { file: self.source.clone(), line: self.before + line, column, key, excerpt }
    }
}

/// A place in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) column: usize,
    /// How many characters the key at this place has, without quotes; 0 where there is no key.
    pub(super) key: usize,
    /// The line itself; `None` where it may hold a value of a Secret.
    pub(super) excerpt: Option<String>,
}

impl Place {
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file, self.line)
    }
}

/// Where the manifests of a verb come from.
pub(crate) enum Sources {
    /// Files and folders; `-` is standard input.
    Files(Vec<PathBuf>),
    /// Objects by name, as text: of the cluster, or of an export.
    Objects(Vec<(String, String)>),
}

impl Sources {
    pub(super) fn read(&self) -> Result<Vec<Source>> {
        match self {
            Self::Files(paths) => sources(paths),
            Self::Objects(objects) => {
                let source = |(name, text): &(String, String)| Source {
                    name: name.clone(),
                    text: text.clone(),
                    folder: None,
                };
                Ok(objects.iter().map(source).collect())
            }
        }
    }
}

/// Reads every path; a folder stands for the manifests in it and below, in the order of their names.
fn sources(paths: &[PathBuf]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin()
                .lock()
                .read_to_string(&mut text)
                .context("read manifests from standard input")?;
            let folder = Some(PathBuf::new());
            sources.push(Source { name: "<standard input>".to_owned(), text, folder });
            continue;
        }
        let mut files = Vec::new();
        collect(path, &mut files)?;
        let is_folder = path.is_dir();
        if files.is_empty() {
            bail!(
                "{} holds no manifest: only files that end in .yaml, .yml or .json are read",
                path.display()
            );
        }
        let mut found = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            let folder = file.parent().map(Path::to_owned);
            found.push(Source { name: file.display().to_string(), text, folder });
        }
        sources.extend(if is_folder { without_templates(found) } else { found });
    }
    Ok(sources)
}

/// Leaves out the files of templates: YAML and JSON in the directory that a manifest beside it names as its source are no manifests.
fn without_templates(sources: Vec<Source>) -> Vec<Source> {
    let named: Vec<PathBuf> = sources.iter().flat_map(Source::template_folders).collect();
    let is_inside = |it: &Source| {
        let folder = it.folder.as_ref().and_then(|it| it.canonicalize().ok());
        folder.is_some_and(|folder| named.iter().any(|it| folder.starts_with(it)))
    };
    sources.into_iter().filter(|it| !is_inside(it)).collect()
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !fs::metadata(path).with_context(|| format!("read {}", path.display()))?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(path).with_context(|| format!("list {}", path.display()))?;
    let mut entries: Vec<PathBuf> = entries
        .map(|entry| entry.map(|it| it.path()))
        .collect::<std::io::Result<_>>()
        .context("list a folder")?;
    entries.sort();
    // A mounted ConfigMap has its files a second time, in folders whose names begin with two dots.
    let is_mount = |it: &PathBuf| it.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b".."));
    for entry in entries.into_iter().filter(|it| !is_mount(it)) {
        let is_manifest = entry.extension().is_some_and(|it| it == "yaml" || it == "yml" || it == "json");
        if entry.is_dir() || is_manifest {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

impl Source {
    /// The directories that templates of this file have as their sources, unless the file is in them itself.
    fn template_folders(&self) -> Vec<PathBuf> {
        let Some(folder) = self.folder.as_ref().filter(|_| self.text.contains("CoderTemplate")) else {
            return Vec::new();
        };
        let documents = self.documents().unwrap_or_default();
        let directories = documents.iter().filter_map(|it| it.value.pointer(DIRECTORY)?.as_str());
        let directories = directories.filter_map(|it| folder.join(it).canonicalize().ok());
        let own = folder.canonicalize().unwrap_or_default();
        directories.filter(|it| !own.starts_with(it)).collect()
    }

    /// The documents that are not empty; a list, as `kubectl get` prints it, stands for its items.
    pub(super) fn documents(&self) -> Result<Vec<Document>, Mistake> {
        let mut documents = Vec::new();
        for (first_line, text) in split(&self.text) {
            let parsed = parse(&text);
            let holds_secret = parsed.as_ref().map_or_else(|_| names_secret(&text), holds_secret);
            let lines = Lines::read(&text);
            let text = Text {
                source: self.name.clone(),
                folder: self.folder.clone(),
                before: first_line - 1,
                content: text,
                holds_secret,
            };
            let value = parsed.map_err(|error| {
                let position = error.location().map(Position::from).unwrap_or_default();
                Mistake { place: text.place(position), message: cause(&error.to_string()).to_owned() }
            })?;
            let document = Document { value, text: Rc::new(text), lines };
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
    /// A field at the top, as text; empty when it is absent.
    pub(super) fn text(&self, field: &str) -> &str {
        self.value.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// The folder that paths in the document are relative to. `None` for an object of the cluster.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.text.folder.as_deref()
    }

    /// The place of a field, or of the innermost field around it that is there.
    pub(super) fn place(&self, path: &str) -> Place {
        self.text.place(self.lines.at(path).position())
    }

    fn is_list(&self) -> bool {
        is_list(&self.value)
    }

    fn items(&self) -> impl Iterator<Item = Self> {
        let lines = self.lines.at("items");
        items(&self.value).enumerate().map(move |(index, item)| Self {
            value: item.clone(),
            text: Rc::clone(&self.text),
            lines: lines.item(index).unwrap_or(lines).clone(),
        })
    }
}

fn is_list(value: &Value) -> bool {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    kind.ends_with("List") && value.get("items").is_some_and(Value::is_array)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.get("items").and_then(Value::as_array).into_iter().flatten()
}

/// Whether a document is a Secret or a list with one.
fn holds_secret(value: &Value) -> bool {
    value.get("kind").and_then(Value::as_str) == Some("Secret")
        || is_list(value) && items(value).any(holds_secret)
}

/// Whether a text that cannot be parsed looks like a Secret.
fn names_secret(text: &str) -> bool {
    let text: String = text.chars().filter(|it| !it.is_whitespace() && !"\"'".contains(*it)).collect();
    text.contains("kind:Secret") || text.contains("stringData:")
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

/// Reads YAML, of which JSON is a part.
fn parse(text: &str) -> Result<Value, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, super::lines::options())
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
        Source { name: "a.yaml".to_owned(), text: text.to_owned(), folder: None }
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
    fn place_holds_the_line_and_the_column_of_a_field() {
        let documents = source("---\nkind: A\nspec:\n  name: x\n").documents().unwrap();
        let place = documents[0].place("spec.name");
        assert_eq!((place.line, place.column, place.key), (4, 3, 4));
        assert_eq!(place.excerpt.as_deref(), Some("  name: x"));
    }

    #[test]
    fn lines_of_a_secret_are_never_shown() {
        for text in [
            "kind: Secret\nstringData: {token: hunter2}\n",
            "kind: List\nitems: [{kind: A, spec: 1}, {kind: Secret, stringData: {token: hunter2}}]\n",
        ] {
            for document in source(text).documents().unwrap() {
                assert_eq!(document.place("").excerpt, None, "{text}");
            }
        }
        for text in [
            "kind: Secret\nstringData: [token: hunter2\n",
            "{\"kind\" : \"Secret\", \"data\": {\"token\": hunter2}\n",
            "kin: Secret\nstringData:\n  token: [hunter2\n",
        ] {
            let mistake = source(text).documents().err().unwrap();
            assert_eq!(mistake.place.excerpt, None, "{text}");
            assert!(!mistake.message.contains("hunter2"), "{}", mistake.message);
        }
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
