//! Templates as manifests, with the files of their active versions.

mod metadata;
mod variables;

use api::{CoderTemplate, CoderTemplateSpec, TemplateSource, TemplateVersionSpec};
use client::{
    organizations::Organization, template_versions::TemplateVersion, templates::Template as Remote,
};

use super::{
    archive,
    published::{self, Published},
    recipe::{self, TestResult},
};
use crate::{
    coder::Coder,
    kinds::mapping::TEMPLATE_RBAC,
    pipeline::{
        export::{Draft, KindExport, organization_word, title_in},
        outcome::{Blocked, Trouble},
    },
};

/// The directory in a draft. The export gives the files their place.
const PLACE: &str = "files";
/// What the name of a version begins with that is derived from its content.
const DERIVED: &str = "sha-";

/// What a person does about files that are not exported.
const WAY_OUT: &str =
    "; to publish versions with the manifest, set spec.source to the files where they are kept";

/// The templates of an organization.
pub(super) async fn templates(
    home: &Organization,
    coder: &Coder,
) -> Result<KindExport<CoderTemplate>, Trouble> {
    let mut export = KindExport::default();
    let mut templates = coder.templates(home.id).await?.to_vec();
    templates.sort_by(|one, other| one.name.cmp(&other.name));
    for found in &templates {
        let mut draft = metadata_of(found, home, coder).await?;
        let version = coder.client().version(found.active_version_id).await?;
        let published = published::read(&version, coder).await?;
        match published.and_then(|it| add_version(&mut draft, found, home, (&version, it))) {
            Ok(()) => {}
            Err(why) => {
                let what = format!("files of template {}/{}", organization_word(home), found.name);
                export.leave_out(what, format!("{why}{WAY_OUT}"));
                let note =
                    "source is left out: versions are published elsewhere, and the template has to exist";
                draft.notes.push(note.to_owned());
            }
        }
        export.drafts.push(draft);
    }
    Ok(export)
}

/// A manifest without a source.
async fn metadata_of(
    found: &Remote,
    home: &Organization,
    coder: &Coder,
) -> Result<Draft<CoderTemplate>, Trouble> {
    let mut spec = CoderTemplateSpec {
        organization: Some(organization_word(home)),
        name: Some(found.name.clone()),
        ..CoderTemplateSpec::default()
    };
    let mut notes = metadata::settings(found, &mut spec);
    match coder.pass(Some(TEMPLATE_RBAC)).await {
        Ok(()) => {
            let access = coder.client().template_access(found.id).await?;
            spec.acl = Some(metadata::access(&access, home, &mut notes));
        }
        Err(Trouble::Blocked(Blocked { reason: api::Reason::NotEntitled, .. })) => {}
        Err(trouble) => return Err(trouble),
    }
    let title = title_in(home, &found.name);
    let mut draft = Draft::new(&title, CoderTemplate::new(&title, spec));
    draft.notes = notes;
    Ok(draft)
}

/// Adds the version to a manifest, or says why that is impossible.
fn add_version(
    draft: &mut Draft<CoderTemplate>,
    found: &Remote,
    home: &Organization,
    (version, published): (&TemplateVersion, Published),
) -> Result<(), String> {
    let Published { files, tags, variables } = published;
    if let Some(path) = files.keys().find(|it| it.split('/').any(archive::is_left_out)) {
        return Err(format!(
            "they have {path}: hidden files, states of Terraform and files with values of variables are never exported, they may hold \
             secrets"
        ));
    }
    let archive = archive::pack(&files)?;
    let what = format!("template {}/{}", home.name, found.name);
    let declared = variables::declare(&variables, version, (&archive, &tags), (&draft.title, &what));
    let spec = &mut draft.manifest.spec;
    spec.source = Some(TemplateSource { directory: Some(PLACE.to_owned()), ..TemplateSource::default() });
    spec.provisioner_tags = (!tags.is_empty()).then_some(tags);
    let words = recipe::words(&version.message);
    // A name that is derived from the content is another one for other content.
    let is_derived = recipe::mark(&version.message).is_some() && version.name.starts_with(DERIVED);
    let exported = TemplateVersionSpec {
        name: (!is_derived).then(|| version.name.clone()),
        message: (!words.is_empty()).then(|| words.to_owned()),
        activate: None,
        test: None,
    };
    if TestResult::of(&version.message) == Some(TestResult::Passed) {
        let note = "version.test is left out: the active version has passed a test, and Coder does not know whose workspace it was: \
                    declare it to test the next version";
        draft.notes.push(note.to_owned());
    }
    if exported.name.is_some() {
        let note = "version.name is that of the active version: change or remove it when the files change";
        draft.notes.push(note.to_owned());
    }
    spec.version = (exported != TemplateVersionSpec::default()).then_some(exported);
    spec.variables = (!declared.variables.is_empty()).then_some(declared.variables);
    draft.secrets.extend(declared.secrets);
    draft.notes.extend(declared.notes);
    draft.files = Some(files);
    Ok(())
}
