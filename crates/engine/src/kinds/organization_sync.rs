//! `CoderOrganizationSync`: the document that puts people into organizations. One per deployment; it always exists.

mod export;

use std::collections::{BTreeMap, BTreeSet};

use api::CoderOrganizationSync;
use client::{idp_sync::OrganizationSync as Document, organizations::Organization};
use uuid::Uuid;

use super::mapping::{self, MULTIPLE_ORGANIZATIONS, Mapping, Names};
use crate::{
    coder::{Coder, Named as _},
    kind::Kind,
    pipeline::{
        attribution::{Audited, AuditedObject},
        diff::Diff,
        export::{ExportPlace, KindExport, Listed},
        gate::Gate,
        outcome::{Invalid, Trouble},
        plan::{Action, Impact, Plan, Step},
        reference::Ref,
    },
};

/// Fields of the manifest, with the names that the audit log has for them.
const AUDITED: &[(&str, &str)] =
    &[("field", "field"), ("mapping", "mapping"), ("assignDefault", "assign_default")];

#[derive(Debug)]
pub struct OrganizationSync;

#[derive(Debug)]
pub struct Desired {
    field: Option<String>,
    assign_default: Option<bool>,
    mapping: Option<Names>,
}

#[derive(Debug)]
pub struct Observed {
    /// The deployment's id.
    id: Uuid,
    document: Document,
    /// The document's mapping by name.
    mapping: Names,
    /// What is declared, each organization by one name wherever it stands.
    declared: Option<Names>,
}

/// The whole document, which is what coderd replaces.
#[derive(Debug)]
pub struct Effect {
    document: Document,
    mapping: Mapping<Uuid>,
}

impl Kind for OrganizationSync {
    type Manifest = CoderOrganizationSync;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const GATE: Option<Gate> = Some(MULTIPLE_ORGANIZATIONS);
    const RANK: u8 = 4;

    fn target(_manifest: &CoderOrganizationSync) -> String {
        "organization sync".to_owned()
    }

    fn desire(manifest: &CoderOrganizationSync) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        Ok(Desired {
            field: spec.field.clone(),
            assign_default: spec.assign_default,
            mapping: spec.mapping.as_ref().map(mapping::names),
        })
    }

    fn for_deletion(desired: Desired, _home: Option<Organization>) -> Desired {
        Desired { mapping: None, ..desired }
    }

    async fn observe(desired: &Desired, _held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let organizations = coder.organizations().await?;
        // `default` stands for the default organization, here as everywhere.
        let exists = |name: &str| {
            organizations.iter().any(|it| it.is_named(name)) || coder.promises().has_organization(name)
        };
        mapping::check(desired.mapping.as_ref().unwrap_or(&BTreeMap::new()), "organization", exists)?;
        let document = coder.client().organization_sync().await?;
        // One organization may be declared under several names, in any case or as `default`. The first of them stands for
        // all, in what is declared and in what is found, so that only a difference is one.
        let words: BTreeSet<&String> = desired.mapping.iter().flat_map(|it| it.values()).flatten().collect();
        let word_for =
            |is_it: &dyn Fn(&str) -> bool| words.iter().find(|it| is_it(it)).map(|it| (*it).clone());
        let name_of = |id| {
            let found = organizations.iter().find(|it| it.id == id)?;
            Some(word_for(&|word| found.is_named(word)).unwrap_or_else(|| found.name.clone()))
        };
        let same = |name: &String| {
            let found = organizations.iter().find(|it| it.is_named(name));
            let is_it =
                |word: &str| found.map_or_else(|| word.eq_ignore_ascii_case(name), |it| it.is_named(word));
            word_for(&is_it).unwrap_or_else(|| name.clone())
        };
        let fold =
            |(claim, names): (&String, &BTreeSet<String>)| (claim.clone(), names.iter().map(same).collect());
        let declared = desired.mapping.as_ref().map(|it| it.iter().map(fold).collect());
        let mapping = mapping::named(&document.mapping, name_of);
        Ok(Observed { id: coder.deployment_id().await?, document, mapping, declared })
    }

    fn is_default(observed: &Observed) -> bool {
        observed.document == Document::default()
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        Some(observed.id)
    }

    fn audited(_observed: &Observed) -> Option<Audited> {
        Some(Audited {
            resource_type: "idp_sync_settings_organization",
            object: AuditedObject::DocumentOf(Uuid::nil()),
            fields: AUDITED,
        })
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        let Desired { field, assign_default, mapping: _ } = desired;
        let found = &observed.document;
        let mut diff = Diff::default();
        let mut document = found.clone();
        if let Some(field) = diff.pick("field", field.as_ref(), &found.field) {
            document.field = field;
        }
        if let Some(assign) =
            diff.pick("assignDefault", assign_default.as_ref(), &found.organization_assign_default)
        {
            document.organization_assign_default = assign;
        }
        let declared = diff.pick("mapping", observed.declared.as_ref(), &observed.mapping);
        if diff.is_empty() {
            return Plan::empty();
        }
        let mapping = declared.map_or_else(|| Mapping::Kept(found.mapping.clone()), Mapping::Declared);
        Plan::of(Step {
            action: Action::Update,
            impact: Impact::Disruptive,
            reason: "the document differs; people's organizations change at their next login".to_owned(),
            changes: diff.changes,
            effect: Effect { document, mapping },
        })
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        if Self::is_default(observed) {
            return Plan::empty();
        }
        Plan::deletion(
            Impact::Disruptive,
            Effect { document: Document::default(), mapping: Mapping::Kept(BTreeMap::new()) },
        )
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        let organizations = coder.organizations().await?;
        let id_of = |name: &str| organizations.iter().find(|it| it.is_named(name)).map(|it| it.id);
        let mapping = mapping::ids(&effect.mapping, "organization", id_of)?;
        let document = Document { mapping, ..effect.document.clone() };
        coder.client().put_organization_sync(&document).await?;
        Ok(Some(coder.deployment_id().await?))
    }

    fn refs(manifest: &CoderOrganizationSync) -> Vec<Ref> {
        let organizations = manifest.spec.mapping.iter().flat_map(|it| it.values().flatten());
        organizations.map(|name| Ref::organization(name)).collect()
    }

    const LISTED: Listed = Listed::InDeployment;

    async fn export(
        _: &ExportPlace<'_>,
        coder: &Coder,
    ) -> Result<KindExport<CoderOrganizationSync>, Trouble> {
        let document = coder.client().organization_sync().await?;
        let organizations = coder.organizations().await?;
        Ok(KindExport::of_one(export::draft(&document, &organizations), || {
            "organization IdP sync".to_owned()
        }))
    }
}
