//! The positions of a document's fields, which a parsed value does not hold.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

/// The position of a value, and of the values inside.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    /// Where the key of the value is, or where the value begins if the value has no key.
    position: Position,
    inner: Inner,
}

/// A part of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Counted from 1.
    pub(super) line: usize,
    /// Counted from 1, in characters.
    pub(super) column: usize,
    /// How many characters the key has, without quotes; 0 where there is no key.
    pub(super) key: usize,
}

impl Default for Position {
    fn default() -> Self {
        Self { line: 1, column: 1, key: 0 }
    }
}

impl From<Location> for Position {
    fn from(location: Location) -> Self {
        let number = |it: u64| usize::try_from(it).unwrap_or(1).max(1);
        Self { line: number(location.line()), column: number(location.column()), key: 0 }
    }
}

#[derive(Debug, Clone, Default)]
enum Inner {
    #[default]
    Nothing,
    Map(BTreeMap<String, Lines>),
    List(Vec<Lines>),
}

impl Lines {
    /// Reads the positions in a text that was read as a value before.
    pub(super) fn read(text: &str) -> Self {
        let options = options();
        let read = serde_saphyr::from_str_with_options::<Spanned<Self>>(text, options);
        read.map_or_else(|_| Self::default(), Self::placed)
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// The value at a path such as `spec.mapping./a[0]` or `spec.mapping[/a]`; the last one on the way that is there.
    pub(super) fn at(&self, path: &str) -> &Self {
        if path.is_empty() {
            return self;
        }
        self.step(path).map_or(self, |(next, rest)| next.at(rest))
    }

    /// The element of a list.
    pub(super) fn item(&self, index: usize) -> Option<&Self> {
        match &self.inner {
            Inner::List(items) => items.get(index),
            Inner::Nothing | Inner::Map(_) => None,
        }
    }

    /// One step along a path, and what is left of it. Keys may hold dots, so the longest that fits is taken.
    fn step<'a>(&self, path: &'a str) -> Option<(&Self, &'a str)> {
        if let Some((inside, rest)) = path.strip_prefix('[').and_then(|it| it.split_once(']')) {
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            return match &self.inner {
                Inner::List(items) => Some((items.get(inside.parse::<usize>().ok()?)?, rest)),
                Inner::Map(fields) => Some((fields.get(inside)?, rest)),
                Inner::Nothing => None,
            };
        }
        let Inner::Map(fields) = &self.inner else { return None };
        let fits = fields.iter().filter_map(|(key, field)| {
            let rest = path.strip_prefix(key.as_str())?;
            let rest = match rest.strip_prefix('.') {
                Some(rest) => rest,
                None if rest.is_empty() || rest.starts_with('[') => rest,
                None => return None,
            };
            Some((field, rest))
        });
        fits.min_by_key(|(_, rest)| rest.len())
    }

    fn placed(spanned: Spanned<Self>) -> Self {
        Self { position: spanned.referenced.into(), inner: spanned.value.inner }
    }
}

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(|inner| Self { position: Position::default(), inner })
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Inner;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Inner, E> {
        Ok(Inner::Nothing)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Inner, E> {
        Ok(Inner::Nothing)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Inner, E> {
        Ok(Inner::Nothing)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Inner, E> {
        Ok(Inner::Nothing)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Inner, E> {
        Ok(Inner::Nothing)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Inner, E> {
        Ok(Inner::Nothing)
    }

    fn visit_str<E>(self, _: &str) -> Result<Inner, E> {
        Ok(Inner::Nothing)
    }

    fn visit_unit<E>(self) -> Result<Inner, E> {
        Ok(Inner::Nothing)
    }

    fn visit_none<E>(self) -> Result<Inner, E> {
        Ok(Inner::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Inner, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Inner, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element::<Spanned<Lines>>()? {
            items.push(Lines::placed(item));
        }
        Ok(Inner::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Inner, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            let position = Position { key: key.value.chars().count(), ..key.referenced.into() };
            let Lines { inner, .. } = access.next_value()?;
            fields.insert(key.value, Lines { position, inner });
        }
        Ok(Inner::Map(fields))
    }
}

/// How a text is read: octal numbers as kubectl reads them.
pub(super) fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { legacy_octal_numbers: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment
metadata: {name: a}
spec:
  controlPlaneRef: {name: main}
  mapping:
    /a.b:
      - one
      - two
    /a: [three]
  name: last
";

    #[test]
    fn a_path_leads_to_its_own_line_and_not_to_another_of_that_name() {
        let lines = Lines::read(TEXT);
        for (path, line) in [
            ("", 2),
            ("metadata.name", 2),
            ("spec", 3),
            ("spec.controlPlaneRef.name", 4),
            ("spec.mapping", 5),
            ("spec.mapping./a.b", 6),
            ("spec.mapping./a.b[1]", 8),
            ("spec.mapping[/a.b][0]", 7),
            ("spec.mapping./a[0]", 9),
            ("spec.name", 10),
        ] {
            assert_eq!(lines.at(path).position().line, line, "{path}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_at_what_should_hold_it() {
        let lines = Lines::read(TEXT);
        assert_eq!(lines.at("spec.organization").position().line, 3);
        assert_eq!(lines.at("spec.mapping./b[0]").position().line, 5);
        assert_eq!(lines.at("status.id").position().line, 2);
    }

    #[test]
    fn keys_have_a_column_and_a_length() {
        let lines = Lines::read(TEXT);
        for (path, column, key) in [
            ("", 1, 0),
            ("metadata.name", 12, 4),
            ("spec.mapping./a.b", 5, 4),
            ("spec.mapping./a.b[1]", 9, 0),
        ] {
            let position = lines.at(path).position();
            assert_eq!((position.column, position.key), (column, key), "{path}");
        }
    }

    #[test]
    fn json_has_lines_too() {
        let lines =
            Lines::read("{\n  \"spec\": {\n    \"name\": 1,\n    \"list\": [\n      true\n    ]\n  }\n}\n");
        assert_eq!(lines.at("spec.name").position().line, 3);
        assert_eq!(lines.at("spec.list[0]").position().line, 5);
    }
}
