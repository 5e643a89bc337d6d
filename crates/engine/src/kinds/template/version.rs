//! A version of a template, as it is declared and as Coder has it.

use std::sync::Arc;

use api::{TemplateTestState, TemplateVersionState};
use client::{
    scrub::clean,
    template_versions::{ProvisionerJobLog, TemplateVersion},
};
use uuid::Uuid;

use super::{recipe::Likeness, test_workspace::Test, work::Material};

/// The version that the source makes.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) material: Arc<Material>,
    pub(crate) activates: bool,
    pub(crate) found: Found,
    /// The name of the active version, where that is another one.
    pub(crate) active: Option<String>,
    pub(crate) recorded: Option<TemplateVersionState>,
    /// The declared test, and what there is of it. `None` where none is declared.
    pub(crate) test: Option<Test>,
}

/// What there is of the version in Coder.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    /// The status says so, and nothing was read.
    Recorded(Uuid),
    Ours(Box<TemplateVersion>),
    /// A build that failed, and why.
    Failed(Box<TemplateVersion>, String),
    /// Another version has the name; why it is another one.
    Taken(&'static str),
}

impl Version {
    pub(crate) fn id(&self) -> Option<Uuid> {
        match &self.found {
            Found::Recorded(id) => Some(*id),
            Found::Ours(version) | Found::Failed(version, _) => Some(version.id),
            Found::Nothing | Found::Taken(_) => None,
        }
    }

    /// The state of the build, in Coder's words.
    pub(crate) fn build(&self) -> Option<&str> {
        match &self.found {
            Found::Recorded(_) => Some(SUCCEEDED),
            Found::Ours(version) | Found::Failed(version, _) => Some(&version.job.status),
            Found::Nothing | Found::Taken(_) => None,
        }
    }

    /// How a version in Coder compares with the source and the values. The status knows the values of a version whose mark
    /// does not.
    pub(super) fn likeness(&self, found: &TemplateVersion) -> Likeness {
        let is_it = |it: &&TemplateVersionState| it.id.as_deref() == Some(found.id.to_string().as_str());
        let recorded = self.recorded.as_ref().filter(is_it).and_then(|it| it.content.as_deref());
        self.material.recipe.likeness(&found.message, recorded)
    }

    /// Whether a version is known to be built with other values of Secrets than the source has now. Coder does not show the values of
    /// sensitive variables, but the status and the mark have fingerprints.
    pub(super) fn has_other_values(&self, found: &TemplateVersion) -> bool {
        let is_it = |it: &&TemplateVersionState| it.id.as_deref() == Some(found.id.to_string().as_str());
        let recorded = self.recorded.as_ref().filter(is_it).and_then(|it| it.content.as_deref());
        self.material.recipe.has_other_values(&found.message, recorded)
    }

    /// Whether the status tells of a later version with these values, where the mark of this one does not tell its own.
    pub(super) fn has_successor(&self, found: &TemplateVersion) -> bool {
        let recipe = &self.material.recipe;
        let is_later = |it: &TemplateVersionState| {
            it.content.as_deref() == Some(recipe.key().as_str())
                && it.id.as_ref().is_some_and(|id| *id != found.id.to_string())
        };
        let is_marked = recipe.values.is_none() || recipe.has_values_of(&found.message);
        !is_marked && self.recorded.as_ref().is_some_and(is_later)
    }

    /// Whether the status tells of a version with the same content, and this one is not there yet. Such a record stays: it
    /// alone may know with which values that version was published.
    pub(crate) fn leaves_record(&self) -> bool {
        let content = |it: &TemplateVersionState| it.id.as_ref().and_then(|_| it.content.clone());
        let recorded = self.recorded.as_ref().and_then(content);
        self.id().is_none() && recorded.is_some_and(|it| self.material.recipe.has_content(&it))
    }

    /// Whether the status says that this version was published, built, and tested where a test is declared.
    pub(crate) fn was_settled(&self, recorded_test: Option<&TemplateTestState>) -> bool {
        let recorded = self.recorded.as_ref().filter(|it| {
            it.content.as_deref() == Some(self.material.recipe.key().as_str())
                && it.build.as_deref() == Some(SUCCEEDED)
        });
        let Some(id) = recorded.and_then(|it| it.id.as_deref()) else { return false };
        let is_over = |it: &TemplateTestState| it.version == id && !it.is_open();
        self.test.is_none() || recorded_test.is_some_and(is_over)
    }

    pub(crate) fn is_built(&self) -> bool {
        self.build() == Some(SUCCEEDED)
    }
}

pub(crate) const SUCCEEDED: &str = "succeeded";

/// Why a build failed, without the values of Secrets: the first error of its log, or the error of the job.
pub(super) fn failure(logs: &[ProvisionerJobLog], error: &str, secrets: &[&str]) -> String {
    // Terraform prints a value of several lines line by line.
    let lines = secrets.iter().flat_map(|it| it.lines()).map(str::trim);
    let secrets: Vec<&str> = secrets.iter().copied().chain(lines).collect();
    clean(first_error(logs).unwrap_or(error), &secrets)
}

/// The first line of a log that is an error.
fn first_error(logs: &[ProvisionerJobLog]) -> Option<&str> {
    let is_error = |it: &&ProvisionerJobLog| it.log_level == "error" && !it.output.trim().is_empty();
    // Terraform draws a frame around its errors, and the text begins after the bare top of it.
    let has_text = |it: &&ProvisionerJobLog| it.output.chars().any(char::is_alphanumeric);
    let line = logs.iter().filter(is_error).find(has_text)?;
    Some(line.output.trim_start_matches(|it: char| !it.is_alphanumeric()).trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn logs(lines: &[(&str, &str)]) -> Vec<ProvisionerJobLog> {
        let line =
            |(level, output): &(&str, &str)| json!({"log_level": level, "stage": "Plan", "output": output});
        lines.iter().map(|it| serde_json::from_value(line(it)).unwrap()).collect()
    }

    #[test]
    fn first_error_of_a_log_is_shown_without_values_of_secrets() {
        let log = logs(&[
            ("info", "Error: not this one"),
            ("error", "\u{2577}"),
            ("error", "\u{2502} Error: first-line is wrong"),
            ("error", "Error: another"),
        ]);
        assert_eq!(failure(&log, "job", &[]), "Error: first-line is wrong");
        assert_eq!(failure(&log, "job", &["first-line\nsecond-line\n"]), "Error: [redacted] is wrong");
        assert_eq!(
            failure(&logs(&[("info", "fine")]), "exit status 1: hunter-2", &["hunter-2"]),
            "exit status 1: [redacted]"
        );
    }
}
