//! Terraform variables of versions: what a source declares, with the values that a build got.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What Coder shows in place of a sensitive value.
const REDACTED: &str = "*redacted*";

/// The variables that a source declares, as coderd shows them. Sensitive values are not kept.
pub(crate) fn declared(source: &str, values: &BTreeMap<String, String>) -> Vec<Value> {
    let mut variables = Vec::new();
    for (at, opening) in source.match_indices("variable \"") {
        let Some((name, rest)) = source.get(at + opening.len()..).and_then(|it| it.split_once('"')) else {
            continue;
        };
        let Some(block) = block(rest) else { continue };
        let default = attribute(block, "default");
        let is_sensitive = attribute(block, "sensitive").as_deref() == Some("true");
        let shown = |value: &str| if is_sensitive { REDACTED.to_owned() } else { value.to_owned() };
        let default_value = default.as_deref().filter(|it| *it != "null").unwrap_or_default();
        let value = values.get(name).map_or(default_value, String::as_str);
        variables.push(json!({
            "name": name,
            "description": attribute(block, "description").unwrap_or_default(),
            "type": attribute(block, "type").unwrap_or_default(),
            "value": shown(value),
            "default_value": shown(default_value),
            "required": default.is_none(),
            "sensitive": is_sensitive,
        }));
    }
    variables
}

/// The inside of the braces that a text begins with.
fn block(text: &str) -> Option<&str> {
    let text = text.trim_start().strip_prefix('{')?;
    let mut depth = 1;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text.get(..at);
        }
    }
    None
}

/// The value of an attribute, without quotes.
fn attribute(block: &str, name: &str) -> Option<String> {
    block.lines().find_map(|line| {
        let value = line.trim().strip_prefix(name)?.trim_start().strip_prefix('=')?.trim();
        Some(value.trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_from_the_source_and_sensitive_ones_are_redacted() {
        let source = r#"
variable "region" {
  type    = string
  default = "eu"
}
variable "token" {
  type      = string
  sensitive = true
}
variable "size" { type = number }
resource "terraform_data" "x" { input = { a = var.region } }
"#;
        let values = BTreeMap::from([
            ("token".to_owned(), "hunter-2".to_owned()),
            ("size".to_owned(), "4".to_owned()),
        ]);
        let variables = declared(source, &values);
        let shown: Vec<(&str, &str, &str, bool)> = variables
            .iter()
            .map(|it| {
                let text = |field: &str| it[field].as_str().unwrap();
                (text("name"), text("value"), text("default_value"), it["required"].as_bool().unwrap())
            })
            .collect();
        assert_eq!(
            shown,
            [("region", "eu", "eu", false), ("token", REDACTED, REDACTED, true), ("size", "4", "", true)]
        );
    }
}
