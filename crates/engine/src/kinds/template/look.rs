//! What Coder has of a template and of the version that its source makes.

use std::{collections::BTreeMap, sync::Arc};

use api::{Reason, TemplateTestState};
use client::{
    Class, organizations::Organization, template_versions::TemplateVersion, templates::Template as Remote,
};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::{
    Desired, DesiredVersion, Observed, VariableValue,
    access::Access,
    published,
    recipe::{Likeness, Recipe},
    source::Source,
    test_look,
    test_trace::{self, Left},
    test_workspace::Test,
    version::{Found, SUCCEEDED, Version, failure},
    work::{Material, workspaces},
};
use crate::{
    coder::{Coder, missing},
    kinds::fingerprint,
    pipeline::outcome::Trouble,
};

const OTHER_VALUES: &str = "was published with other values of the Secrets in spec.variables, or with another key for their \
    fingerprints: the key is in the token Secret of the control plane, and a new one is made when that Secret is lost";
const FAILED: [&str; 2] = ["failed", "canceled"];

pub(super) async fn observe(
    desired: &Desired,
    held: Option<Uuid>,
    coder: &Coder,
) -> Result<Observed, Trouble> {
    let open = desired.recorded_test.as_ref().filter(|it| it.is_open());
    let home = match coder.home(&desired.organization).await {
        // Coder does not show the organization, and the test workspace on record may be in it all the same.
        Err(Trouble::Blocked(waiting))
            if waiting.reason == Reason::ReferenceNotFound
                && desired.is_leaving
                && open.is_some_and(|it| test_trace::id(it).is_some()) =>
        {
            None
        }
        home => home?,
    };
    let Some(home) = home else {
        let version = match &desired.version {
            Some(wanted) => Some(version(desired, wanted, None, None, coder).await?),
            None => None,
        };
        let left = match open {
            Some(open) => test_look::recorded(open, held, None, coder).await?,
            None => Left::default(),
        };
        return with_left(observed(desired, version, coder), left, desired);
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
    let mut version = match &desired.version {
        Some(wanted) => Some(version(desired, wanted, Some(&home), template.as_ref(), coder).await?),
        None => None,
    };
    let left = if desired.is_leaving && ours.is_none() {
        match open {
            Some(open) => test_look::recorded(open, held, Some(&home), coder).await?,
            None => Left::default(),
        }
    } else {
        test_look::observe(desired, version.as_mut(), template.as_ref(), &home, coder).await?
    };
    let workspaces = match template.as_ref().filter(|_| desired.is_leaving) {
        Some(template) => workspaces(template, &desired.test_prefix, coder).await?,
        None => None,
    };
    let observed = Observed { template, access, workspaces, ..observed(desired, version, coder) };
    with_left(observed, left, desired)
}

/// Adds what is left of tests. A deletion waits for a workspace that Coder does not show.
fn with_left(observed: Observed, left: Left, desired: &Desired) -> Result<Observed, Trouble> {
    let Left { former, hidden } = left;
    match hidden {
        Some(hidden) if desired.is_leaving && former.is_empty() => Err(hidden.into()),
        hidden => Ok(Observed { former, hidden, ..observed }),
    }
}

/// What there is of a template that does not exist.
fn observed(desired: &Desired, version: Option<Version>, coder: &Coder) -> Observed {
    Observed {
        template: None,
        access: None,
        version,
        workspaces: None,
        former: Vec::new(),
        hidden: None,
        recorded_active: desired.recorded_active.clone(),
        recorded_test: desired.recorded_test.clone(),
        test_prefix: desired.test_prefix.clone(),
        was_equal: desired.was_equal,
        is_retained: desired.is_retained,
        may_write: !desired.is_observed,
        now: coder.now(),
    }
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
        test: wanted.test.clone().map(|it| Test::new(it, false)),
    };
    let Some(home) = home else { return Ok(version) };
    let named = wanted.name.as_deref();
    let found = match template {
        Some(template) => {
            let recorded_test = desired.recorded_test.as_ref();
            of_template(&mut version, template, named, recorded_test, coder).await?
        }
        None => without_template(&version, home.id, coder).await?,
    };
    if let Some(found) = found {
        if let Some(test) = &mut version.test {
            test.result = test_look::result(&found.message, &test.declared.key());
        }
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
    recorded_test: Option<&TemplateTestState>,
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
    let is_tested = recorded_test.is_some_and(|it| {
        it.version == active.to_string() && it.result.as_deref() == Some("passed") && !it.is_open()
    });
    if is_recorded && (is_tested || version.test.is_none()) {
        version.test = version.test.take().map(|it| Test::new(it.declared, true));
        version.found = Found::Recorded(active);
        version.name = version.recorded.as_ref().map_or_else(String::new, |it| it.name.clone());
        return Ok(None);
    }
    // The list of templates has only the id of the active version, and no list of Coder has the messages of versions of several
    // templates: without a record in the status this is one request for each template.
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
                || (likeness == Likeness::Other && is_same_content(version, &it, coder).await?);
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
            if may_be && is_same_content(version, &found, coder).await? {
                version.name.clone_from(&found.name);
                return Ok(Some(found));
            }
            version.active = Some(found.name);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether another tool published the same content, or this one another description of it, as with a variable at its default.
async fn is_same_content(version: &Version, found: &TemplateVersion, coder: &Coder) -> Result<bool, Trouble> {
    if version.has_other_values(found) {
        return Ok(false);
    }
    published::is_same(&version.material, found, coder).await
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
    let candidates = jobs.filter_map(|it| it.input.template_version_id);
    for candidate in candidates.filter(|it| !coder.is_of_another(*it, &version.material.identity)) {
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
