//! `CoderTemplate`: a template of an organization. A changed source is published as a version, built, and promoted.
//!
//! The work takes rounds: upload and publish, wait for the build, create the template or promote the version. Every round
//! begins with what Coder has: a version is found again by its name and the mark in its message, so that a crash between two
//! rounds repeats nothing.

mod access;
mod archival;
mod archive;
mod drift;
mod export;
mod fetch;
mod look;
mod published;
mod recipe;
mod rounds;
mod settings;
mod source;
mod test_look;
mod test_owner;
mod test_rounds;
mod test_trace;
mod test_work;
mod test_workspace;
mod version;
mod work;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use api::{CoderTemplate, DeletionPolicy, TemplateSource, TemplateTestState, TemplateVersionState};
use client::{
    Class,
    organizations::Organization,
    templates::{CreateTemplate, Template as Remote, UpdateTemplate},
    workspaces::{CreateWorkspace, Workspace},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub use self::archive::is_left_out;
use self::{
    access::Access, fetch::Archive, source::Source, test_workspace::DesiredTest, test_workspace::Removal,
    version::Version, work::Material,
};
use crate::{
    coder::Coder,
    kind::{Aside, Kind, Leftovers, Round, object_ledger, people_secrets},
    kinds::{mapping::TEMPLATE_RBAC, names},
    pipeline::{
        attribution::{Audited, AuditedObject},
        export::{ExportPlace, KindExport, Listed},
        field_gate::FieldGate,
        gate::Gate,
        ledger::{Entry, Ledger},
        outcome::{Blocked, Invalid, Trouble},
        plan::{Impact, Plan},
        reference::Ref,
        remote_name::RemoteName,
    },
    secrets::{SecretPlace, SecretValues},
};

/// The field of the status with the active version.
const ACTIVE_ID: &str = "activeVersionID";
/// The longest name of a template, in bytes.
const NAME: usize = 32;
const SCHEDULING: Gate = Gate { feature: "advanced_template_scheduling", license: "Premium or Enterprise" };
const ACCESS_CONTROL: Gate = Gate { feature: "access_control", license: "Premium or Enterprise" };
const SHARED_PORTS: Gate = Gate { feature: "control_shared_ports", license: "Premium or Enterprise" };

/// Fields as Coder's audit log names them. Of the days on which workspaces are stopped the log has the weeks apart.
const AUDITED: &[(&str, &str)] = &[
    ("name", "name"),
    ("displayName", "display_name"),
    ("description", "description"),
    ("icon", "icon"),
    ("activeVersion", "active_version_id"),
    ("acl.groups", "group_acl"),
    ("acl.users", "user_acl"),
    ("requireActiveVersion", "require_active_version"),
    ("allowUserCancelWorkspaceJobs", "allow_user_cancel_workspace_jobs"),
    ("maxPortShareLevel", "max_port_sharing_level"),
    ("corsBehavior", "cors_behavior"),
    ("classicParameterFlow", "use_classic_parameter_flow"),
    ("deprecated", "deprecated"),
    ("schedule.defaultTTL", "default_ttl"),
    ("schedule.activityBump", "activity_bump"),
    ("schedule.failureTTL", "failure_ttl"),
    ("schedule.dormantAfter", "time_til_dormant"),
    ("schedule.deleteDormantAfter", "time_til_dormant_autodelete"),
    ("schedule.notifyBeforeAutostop", "time_til_autostop_notify"),
    ("schedule.autostop", "autostop_requirement_days_of_week"),
    ("schedule.autostart", "autostart_block_days_of_week"),
    ("schedule.allowUserAutostart", "allow_user_autostart"),
    ("schedule.allowUserAutostop", "allow_user_autostop"),
];

#[derive(Debug)]
pub struct Template;

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four facts of a manifest that do not depend on each other"
)]
pub struct Desired {
    namespace: String,
    control_plane: String,
    organization: String,
    name: String,
    settings: UpdateTemplate,
    access: Access,
    /// `None` where versions are published elsewhere.
    version: Option<DesiredVersion>,
    /// What the status says of the version.
    recorded: Option<TemplateVersionState>,
    /// The active version that the status tells of.
    recorded_active: Option<String>,
    /// What the status says of the last test.
    recorded_test: Option<TemplateTestState>,
    /// What the names of the manifest's test workspaces begin with.
    test_prefix: String,
    /// Whether the template was as declared when the status was written, or differed for another reason than a new version.
    was_equal: bool,
    is_leaving: bool,
    /// Whether the deletion of the manifest leaves the template.
    is_retained: bool,
    /// Whether nothing is written, not even what follows from a change of before.
    is_observed: bool,
}

/// A version that the manifest publishes.
#[derive(Debug)]
struct DesiredVersion {
    source: Source,
    name: Option<String>,
    message: Option<String>,
    activates: bool,
    tags: BTreeMap<String, String>,
    variables: Vec<Variable>,
    test: Option<DesiredTest>,
}

#[derive(Debug, Clone)]
struct Variable {
    name: String,
    value: VariableValue,
}

#[derive(Debug, Clone)]
enum VariableValue {
    Plain(String),
    /// The value is `None` until the Secret was read.
    Secret(SecretPlace, Option<SecretString>),
}

#[derive(Debug)]
pub struct Observed {
    template: Option<Remote>,
    /// The declared access with user names, and the one that was found.
    access: Option<(Access, Access)>,
    version: Option<Version>,
    /// The workspaces of the template, in words. `None` where there are none, and where the template is not deleted.
    workspaces: Option<String>,
    /// The test workspaces of earlier versions and tests; of all of them for a deletion, and only the one on record where the template
    /// is not held.
    former: Vec<Workspace>,
    /// Why Coder does not show the test workspace on record. `None` where it does, and where that is gone.
    hidden: Option<Blocked>,
    recorded_active: Option<String>,
    recorded_test: Option<TemplateTestState>,
    test_prefix: String,
    was_equal: bool,
    is_retained: bool,
    /// Whether a test that is not over goes on.
    may_write: bool,
    now: Timestamp,
}

/// What is written.
#[derive(Debug)]
pub enum Effect {
    /// Stores the archive and publishes a version of it. The version is entered here for the status.
    Publish {
        material: Arc<Material>,
        published: OnceLock<TemplateVersionState>,
    },
    Archive(Uuid),
    Unarchive(Uuid),
    Create {
        organization: String,
        wanted: Box<CreateTemplate>,
        version: Option<Uuid>,
    },
    Promote {
        template: Box<Remote>,
        version: Option<Uuid>,
    },
    Update {
        template: Box<Remote>,
        change: Box<UpdateTemplate>,
    },
    /// Of a template that did not exist when this was planned.
    UpdateNew {
        organization: String,
        name: String,
        change: Box<UpdateTemplate>,
    },
    Grant {
        organization: String,
        name: String,
        access: Access,
    },
    /// Makes the workspace in which a version is tested, with the record of that for the status. `None` until the version is
    /// published.
    Test {
        organization: String,
        owner: String,
        workspace: Option<(Box<CreateWorkspace>, TemplateTestState)>,
        /// The id of the workspace is entered here for the status.
        made: OnceLock<Uuid>,
        /// The version, and its message with the result of a test whose workspace Coder refuses to make.
        failure: Option<(Uuid, String)>,
    },
    /// Enters the result into the mark of the version, and begins to delete the workspace of a test.
    EndTest {
        workspace: Option<Box<Workspace>>,
        /// The version, and its message with the result.
        mark: Option<(Uuid, String)>,
        state: Option<TemplateTestState>,
    },
    /// Deletes a test workspace before the template.
    DeleteWorkspace {
        workspace: Box<Workspace>,
        is_due: bool,
    },
    Delete(Box<Remote>),
}

impl Kind for Template {
    type Manifest = CoderTemplate;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const FIELD_GATES: &'static [FieldGate] = &[
        FieldGate::licensed("acl", TEMPLATE_RBAC),
        FieldGate::licensed("requireActiveVersion", ACCESS_CONTROL),
        FieldGate::licensed("deprecated", ACCESS_CONTROL),
        FieldGate::licensed("maxPortShareLevel", SHARED_PORTS),
        FieldGate::licensed("schedule.failureTTL", SCHEDULING),
        FieldGate::licensed("schedule.dormantAfter", SCHEDULING),
        FieldGate::licensed("schedule.deleteDormantAfter", SCHEDULING),
        FieldGate::licensed("schedule.autostop", SCHEDULING),
        FieldGate::licensed("schedule.autostart", SCHEDULING),
        FieldGate::licensed("schedule.allowUserAutostart", SCHEDULING),
        FieldGate::licensed("schedule.allowUserAutostop", SCHEDULING),
    ];
    const RANK: u8 = 4;

    fn target(manifest: &CoderTemplate) -> String {
        format!("template {}/{}", manifest.organization(), manifest.remote_name())
    }

    fn desire(manifest: &CoderTemplate) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        names::check_name(manifest.remote_name(), NAME)?;
        names::check_display_name(spec.display_name.as_ref())?;
        Ok(Desired {
            namespace: manifest.namespace().unwrap_or_default(),
            control_plane: spec.control_plane_ref.name.clone(),
            organization: manifest.organization().to_owned(),
            name: manifest.remote_name().to_owned(),
            settings: settings::declared(spec, manifest.remote_name())?,
            access: Access::declared(spec.acl.as_ref()),
            version: desired_version(manifest)?,
            recorded: manifest.status.as_ref().and_then(|it| it.version.clone()),
            recorded_active: manifest.status.as_ref().and_then(|it| it.active_version_id.clone()),
            recorded_test: manifest.status.as_ref().and_then(|it| it.test.clone()),
            test_prefix: test_workspace::prefix(&Self::target(manifest)),
            was_equal: drift::was_equal(manifest),
            is_leaving: false,
            is_retained: spec.policy.deletion_policy() == DeletionPolicy::Retain,
            is_observed: spec.policy.mode() == api::Mode::Observe,
        })
    }

    fn secret_refs(manifest: &CoderTemplate) -> Vec<SecretPlace> {
        let variables = manifest.spec.variables.iter().flatten();
        let refs = variables.filter_map(|it| it.value_from.as_ref()).map(|it| &it.secret_key_ref);
        let refs = refs.map(|it| SecretPlace { name: it.name.clone(), key: it.key.clone() });
        let archive = manifest.spec.source.as_ref().and_then(|it| it.archive.as_ref());
        refs.chain(archive.and_then(fetch::secret_ref)).collect()
    }

    fn with_secrets(mut desired: Desired, values: &SecretValues) -> Result<Desired, Invalid> {
        if let Some(DesiredVersion { source: Source::Archive(archive), .. }) = &mut desired.version {
            archive.take_token(|place| values.exact(place));
        }
        for variable in desired.version.iter_mut().flat_map(|it| &mut it.variables) {
            if let VariableValue::Secret(place, value) = &mut variable.value {
                *value = values.exact(place);
            }
        }
        Ok(desired)
    }

    /// A missing value is not compared: only the names of variables with Secrets are a part of the content.
    fn without_secrets(manifest: &CoderTemplate) -> Option<CoderTemplate> {
        Some(manifest.clone())
    }

    fn ledger(manifest: &CoderTemplate) -> Ledger {
        let mut ledger = object_ledger::<Self>(manifest);
        let test = manifest.status.as_ref().and_then(|it| it.test.as_ref());
        test.filter(|it| it.is_open()).map(entry).into_iter().for_each(|it| ledger.add(it));
        ledger
    }

    fn begins(effect: &Effect) -> Option<Entry> {
        let Effect::Test { workspace: Some((_, state)), .. } = effect else { return None };
        Some(entry(state))
    }

    fn intends(effect: &Effect) -> Map<String, Value> {
        let Effect::Test { workspace: Some((_, state)), .. } = effect else { return Map::new() };
        Map::from_iter([("test".to_owned(), json!(state))])
    }

    async fn home(held: Uuid, coder: &Coder) -> Result<Option<Organization>, Trouble> {
        match coder.client().template(held).await {
            Ok(template) => Ok(coder.organization_by_id(template.organization_id).await?),
            Err(error) if error.class() == Class::Missing => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn for_deletion(desired: Desired, home: Option<Organization>) -> Desired {
        let organization = home.map_or(desired.organization, |it| it.name);
        Desired { organization, access: Access::default(), version: None, is_leaving: true, ..desired }
    }

    async fn observe(desired: &Desired, held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        look::observe(desired, held, coder).await
    }

    async fn leftovers(
        manifest: &CoderTemplate,
        held: Option<Uuid>,
        coder: &Coder,
    ) -> Result<Option<Leftovers<Effect>>, Trouble> {
        let test = manifest.status.as_ref().and_then(|it| it.test.as_ref());
        let Some(open) = test.filter(|it| it.is_open()) else { return Ok(None) };
        let home = match held {
            Some(id) => Self::home(id, coder).await?,
            None => coder.home(manifest.organization()).await?,
        };
        // Coder deletes no template and no organization with workspaces, but may hide both from an account.
        if home.is_none() && open.workspace_id.is_none() {
            return Ok(None);
        }
        let left = test_look::recorded(open, held, home.as_ref(), coder).await?;
        let taken_back = if left.is_empty() { vec![entry(open)] } else { Vec::new() };
        Ok(Some(Leftovers { taken_back, ..test_rounds::leftovers(open, &left, coder.now()) }))
    }

    fn is_default(_: &Observed) -> bool {
        false
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        observed.template.as_ref().map(|it| it.id)
    }

    fn audited(observed: &Observed) -> Option<Audited> {
        let object = AuditedObject::Id(observed.template.as_ref()?.id);
        Some(Audited { resource_type: "template", object, fields: AUDITED })
    }

    fn aside(observed: &Observed) -> Aside {
        let again_at = test_rounds::again_at(observed);
        let mut aside = Aside { again_at, own_changes: drift::own_changes(observed), ..Aside::default() };
        if let Some(test) = test_rounds::record(observed) {
            aside.status.insert("test".to_owned(), json!(test));
        }
        let Some(version) = &observed.version else { return aside };
        if let Some(active) = drift::active_to_record(observed, version) {
            aside.status.insert(ACTIVE_ID.to_owned(), json!(active));
        }
        let state = TemplateVersionState {
            name: version.name.clone(),
            id: version.id().map(|it| it.to_string()),
            build: version.build().map(str::to_owned),
            content: Some(version.material.recipe.key()),
        };
        if version.recorded.as_ref() == Some(&state) || version.leaves_record() {
            return aside;
        }
        aside.status.insert("version".to_owned(), json!(state));
        aside
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        rounds::plan(desired, observed).0
    }

    fn round(desired: &Desired, observed: &Observed) -> Round {
        rounds::plan(desired, observed).1
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        let mut plan = match &observed.template {
            Some(found) if !observed.is_retained => {
                Plan::deletion(Impact::Destructive, Effect::Delete(Box::new(found.clone())))
            }
            _ => Plan::empty(),
        };
        for workspace in &observed.former {
            let is_due = test_workspace::removal(workspace, observed.now) == Removal::Due;
            let effect = Effect::DeleteWorkspace { workspace: Box::new(workspace.clone()), is_due };
            plan.steps.splice(..0, Plan::deletion(Impact::Upkeep, effect).steps);
        }
        plan
    }

    fn keeps(observed: &Observed, _is_allowed: bool, _hash: &str) -> Option<Blocked> {
        // A test workspace is deleted although the template is in use; the template is checked again after that.
        if observed.is_retained || !observed.former.is_empty() {
            return None;
        }
        let (template, workspaces) = (observed.template.as_ref()?, observed.workspaces.as_ref()?);
        Some(work::in_use(template, workspaces))
    }

    const LISTED: Listed = Listed::InOrganizations;

    async fn export(place: &ExportPlace<'_>, coder: &Coder) -> Result<KindExport<CoderTemplate>, Trouble> {
        let Some(home) = place.organization else { return Ok(KindExport::default()) };
        export::templates(home, coder).await
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        work::apply(effect, coder).await
    }

    fn recorded(effect: &Effect) -> Map<String, Value> {
        match effect {
            Effect::Publish { published, .. } => {
                published.get().map(|it| ("version".to_owned(), json!(it))).into_iter().collect()
            }
            Effect::EndTest { state: Some(state), .. } => Map::from_iter([("test".to_owned(), json!(state))]),
            Effect::Test { workspace: Some((_, state)), made, .. } => {
                let made = made.get().map(|id| json!(test_workspace::identified(state, *id)));
                made.map(|it| ("test".to_owned(), it)).into_iter().collect()
            }
            Effect::Create { version: Some(id), .. } | Effect::Promote { version: Some(id), .. } => {
                Map::from_iter([(ACTIVE_ID.to_owned(), json!(id))])
            }
            _ => Map::new(),
        }
    }

    fn refs(manifest: &CoderTemplate) -> Vec<Ref> {
        let (spec, organization) = (&manifest.spec, manifest.organization().to_owned());
        let groups = spec.acl.iter().filter_map(|it| it.groups.as_ref()).flat_map(BTreeMap::keys);
        let groups =
            groups.map(|name| RemoteName::Group { organization: organization.clone(), name: name.clone() });
        let test = spec.version.as_ref().and_then(|it| it.test.as_ref());
        let shared = spec.acl.iter().filter_map(|it| it.users.as_ref()).flat_map(BTreeMap::keys);
        let people = shared.chain(test.map(|it| &it.owner));
        let people = people.map(|name| RemoteName::User { name: name.clone(), email: None });
        let content = spec.source.as_ref().and_then(|it| it.config_map_ref.as_ref());
        let cluster = content.map(|it| Ref::ConfigMap(it.name.clone())).into_iter();
        let cluster = cluster.chain(people_secrets::<Self>(manifest));
        [Ref::organization(&organization)]
            .into_iter()
            .chain(groups.chain(people).map(Ref::Remote))
            .chain(cluster)
            .collect()
    }
}

/// A test workspace that the deletion of the manifest takes back.
fn entry(test: &TemplateTestState) -> Entry {
    Entry::TestWorkspace { owner: test.owner.clone(), name: test.workspace.clone() }
}

fn desired_version(manifest: &CoderTemplate) -> Result<Option<DesiredVersion>, Invalid> {
    let spec = &manifest.spec;
    let Some(declared) = &spec.source else {
        let has_version =
            spec.version.is_some() || spec.variables.is_some() || spec.provisioner_tags.is_some();
        if has_version {
            let message = "is needed for version, variables and provisionerTags";
            return Err(Invalid::new("spec.source", message));
        }
        return Ok(None);
    };
    let TemplateSource { files, config_map_ref, directory, archive } = declared;
    let source = match (files, config_map_ref, directory, archive) {
        (Some(files), None, None, None) => {
            let files = files.iter().map(|(path, text)| (path.clone(), text.as_bytes().to_vec().into()));
            Source::Inline(files.collect())
        }
        (None, Some(reference), None, None) => Source::ConfigMap {
            namespace: manifest.namespace().unwrap_or_default(),
            name: reference.name.clone(),
        },
        (None, None, Some(path), None) => Source::Directory(path.into()),
        (None, None, None, Some(archive)) => {
            Source::Archive(Archive::declared(archive, &manifest.namespace().unwrap_or_default())?)
        }
        _ => {
            let message = "must have exactly one of files, configMapRef, directory and archive";
            return Err(Invalid::new("spec.source", message));
        }
    };
    if let Source::Inline(files) = &source {
        archive::pack(files).map_err(|why| Invalid::new("spec.source.files", why))?;
    }
    let version = spec.version.clone().unwrap_or_default();
    Ok(Some(DesiredVersion {
        source,
        name: version.name,
        message: version.message,
        activates: version.activate.unwrap_or(true),
        tags: spec.provisioner_tags.clone().unwrap_or_default(),
        variables: variables(manifest)?,
        test: version.test.as_ref().map(DesiredTest::declared).transpose()?,
    }))
}

fn variables(manifest: &CoderTemplate) -> Result<Vec<Variable>, Invalid> {
    let mut variables: Vec<Variable> = Vec::new();
    for (index, declared) in manifest.spec.variables.iter().flatten().enumerate() {
        let value = match (&declared.value, &declared.value_from) {
            (Some(text), None) => VariableValue::Plain(text.clone()),
            (None, Some(from)) => {
                let reference = &from.secret_key_ref;
                let place = SecretPlace { name: reference.name.clone(), key: reference.key.clone() };
                VariableValue::Secret(place, None)
            }
            _ => {
                let field = format!("spec.variables[{index}]");
                return Err(Invalid::new(&field, "must have exactly one of value and valueFrom"));
            }
        };
        if variables.iter().any(|it| it.name == declared.name) {
            let field = format!("spec.variables[{index}].name");
            return Err(Invalid::new(&field, format!("is {} a second time", declared.name)));
        }
        variables.push(Variable { name: declared.name.clone(), value });
    }
    Ok(variables)
}
