//! `CoderGroupSync`: the document that puts people into groups of an organization. It always exists.

mod export;

use std::collections::BTreeMap;

use api::CoderGroupSync;
use client::{idp_sync::GroupSync as Document, organizations::Organization};
use uuid::Uuid;

use super::mapping::{self, Mapping, Names, TEMPLATE_RBAC};
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
const AUDITED: &[(&str, &str)] = &[
    ("field", "field"),
    ("mapping", "mapping"),
    ("regexFilter", "regex_filter"),
    ("autoCreateMissingGroups", "auto_create_missing_groups"),
];

#[derive(Debug)]
pub struct GroupSync;

#[derive(Debug)]
pub struct Desired {
    organization: String,
    field: Option<String>,
    regex_filter: Option<String>,
    auto_create_missing_groups: Option<bool>,
    mapping: Option<Names>,
}

#[derive(Debug)]
pub struct Observed {
    organization: String,
    /// The organization's id; nothing while it is only promised.
    id: Option<Uuid>,
    document: Document,
    /// The document's mapping by name.
    mapping: Names,
}

/// The whole document, which is what coderd replaces.
#[derive(Debug)]
pub struct Effect {
    organization: String,
    document: Document,
    mapping: Mapping<Uuid>,
}

impl Kind for GroupSync {
    type Manifest = CoderGroupSync;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const GATE: Option<Gate> = Some(TEMPLATE_RBAC);
    const RANK: u8 = 4;

    fn target(manifest: &CoderGroupSync) -> String {
        format!("group sync of {}", manifest.organization())
    }

    fn desire(manifest: &CoderGroupSync) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        Ok(Desired {
            organization: manifest.organization().to_owned(),
            field: spec.field.clone(),
            regex_filter: spec.regex_filter.clone(),
            auto_create_missing_groups: spec.auto_create_missing_groups,
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
            let (document, mapping) = (Document::default(), BTreeMap::new());
            let promised = |name: &str| coder.promises().has_group(&organization, name);
            mapping::check(desired.mapping.as_ref().unwrap_or(&mapping), "group", promised)?;
            return Ok(Observed { organization, id: None, document, mapping });
        };
        let groups = coder.groups(home.id).await?;
        let exists = |name: &str| {
            groups.iter().any(|it| it.name == name) || coder.promises().has_group_of(&home, name)
        };
        mapping::check(desired.mapping.as_ref().unwrap_or(&BTreeMap::new()), "group", exists)?;
        let document = coder.client().group_sync(home.id).await?;
        let name_of = |id| groups.iter().find(|it| it.id == id).map(|it| it.name.clone());
        let mapping = mapping::named(&document.mapping, name_of);
        Ok(Observed { organization, id: Some(home.id), document, mapping })
    }

    fn is_default(observed: &Observed) -> bool {
        observed.document == Document::default()
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        observed.id
    }

    fn audited(observed: &Observed) -> Option<Audited> {
        Some(Audited {
            resource_type: "idp_sync_settings_group",
            object: AuditedObject::DocumentOf(observed.id?),
            fields: AUDITED,
        })
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        let Desired { organization, field, regex_filter, auto_create_missing_groups, mapping } = desired;
        let found = &observed.document;
        let mut diff = Diff::default();
        let mut document = found.clone();
        if let Some(field) = diff.pick("field", field.as_ref(), &found.field) {
            document.field = field;
        }
        if let Some(filter) =
            diff.pick("regexFilter", regex_filter.clone().map(Some).as_ref(), &found.regex_filter)
        {
            document.regex_filter = filter;
        }
        let auto_create = auto_create_missing_groups.as_ref();
        if let Some(create) =
            diff.pick("autoCreateMissingGroups", auto_create, &found.auto_create_missing_groups)
        {
            document.auto_create_missing_groups = create;
        }
        let declared = diff.pick("mapping", mapping.as_ref(), &observed.mapping);
        if diff.is_empty() {
            return Plan::empty();
        }
        let mapping = declared.map_or_else(|| Mapping::Kept(found.mapping.clone()), Mapping::Declared);
        // Names from the server's environment cannot be written back: the first write loses them.
        let loses = !found.legacy_group_name_mapping.is_empty();
        Plan::of(Step {
            action: Action::Update,
            impact: if loses { Impact::Destructive } else { Impact::Disruptive },
            reason: if loses {
                "the document differs; writing it drops the legacy group name mapping"
            } else {
                "the document differs; people's groups change at their next login"
            }
            .to_owned(),
            changes: diff.changes,
            effect: Effect { organization: organization.clone(), document, mapping },
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
                document: Document::default(),
                mapping: Mapping::Kept(BTreeMap::new()),
            },
        )
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        let home = coder.organization_id(&effect.organization).await?;
        let groups = coder.groups(home).await?;
        let id_of = |name: &str| groups.iter().find(|it| it.name == name).map(|it| it.id);
        let mapping = mapping::ids(&effect.mapping, "group", id_of)?;
        let document = Document { mapping, ..effect.document.clone() };
        coder.client().put_group_sync(home, &document).await?;
        Ok(Some(home))
    }

    fn refs(manifest: &CoderGroupSync) -> Vec<Ref> {
        let organization = manifest.organization();
        let groups = manifest.spec.mapping.iter().flat_map(|it| it.values().flatten());
        let groups = groups
            .map(|name| RemoteName::Group { organization: organization.to_owned(), name: name.clone() });
        [Ref::organization(organization)].into_iter().chain(groups.map(Ref::Remote)).collect()
    }

    const LISTED: Listed = Listed::InOrganizations;

    async fn export(place: &ExportPlace<'_>, coder: &Coder) -> Result<KindExport<CoderGroupSync>, Trouble> {
        let Some(home) = place.organization else { return Ok(KindExport::default()) };
        let document = coder.client().group_sync(home.id).await?;
        let groups = coder.groups(home.id).await?;
        Ok(KindExport::of_one(export::draft(&document, &groups, home), || {
            format!("group IdP sync of {}", home.name)
        }))
    }
}
