//! What Coder has of a template and of the version that its source makes.

use std::{collections::BTreeMap, sync::Arc};

use api::TemplateVersionState;
use client::{
    Class,
    organizations::Organization,
    scrub::clean,
    template_versions::{ProvisionerJobLog, TemplateVersion},
    templates::Template as Remote,
};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::{
    Desired, DesiredVersion, Observed, VariableValue,
    access::Access,
    archive,
    recipe::{Likeness, Recipe},
    source::unusable,
    work::{Material, workspaces},
};
use crate::{
    coder::{Coder, missing},
    kinds::fingerprint,
    pipeline::outcome::Trouble,
};

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
}

/// What there is of the version in Coder.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    /// The status says so, and nothing was read.
    Recorded(Uuid),
    Ours(Box<TemplateVersion>),
    /// A build that failed, with the first error of its log.
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

    pub(crate) fn is_built(&self) -> bool {
        self.build() == Some(SUCCEEDED)
    }
}

pub(crate) const SUCCEEDED: &str = "succeeded";
const FAILED: [&str; 2] = ["failed", "canceled"];

pub(super) async fn observe(
    desired: &Desired,
    held: Option<Uuid>,
    coder: &Coder,
) -> Result<Observed, Trouble> {
    let Some(home) = coder.home(&desired.organization).await? else {
        let version = match &desired.version {
            Some(wanted) => Some(version(desired, wanted, None, None, coder).await?),
            None => None,
        };
        return Ok(Observed { template: None, access: None, version, workspaces: None });
    };
    let templates = coder.templates(home.id).await?;
    let ours = templates.iter().find(|it| Some(it.id) == held);
    let named = || templates.iter().find(|it| it.name.eq_ignore_ascii_case(&desired.name));
    let template = ours.or_else(named).cloned();
    if template.is_none() && desired.version.is_none() && !desired.is_leaving {
        let message = format!(
            "template {}/{} does not exist, and without spec.source none is published: push a first version, or set source",
            desired.organization, desired.name
        );
        return Err(missing(message).into());
    }
    let access = access(desired, &home, template.as_ref(), coder).await?;
    let version = match &desired.version {
        Some(wanted) => Some(version(desired, wanted, Some(&home), template.as_ref(), coder).await?),
        None => None,
    };
    let workspaces = match template.as_ref().filter(|_| desired.is_leaving) {
        Some(template) => workspaces(template, coder).await?,
        None => None,
    };
    Ok(Observed { template, access, version, workspaces })
}

async fn access(
    desired: &Desired,
    home: &Organization,
    template: Option<&Remote>,
    coder: &Coder,
) -> Result<Option<(Access, Access)>, Trouble> {
    if desired.access.is_absent() {
        return Ok(None);
    }
    let declared = desired.access.resolved(home, coder).await?;
    let found = match template {
        Some(template) => {
            let found = coder.client().template_access(template.id).await?;
            Access::found(&found, home.id, &coder.organizations().await?)
        }
        None => declared.of_new_template(),
    };
    Ok(Some((declared, found)))
}

/// The version that the source makes, and what Coder has of it.
async fn version(
    desired: &Desired,
    wanted: &DesiredVersion,
    home: Option<&Organization>,
    template: Option<&Remote>,
    coder: &Coder,
) -> Result<Version, Trouble> {
    let material = Arc::new(material(desired, wanted, template, coder).await?);
    let recorded = desired.recorded.clone();
    let mut version = Version {
        name: material.name.clone(),
        material: Arc::clone(&material),
        activates: wanted.activates,
        found: Found::Nothing,
        active: None,
        recorded,
    };
    let Some(home) = home else { return Ok(version) };
    let named = wanted.name.as_deref();
    let found = match template {
        Some(template) => of_template(&mut version, template, named, coder).await?,
        None => without_template(&version, home.id, coder).await?,
    };
    if let Some(found) = found {
        version.found = judged(&material, found, coder).await?;
    }
    Ok(version)
}

/// What the version would be made of.
async fn material(
    desired: &Desired,
    wanted: &DesiredVersion,
    template: Option<&Remote>,
    coder: &Coder,
) -> Result<Material, Trouble> {
    let files = wanted.source.read(coder).await?;
    let archive = archive::pack(&files).map_err(|why| unusable(format!("spec.source: {why}")))?;
    let mut plain = BTreeMap::new();
    // In the order of names: the order of the list means nothing.
    let mut secrets = BTreeMap::new();
    for variable in &wanted.variables {
        let text = match &variable.value {
            VariableValue::Plain(text) => Some(text.clone()),
            VariableValue::Secret(_, value) => {
                secrets.extend(value.iter().map(|it| (&variable.name, it)));
                None
            }
        };
        plain.insert(variable.name.clone(), text);
    }
    let values = if secrets.is_empty() {
        None
    } else {
        let Desired { namespace, control_plane, .. } = desired;
        fingerprint::of_values(namespace, control_plane, secrets.into_values(), coder).await?
    };
    let recipe = Recipe::new(&archive, &wanted.tags, &plain, values);
    Ok(Material::new(desired, wanted, template.map(|it| it.id), archive, recipe))
}

/// Finds the version among those of a template: the active one, or the one that has its name.
async fn of_template(
    version: &mut Version,
    template: &Remote,
    named: Option<&str>,
    coder: &Coder,
) -> Result<Option<TemplateVersion>, Trouble> {
    let recipe = &version.material.recipe;
    let active = template.active_version_id;
    let is_recorded = version.recorded.as_ref().is_some_and(|it| {
        it.id.as_deref() == Some(active.to_string().as_str())
            && it.content.as_deref() == Some(recipe.key().as_str())
            && it.build.as_deref() == Some(SUCCEEDED)
            && named.is_none_or(|name| it.name == name)
    });
    if is_recorded {
        version.found = Found::Recorded(active);
        version.name = version.recorded.as_ref().map_or_else(String::new, |it| it.name.clone());
        return Ok(None);
    }
    let found = coder.client().version(active).await?;
    let is_ours =
        recipe.likeness(&found.message) == Likeness::Same && named.is_none_or(|it| it == found.name);
    if is_ours {
        version.name.clone_from(&found.name);
        return Ok(Some(found));
    }
    version.active = Some(found.name);
    match coder.client().version_by_name(template.id, &version.name).await {
        Ok(found) => match recipe.likeness(&found.message) {
            Likeness::Same => Ok(Some(found)),
            Likeness::OtherValues => {
                version.found =
                    Found::Taken("was published with other values of the Secrets in spec.variables");
                Ok(None)
            }
            Likeness::Other => {
                version.found = Found::Taken("has other content");
                Ok(None)
            }
        },
        Err(error) if error.class() == Class::Missing => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Finds a version that belongs to no template yet: by the id in the status, or, after a crash, by its build.
async fn without_template(
    version: &Version,
    home: Uuid,
    coder: &Coder,
) -> Result<Option<TemplateVersion>, Trouble> {
    let recorded = version.recorded.as_ref().and_then(|it| it.id.as_ref()?.parse::<Uuid>().ok());
    let mut candidates: Vec<Uuid> = recorded.into_iter().collect();
    if candidates.is_empty() {
        let jobs = match coder.client().list_jobs(home).await {
            Ok(jobs) => jobs,
            // The account may not read jobs.
            Err(error) if error.class() == Class::Missing => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let is_it = |name: &str| name == version.name;
        let jobs = jobs.iter().filter(|it| is_it(&it.metadata.template_version_name));
        candidates.extend(jobs.filter_map(|it| it.input.template_version_id));
    }
    for candidate in candidates {
        let found = match coder.client().version(candidate).await {
            Ok(found) => found,
            Err(error) if error.class() == Class::Missing => continue,
            Err(error) => return Err(error.into()),
        };
        let is_free = found.template_id.is_none_or(|it| it.is_nil());
        let is_same = version.material.recipe.likeness(&found.message) == Likeness::Same;
        if is_free && is_same && found.name == version.name {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A version with the first error of its log, where its build failed.
async fn judged(material: &Material, version: TemplateVersion, coder: &Coder) -> Result<Found, Trouble> {
    if !FAILED.contains(&version.job.status.as_str()) {
        return Ok(Found::Ours(Box::new(version)));
    }
    let secrets: Vec<&str> = material.secrets().map(SecretString::expose_secret).collect();
    let logs = coder.client().version_logs(version.id).await?;
    let words = failure(&logs, &version.job.error, &secrets);
    Ok(Found::Failed(Box::new(version), words))
}

/// Why a build failed, without the values of Secrets: the first error of its log, or the error of the job.
fn failure(logs: &[ProvisionerJobLog], error: &str, secrets: &[&str]) -> String {
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
