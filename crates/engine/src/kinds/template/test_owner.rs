//! The account that owns test workspaces: what Coder shows of its rights.

use api::{EVERYONE, Reason};
use client::{Class, organizations::Organization, templates::Template as Remote, users::User};

use super::{
    Desired,
    access::is_called,
    test_workspace::{no_member, refusal},
};
use crate::{
    coder::Coder,
    kinds::mapping::TEMPLATE_RBAC,
    pipeline::outcome::{Blocked, Trouble},
};

const ADMIN: &str = "admin";

/// Why the declared owner cannot own the workspace.
pub(super) async fn refused(
    owner: &str,
    desired: &Desired,
    template: Option<&Remote>,
    home: &Organization,
    coder: &Coder,
) -> Result<Option<Blocked>, Trouble> {
    let users = coder.users().await?;
    let user = users.iter().find(|it| it.username.eq_ignore_ascii_case(owner));
    let Some(user) = user.filter(|it| it.organization_ids.contains(&home.id)) else {
        return Ok(Some(no_member(owner, &home.name)));
    };
    let organizations = coder.organizations().await?;
    let mut memberships = Vec::new();
    for id in &user.organization_ids {
        let members = match coder.members(*id).await {
            Ok(members) => Some(members),
            // What the account may not read is not shown.
            Err(error) if [Class::Forbidden, Class::Missing].contains(&error.class()) => None,
            Err(error) => return Err(error.into()),
        };
        let name =
            organizations.iter().find(|it| it.id == *id).map_or_else(|| id.to_string(), |it| it.name.clone());
        memberships
            .push((name, members.iter().flat_map(|it| it.iter()).find(|it| it.user_id == user.id).cloned()));
    }
    let grant = grant(user, desired, template, home, coder).await?;
    Ok(refusal(user, &memberships, grant.as_deref()))
}

/// How the account administers the template, or would once the manifest is applied. Without its licence Coder shows no ACL.
async fn grant(
    user: &User,
    desired: &Desired,
    template: Option<&Remote>,
    home: &Organization,
    coder: &Coder,
) -> Result<Option<String>, Trouble> {
    match coder.pass(Some(TEMPLATE_RBAC)).await {
        Ok(()) => {}
        Err(Trouble::Blocked(Blocked { reason: Reason::NotEntitled, .. })) => return Ok(None),
        Err(trouble) => return Err(trouble),
    }
    let is_admin = |(_, role): &(&String, &String)| *role == ADMIN;
    let mut users = desired.access.users.iter().flatten().filter(is_admin);
    if users.any(|(name, _)| is_called(name, &user.username, &user.email)) {
        return Ok(Some("spec.acl.users gives it the role admin".to_owned()));
    }
    for (name, _) in desired.access.groups.iter().flatten().filter(is_admin) {
        let groups = coder.groups(home.id).await?;
        let group = groups.iter().find(|it| it.name == *name);
        if name == EVERYONE || group.is_some_and(|it| it.members.iter().any(|it| it.id == user.id)) {
            return Ok(Some(format!("spec.acl.groups gives its group {name} the role admin")));
        }
    }
    let Some(template) = template else { return Ok(None) };
    let found = coder.template_access(template).await?;
    if found.users.iter().any(|it| it.id == user.id && it.role == ADMIN) {
        return Ok(Some("it has the role admin in the ACL of the template".to_owned()));
    }
    for group in found.groups.iter().filter(|it| it.role == ADMIN) {
        // `Everyone` has the id of its organization.
        let is_everyone = group.id == group.organization_id;
        let is_member = if is_everyone {
            user.organization_ids.contains(&group.organization_id)
        } else {
            let groups = coder.groups(group.organization_id).await?;
            let listed = groups.iter().find(|it| it.id == group.id);
            listed.is_some_and(|it| it.members.iter().any(|it| it.id == user.id))
        };
        if is_member {
            return Ok(Some(format!(
                "its group {} has the role admin in the ACL of the template",
                group.name
            )));
        }
    }
    Ok(None)
}
