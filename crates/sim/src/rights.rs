//! What accounts may do by their roles, as far as the routes of this crate ask for it.

use crate::state::User;

/// A right over the whole deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    ReadOrganizations,
    ManageOrganizations,
    ReadUsers,
    ManageUsers,
    ManageGroups,
    /// Members of an organization have it there.
    ReadProvisionerKeys,
    ManageProvisionerKeys,
    ManageSync,
    ManageTemplates,
    /// To see the workspaces of others.
    ReadWorkspaces,
    /// To make workspaces for others, and to delete them.
    ManageWorkspaces,
    /// Site-wide administrators of templates do not have it; those of an organization do.
    ReadJobs,
    ManageLicenses,
    ManageAppearance,
    /// AI providers and models.
    ManageDeployment,
    ReadDeploymentConfig,
    ReadAuditLog,
    /// To read, make and delete the tokens of others.
    ManageTokens,
    AssignRoles,
    /// To make and change custom roles.
    ManageRoles,
    /// To count what is in an organization.
    CountResources,
}

const OWNER: &str = "owner";
const USER_ADMIN: &str = "user-admin";
const TEMPLATE_ADMIN: &str = "template-admin";
const AUDITOR: &str = "auditor";

/// The roles of the whole deployment, with the names that people see.
const ROLES: [(&str, &str); 5] = [
    (OWNER, "Owner"),
    (AUDITOR, "Auditor"),
    (TEMPLATE_ADMIN, "Template Admin"),
    (USER_ADMIN, "User Admin"),
    ("member", "Member"),
];

/// Whether an account has a right.
pub(crate) fn has(user: &User, right: Right) -> bool {
    let holders: &[&str] = match right {
        Right::ReadDeploymentConfig | Right::ReadAuditLog => &[OWNER, AUDITOR],
        Right::ReadOrganizations | Right::ReadUsers => &[OWNER, USER_ADMIN, TEMPLATE_ADMIN, AUDITOR],
        Right::ManageUsers | Right::ManageGroups | Right::ManageSync => &[OWNER, USER_ADMIN],
        Right::ReadProvisionerKeys
        | Right::ManageProvisionerKeys
        | Right::ManageTemplates
        | Right::ReadWorkspaces
        | Right::CountResources => &[OWNER, TEMPLATE_ADMIN],
        Right::ManageOrganizations
        | Right::ManageLicenses
        | Right::ReadJobs
        | Right::ManageAppearance
        | Right::ManageDeployment
        | Right::ManageTokens
        | Right::AssignRoles
        | Right::ManageWorkspaces
        | Right::ManageRoles => &[OWNER],
    };
    user.roles.iter().any(|it| holders.contains(&it.as_str()))
}

/// Whether the account is an owner, whose tokens may live only for a short time.
pub(crate) fn is_owner(user: &User) -> bool {
    user.roles.iter().any(|it| it == OWNER)
}

/// The name that people see of a role. `None` where there is no such role.
pub(crate) fn role_title(name: &str) -> Option<&'static str> {
    ROLES.iter().find(|(it, _)| *it == name).map(|(_, title)| *title)
}
