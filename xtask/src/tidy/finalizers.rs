//! Finalizers are added and removed in one place: one that is forgotten keeps an object for ever, and one that is removed too early
//! loses what it made.

use super::tree::{Complaint, Tree};

/// The one file that may write them.
const PLACE: &str = "crates/engine/src/ports/finalizers.rs";
/// A module that is compiled for tests alone.
const TESTS: &str = "/cluster/conformance";
/// The crates of the product.
const PRODUCT: [&str; 4] =
    ["crates/api/src/", "crates/client/src/", "crates/engine/src/", "crates/operator/src/"];

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let files = tree.with_ending(".rs").filter(|(path, _)| *path != PLACE);
    let files = files.filter(|(path, _)| PRODUCT.iter().any(|it| path.starts_with(it)));
    let files = files.filter(|(path, _)| !path.contains(TESTS));
    files.flat_map(|(path, text)| complaints(path, text)).collect()
}

fn complaints(path: &str, text: &str) -> Vec<Complaint> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = product.lines().enumerate().filter(|(_, line)| writes(line));
    lines
        .map(|(index, _)| Complaint::new(path, index + 1, format!("writes finalizers: {PLACE} does that")))
        .collect()
}

fn writes(line: &str) -> bool {
    let assigns = line.contains("finalizers = ") && !line.contains("let ");
    let fills = line.contains("\"finalizers\":") || line.contains("finalizers: Some");
    assigns
        || fills
        || [".finalizers_mut(", "finalizers.get_or_insert", "finalizers.push"]
            .iter()
            .any(|it| line.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_are_written_in_one_place() {
        for line in [
            "    next.metadata.finalizers = Some(vec![]);",
            "    let patch = json!({\"metadata\": {\"finalizers\": []}});",
            "    object.finalizers_mut().push(it);",
            "    ObjectMeta { finalizers: Some(vec![]), ..ObjectMeta::default() }",
        ] {
            assert_eq!(complaints("a.rs", line).len(), 1, "{line}");
        }
        for line in ["let finalizers = object.finalizers();", "#[cfg(test)]\nit.finalizers = None;"] {
            assert_eq!(complaints("a.rs", line), [], "{line}");
        }
    }
}
