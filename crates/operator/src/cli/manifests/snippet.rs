//! A mistake in a manifest as a person reads it: file, line and column, and the line itself with a mark at the field.

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use serde::Serialize;

use super::{Mistake, Place};

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Severity {
    Error,
    Warning,
}

impl Mistake {
    /// The mistake with styles, without a line break at its end.
    pub(crate) fn render(&self, severity: Severity) -> String {
        let Place { file, line, column, excerpt, .. } = &self.place;
        let level = match severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(&self.message);
        let report = match excerpt {
            Some(excerpt) => {
                let mark = AnnotationKind::Primary.span(self.place.span(excerpt));
                title.element(Snippet::source(excerpt).path(file).line_start(*line).annotation(mark))
            }
            None => title.element(Origin::path(file).line(*line).char_column(*column)),
        };
        Renderer::styled().render(&[report])
    }
}

impl Place {
    /// The bytes of the line that the place is about: its key with quotes, or one character.
    fn span(&self, line: &str) -> std::ops::Range<usize> {
        let mut characters = line.char_indices().skip(self.column - 1).peekable();
        let Some((start, first)) = characters.peek().copied() else { return line.len()..line.len() };
        let quotes = if self.key > 0 && matches!(first, '"' | '\'') { 2 } else { 0 };
        let length = (self.key + quotes).max(1);
        let end = characters.nth(length).map_or(line.len(), |(end, _)| end);
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: &str, column: usize, key: usize) -> Place {
        Place { file: "a.yaml".to_owned(), line: 6, column, key, excerpt: Some(line.to_owned()) }
    }

    fn plain(mistake: &Mistake) -> String {
        anstream::adapter::strip_str(&mistake.render(Severity::Error)).to_string()
    }

    #[test]
    fn mistake_shows_its_place_the_line_and_a_mark_at_the_field() {
        let place = place("  quota: 3", 3, 5);
        let text = plain(&Mistake { place, message: "spec.quota: is not a field".to_owned() });
        let expected = "\
error: spec.quota: is not a field
 --> a.yaml:6:3
  |
6 |   quota: 3
  |   ^^^^^";
        assert_eq!(text, expected);
    }

    #[test]
    fn mistake_without_a_line_shows_its_place() {
        let place = Place { excerpt: None, ..place("", 3, 5) };
        let text = plain(&Mistake { place, message: "data.token: is not base64".to_owned() });
        assert_eq!(text, "error: data.token: is not base64\n--> a.yaml:6:3");
    }

    #[test]
    fn mark_covers_the_key_and_its_quotes_and_never_leaves_the_line() {
        for (line, column, key, marked) in [
            ("  name: x", 3, 4, "name"),
            ("  \"name\": x", 3, 4, "\"name\""),
            ("ä: {ö: 1}", 5, 1, "ö"),
            ("- [x", 3, 0, "["),
            ("abc", 2, 9, "bc"),
            ("abc", 4, 0, ""),
            ("", 1, 0, ""),
        ] {
            assert_eq!(&line[place(line, column, key).span(line)], marked, "{line}");
        }
    }
}
