//! `CoderRole`: a custom role of an organization, known by its name, which Coder cannot change.

mod export;
mod permissions;

pub use self::permissions::KNOWN_PERMISSIONS;

use std::collections::BTreeSet;

use api::{BUILT_IN_ROLES, CoderRole, Reason, annotation};
use client::{
    Class, Error,
    members::MemberRef,
    organizations::Organization,
    roles::{AssignableRole, WriteRole, WrittenRole},
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::mapping::CUSTOM_ROLES;
use crate::{
    coder::Coder,
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

/// How many people a message names.
const NAMED: usize = 10;

/// Fields of the manifest, with the names that the audit log has for them.
const AUDITED: &[(&str, &str)] = &[("displayName", "display_name"), ("permissions", "org_permissions")];

#[derive(Debug)]
pub struct Role;

#[derive(Debug)]
pub struct Desired {
    organization: String,
    name: String,
    display_name: Option<String>,
    /// As `template:read`.
    permissions: Option<BTreeSet<String>>,
    /// Whether the role is to be deleted, so that those who have it matter.
    is_deletion: bool,
}

#[derive(Debug)]
pub struct Observed {
    found: Option<FoundRole>,
    /// The user names of those who have the role, where it is to be deleted.
    users: BTreeSet<String>,
}

/// A role, and the organization that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRole {
    home: Uuid,
    role: AssignableRole,
}

#[derive(Debug)]
pub enum Effect {
    Create {
        organization: String,
        wanted: WriteRole,
    },
    /// The role as it was read, and as it is to be.
    Update {
        found: FoundRole,
        wanted: WriteRole,
    },
    /// The role as it was read, and those who have it.
    Delete {
        found: FoundRole,
        users: BTreeSet<String>,
    },
}

impl Kind for Role {
    type Manifest = CoderRole;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const GATE: Option<Gate> = Some(CUSTOM_ROLES);
    const RANK: u8 = 2;
    const SHOWS_ID: bool = false;

    fn target(manifest: &CoderRole) -> String {
        format!("role {}/{}", manifest.organization(), manifest.remote_name())
    }

    fn desire(manifest: &CoderRole) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        let name = manifest.remote_name();
        names::check_name(name, names::ROLE)?;
        names::check_display_name(spec.display_name.as_ref())?;
        if BUILT_IN_ROLES.iter().any(|it| it.eq_ignore_ascii_case(name)) {
            return Err(Invalid::new("spec.name", format!("{name} is a built-in role: choose another name")));
        }
        Ok(Desired {
            organization: manifest.organization().to_owned(),
            name: name.to_owned(),
            display_name: spec.display_name.clone(),
            permissions: spec.permissions.as_deref().map(permissions::declared),
            is_deletion: false,
        })
    }

    /// Finds the organization whose role has this id. Ids are computed, so that every organization is searched.
    async fn home(held: Uuid, coder: &Coder) -> Result<Option<Organization>, Trouble> {
        for organization in coder.organizations().await?.iter() {
            let roles = coder.roles(organization.id).await?;
            if roles.iter().any(|it| id_of(organization.id, &it.name) == held) {
                return Ok(Some(organization.clone()));
            }
        }
        Ok(None)
    }

    fn for_deletion(desired: Desired, home: Option<Organization>) -> Desired {
        let organization = home.map_or(desired.organization, |it| it.name);
        Desired { organization, permissions: None, is_deletion: true, ..desired }
    }

    async fn observe(desired: &Desired, _held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let Some(home) = coder.home(&desired.organization).await? else {
            return Ok(Observed { found: None, users: BTreeSet::new() });
        };
        if let Some(declared) = &desired.permissions {
            let build = coder.licensed().await?;
            permissions::check(declared, &build.0.version)?;
        }
        let roles = coder.roles(home.id).await?;
        let is_named = |it: &&AssignableRole| !it.built_in && it.name.eq_ignore_ascii_case(&desired.name);
        let found = roles.iter().find(is_named).map(|it| FoundRole { home: home.id, role: it.clone() });
        if let Some(other) = found.as_ref().filter(|it| it.role.name != desired.name && !desired.is_deletion)
        {
            return Err(Blocked {
                reason: Reason::Invalid,
                message: format!(
                    "spec.name: the role is called {} in Coder, which cannot rename it: set spec.name to that",
                    other.role.name
                ),
            }
            .into());
        }
        let users = match &found {
            Some(found) if desired.is_deletion => users_of(found, &coder.members(home.id).await?),
            _ => BTreeSet::new(),
        };
        Ok(Observed { found, users })
    }

    fn is_default(_observed: &Observed) -> bool {
        false
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        observed.found.as_ref().map(|it| id_of(it.home, &it.role.name))
    }

    fn audited(observed: &Observed) -> Option<Audited> {
        let found = observed.found.as_ref()?;
        let object = AuditedObject::Named { organization: found.home, name: found.role.name.clone() };
        Some(Audited { resource_type: "custom_role", object, fields: AUDITED })
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        let Desired { organization, name, display_name, permissions, is_deletion: _ } = desired;
        let mut diff = Diff::default();
        let Some(found) = &observed.found else {
            diff.declare("name", Some(name));
            diff.declare("displayName", display_name.as_ref());
            diff.declare("permissions", permissions.as_ref());
            let wanted = WriteRole {
                name: name.clone(),
                display_name: display_name.clone().unwrap_or_default(),
                organization_permissions: permissions.iter().flat_map(permissions::written).collect(),
            };
            return Plan::of(Step {
                action: Action::Create,
                impact: Impact::Safe,
                reason: "the role does not exist".to_owned(),
                changes: diff.changes,
                effect: Effect::Create { organization: organization.clone(), wanted },
            });
        };
        let had = permissions::found(&found.role.organization_permissions);
        // The whole role is replaced: what is not declared is sent as it was found.
        let mut wanted = WriteRole {
            name: found.role.name.clone(),
            display_name: found.role.display_name.clone(),
            organization_permissions: found.role.organization_permissions.clone(),
        };
        if let Some(declared) = diff.pick("displayName", display_name.as_ref(), &found.role.display_name) {
            wanted.display_name = declared;
        }
        let mut takes_away = false;
        if let Some(declared) = diff.pick("permissions", permissions.as_ref(), &had) {
            takes_away = !had.is_subset(&declared);
            wanted.organization_permissions = permissions::written(&declared).collect();
        }
        if diff.is_empty() {
            return Plan::empty();
        }
        Plan::of(Step {
            action: Action::Update,
            impact: if takes_away { Impact::Disruptive } else { Impact::Safe },
            reason: "the role differs".to_owned(),
            changes: diff.changes,
            effect: Effect::Update { found: found.clone(), wanted },
        })
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        let Some(found) = &observed.found else { return Plan::empty() };
        let users = observed.users.clone();
        let mut plan = Plan::deletion(Impact::Destructive, Effect::Delete { found: found.clone(), users });
        if !observed.users.is_empty() {
            let users: Vec<String> = observed.users.iter().cloned().collect();
            plan.steps[0].changes.push(Change::new("users", users, serde_json::Value::Null));
        }
        plan
    }

    fn keeps(observed: &Observed, is_allowed: bool, hash: &str) -> Option<Blocked> {
        let found = observed.found.as_ref().filter(|_| !is_allowed && !observed.users.is_empty())?;
        let name = &found.role.name;
        let users = named(&observed.users);
        Some(Blocked {
            reason: Reason::InUse,
            message: format!(
                "role {name} is assigned to {users}, who would lose its permissions: take it from them, set allowDestructive, \
                 or annotate the object with {}: {hash}",
                annotation::APPROVED_PLAN
            ),
        })
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        match effect {
            Effect::Create { organization, wanted } => {
                let home = coder.organization_id(organization).await?;
                match coder.client().create_role(home, wanted).await {
                    // Names are unique in an organization: the list that showed none is out of date.
                    Err(error) if error.class() == Class::Conflict => {
                        coder.forget_roles(home).await;
                        Err(Trouble::Stale)
                    }
                    created => {
                        let written = noted(created, home, coder).await?;
                        Ok(Some(id_of(home, &written.name)))
                    }
                }
            }
            Effect::Update { found, wanted } => {
                check_unchanged(found, coder).await?;
                let answer = coder.client().update_role(found.home, wanted).await;
                let written = noted(answer, found.home, coder).await?;
                permissions::check_written(&wanted.organization_permissions, &written)?;
                Ok(None)
            }
            Effect::Delete { found, users } => {
                check_unchanged(found, coder).await?;
                if users_of(found, &coder.anew().members(found.home).await?) != *users {
                    return Err(Trouble::Stale);
                }
                match coder.client().delete_role(found.home, &found.role.name).await {
                    Err(error) if error.class() != Class::Missing => {
                        coder.forget_roles(found.home).await;
                        Err(error.into())
                    }
                    // Missing: another client deleted the role first, or the answer to our own first request was lost.
                    Ok(()) | Err(_) => {
                        coder.note_role_gone(found.home, &found.role.name).await;
                        Ok(None)
                    }
                }
            }
        }
    }

    fn provides(manifest: &CoderRole) -> Option<RemoteName> {
        let (organization, name) = (manifest.organization().to_owned(), manifest.remote_name().to_owned());
        Some(RemoteName::Role { organization, name })
    }

    fn refs(manifest: &CoderRole) -> Vec<Ref> {
        vec![Ref::organization(manifest.organization())]
    }

    const LISTED: Listed = Listed::InOrganizations;

    async fn export(place: &ExportPlace<'_>, coder: &Coder) -> Result<KindExport<CoderRole>, Trouble> {
        let Some(home) = place.organization else { return Ok(KindExport::default()) };
        let roles = coder.roles(home.id).await?;
        Ok(KindExport::of(roles.iter().filter_map(|it| export::draft(it, home))))
    }
}

/// The id of a role, which Coder does not show: it follows from what identifies the role.
fn id_of(home: Uuid, name: &str) -> Uuid {
    let hash = Sha256::new().chain_update(home).chain_update(name.to_lowercase()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The user names of those who have the role.
fn users_of(found: &FoundRole, members: &[MemberRef]) -> BTreeSet<String> {
    let having = members.iter().filter(|it| it.has_role(&found.role.name));
    having.map(|it| it.username.clone()).collect()
}

/// People in a message, which is bounded.
fn named(users: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = users.iter().take(NAMED).map(String::as_str).collect();
    match users.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Enters the answer to a write into the shared list. After a write without an answer the list is read again.
async fn noted(answer: Result<WrittenRole, Error>, home: Uuid, coder: &Coder) -> Result<WrittenRole, Error> {
    match &answer {
        Ok(WrittenRole { name, display_name, organization_permissions }) => {
            let role = AssignableRole {
                name: name.clone(),
                display_name: display_name.clone(),
                built_in: false,
                assignable: true,
                organization_permissions: organization_permissions.clone(),
            };
            coder.note_role(home, &role).await;
        }
        Err(_) => coder.forget_roles(home).await,
    }
    answer
}

/// Reads a role again before it is replaced. Nothing is written over a change that the plan does not know of.
async fn check_unchanged(planned: &FoundRole, coder: &Coder) -> Result<(), Trouble> {
    let roles = coder.anew().roles(planned.home).await?;
    let now = roles.iter().find(|it| it.name == planned.role.name);
    let is_same = now.is_some_and(|it| {
        it.display_name == planned.role.display_name
            && permissions::found(&it.organization_permissions)
                == permissions::found(&planned.role.organization_permissions)
    });
    if is_same { Ok(()) } else { Err(Trouble::Stale) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_a_role_follows_from_its_organization_and_its_name_in_any_case() {
        let home = Uuid::from_u128(1);
        assert_eq!(id_of(home, "template-auditor"), id_of(home, "Template-Auditor"));
        assert_ne!(id_of(home, "template-auditor"), id_of(Uuid::from_u128(2), "template-auditor"));
        assert_ne!(id_of(home, "template-auditor"), id_of(home, "auditors"));
    }

    #[test]
    fn role_in_use_is_kept_until_a_person_allows_its_deletion() {
        let role = AssignableRole {
            name: "template-auditor".to_owned(),
            display_name: String::new(),
            built_in: false,
            assignable: true,
            organization_permissions: Vec::new(),
        };
        let found = Some(FoundRole { home: Uuid::from_u128(1), role });
        let users = |count: usize| (0..count).map(|it| format!("user-{it:02}")).collect();
        let used = Observed { found: found.clone(), users: users(12) };
        let kept = Role::keeps(&used, false, "hash").unwrap();
        assert_eq!(kept.reason, Reason::InUse);
        assert!(kept.message.contains("user-00, user-01"), "{}", kept.message);
        assert!(kept.message.contains("user-09 and 2 more"), "{}", kept.message);
        assert!(kept.message.contains("coder.com/approved-plan: hash"), "{}", kept.message);
        assert_eq!(Role::keeps(&used, true, "hash"), None);
        let plan = Role::plan_deletion(&used).view("role");
        assert_eq!(plan.changes().next().unwrap().before.as_array().unwrap().len(), 12);
        let unused = Observed { found, users: users(0) };
        assert_eq!(Role::keeps(&unused, false, "hash"), None);
        assert_eq!(Role::plan_deletion(&unused).view("role").changes().count(), 0);
    }
}
