//! `CoderRoleSync`: the document that gives people roles in an organization. It always exists.

mod export;

use std::collections::{BTreeMap, BTreeSet};

use api::CoderRoleSync;
use client::{idp_sync::RoleSync as Document, organizations::Organization, roles::AssignableRole};
use uuid::Uuid;

use super::mapping::{self, Names, USER_ROLE_MANAGEMENT};
use crate::{
    coder::Coder,
    kind::Kind,
    pipeline::{
        attribution::{Audited, AuditedObject},
        diff::Diff,
        export::{ExportPlace, KindExport, Listed},
        gate::Gate,
        outcome::{Invalid, Trouble},
        plan::{Action, Impact, Plan, Step},
        reference::Ref,
        remote_name::RemoteName,
    },
};

/// Fields of the manifest, with the names that the audit log has for them.
const AUDITED: &[(&str, &str)] = &[("field", "field"), ("mapping", "mapping")];

#[derive(Debug)]
pub struct RoleSync;

#[derive(Debug)]
pub struct Desired {
    organization: String,
    field: Option<String>,
    mapping: Option<Names>,
}

#[derive(Debug)]
pub struct Observed {
    organization: String,
    /// The organization's id; nothing while it is only promised.
    id: Option<Uuid>,
    document: Document,
}

/// The whole document, which is what coderd replaces.
#[derive(Debug)]
pub struct Effect {
    organization: String,
    document: Document,
    /// The declared mapping, whose roles must be there by now.
    declared: Option<Names>,
}

impl Kind for RoleSync {
    type Manifest = CoderRoleSync;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const GATE: Option<Gate> = Some(USER_ROLE_MANAGEMENT);
    const RANK: u8 = 4;

    fn target(manifest: &CoderRoleSync) -> String {
        format!("role sync of {}", manifest.organization())
    }

    fn desire(manifest: &CoderRoleSync) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        Ok(Desired {
            organization: manifest.organization().to_owned(),
            field: spec.field.clone(),
            mapping: spec.mapping.as_ref().map(mapping::names),
        })
    }

    async fn home(held: Uuid, coder: &Coder) -> Result<Option<Organization>, Trouble> {
        Ok(coder.organization_by_id(held).await?)
    }

    fn for_deletion(desired: Desired, home: Option<Organization>) -> Desired {
        let organization = home.map_or(desired.organization, |it| it.name);
        Desired { organization, mapping: None, ..desired }
    }

    async fn observe(desired: &Desired, _held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let organization = desired.organization.clone();
        let Some(home) = coder.home(&organization).await? else {
            // Which roles an organization has is known once it is there; they are looked at again then.
            return Ok(Observed { organization, id: None, document: Document::default() });
        };
        if let Some(declared) = &desired.mapping {
            let roles = coder.roles(home.id).await?;
            let is_promised = |name: &str| coder.promises().has_role_of(&home, name);
            mapping::check(declared, "role", |name| has_role(&roles, name) || is_promised(name))?;
        }
        let document = coder.client().role_sync(home.id).await?;
        Ok(Observed { organization, id: Some(home.id), document })
    }

    fn is_default(observed: &Observed) -> bool {
        observed.document == Document::default()
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        observed.id
    }

    fn audited(observed: &Observed) -> Option<Audited> {
        Some(Audited {
            resource_type: "idp_sync_settings_role",
            object: AuditedObject::DocumentOf(observed.id?),
            fields: AUDITED,
        })
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        let Desired { organization, field, mapping } = desired;
        let found = &observed.document;
        let mut diff = Diff::default();
        let mut document = found.clone();
        if let Some(field) = diff.pick("field", field.as_ref(), &found.field) {
            document.field = field;
        }
        if let Some(declared) = diff.pick("mapping", mapping.as_ref(), &mapping::names(&found.mapping)) {
            document.mapping =
                declared.into_iter().map(|(claim, names)| (claim, names.into_iter().collect())).collect();
        }
        if diff.is_empty() {
            return Plan::empty();
        }
        Plan::of(Step {
            action: Action::Update,
            impact: Impact::Disruptive,
            reason: "the document differs; people's roles change at their next login".to_owned(),
            changes: diff.changes,
            effect: Effect { organization: organization.clone(), document, declared: mapping.clone() },
        })
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        if Self::is_default(observed) {
            return Plan::empty();
        }
        Plan::deletion(
            Impact::Disruptive,
            Effect {
                organization: observed.organization.clone(),
                document: Document { field: String::new(), mapping: BTreeMap::new() },
                declared: None,
            },
        )
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        let home = coder.organization_id(&effect.organization).await?;
        if let Some(declared) = &effect.declared {
            // A role that was promised may not have come.
            let roles = coder.roles(home).await?;
            mapping::check(declared, "role", |name| has_role(&roles, name))?;
        }
        coder.client().put_role_sync(home, &effect.document).await?;
        Ok(Some(home))
    }

    fn refs(manifest: &CoderRoleSync) -> Vec<Ref> {
        let organization = || manifest.organization().to_owned();
        let names = manifest.spec.mapping.iter().flat_map(BTreeMap::values).flatten();
        let roles: BTreeSet<&String> = names.collect();
        let roles = roles
            .into_iter()
            .map(|name| RemoteName::Role { organization: organization(), name: name.clone() });
        [Ref::organization(manifest.organization())].into_iter().chain(roles.map(Ref::Remote)).collect()
    }

    const LISTED: Listed = Listed::InOrganizations;

    async fn export(place: &ExportPlace<'_>, coder: &Coder) -> Result<KindExport<CoderRoleSync>, Trouble> {
        let Some(home) = place.organization else { return Ok(KindExport::default()) };
        let document = coder.client().role_sync(home.id).await?;
        let roles = coder.roles(home.id).await?;
        Ok(KindExport::of_one(export::draft(&document, &roles, home), || {
            format!("role IdP sync of {}", home.name)
        }))
    }
}

fn has_role(roles: &[AssignableRole], name: &str) -> bool {
    roles.iter().any(|it| it.name == name)
}
