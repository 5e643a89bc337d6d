//! The organizations of a deployment, and the groups, members, roles and settings of each.

use std::sync::Arc;

use api::DEFAULT_ORGANIZATION;
use client::{
    Error,
    groups::Group,
    members::MemberRef,
    organizations::{Organization, WorkspaceSharingSettings},
    roles::AssignableRole,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Coder, missing, shared};
use crate::pipeline::outcome::Trouble;

/// Something that is referred to by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<T> {
    There(T),
    /// It will be made by a manifest that comes first.
    Promised,
    Missing,
}

/// Names of organizations are the same in any case.
pub(crate) trait Named {
    fn is_named(&self, name: &str) -> bool;
}

impl Named for Organization {
    fn is_named(&self, name: &str) -> bool {
        if name == DEFAULT_ORGANIZATION { self.is_default } else { self.name.eq_ignore_ascii_case(name) }
    }
}

impl Coder {
    pub async fn organizations(&self) -> Result<Arc<Vec<Organization>>, Error> {
        let read = || self.client.list_organizations();
        Ok(self.used(self.reads.organizations.get(self.need, read).await?))
    }

    pub async fn groups(&self, organization: Uuid) -> Result<Arc<Vec<Group>>, Error> {
        let read = || self.client.list_groups(organization);
        Ok(self.used(self.reads.groups.of(organization).get(self.need, read).await?))
    }

    pub async fn members(&self, organization: Uuid) -> Result<Arc<Vec<MemberRef>>, Error> {
        let read = || self.client.list_members(organization);
        Ok(self.used(self.reads.members.of(organization).get(self.need, read).await?))
    }

    pub async fn roles(&self, organization: Uuid) -> Result<Arc<Vec<AssignableRole>>, Error> {
        let read = || self.client.list_organization_roles(organization);
        Ok(self.used(self.reads.roles.of(organization).get(self.need, read).await?))
    }

    /// Whose workspaces can be shared in an organization. Coder shows it one by one.
    pub async fn workspace_sharing(
        &self,
        organization: Uuid,
    ) -> Result<Arc<WorkspaceSharingSettings>, Error> {
        let read = || self.client.workspace_sharing(organization);
        Ok(self.used(self.reads.sharing.of(organization).get(self.need, read).await?))
    }

    /// Drops what is known of the sharing of workspaces, after a write.
    pub(crate) async fn forget_workspace_sharing(&self, organization: Uuid) {
        self.reads.sharing.of(organization).forget().await;
    }

    /// An organization by name; `default` is the default one, whatever it is called.
    pub async fn organization(&self, name: &str) -> Result<Found<Organization>, Error> {
        let organizations = self.organizations().await?;
        let is_it = |it: &&Organization| it.is_named(name);
        Ok(match organizations.iter().find(is_it) {
            Some(found) => Found::There(found.clone()),
            None if self.promises.has_organization(name) => Found::Promised,
            None => Found::Missing,
        })
    }

    /// An organization under whichever name it has by now; nothing when it is gone.
    pub(crate) async fn organization_by_id(&self, id: Uuid) -> Result<Option<Organization>, Error> {
        Ok(self.organizations().await?.iter().find(|it| it.id == id).cloned())
    }

    /// An organization that an object belongs to: without it the object waits.
    pub async fn home(&self, name: &str) -> Result<Option<Organization>, Trouble> {
        match self.organization(name).await? {
            Found::There(organization) => Ok(Some(organization)),
            Found::Promised => Ok(None),
            Found::Missing => Err(missing(format!("organization {name} does not exist yet")).into()),
        }
    }

    /// The id of an organization that must be there by now.
    pub(crate) async fn organization_id(&self, name: &str) -> Result<Uuid, Trouble> {
        match self.organization(name).await? {
            Found::There(organization) => Ok(organization.id),
            Found::Promised | Found::Missing => {
                Err(missing(format!("organization {name} does not exist")).into())
            }
        }
    }

    /// Drops the list of organizations, after a write whose effect is unknown.
    pub(crate) async fn forget_organizations(&self) {
        self.reads.organizations.forget().await;
    }

    /// Drops the list of groups, after a write whose effect is unknown.
    pub(crate) async fn forget_groups(&self, organization: Uuid) {
        self.reads.groups.of(organization).forget().await;
    }

    /// Enters an organization that coderd has just answered with.
    pub(crate) async fn note_organization(&self, organization: &Organization) {
        let answered = Instant::now();
        let enter = |list: &mut Vec<Organization>| shared::enter(list, organization, |it| it.id);
        self.reads.organizations.note(answered, enter).await;
    }

    /// Removes an organization that was deleted.
    pub(crate) async fn note_organization_gone(&self, id: Uuid) {
        let answered = Instant::now();
        self.reads.organizations.note(answered, |list| list.retain(|it| it.id != id)).await;
    }

    /// Enters a group that coderd has just answered with.
    pub(crate) async fn note_group(&self, group: &Group) {
        let answered = Instant::now();
        let enter = |list: &mut Vec<Group>| shared::enter(list, group, |it| it.id);
        self.reads.groups.of(group.organization_id).note(answered, enter).await;
    }

    /// Removes a group that was deleted.
    pub(crate) async fn note_group_gone(&self, group: &Group) {
        let answered = Instant::now();
        let remove = |list: &mut Vec<Group>| list.retain(|it| it.id != group.id);
        self.reads.groups.of(group.organization_id).note(answered, remove).await;
    }

    /// Drops the list of roles, after a write whose effect is unknown.
    pub(crate) async fn forget_roles(&self, organization: Uuid) {
        self.reads.roles.of(organization).forget().await;
    }

    /// Enters a custom role that coderd has just answered with.
    pub(crate) async fn note_role(&self, organization: Uuid, role: &AssignableRole) {
        let answered = Instant::now();
        let enter = |list: &mut Vec<AssignableRole>| {
            list.retain(|it| it.name != role.name);
            list.push(role.clone());
        };
        self.reads.roles.of(organization).note(answered, enter).await;
    }

    /// Removes a custom role that was deleted.
    pub(crate) async fn note_role_gone(&self, organization: Uuid, name: &str) {
        let answered = Instant::now();
        let remove = |list: &mut Vec<AssignableRole>| list.retain(|it| it.name != name);
        self.reads.roles.of(organization).note(answered, remove).await;
    }
}
