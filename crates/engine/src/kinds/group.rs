//! `CoderGroup`: a group of an organization, with quota and, where they are declared, members.

mod export;

use std::collections::BTreeSet;

use api::{CoderGroup, EVERYONE};
use client::groups::{CreateGroup, Group as Remote, GroupMember, UpdateGroup};
use client::members::MemberRef;
use client::organizations::Organization;
use client::{Class, Error};
use uuid::Uuid;

use super::mapping::TEMPLATE_RBAC;
use crate::{
    coder::{Coder, missing},
    kind::Kind,
    kinds::names,
    pipeline::{
        attribution::{Audited, AuditedObject},
        diff::Diff,
        export::{ExportPlace, KindExport, Listed},
        gate::Gate,
        outcome::{Blocked, Invalid, Trouble},
        plan::{Action, Change, Impact, Plan, Step},
        reference::Ref,
        remote_name::RemoteName,
    },
};

/// Fields of the manifest, with the names that the audit log has for them.
const AUDITED: &[(&str, &str)] = &[
    ("name", "name"),
    ("displayName", "display_name"),
    ("avatarURL", "avatar_url"),
    ("quotaAllowance", "quota_allowance"),
    ("members", "members"),
];

#[derive(Debug)]
pub struct Group;

#[derive(Debug)]
pub struct Desired {
    organization: String,
    name: String,
    display_name: Option<String>,
    avatar_url: Option<String>,
    quota_allowance: Option<i64>,
    members: Option<BTreeSet<String>>,
}

#[derive(Debug)]
pub struct Observed {
    found: Option<Remote>,
    /// The user names of those who are in the group, as far as the manifest speaks of members.
    members: BTreeSet<String>,
    /// Who is declared, by user name: people may be declared by e-mail address as well.
    declared: Option<BTreeSet<String>>,
}

/// What is written. Users are found by name when it is: somebody may have come or gone since the plan.
#[derive(Debug)]
pub enum Effect {
    Create {
        organization: String,
        wanted: CreateGroup,
    },
    Fill {
        organization: String,
        name: String,
        members: BTreeSet<String>,
    },
    /// `Everyone` of an organization that was not there yet when this was planned.
    Everyone {
        organization: String,
        change: UpdateGroup,
    },
    Update {
        group: Remote,
        change: UpdateGroup,
        add: BTreeSet<String>,
        remove: BTreeSet<String>,
    },
    Delete(Remote),
}

impl Kind for Group {
    type Manifest = CoderGroup;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const GATE: Option<Gate> = Some(TEMPLATE_RBAC);
    const RANK: u8 = 3;

    fn target(manifest: &CoderGroup) -> String {
        format!("group {}/{}", manifest.organization(), manifest.remote_name())
    }

    fn desire(manifest: &CoderGroup) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        names::check_name(manifest.remote_name(), names::GROUP)?;
        names::check_display_name(spec.display_name.as_ref())?;
        if manifest.remote_name() == EVERYONE {
            check_everyone(manifest)?;
        }
        if spec.quota_allowance.is_some_and(i32::is_negative) {
            return Err(Invalid::new("spec.quotaAllowance", "cannot be negative"));
        }
        Ok(Desired {
            organization: manifest.organization().to_owned(),
            name: manifest.remote_name().to_owned(),
            display_name: spec.display_name.clone(),
            avatar_url: spec.avatar_url.clone(),
            quota_allowance: spec.quota_allowance.map(i64::from),
            members: spec.members.as_ref().map(|it| it.iter().cloned().collect()),
        })
    }

    async fn home(held: Uuid, coder: &Coder) -> Result<Option<Organization>, Trouble> {
        match coder.client().group(held).await {
            Ok(group) => Ok(coder.organization_by_id(group.organization_id).await?),
            Err(error) if error.class() == Class::Missing => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn for_deletion(desired: Desired, home: Option<Organization>) -> Desired {
        let organization = home.map_or(desired.organization, |it| it.name);
        Desired { organization, members: None, ..desired }
    }

    async fn observe(desired: &Desired, held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let Some(home) = coder.home(&desired.organization).await? else {
            // The organization will be made first, and with it nobody but us is in it.
            return Ok(Observed { found: None, members: BTreeSet::new(), declared: desired.members.clone() });
        };
        let groups = coder.groups(home.id).await?;
        let ours = groups.iter().find(|it| Some(it.id) == held);
        let found = ours.or_else(|| groups.iter().find(|it| it.name == desired.name)).cloned();
        let in_group = found.as_ref().map_or(&[] as &[GroupMember], |it| &it.members);
        let members = in_group.iter().map(|it| it.username.clone()).collect();
        let declared = match &desired.members {
            None => None,
            Some(declared) => Some(user_names(declared, in_group, home.id, coder).await?),
        };
        Ok(Observed { found, members, declared })
    }

    fn is_default(observed: &Observed) -> bool {
        observed.found.as_ref().is_some_and(|it| is_everyone(it) && is_untouched(it))
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        observed.found.as_ref().map(|it| it.id)
    }

    fn audited(observed: &Observed) -> Option<Audited> {
        Some(Audited {
            resource_type: "group",
            object: AuditedObject::Id(observed.found.as_ref()?.id),
            fields: AUDITED,
        })
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        let Desired { organization, name, display_name, avatar_url, quota_allowance, members: _ } = desired;
        let mut diff = Diff::default();
        let Some(found) = &observed.found else {
            if name == EVERYONE {
                return everyone_to_come(desired);
            }
            diff.declare("name", Some(name));
            diff.declare("displayName", display_name.as_ref());
            diff.declare("avatarURL", avatar_url.as_ref());
            diff.declare("quotaAllowance", quota_allowance.as_ref());
            let wanted = CreateGroup {
                name: name.clone(),
                display_name: display_name.clone(),
                avatar_url: avatar_url.clone(),
                quota_allowance: quota_allowance.and_then(|it| i32::try_from(it).ok()),
            };
            let create = Step {
                action: Action::Create,
                impact: Impact::Safe,
                reason: "the group does not exist".to_owned(),
                changes: diff.changes,
                effect: Effect::Create { organization: organization.clone(), wanted },
            };
            // A step of its own: a group that is there without its members is ours all the same.
            let fill = observed.declared.clone().filter(|it| !it.is_empty()).map(|members| Step {
                action: Action::Update,
                impact: Impact::Safe,
                reason: "a new group has no members".to_owned(),
                changes: vec![Change::new(
                    "members",
                    Vec::<String>::new(),
                    members.iter().cloned().collect::<Vec<_>>(),
                )],
                effect: Effect::Fill { organization: organization.clone(), name: name.clone(), members },
            });
            return Plan { steps: [create].into_iter().chain(fill).collect() };
        };
        let change = UpdateGroup {
            name: diff.pick("name", Some(name), &found.name),
            display_name: diff.pick("displayName", display_name.as_ref(), &found.display_name),
            avatar_url: diff.pick("avatarURL", avatar_url.as_ref(), &found.avatar_url),
            quota_allowance: diff
                .pick("quotaAllowance", quota_allowance.as_ref(), &found.quota_allowance)
                .and_then(|it| i32::try_from(it).ok()),
            ..UpdateGroup::default()
        };
        let declared = diff.pick("members", observed.declared.as_ref(), &observed.members);
        if diff.is_empty() {
            return Plan::empty();
        }
        let declared = declared.unwrap_or_else(|| observed.members.clone());
        let add = declared.difference(&observed.members).cloned().collect();
        let remove: BTreeSet<String> = observed.members.difference(&declared).cloned().collect();
        let interrupts = change.name.is_some() || !remove.is_empty();
        Plan::of(Step {
            action: Action::Update,
            impact: if interrupts { Impact::Disruptive } else { Impact::Safe },
            reason: "the group differs".to_owned(),
            changes: diff.changes,
            effect: Effect::Update { group: found.clone(), change, add, remove },
        })
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        // `Everyone`, which has its organization's id, cannot be deleted.
        let deletable = observed.found.as_ref().filter(|it| !is_everyone(it));
        let Some(found) = deletable else { return Plan::empty() };
        Plan::deletion(Impact::Destructive, Effect::Delete(found.clone()))
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        let client = coder.client();
        match effect {
            Effect::Create { organization, wanted } => {
                let home = coder.organization_id(organization).await?;
                match client.create_group(home, wanted).await {
                    // Names are unique in an organization: the list that showed none is out of date.
                    Err(error) if error.class() == Class::Conflict => Err(Trouble::Stale),
                    created => Ok(Some(noted(created, home, coder).await?.id)),
                }
            }
            Effect::Fill { organization, name, members } => {
                let home = coder.organization_id(organization).await?;
                let add_users = user_ids(members, home, coder).await?;
                let groups = coder.groups(home).await?;
                let group = groups.iter().find(|it| it.name == *name);
                let group = group.ok_or_else(|| missing(format!("group {name} is not there any more")))?;
                let change = UpdateGroup { add_users, ..UpdateGroup::default() };
                noted(client.update_group(group.id, &change).await, home, coder).await?;
                Ok(None)
            }
            Effect::Everyone { organization, change } => {
                let home = coder.organization_id(organization).await?;
                let updated = noted(client.update_group(home, change).await, home, coder).await?;
                Ok(Some(updated.id))
            }
            Effect::Update { group, change, add, remove } => {
                let home = group.organization_id;
                check_unchanged(group, coder).await?;
                let leaving = |it: &&GroupMember| remove.contains(&it.username);
                let change = UpdateGroup {
                    add_users: user_ids(add, home, coder).await?,
                    remove_users: group.members.iter().filter(leaving).map(|it| it.id).collect(),
                    ..change.clone()
                };
                noted(client.update_group(group.id, &change).await, home, coder).await?;
                Ok(None)
            }
            Effect::Delete(group) => {
                match client.delete_group(group.id).await {
                    Err(error) if error.class() != Class::Missing => {
                        coder.forget_groups(group.organization_id).await;
                        Err(error.into())
                    }
                    // Missing: another client deleted the group first, or the answer to our own first request was lost.
                    Ok(()) | Err(_) => {
                        coder.note_group_gone(group).await;
                        Ok(None)
                    }
                }
            }
        }
    }

    fn provides(manifest: &CoderGroup) -> Option<RemoteName> {
        let (organization, name) = (manifest.organization().to_owned(), manifest.remote_name().to_owned());
        Some(RemoteName::Group { organization, name })
    }

    fn refs(manifest: &CoderGroup) -> Vec<Ref> {
        let members = manifest.spec.members.iter().flatten();
        let users = members.map(|it| Ref::Remote(RemoteName::User { name: it.clone(), email: None }));
        [Ref::organization(manifest.organization())].into_iter().chain(users).collect()
    }

    const LISTED: Listed = Listed::InOrganizations;

    async fn export(place: &ExportPlace<'_>, coder: &Coder) -> Result<KindExport<CoderGroup>, Trouble> {
        let Some(home) = place.organization else { return Ok(KindExport::default()) };
        let groups = coder.groups(home.id).await?;
        let sync = coder.client().group_sync(home.id).await?;
        Ok(KindExport::of(groups.iter().filter_map(|it| export::draft(it, home, !sync.field.is_empty()))))
    }
}

/// Enters the answer to a write into the shared list. After a write without an answer the list is read again.
async fn noted(answer: Result<Remote, Error>, home: Uuid, coder: &Coder) -> Result<Remote, Error> {
    match &answer {
        Ok(group) => coder.note_group(group).await,
        Err(_) => coder.forget_groups(home).await,
    }
    answer
}

/// Reads a group again before it is updated. Nothing is written over a change that the plan does not know of.
async fn check_unchanged(planned: &Remote, coder: &Coder) -> Result<(), Trouble> {
    let members = |it: &Remote| it.members.iter().map(|it| it.id).collect::<BTreeSet<_>>();
    let is_same = |it: &Remote| {
        let Remote { id, organization_id, name, display_name, avatar_url, quota_allowance, .. } = it;
        *id == planned.id
            && *organization_id == planned.organization_id
            && *name == planned.name
            && *display_name == planned.display_name
            && *avatar_url == planned.avatar_url
            && *quota_allowance == planned.quota_allowance
            && members(it) == members(planned)
    };
    match coder.client().group(planned.id).await {
        Ok(now) if is_same(&now) => Ok(()),
        Ok(_) => Err(Trouble::Stale),
        Err(error) if error.class() == Class::Missing => Err(Trouble::Stale),
        Err(error) => Err(error.into()),
    }
}

/// The group that comes with every organization and has its id.
fn is_everyone(group: &Remote) -> bool {
    group.id == group.organization_id
}

/// Whether `Everyone` still is as a new organization has it.
fn is_untouched(group: &Remote) -> bool {
    group.quota_allowance == 0 && group.avatar_url.is_empty()
}

fn check_everyone(manifest: &CoderGroup) -> Result<(), Invalid> {
    if manifest.spec.display_name.is_some() {
        return Err(Invalid::new("spec.displayName", "cannot be set for the group Everyone"));
    }
    if manifest.spec.members.is_some() {
        let message = "cannot be set for the group Everyone: everybody in the organization is in it";
        return Err(Invalid::new("spec.members", message));
    }
    Ok(())
}

/// The plan for `Everyone` of an organization that is only promised: it will be there, and untouched.
fn everyone_to_come(desired: &Desired) -> Plan<Effect> {
    let mut diff = Diff::default();
    let change = UpdateGroup {
        avatar_url: diff.pick("avatarURL", desired.avatar_url.as_ref(), &String::new()),
        quota_allowance: diff
            .pick("quotaAllowance", desired.quota_allowance.as_ref(), &0)
            .and_then(|it| i32::try_from(it).ok()),
        ..UpdateGroup::default()
    };
    if diff.is_empty() {
        return Plan::empty();
    }
    Plan::of(Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: "the group differs".to_owned(),
        changes: diff.changes,
        effect: Effect::Everyone { organization: desired.organization.clone(), change },
    })
}

/// The user names of people who are declared by user name or e-mail address. Whoever is in the group already is known
/// from there; only newcomers are worth reading the list of the organization's members.
async fn user_names(
    declared: &BTreeSet<String>,
    in_group: &[GroupMember],
    organization: Uuid,
    coder: &Coder,
) -> Result<BTreeSet<String>, Trouble> {
    let mut names = BTreeSet::new();
    for person in declared {
        let known = in_group
            .iter()
            .find(|it| is_called(person, &it.username, &it.email))
            .map(|it| it.username.clone());
        let name = match known {
            Some(name) => name,
            None => match known_member(person, organization, coder).await? {
                Some(member) => member.username,
                // A manifest that comes first makes the user.
                None => coder.promises().user(person).cloned().ok_or_else(|| no_member(person))?,
            },
        };
        names.insert(name);
    }
    Ok(names)
}

async fn user_ids(names: &BTreeSet<String>, organization: Uuid, coder: &Coder) -> Result<Vec<Uuid>, Trouble> {
    let mut ids = Vec::new();
    for name in names {
        ids.push(member(name, organization, coder).await?.user_id);
    }
    Ok(ids)
}

async fn member(person: &str, organization: Uuid, coder: &Coder) -> Result<MemberRef, Trouble> {
    let found = known_member(person, organization, coder).await?;
    Ok(found.ok_or_else(|| no_member(person))?)
}

async fn known_member(person: &str, organization: Uuid, coder: &Coder) -> Result<Option<MemberRef>, Trouble> {
    let members = coder.members(organization).await?;
    Ok(members.iter().find(|it| is_called(person, &it.username, &it.email)).cloned())
}

fn no_member(person: &str) -> Blocked {
    missing(format!("spec.members: {person} is not a member of the organization"))
}

fn is_called(person: &str, username: &str, email: &str) -> bool {
    person.eq_ignore_ascii_case(username) || (!email.is_empty() && person.eq_ignore_ascii_case(email))
}
