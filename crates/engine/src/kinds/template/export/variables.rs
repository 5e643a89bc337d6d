//! The variables of a version as a manifest declares them. Pure.
//!
//! Coder shows every variable that a source declares, with its value, but not which of them were set, and not which values came from
//! Secrets. The mark of a version that this program published tells: the declaration is the one whose digest it is. For versions of
//! others, values of sensitive variables, and of variables with the name of a secret, are references.

use std::collections::BTreeMap;

use api::{TemplateVariable, VariableSecretRef, VariableSource};
use client::template_versions::{TemplateVersion, TemplateVersionVariable as Found};

use crate::{
    kinds::template::recipe::{Recipe, mark},
    pipeline::export::{NeededSecret, slug},
};

/// How many declarations are compared with a mark.
const MOST_TRIED: usize = 50_000;
/// Parts of names of variables whose values are taken for secret.
const SECRET_NAMES: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "apikey", "api_key", "private_key", "credential"];

/// How a manifest declares a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Absent,
    Plain,
    Secret,
}

/// What a manifest declares, and what a person has to know of it.
#[derive(Debug, Default)]
pub(super) struct Declared {
    pub(super) variables: Vec<TemplateVariable>,
    pub(super) secrets: Vec<NeededSecret>,
    pub(super) notes: Vec<String>,
}

/// Declares the variables of a version. `title` names the Secret, `what` the template in words.
pub(super) fn declare(
    found: &[Found],
    version: &TemplateVersion,
    made_of: (&[u8], &BTreeMap<String, String>),
    (title, what): (&str, &str),
) -> Declared {
    let forms = match mark(&version.message) {
        Some(mark) => by_mark(found, mark.content, made_of).unwrap_or_else(|| {
            // The mark is of other variables than Coder shows: each of them may be one from a Secret.
            let form = |it: &Found| if is_set(it) { Form::Secret } else { Form::Absent };
            found.iter().map(form).collect()
        }),
        None => found.iter().map(by_name).collect(),
    };
    let secret = format!("template-{}", slug(title));
    let mut declared = Declared::default();
    for (found, form) in found.iter().zip(forms) {
        let name = found.name.clone();
        match form {
            Form::Absent => {}
            Form::Plain => {
                let variable = TemplateVariable { name, value: Some(found.value.clone()), value_from: None };
                declared.variables.push(variable);
            }
            Form::Secret => {
                let reference = VariableSecretRef { name: secret.clone(), key: name.clone() };
                let source = VariableSource { secret_key_ref: reference };
                let needed = format!("value of variable {name} of {what}");
                declared.secrets.push(NeededSecret { name: secret.clone(), key: name.clone(), what: needed });
                if !found.required && found.sensitive {
                    declared.notes.push(format!(
                        "Coder does not show whether the sensitive variable {name} is set: remove it to use the default of the source"
                    ));
                }
                declared.variables.push(TemplateVariable { name, value: None, value_from: Some(source) });
            }
        }
    }
    declared.variables.sort_by(|one, other| one.name.cmp(&other.name));
    declared.secrets.sort();
    declared
}

/// Whether a variable has another value than its default, or may have one.
fn is_set(found: &Found) -> bool {
    found.required || found.sensitive || found.value != found.default_value
}

/// The form for a version without a mark.
fn by_name(found: &Found) -> Form {
    let name = found.name.to_lowercase().replace('-', "_");
    if !is_set(found) {
        Form::Absent
    } else if found.sensitive || SECRET_NAMES.iter().any(|it| name.contains(it)) {
        Form::Secret
    } else {
        Form::Plain
    }
}

/// The forms that a declaration may have given a variable, the likeliest first.
fn possible(found: &Found) -> &'static [Form] {
    match (found.sensitive, is_set(found)) {
        (true, _) if found.required => &[Form::Secret],
        (true, _) => &[Form::Secret, Form::Absent],
        (false, true) => &[Form::Plain, Form::Secret],
        (false, false) => &[Form::Absent, Form::Plain, Form::Secret],
    }
}

/// The forms whose digest is the content of a mark. `None` where there are none, or too many to try.
fn by_mark(
    found: &[Found],
    content: &str,
    (archive, tags): (&[u8], &BTreeMap<String, String>),
) -> Option<Vec<Form>> {
    let possible: Vec<&[Form]> = found.iter().map(possible).collect();
    let count = possible.iter().try_fold(1_usize, |count, it| count.checked_mul(it.len()))?;
    let archive = Recipe::digest(archive);
    (0..count.min(MOST_TRIED)).find_map(|number| {
        let mut rest = number;
        let mut forms = Vec::with_capacity(found.len());
        for options in &possible {
            forms.push(*options.get(rest % options.len())?);
            rest /= options.len();
        }
        let declared = found.iter().zip(&forms).filter(|(_, form)| **form != Form::Absent);
        let declared = declared
            .map(|(it, form)| (it.name.clone(), (*form == Form::Plain).then(|| it.value.clone())))
            .collect();
        (Recipe::of_digest(archive, tags, &declared, None).content == content).then_some(forms)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn found(name: &str, value: &str, default: Option<&str>, sensitive: bool) -> Found {
        serde_json::from_value(
            json!({"name": name, "value": value, "default_value": default.unwrap_or_default(),
            "required": default.is_none(), "sensitive": sensitive}),
        )
        .unwrap()
    }

    fn all() -> Vec<Found> {
        vec![
            found("region", "eu", Some("eu"), false),
            found("size", "large", Some("small"), false),
            found("registry_token", "value-of-a-person", None, false),
            found("hidden", "*redacted*", None, true),
            found("optional", "*redacted*", Some("*redacted*"), true),
        ]
    }

    fn version(message: &str) -> TemplateVersion {
        serde_json::from_value(json!({"id": Uuid::nil(), "name": "v1", "message": message,
            "job": {"id": Uuid::nil(), "status": "succeeded"}}))
        .unwrap()
    }

    fn declared(message: &str) -> Vec<(String, Option<String>)> {
        let tags = BTreeMap::new();
        let declared = declare(&all(), &version(message), (b"archive", &tags), ("a-b", "template a/b"));
        let references = declared.variables.iter().filter(|it| it.value_from.is_some()).count();
        assert_eq!(declared.secrets.len(), references);
        declared.variables.into_iter().map(|it| (it.name, it.value)).collect()
    }

    /// The message of a version that declares these variables; `None` is a value from a Secret.
    fn message(variables: &[(&str, Option<&str>)]) -> String {
        let variables = variables.iter().map(|(name, it)| ((*name).to_owned(), it.map(str::to_owned)));
        Recipe::new(b"archive", &BTreeMap::new(), &variables.collect(), None).message(None)
    }

    #[test]
    fn mark_tells_which_values_came_from_secrets() {
        for expected in [
            vec![("hidden", None), ("registry_token", None), ("size", Some("large"))],
            vec![("hidden", None), ("registry_token", Some("value-of-a-person")), ("size", Some("large"))],
            vec![
                ("hidden", None),
                ("optional", None),
                ("region", Some("eu")),
                ("registry_token", None),
                ("size", None),
            ],
        ] {
            let expected: Vec<(String, Option<String>)> =
                expected.iter().map(|(name, it)| ((*name).to_owned(), it.map(str::to_owned))).collect();
            let pairs: Vec<(&str, Option<&str>)> =
                expected.iter().map(|(name, it)| (name.as_str(), it.as_deref())).collect();
            assert_eq!(declared(&message(&pairs)), expected);
        }
    }

    #[test]
    fn version_of_another_tool_has_references_for_secret_names_and_sensitive_variables() {
        let names = declared("pushed by hand");
        let value = |name: &str| names.iter().find(|(it, _)| it == name).map(|(_, it)| it.clone());
        assert_eq!(value("region"), None, "at its default");
        assert_eq!(value("size"), Some(Some("large".to_owned())));
        for name in ["registry_token", "hidden", "optional"] {
            assert_eq!(value(name), Some(None), "{name}");
        }
    }

    #[test]
    fn mark_that_no_declaration_has_makes_every_value_a_reference() {
        let names = declared(&message(&[("other", Some("x"))]));
        assert!(names.iter().all(|(_, it)| it.is_none()), "{names:?}");
        assert_eq!(names.len(), 4);
    }
}
