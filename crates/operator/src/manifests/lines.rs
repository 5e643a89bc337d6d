//! The lines of a document's fields: what a parsed value forgets, kept beside it.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

/// Where a value stands, and what is in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    /// The line of its key, or of its beginning where it has none; counted from 1.
    line: usize,
    inner: Inner,
}

#[derive(Debug, Clone, Default)]
enum Inner {
    #[default]
    Nothing,
    Map(BTreeMap<String, Lines>),
    List(Vec<Lines>),
}

impl Lines {
    /// Reads the lines of a text that was read as a value before.
    pub(super) fn read(text: &str) -> Self {
        let options = super::read::options();
        let read = serde_saphyr::from_str_with_options::<Spanned<Self>>(text, options);
        read.map_or_else(|_| Self { line: 1, inner: Inner::Nothing }, Self::placed)
    }

    pub(super) fn line(&self) -> usize {
        self.line.max(1)
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
        Self { line: line_of(&spanned), inner: spanned.value.inner }
    }
}

fn line_of<T>(spanned: &Spanned<T>) -> usize {
    usize::try_from(spanned.referenced.line()).unwrap_or(1)
}

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(|inner| Self { line: 0, inner })
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
            let line = line_of(&key);
            let Lines { inner, .. } = access.next_value()?;
            fields.insert(key.value, Lines { line, inner });
        }
        Ok(Inner::Map(fields))
    }
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
            assert_eq!(lines.at(path).line(), line, "{path}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_at_what_should_hold_it() {
        let lines = Lines::read(TEXT);
        assert_eq!(lines.at("spec.organization").line(), 3);
        assert_eq!(lines.at("spec.mapping./b[0]").line(), 5);
        assert_eq!(lines.at("status.id").line(), 2);
    }

    #[test]
    fn json_has_lines_too() {
        let lines =
            Lines::read("{\n  \"spec\": {\n    \"name\": 1,\n    \"list\": [\n      true\n    ]\n  }\n}\n");
        assert_eq!(lines.at("spec.name").line(), 3);
        assert_eq!(lines.at("spec.list[0]").line(), 5);
    }
}
