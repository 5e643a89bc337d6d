//! `CoderOrganization`: an organization, held by its id so that an edit of its name renames it.

mod export;

use api::{CoderOrganization, DEFAULT_ORGANIZATION};
use client::{
    Class, Error,
    organizations::{CreateOrganization, Organization as Remote, UpdateOrganization},
};
use uuid::Uuid;

use super::mapping::MULTIPLE_ORGANIZATIONS;
use crate::{
    coder::{Coder, Named as _},
    kind::Kind,
    kinds::names,
    pipeline::{
        diff::Diff,
        export::{ExportPlace, KindExport, Listed},
        gate::Gate,
        outcome::{Invalid, Trouble},
        plan::{Action, Impact, Plan, Step},
        remote_name::RemoteName,
    },
};

#[derive(Debug)]
pub struct Organization;

#[derive(Debug)]
pub struct Desired {
    name: String,
    display_name: Option<String>,
    description: Option<String>,
    icon: Option<String>,
}

#[derive(Debug)]
pub struct Observed {
    found: Option<Remote>,
}

#[derive(Debug)]
pub enum Effect {
    Create(CreateOrganization),
    /// The organization as it was read, and the change.
    Update(Remote, UpdateOrganization),
    Delete(Uuid),
}

impl Kind for Organization {
    type Manifest = CoderOrganization;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const GATE: Option<Gate> = Some(MULTIPLE_ORGANIZATIONS);
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
        })
    }

    async fn observe(desired: &Desired, held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let organizations = coder.organizations().await?;
        // `default` is the default organization, whatever else was held under another name before.
        let is_ours =
            |it: &&Remote| Some(it.id) == held && (desired.name != DEFAULT_ORGANIZATION || it.is_default);
        let ours = organizations.iter().find(is_ours);
        let named = || organizations.iter().find(|it| it.is_named(&desired.name));
        Ok(Observed { found: ours.or_else(named).cloned() })
    }

    fn is_default(observed: &Observed) -> bool {
        observed.found.as_ref().is_some_and(|it| it.is_default && it.is_untouched())
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        observed.found.as_ref().map(|it| it.id)
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        let Desired { name, display_name, description, icon } = desired;
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
            return Plan::of(Step {
                action: Action::Create,
                impact: Impact::Safe,
                reason: "the organization does not exist".to_owned(),
                changes: diff.changes,
                effect: Effect::Create(wanted),
            });
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
        if diff.is_empty() {
            return Plan::empty();
        }
        let renames = change.name.is_some();
        Plan::of(Step {
            action: Action::Update,
            impact: if renames { Impact::Disruptive } else { Impact::Safe },
            reason: if renames { "the organization has another name" } else { "the organization differs" }
                .to_owned(),
            changes: diff.changes,
            effect: Effect::Update(found.clone(), change),
        })
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
        _coder: &Coder,
    ) -> Result<KindExport<CoderOrganization>, Trouble> {
        Ok(KindExport::of(place.organization.and_then(export::draft)))
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
