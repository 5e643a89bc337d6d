//! What a version in Coder is made of, whoever published it: its files, its tags and the values of its variables.

use std::collections::BTreeMap;

use client::{
    Class, Error,
    template_versions::{TemplateVersion, TemplateVersionVariable},
};
use secrecy::ExposeSecret as _;

use super::{
    Variable, VariableValue,
    archive::{self, Files},
    work::Material,
};
use crate::{coder::Coder, pipeline::outcome::Trouble};

/// Tags that coderd adds to those of a version.
const ADDED: [&str; 2] = ["scope", "owner"];

/// A version that was built.
pub(super) struct Published {
    pub(super) files: Files,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) variables: Vec<TemplateVersionVariable>,
}

/// Reads what a version is made of. The inner error says why that cannot be found out.
pub(super) async fn read(
    version: &TemplateVersion,
    coder: &Coder,
) -> Result<Result<Published, String>, Trouble> {
    if !["succeeded", "failed", "canceled"].contains(&version.job.status.as_str()) {
        return Ok(Err(format!("the build of version {} is {}", version.name, version.job.status)));
    }
    if version.job.tags.get("scope").is_some_and(|it| it != "organization") {
        return Ok(Err(format!("version {} is built by the daemons of one user", version.name)));
    }
    let Some(file) = version.job.file_id else {
        return Ok(Err(format!("Coder does not show the file of version {}", version.name)));
    };
    let variables = match coder.client().version_variables(version.id).await {
        Ok(variables) => variables,
        Err(error) => return unreadable("the variables", version, error),
    };
    let bytes = match coder.client().download_file(file).await {
        Ok(bytes) => bytes,
        Err(error) => return unreadable("the files", version, error),
    };
    let files = match archive::unpack(&bytes) {
        Ok(files) => files,
        Err(why) => return Ok(Err(format!("the files of version {}: {why}", version.name))),
    };
    Ok(Ok(Published { files, tags: tags(&version.job.tags), variables }))
}

/// A refusal for this account or this client, which another attempt does not change.
fn unreadable<T>(what: &str, version: &TemplateVersion, error: Error) -> Result<Result<T, String>, Trouble> {
    let is_refused = matches!(error.class(), Class::Missing | Class::Forbidden) || error.is_too_large();
    if is_refused {
        return Ok(Err(format!("{what} of version {} cannot be read: {}", version.name, error.words())));
    }
    Err(error.into())
}

/// The tags that a version was published with.
fn tags(found: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_given = |(name, value): &(&String, &String)| !ADDED.contains(&name.as_str()) && !value.is_empty();
    found.iter().filter(is_given).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether a version has the content of the source, the variables and the tags of a manifest, whichever tool packed and published it. The
/// answer is remembered: no version changes.
pub(super) async fn is_same(
    material: &Material,
    version: &TemplateVersion,
    coder: &Coder,
) -> Result<bool, Trouble> {
    let what = material.recipe.key();
    if let Some(known) = coder.compared(version.id, &what) {
        return Ok(known);
    }
    let is_same = match read(version, coder).await? {
        Ok(published) => published.is_made_of(material, &material.packed(coder).await?),
        Err(_) => false,
    };
    coder.note_compared(version.id, &what, is_same);
    Ok(is_same)
}

impl Published {
    /// Whether the files are those of an archive. Whether files are executable counts only where the source can say so.
    fn has_archive(&self, packed: &[u8], has_modes: bool) -> bool {
        let is_packed = |files: &Files| archive::pack(files).is_ok_and(|it| it == packed);
        let without_bits = || -> Files {
            self.files.iter().map(|(path, it)| (path.clone(), it.content.clone().into())).collect()
        };
        is_packed(&self.files) || (!has_modes && is_packed(&without_bits()))
    }

    fn is_made_of(&self, material: &Material, packed: &[u8]) -> bool {
        self.has_archive(packed, material.source.has_modes())
            && self.tags == tags(&material.tags)
            && has_values(&self.variables, &material.variables)
    }
}

/// Whether variables have the declared values. A sensitive one may have the value of a Secret: Coder does not show it.
fn has_values(found: &[TemplateVersionVariable], declared: &[Variable]) -> bool {
    found.iter().all(|found| {
        let declared = declared.iter().find(|it| it.name == found.name);
        match declared.map(|it| &it.value) {
            Some(VariableValue::Plain(text)) => !found.sensitive && found.value == *text,
            Some(VariableValue::Secret(_, Some(value))) => {
                found.sensitive || found.value == value.expose_secret()
            }
            Some(VariableValue::Secret(_, None)) => true,
            None => !found.required && (found.sensitive || found.value == found.default_value),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{pipeline::export::SourceFile, secrets::SecretPlace};

    fn variable(name: &str, value: &str, default: Option<&str>, sensitive: bool) -> TemplateVersionVariable {
        serde_json::from_value(
            json!({"name": name, "value": value, "default_value": default.unwrap_or_default(),
            "required": default.is_none(), "sensitive": sensitive}),
        )
        .unwrap()
    }

    fn plain(name: &str, value: &str) -> Variable {
        Variable { name: name.to_owned(), value: VariableValue::Plain(value.to_owned()) }
    }

    fn secret(name: &str, value: Option<&str>) -> Variable {
        let place = SecretPlace { name: "s".to_owned(), key: "k".to_owned() };
        Variable { name: name.to_owned(), value: VariableValue::Secret(place, value.map(Into::into)) }
    }

    #[test]
    fn absent_variable_has_its_default() {
        let found = [variable("region", "eu", Some("eu"), false)];
        assert!(has_values(&found, &[]) && has_values(&found, &[plain("region", "eu")]));
        assert!(!has_values(&found, &[plain("region", "us")]));
        let changed = [variable("region", "us", Some("eu"), false)];
        assert!(!has_values(&changed, &[]) && has_values(&changed, &[plain("region", "us")]));
        assert!(!has_values(&[variable("region", "", None, false)], &[]), "a required one is declared");
        assert!(has_values(&[], &[plain("unknown", "x")]), "Coder ignores what the source does not declare");
    }

    #[test]
    fn value_of_a_secret_is_compared_where_coder_shows_it() {
        let shown = [variable("token", "one", None, false)];
        assert!(has_values(&shown, &[secret("token", Some("one"))]));
        assert!(!has_values(&shown, &[secret("token", Some("two"))]));
        assert!(has_values(&shown, &[secret("token", None)]), "the Secret is missing");
        let hidden = [variable("token", "*redacted*", None, true)];
        assert!(has_values(&hidden, &[secret("token", Some("two"))]));
        assert!(!has_values(&hidden, &[plain("token", "two")]) && !has_values(&hidden, &[]));
    }

    #[test]
    fn executable_bit_counts_where_the_source_can_say_it() {
        let file = |is_executable| SourceFile { content: b"#!/bin/sh".to_vec(), is_executable };
        let files = |is_executable| Files::from([("run.sh".to_owned(), file(is_executable))]);
        let published = |is_executable| Published {
            files: files(is_executable),
            tags: BTreeMap::new(),
            variables: Vec::new(),
        };
        let packed = |is_executable| archive::pack(&files(is_executable)).unwrap();
        for (found, wanted) in [(true, true), (true, false), (false, false), (false, true)] {
            assert_eq!(published(found).has_archive(&packed(wanted), true), found == wanted);
        }
        assert!(published(true).has_archive(&packed(false), false), "a manifest cannot say it");
    }

    #[test]
    fn tags_of_coder_itself_do_not_count() {
        let found = json!({"owner": "", "scope": "organization", "site": "a", "empty": ""});
        let found: BTreeMap<String, String> = serde_json::from_value(found).unwrap();
        assert_eq!(tags(&found), BTreeMap::from([("site".to_owned(), "a".to_owned())]));
    }
}
