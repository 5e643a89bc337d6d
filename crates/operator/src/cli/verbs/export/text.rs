//! Manifests of an export as YAML, with what a person has to know as comments. Pure, and the same for the same state: files in Git
//! change only where the deployment does.

use engine::export::{Export, Exported};
use serde_json::Value;

use crate::cli::{deployment::DeploymentRef, terminal::printable};

/// One manifest.
pub(super) fn manifest(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_default()
}

/// One manifest as a file, with its notes above it.
pub(super) fn file(exported: &Exported) -> String {
    let notes = exported.notes.iter().map(|it| comment(it));
    notes.collect::<String>() + &manifest(&exported.manifest)
}

/// All manifests as one text.
pub(super) fn stream(deployment: &DeploymentRef, export: &Export) -> String {
    let mut text = comment(&format!("Exported from {deployment} by coder-operator."));
    let needed = needed(export);
    if !needed.is_empty() {
        text += &comment("Supply these Secrets; no manifest holds a secret value:");
        for line in &needed {
            text += &comment(&format!("  {line}"));
        }
    }
    for exported in &export.manifests {
        text += "---\n";
        text += &file(exported);
    }
    text
}

/// The list of Secrets, as a file.
pub(super) fn list(deployment: &DeploymentRef, export: &Export) -> String {
    let mut text = format!("Secrets of the manifests that were exported from {deployment}.\n");
    text += "Supply each in the namespace of the manifests, or with --secret NAME/KEY=SOURCE on the command line.\n";
    text += "Until then the fields that refer to them are unknown: plan and verify exit with 5, or skip them with\n";
    text += "--skip-missing-secrets.\n\n";
    for line in needed(export) {
        text += &line;
        text += "\n";
    }
    printable(&text)
}

/// A line for each entry of a Secret to supply.
pub(super) fn needed(export: &Export) -> Vec<String> {
    let secrets = export.manifests.iter().flat_map(|it| &it.secrets);
    secrets.map(|it| format!("{}/{}: {}", it.name, it.key, it.what)).collect()
}

pub(super) fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A comment of one line, for every reader of YAML: what it says may come from a server. Some take U+2028 and the like for the end of
/// a line, and what follows for a manifest.
fn comment(text: &str) -> String {
    let ends_line = |it: char| it.is_control() || matches!(it, '\u{2028}' | '\u{2029}' | '\u{feff}');
    format!("# {}\n", printable(text).replace(ends_line, " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_is_one_line_to_every_reader() {
        let hostile = "mapping: a\u{2028}kind: Secret\u{2029}---\u{85}b\nc\rd\u{feff}e";
        assert_eq!(comment(hostile).matches(['\u{2028}', '\u{2029}', '\u{85}', '\r', '\u{feff}']).count(), 0);
        assert_eq!(comment(hostile).matches('\n').count(), 1);
        assert!(comment(hostile).starts_with("# mapping: a kind: Secret"));
    }
}
