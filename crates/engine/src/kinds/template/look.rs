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
    published,
    recipe::{Likeness, Recipe},
    source::Source,
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
    fn likeness(&self, found: &TemplateVersion) -> Likeness {
        let is_it = |it: &&TemplateVersionState| it.id.as_deref() == Some(found.id.to_string().as_str());
        let recorded = self.recorded.as_ref().filter(is_it).and_then(|it| it.content.as_deref());
        self.material.recipe.likeness(&found.message, recorded)
    }

    /// Whether a version is known to be built with other values of Secrets than the source has now. Coder does not show the values of
    /// sensitive variables, but the status and the mark have fingerprints.
    fn has_other_values(&self, found: &TemplateVersion) -> bool {
        let is_it = |it: &&TemplateVersionState| it.id.as_deref() == Some(found.id.to_string().as_str());
        let recorded = self.recorded.as_ref().filter(is_it).and_then(|it| it.content.as_deref());
        self.material.recipe.has_other_values(&found.message, recorded)
    }

    /// Whether another tool published the same content, or this one another description of it, as with a variable at its default.
    async fn is_same_content(&self, found: &TemplateVersion, coder: &Coder) -> Result<bool, Trouble> {
        if self.has_other_values(found) {
            return Ok(false);
        }
        published::is_same(&self.material, found, coder).await
    }

    /// Whether the status tells of a later version with these values, where the mark of this one does not tell its own.
    fn has_successor(&self, found: &TemplateVersion) -> bool {
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

    pub(crate) fn is_built(&self) -> bool {
        self.build() == Some(SUCCEEDED)
    }
}

pub(crate) const SUCCEEDED: &str = "succeeded";
const OTHER_VALUES: &str = "was published with other values of the Secrets in spec.variables, or with another key for their \
    fingerprints: the key is in the token Secret of the control plane, and a new one is made when that Secret is lost";
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
            let found = coder.template_access(template).await?;
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
    if matches!(version.found, Found::Nothing) {
        // A plan that publishes rests on a source that was read and checked.
        material.packed(coder).await?;
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
    let (archive, digest) = match &wanted.source {
        Source::Archive(it) => (None, it.recipe_digest()),
        source => {
            let packed = source.packed(coder).await?;
            let digest = Recipe::digest(&packed);
            (Some(packed), digest)
        }
    };
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
    let recipe = Recipe::of_digest(digest, &wanted.tags, &plain, values);
    Ok(Material::new(desired, wanted, template.map(|it| it.id), archive, recipe))
}

/// Finds the version among those of a template: the active one, or the one that has its name.
async fn of_template(
    version: &mut Version,
    template: &Remote,
    named: Option<&str>,
    coder: &Coder,
) -> Result<Option<TemplateVersion>, Trouble> {
    let key = version.material.recipe.key();
    let active = template.active_version_id;
    let is_recorded = version.recorded.as_ref().is_some_and(|it| {
        it.id.as_deref() == Some(active.to_string().as_str())
            && it.content.as_deref() == Some(key.as_str())
            && it.build.as_deref() == Some(SUCCEEDED)
            && named.is_none_or(|name| it.name == name)
    });
    if is_recorded {
        version.found = Found::Recorded(active);
        version.name = version.recorded.as_ref().map_or_else(String::new, |it| it.name.clone());
        return Ok(None);
    }
    let found = coder.client().version(active).await?;
    let is_named = named.map_or_else(|| !version.has_successor(&found), |it| it == found.name);
    let is_ours = version.likeness(&found) == Likeness::Same && is_named;
    if is_ours {
        version.name.clone_from(&found.name);
        return Ok(Some(found));
    }
    match coder.client().version_by_name(template.id, &version.name).await {
        Ok(it) => {
            let likeness = version.likeness(&it);
            let is_same = likeness == Likeness::Same
                || (likeness == Likeness::Other && version.is_same_content(&it, coder).await?);
            if it.id != active {
                version.active = Some(found.name);
            }
            if is_same {
                return Ok(Some(it));
            }
            version.found = Found::Taken(match likeness {
                Likeness::OtherValues => OTHER_VALUES,
                Likeness::Same | Likeness::Other => "has other content",
            });
            Ok(None)
        }
        Err(error) if error.class() == Class::Missing => {
            let may_be = named.is_none() && !version.has_successor(&found);
            if may_be && version.is_same_content(&found, coder).await? {
                version.name.clone_from(&found.name);
                return Ok(Some(found));
            }
            version.active = Some(found.name);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Finds a version that belongs to no template yet: this process has published it, the status has its id, or, after a crash, its
/// build is found. Not every account that publishes may read builds.
async fn without_template(
    version: &Version,
    home: Uuid,
    coder: &Coder,
) -> Result<Option<TemplateVersion>, Trouble> {
    let published = coder.published(&version.material.identity);
    let recorded = version.recorded.as_ref().and_then(|it| it.id.as_ref()?.parse::<Uuid>().ok());
    for candidate in published.into_iter().chain(recorded) {
        if let Some(found) = without_template_by_id(version, candidate, coder).await? {
            return Ok(Some(found));
        }
    }
    let jobs = match coder.client().list_jobs(home).await {
        Ok(jobs) => jobs,
        Err(error) if error.class() == Class::Missing => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let jobs = jobs.iter().filter(|it| it.metadata.template_version_name == version.name);
    for candidate in jobs.filter_map(|it| it.input.template_version_id) {
        if let Some(found) = without_template_by_id(version, candidate, coder).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

async fn without_template_by_id(
    version: &Version,
    candidate: Uuid,
    coder: &Coder,
) -> Result<Option<TemplateVersion>, Trouble> {
    let found = match coder.client().version(candidate).await {
        Ok(found) => found,
        Err(error) if error.class() == Class::Missing => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let is_free = found.template_id.is_none_or(|it| it.is_nil());
    let is_same = version.likeness(&found) == Likeness::Same;
    Ok(Some(found).filter(|it| is_free && is_same && it.name == version.name))
}

/// A version, and why its build failed where it did.
async fn judged(material: &Material, version: TemplateVersion, coder: &Coder) -> Result<Found, Trouble> {
    if !FAILED.contains(&version.job.status.as_str()) {
        return Ok(Found::Ours(Box::new(version)));
    }
    let secrets: Vec<&str> = material.secrets().map(SecretString::expose_secret).collect();
    // A log may show the values that it was built with: what is not known cannot be taken out of it.
    let is_known = !material.has_secrets() || material.recipe.has_values_of(&version.message);
    let logs = if is_known { coder.client().version_logs(version.id).await? } else { Vec::new() };
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
