//! `CoderOrganization`: an organization, held by its id so that an edit of its name renames it.

mod export;

use api::{CoderOrganization, DEFAULT_ORGANIZATION, Reason, WorkspaceSharing};
use client::{
    Class, Error,
    organizations::{
        CreateOrganization, Organization as Remote, UpdateOrganization, WorkspaceSharingSettings,
    },
};
use uuid::Uuid;

use super::mapping::MULTIPLE_ORGANIZATIONS;
use crate::{
    coder::{Coder, Named as _},
    kind::Kind,
    kinds::names,
    pipeline::{
        attribution::{Audited, AuditedObject},
        diff::Diff,
        export::{ExportPlace, KindExport, Listed},
        field_gate::FieldGate,
        gate::Gate,
        outcome::{Blocked, Invalid, Trouble},
        plan::{Action, Change, Impact, Plan, Step},
        remote_name::RemoteName,
    },
};

const SHARING: &str = "workspaceSharing";

/// Fields of the manifest, with the names that the audit log has for them.
const AUDITED: &[(&str, &str)] = &[
    ("name", "name"),
    ("displayName", "display_name"),
    ("description", "description"),
    ("icon", "icon"),
    ("workspaceSharing", "shareable_workspace_owners"),
];

#[derive(Debug)]
pub struct Organization;

#[derive(Debug)]
pub struct Desired {
    name: String,
    display_name: Option<String>,
    description: Option<String>,
    icon: Option<String>,
    sharing: Option<WorkspaceSharing>,
}

#[derive(Debug)]
pub struct Observed {
    found: Option<Remote>,
    /// Whose workspaces can be shared, where the manifest declares it and the organization exists.
    sharing: Option<WorkspaceSharingSettings>,
    /// Why declared sharing is left as it is.
    unshareable: Option<Blocked>,
}

#[derive(Debug)]
pub enum Effect {
    Create(CreateOrganization),
    /// The organization as it was read, and the change.
    Update(Remote, UpdateOrganization),
    /// The sharing as it was read, and as it is to be.
    Share {
        organization: Uuid,
        found: String,
        wanted: WorkspaceSharing,
    },
    /// The sharing of an organization that this plan creates.
    ShareNew {
        name: String,
        wanted: WorkspaceSharing,
    },
    Delete(Uuid),
}

impl Kind for Organization {
    type Manifest = CoderOrganization;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const GATE: Option<Gate> = Some(MULTIPLE_ORGANIZATIONS);
    const FIELD_GATES: &'static [FieldGate] = &[FieldGate::since("workspaceSharing", 2, 32)];
    const RANK: u8 = 1;

    fn target(manifest: &CoderOrganization) -> String {
        format!("organization {}", manifest.remote_name())
    }

    fn desire(manifest: &CoderOrganization) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        names::check_name(manifest.remote_name(), names::ORGANIZATION)?;
        names::check_display_name(spec.display_name.as_ref())?;
        if spec.display_name.as_deref() == Some("") {
            return Err(Invalid::new(
                "spec.displayName",
                "cannot be empty: Coder keeps the one it has; leave it out",
            ));
        }
        Ok(Desired {
            name: manifest.remote_name().to_owned(),
            display_name: spec.display_name.clone(),
            description: spec.description.clone(),
            icon: spec.icon.clone(),
            sharing: spec.workspace_sharing,
        })
    }

    fn for_deletion(desired: Desired, _home: Option<Remote>) -> Desired {
        Desired { sharing: None, ..desired }
    }

    async fn observe(desired: &Desired, held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let organizations = coder.organizations().await?;
        // `default` is the default organization, whatever else was held under another name before.
        let is_ours =
            |it: &&Remote| Some(it.id) == held && (desired.name != DEFAULT_ORGANIZATION || it.is_default);
        let ours = organizations.iter().find(is_ours);
        let named = || organizations.iter().find(|it| it.is_named(&desired.name));
        let found = ours.or_else(named).cloned();
        let sharing = match (&found, desired.sharing) {
            (Some(found), Some(_)) => Some((*coder.workspace_sharing(found.id).await?).clone()),
            _ => None,
        };
        let is_disabled = sharing.as_ref().is_some_and(|it| it.sharing_globally_disabled);
        let wants_more = desired.sharing.is_some_and(|it| it != WorkspaceSharing::None);
        let unshareable = (is_disabled && wants_more).then(sharing_disabled);
        Ok(Observed { found, sharing, unshareable })
    }

    fn unmanaged(observed: &Observed) -> Option<Blocked> {
        observed.unshareable.clone()
    }

    fn is_default(observed: &Observed) -> bool {
        observed.found.as_ref().is_some_and(|it| it.is_default && it.is_untouched())
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        observed.found.as_ref().map(|it| it.id)
    }

    fn audited(observed: &Observed) -> Option<Audited> {
        Some(Audited {
            resource_type: "organization",
            object: AuditedObject::Id(observed.found.as_ref()?.id),
            fields: AUDITED,
        })
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        let Desired { name, display_name, description, icon, sharing: _ } = desired;
        let mut diff = Diff::default();
        let Some(found) = &observed.found else {
            diff.declare("name", Some(name));
            diff.declare("displayName", display_name.as_ref());
            diff.declare("description", description.as_ref());
            diff.declare("icon", icon.as_ref());
            let wanted = CreateOrganization {
                name: name.clone(),
                display_name: display_name.clone(),
                description: description.clone(),
                icon: icon.clone(),
            };
            let create = Step {
                action: Action::Create,
                impact: Impact::Safe,
                reason: "the organization does not exist".to_owned(),
                changes: diff.changes,
                effect: Effect::Create(wanted),
            };
            return Plan { steps: [create].into_iter().chain(share_new(desired)).collect() };
        };
        // `default` means the default organization whatever it is called: it is no name to give.
        let name = (name != DEFAULT_ORGANIZATION).then_some(name);
        let change = UpdateOrganization {
            name: diff.pick("name", name, &found.name),
            display_name: diff.pick("displayName", display_name.as_ref(), &found.display_name),
            description: diff.pick("description", description.as_ref(), &found.description),
            icon: diff.pick("icon", icon.as_ref(), &found.icon),
            default_org_member_roles: None,
        };
        let renames = change.name.is_some();
        let update = (!diff.is_empty()).then(|| Step {
            action: Action::Update,
            impact: if renames { Impact::Disruptive } else { Impact::Safe },
            reason: if renames { "the organization has another name" } else { "the organization differs" }
                .to_owned(),
            changes: diff.changes,
            effect: Effect::Update(found.clone(), change),
        });
        Plan { steps: update.into_iter().chain(share(desired, observed, found.id)).collect() }
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        // Coder refuses to delete the default organization; letting go of it is all that can be done.
        let Some(found) = observed.found.as_ref().filter(|it| !it.is_default) else { return Plan::empty() };
        Plan::deletion(Impact::Destructive, Effect::Delete(found.id))
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        let client = coder.client();
        let done = match effect {
            Effect::Create(wanted) => match client.create_organization(wanted).await {
                // Names are unique: the list that showed none is out of date.
                Err(error) if error.class() == Class::Conflict => return Err(Trouble::Stale),
                created => noted(created, coder).await.map(|it| Some(it.id)),
            },
            Effect::Update(planned, change) => {
                check_unchanged(planned, coder).await?;
                noted(client.update_organization(planned.id, change).await, coder).await.map(|_| None)
            }
            Effect::Share { organization, found, wanted } => {
                let now = client.workspace_sharing(*organization).await?;
                if now.shareable_workspace_owners != *found {
                    coder.forget_workspace_sharing(*organization).await;
                    return Err(Trouble::Stale);
                }
                set_sharing(*organization, *wanted, coder).await
            }
            Effect::ShareNew { name, wanted } => {
                let organization = coder.organization_id(name).await?;
                set_sharing(organization, *wanted, coder).await
            }
            Effect::Delete(id) => {
                let deleted = client.delete_organization(*id).await;
                match &deleted {
                    Ok(()) => coder.note_organization_gone(*id).await,
                    Err(_) => coder.forget_organizations().await,
                }
                deleted.map(|()| None)
            }
        };
        Ok(done?)
    }

    fn provides(manifest: &CoderOrganization) -> Option<RemoteName> {
        Some(RemoteName::Organization(manifest.remote_name().to_owned()))
    }

    const LISTED: Listed = Listed::InOrganizations;

    async fn export(
        place: &ExportPlace<'_>,
        coder: &Coder,
    ) -> Result<KindExport<CoderOrganization>, Trouble> {
        let Some(found) = place.organization else { return Ok(KindExport::default()) };
        let sharing = match coder.workspace_sharing(found.id).await {
            Ok(sharing) => Some(sharing),
            Err(error) if error.class() == Class::Missing => None,
            Err(error) => return Err(error.into()),
        };
        Ok(KindExport::of(export::draft(found, sharing.as_deref())))
    }
}

/// The step to the declared sharing of a new organization, which begins with everyone's.
fn share_new(desired: &Desired) -> Option<Step<Effect>> {
    let wanted = desired.sharing.filter(|it| *it != WorkspaceSharing::Everyone)?;
    Some(Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: "in a new organization everyone can share workspaces".to_owned(),
        changes: vec![Change::new(SHARING, WorkspaceSharing::Everyone.as_str(), wanted.as_str())],
        effect: Effect::ShareNew { name: desired.name.clone(), wanted },
    })
}

/// The step to the declared sharing of an organization that exists.
fn share(desired: &Desired, observed: &Observed, organization: Uuid) -> Option<Step<Effect>> {
    let (wanted, found) = (desired.sharing?, observed.sharing.as_ref()?);
    let found = &found.shareable_workspace_owners;
    if observed.unshareable.is_some() || found == wanted.as_str() {
        return None;
    }
    let (impact, reason) = match wanted {
        WorkspaceSharing::Everyone => (Impact::Safe, "not everyone can share workspaces"),
        WorkspaceSharing::None => {
            (Impact::Destructive, "workspaces can be shared: Coder deletes all existing shares, for good")
        }
        WorkspaceSharing::ServiceAccounts => (
            Impact::Destructive,
            "other workspaces can be shared: Coder deletes the existing shares of people's workspaces, for good",
        ),
    };
    Some(Step {
        action: Action::Update,
        impact,
        reason: reason.to_owned(),
        changes: vec![Change::new(SHARING, found.as_str(), wanted.as_str())],
        effect: Effect::Share { organization, found: found.clone(), wanted },
    })
}

/// Writes the sharing of an organization.
async fn set_sharing(
    organization: Uuid,
    wanted: WorkspaceSharing,
    coder: &Coder,
) -> Result<Option<Uuid>, Error> {
    let answer = coder.client().update_workspace_sharing(organization, wanted.as_str()).await;
    coder.forget_workspace_sharing(organization).await;
    answer.map(|_| None)
}

fn sharing_disabled() -> Blocked {
    Blocked {
        reason: Reason::SharingDisabled,
        message: "spec.workspaceSharing: coderd was started without workspace sharing: remove \
                  CODER_DISABLE_WORKSPACE_SHARING there, or spec.workspaceSharing here"
            .to_owned(),
    }
}

/// Enters the answer to a write into the shared list. After a write without an answer the list is read again.
async fn noted(answer: Result<Remote, Error>, coder: &Coder) -> Result<Remote, Error> {
    match &answer {
        Ok(organization) => coder.note_organization(organization).await,
        Err(_) => coder.forget_organizations().await,
    }
    answer
}

/// Reads an organization again before it is updated. From the list: by id even a deleted one answers.
async fn check_unchanged(planned: &Remote, coder: &Coder) -> Result<(), Trouble> {
    let now = coder.anew().organizations().await?;
    if now.iter().any(|it| it == planned) { Ok(()) } else { Err(Trouble::Stale) }
}

/// Whether the default organization still is as a fresh installation makes it.
trait Untouched {
    fn is_untouched(&self) -> bool;
}

impl Untouched for Remote {
    fn is_untouched(&self) -> bool {
        self.name == "coder"
            && self.display_name == "Coder"
            && self.description == "Builtin default organization."
            && self.icon.is_empty()
    }
}
