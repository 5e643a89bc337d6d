//! Comparing what is declared with what is found, field by field.

use serde::Serialize;
use serde_json::Value;

use crate::pipeline::plan::Change;

/// The fields that a manifest declares and that differ.
#[derive(Debug, Default)]
pub struct Diff {
    pub changes: Vec<Change>,
}

impl Diff {
    /// Compares one field. Gives the declared value when it has to be written: an absent one is left alone.
    pub fn pick<T: PartialEq + Serialize + Clone>(
        &mut self,
        field: &str,
        declared: Option<&T>,
        found: &T,
    ) -> Option<T> {
        let declared = declared.filter(|declared| *declared != found)?;
        self.changes.push(Change::new(field, value(found), value(declared)));
        Some(declared.clone())
    }

    /// Writes down a field of something that does not exist yet.
    pub fn declare<T: Serialize>(&mut self, field: &str, declared: Option<&T>) {
        if let Some(declared) = declared {
            self.changes.push(Change::new(field, Value::Null, value(declared)));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_means_untouched_and_present_means_exact() {
        let mut diff = Diff::default();
        assert_eq!(diff.pick("a", None, &"found".to_owned()), None);
        assert_eq!(diff.pick("b", Some(&"same".to_owned()), &"same".to_owned()), None);
        assert_eq!(diff.pick("c", Some(&"new".to_owned()), &"old".to_owned()), Some("new".to_owned()));
        assert_eq!(diff.changes, [Change::new("c", "old", "new")]);
    }
}
