//! Names of exported manifests. Pure.

use std::collections::BTreeSet;

use crate::pipeline::export::{LONGEST_NAME, slug};

/// The names that are taken, by kind.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<(String, String)>);

impl Names {
    /// A name for an object of a kind that no other has: that of the title, or with a number after it.
    pub(super) fn unique(&mut self, kind: &str, title: &str) -> String {
        let slug = slug(title);
        let mut name = slug.clone();
        let mut number = 2;
        while !self.0.insert((kind.to_owned(), name.clone())) {
            let end = format!("-{number}");
            let head: String = slug.chars().take(LONGEST_NAME - end.len()).collect();
            name = format!("{}{end}", head.trim_end_matches('-'));
            number += 1;
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_object_of_a_name_gets_a_number() {
        let mut names = Names::default();
        let mut of = |kind: &str, title: &str| names.unique(kind, title);
        assert_eq!(of("CoderGroup", "a-b"), "a-b");
        assert_eq!(of("CoderGroup", "a_b"), "a-b-2");
        assert_eq!(of("CoderGroup", "A.B"), "a-b-3");
        assert_eq!(of("CoderRole", "a-b"), "a-b");
        let long = "a".repeat(80);
        of("CoderGroup", &long);
        let second = of("CoderGroup", &long);
        assert!(second.ends_with("-2") && second.len() == 63, "{second}");
    }
}
