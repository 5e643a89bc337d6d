//! The writes of a template, one by one.

use std::{borrow::Cow, collections::BTreeMap};

use api::{Reason, TemplateVersionState};
use client::{
    Class,
    template_versions::{
        CreateTemplateVersion, Provisioner, StorageMethod, TemplateVersion, VariableValue as SentValue,
    },
    templates::{CreateTemplate, Template as Remote, UpdateTemplate},
    workspaces::Workspace,
};
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{
    Desired, DesiredVersion, Effect, Variable, VariableValue, fetch::Fetched, recipe::Recipe, source::Source,
    test_work,
};
use crate::{
    coder::{Coder, missing},
    pipeline::outcome::{Blocked, Trouble},
};

/// How many workspaces a message names.
const NAMED: u32 = 5;
/// What no name of a workspace begins with.
const NO_PREFIX: &str = " ";

/// What a version is made of.
pub struct Material {
    organization: String,
    template: Option<Uuid>,
    pub(crate) name: String,
    message: String,
    /// `None` for an archive on another host, which is read when its bytes are needed: a plan of many templates holds none of them.
    archive: Option<Vec<u8>>,
    pub(super) source: Source,
    /// Of the archive alone.
    pub(crate) digest: String,
    pub(crate) recipe: Recipe,
    /// The recipe with the names of the organization, the template and the version.
    pub(crate) identity: String,
    pub(crate) tags: BTreeMap<String, String>,
    pub(super) variables: Vec<Variable>,
}

/// The bytes that are uploaded.
pub(super) enum Packed<'a> {
    Kept(Cow<'a, [u8]>),
    Fetched(Fetched),
}

impl std::ops::Deref for Packed<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes,
            Self::Fetched(bytes) => bytes,
        }
    }
}

/// Shows neither files nor values.
impl std::fmt::Debug for Material {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Material").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Material {
    pub(super) fn new(
        desired: &Desired,
        wanted: &DesiredVersion,
        template: Option<Uuid>,
        archive: Option<Vec<u8>>,
        recipe: Recipe,
    ) -> Self {
        let name = wanted.name.clone().unwrap_or_else(|| recipe.name());
        Self {
            identity: format!("{}/{}/{name} {}", desired.organization, desired.name, recipe.key()),
            organization: desired.organization.clone(),
            template,
            name,
            message: recipe.message(wanted.message.as_deref()),
            digest: match (&wanted.source, &archive) {
                (Source::Archive(it), _) => it.digest().to_owned(),
                (_, archive) => {
                    base16ct::lower::encode_string(&Sha256::digest(archive.as_deref().unwrap_or_default()))
                }
            },
            archive,
            source: wanted.source.clone(),
            recipe,
            tags: wanted.tags.clone(),
            variables: wanted.variables.clone(),
        }
    }

    /// The bytes that are uploaded. An archive on another host is read for that.
    pub(super) async fn packed(&self, coder: &Coder) -> Result<Packed<'_>, Trouble> {
        match (&self.source, &self.archive) {
            (Source::Archive(it), _) => Ok(Packed::Fetched(it.packed(coder).await?)),
            (_, Some(kept)) => Ok(Packed::Kept(Cow::Borrowed(kept))),
            (source, None) => Ok(Packed::Kept(Cow::Owned(source.packed(coder).await?))),
        }
    }

    /// The values of Secrets. No message repeats one.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &SecretString> {
        self.variables.iter().filter_map(|it| match &it.value {
            VariableValue::Secret(_, value) => value.as_ref(),
            VariableValue::Plain(_) => None,
        })
    }

    pub(super) fn has_secrets(&self) -> bool {
        self.variables.iter().any(|it| matches!(it.value, VariableValue::Secret(..)))
    }

    fn sent(&self, file_id: Uuid) -> CreateTemplateVersion {
        let value = |it: &Variable| {
            let value = match &it.value {
                VariableValue::Plain(text) => SecretString::from(text.as_str()),
                VariableValue::Secret(_, value) => value.clone().unwrap_or_default(),
            };
            SentValue { name: it.name.clone(), value }
        };
        CreateTemplateVersion {
            name: self.name.clone(),
            message: self.message.clone(),
            template_id: self.template,
            storage_method: StorageMethod::File,
            file_id,
            provisioner: Provisioner::Terraform,
            tags: self.tags.clone(),
            user_variable_values: self.variables.iter().map(value).collect(),
        }
    }
}

pub(super) async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
    let client = coder.client();
    match effect {
        Effect::Publish { material, published } => {
            let version = publish(material, coder).await?;
            let state = TemplateVersionState {
                name: version.name,
                id: Some(version.id.to_string()),
                build: Some(version.job.status),
                content: Some(material.recipe.key()),
            };
            published.set(state).ok();
            Ok(None)
        }
        Effect::Archive(version) => {
            client.archive_version(*version).await?;
            Ok(None)
        }
        Effect::Unarchive(version) => {
            client.unarchive_version(*version).await?;
            Ok(None)
        }
        Effect::Create { organization, wanted, version } => {
            let home = coder.organization_id(organization).await?;
            let version = version.ok_or_else(not_built)?;
            let wanted = CreateTemplate { template_version_id: version, ..(**wanted).clone() };
            match client.create_template(home, &wanted).await {
                // Names are unique in an organization: the list that showed none is out of date.
                Err(error) if error.class() == Class::Conflict => {
                    coder.forget_templates(home).await;
                    Err(Trouble::Stale)
                }
                // A version of the same content that was left without a template is another manifest's by now.
                Err(error) if error.validations().iter().any(|it| it.field == "template_version_id") => {
                    Err(Trouble::Stale)
                }
                Err(error) => {
                    coder.forget_templates(home).await;
                    Err(error.into())
                }
                Ok(created) => {
                    coder.note_template(&created).await;
                    Ok(Some(created.id))
                }
            }
        }
        Effect::Promote { template, version } => {
            let version = version.ok_or_else(not_built)?;
            check_active(template, coder).await?;
            let promoted = client.promote_version(template.id, version).await;
            // Its time of change is another one now.
            coder.forget_templates(template.organization_id).await;
            promoted?;
            Ok(None)
        }
        Effect::Update { template, change } => {
            check_unchanged(template, coder).await?;
            update(template, change, coder).await
        }
        Effect::UpdateNew { organization, name, change } => {
            let template = by_name(organization, name, coder).await?;
            update(&template, change, coder).await
        }
        Effect::Grant { organization, name, access } => {
            let template = by_name(organization, name, coder).await?;
            let found = client.template_access(template.id).await?;
            let change = access.change(&found, template.organization_id, coder).await?;
            let granted = client.update_template_access(template.id, &change).await;
            coder.forget_template_access(template.id);
            granted?;
            Ok(None)
        }
        Effect::Test { .. } | Effect::EndTest { .. } | Effect::DeleteWorkspace { .. } => {
            test_work::apply(effect, coder).await.map(|()| None)
        }
        Effect::Delete(template) => delete(template, coder).await.map(|()| None),
    }
}

async fn update(template: &Remote, change: &UpdateTemplate, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
    match coder.client().update_template(template.id, change).await {
        Ok(updated) => {
            coder.note_template(&updated).await;
            Ok(None)
        }
        Err(error) => {
            coder.forget_templates(template.organization_id).await;
            Err(error.into())
        }
    }
}

/// Stores the archive, unless this process has stored it before.
async fn upload(material: &Material, coder: &Coder) -> Result<Uuid, Trouble> {
    if let Some(file) = coder.uploaded(&material.digest) {
        return Ok(file);
    }
    let packed = material.packed(coder).await?;
    let file = match coder.client().upload_tar(packed.to_vec()).await {
        Ok(file) => file,
        Err(error) if error.class() == Class::RateLimited => {
            let message = format!(
                "Coder stores at most 12 archives a minute for an account: version {} is published once the limit allows it",
                material.name
            );
            return Err(Blocked { reason: Reason::RateLimited, message }.into());
        }
        Err(error) => return Err(error.into()),
    };
    coder.note_upload(&material.digest, file);
    Ok(file)
}

async fn publish(material: &Material, coder: &Coder) -> Result<TemplateVersion, Trouble> {
    let home = coder.organization_id(&material.organization).await?;
    let file = upload(material, coder).await?;
    match coder.client().create_version(home, &material.sent(file)).await {
        // Another client published it meanwhile: the next assessment compares its content.
        Err(error) if error.class() == Class::Conflict => Err(Trouble::Stale),
        Err(error) if error.class() == Class::Missing => {
            // The file may be another account's, or gone.
            coder.forget_upload(&material.digest);
            Err(error.into())
        }
        Err(error) => Err(error.into()),
        Ok(version) => {
            coder.note_published(&material.identity, version.id);
            Ok(version)
        }
    }
}

/// Reads a template again before another version is promoted. A version that was promoted meanwhile stays for now.
async fn check_active(planned: &Remote, coder: &Coder) -> Result<(), Trouble> {
    let now = read_again(planned, coder).await?;
    if now.active_version_id == planned.active_version_id {
        return Ok(());
    }
    coder.note_template(&now).await;
    Err(Trouble::Stale)
}

/// Reads a template again before it is changed. Nothing is written over a change that the plan does not know of.
async fn check_unchanged(planned: &Remote, coder: &Coder) -> Result<(), Trouble> {
    let now = read_again(planned, coder).await?;
    if now == *planned {
        return Ok(());
    }
    coder.note_template(&now).await;
    Err(Trouble::Stale)
}

async fn read_again(planned: &Remote, coder: &Coder) -> Result<Remote, Trouble> {
    match coder.client().template(planned.id).await {
        Ok(now) => Ok(now),
        Err(error) if error.class() == Class::Missing => {
            coder.forget_templates(planned.organization_id).await;
            Err(Trouble::Stale)
        }
        Err(error) => Err(error.into()),
    }
}

/// A template that was created by an earlier step.
async fn by_name(organization: &str, name: &str, coder: &Coder) -> Result<Remote, Trouble> {
    let home = coder.organization_id(organization).await?;
    let templates = coder.templates(home).await?;
    let found = templates.iter().find(|it| it.name.eq_ignore_ascii_case(name)).cloned();
    Ok(found.ok_or_else(|| missing(format!("template {name} is not there any more")))?)
}

fn not_built() -> Blocked {
    let message = "the version is not built yet".to_owned();
    Blocked { reason: Reason::VersionBuilding, message }
}

/// The workspaces of a template, in words, without those of tests. `None` where there are none.
pub(super) async fn workspaces(
    template: &Remote,
    test_prefix: &str,
    coder: &Coder,
) -> Result<Option<String>, Trouble> {
    let used = coder.client().workspaces_of(template.organization_id, &template.name, NAMED).await?;
    let is_its = |it: &&Workspace| it.template_id == template.id && !it.name.starts_with(test_prefix);
    let name = |it: &Workspace| format!("{}/{}", it.owner_name, it.name);
    let names: Vec<String> = used.workspaces.iter().filter(is_its).map(name).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let more = usize::try_from(used.count).unwrap_or_default().saturating_sub(names.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Ok(Some(format!("workspaces use it: {}{more}", names.join(", "))))
}

/// Deletes a template. Coder refuses that while a workspace uses it.
async fn delete(template: &Remote, coder: &Coder) -> Result<(), Trouble> {
    let client = coder.client();
    // Only workspaces that the account may read are listed.
    // What is left of a test keeps the template, too.
    if let Some(used) = workspaces(template, NO_PREFIX, coder).await? {
        return Err(in_use(template, &used).into());
    }
    match client.delete_template(template.id).await {
        Err(error) if error.class() == Class::Missing => {}
        Err(error) if error.class() == Class::Invalid => {
            return Err(in_use(template, &error.words()).into());
        }
        Err(error) => {
            coder.forget_templates(template.organization_id).await;
            return Err(error.into());
        }
        Ok(()) => {}
    }
    coder.note_template_gone(template).await;
    Ok(())
}

pub(super) fn in_use(template: &Remote, why: &str) -> Blocked {
    let message = format!(
        "template {} is not deleted: {why}. Delete the workspaces, or set deletionPolicy to Retain",
        template.name
    );
    Blocked { reason: Reason::InUse, message }
}
