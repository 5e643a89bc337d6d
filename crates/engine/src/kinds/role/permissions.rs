//! Permissions of custom roles: as manifests write them, as Coder keeps them, and which ones a Coder knows.

use std::collections::BTreeSet;

use api::{Permission as Declared, Reason};
use client::roles::{Permission, WrittenRole};

use crate::pipeline::{outcome::Blocked, version::Version};

/// The newest Coder whose permissions are in the table below. A newer one may know more.
const NEWEST: (u64, u64) = (2, 36);

/// The types of resources of Coder 2.36, each with its actions.
pub const KNOWN_PERMISSIONS: [(&str, &[&str]); 50] = [
    ("ai_gateway_key", &["create", "delete", "read", "update"]),
    ("ai_model_price", &["read", "update"]),
    ("ai_provider", &["create", "delete", "read", "update"]),
    ("ai_seat", &["create", "read"]),
    ("aibridge_interception", &["create", "read", "update"]),
    ("api_key", &["create", "delete", "read", "update"]),
    ("assign_org_role", &["assign", "create", "delete", "read", "unassign", "update"]),
    ("assign_role", &["assign", "read", "unassign"]),
    ("audit_log", &["create", "read"]),
    ("boundary_log", &["create", "delete", "read"]),
    ("boundary_usage", &["delete", "read", "update"]),
    ("chat", &["create", "delete", "read", "share", "update"]),
    ("connection_log", &["read", "update"]),
    ("crypto_key", &["create", "delete", "read", "update"]),
    ("debug_info", &["read"]),
    ("deployment_config", &["read", "update"]),
    ("deployment_stats", &["read"]),
    ("file", &["create", "read"]),
    ("group", &["create", "delete", "read", "update"]),
    ("group_member", &["read"]),
    ("idpsync_settings", &["read", "update"]),
    ("inbox_notification", &["create", "read", "update"]),
    ("license", &["create", "delete", "read"]),
    ("notification_message", &["create", "delete", "read", "update"]),
    ("notification_preference", &["read", "update"]),
    ("notification_template", &["read", "update"]),
    ("oauth2_app", &["create", "delete", "read", "update"]),
    ("oauth2_app_code_token", &["create", "delete", "read"]),
    ("oauth2_app_secret", &["create", "delete", "read", "update"]),
    ("organization", &["create", "delete", "read", "update"]),
    ("organization_member", &["create", "delete", "read", "update"]),
    ("prebuilt_workspace", &["delete", "update"]),
    ("provisioner_daemon", &["create", "delete", "read", "update"]),
    ("provisioner_jobs", &["create", "read", "update"]),
    ("replicas", &["read"]),
    ("system", &["create", "delete", "read", "update"]),
    ("tailnet_coordinator", &["create", "delete", "read", "update"]),
    ("task", &["create", "delete", "read", "update"]),
    ("template", &["create", "delete", "read", "update", "use", "view_insights"]),
    ("usage_event", &["create", "read", "update"]),
    ("user", &["create", "delete", "read", "read_personal", "update", "update_personal"]),
    ("user_secret", &["create", "delete", "read", "update"]),
    ("user_skill", &["create", "delete", "read", "update"]),
    ("webpush_subscription", &["create", "delete", "read"]),
    ("workspace", WORKSPACE),
    ("workspace_agent_devcontainers", &["create"]),
    ("workspace_agent_resource_monitor", &["create", "read", "update"]),
    ("workspace_build_orchestration", &["create", "delete", "read", "update"]),
    ("workspace_dormant", WORKSPACE),
    ("workspace_proxy", &["create", "delete", "read", "update"]),
];

const WORKSPACE: &[&str] = &[
    "application_connect",
    "create",
    "create_agent",
    "delete",
    "delete_agent",
    "read",
    "share",
    "ssh",
    "start",
    "stop",
    "update",
    "update_agent",
];

/// Declared permissions, for comparing.
pub(super) fn declared(permissions: &[Declared]) -> BTreeSet<String> {
    let pairs = |it: &Declared| {
        it.actions.iter().map(|action| format!("{}:{action}", it.resource)).collect::<Vec<_>>()
    };
    permissions.iter().flat_map(pairs).collect()
}

/// Permissions of a role, for comparing. One that forbids differs from everything that can be declared.
pub(super) fn found(permissions: &[Permission]) -> BTreeSet<String> {
    permissions.iter().map(shown).collect()
}

fn shown(permission: &Permission) -> String {
    let Permission { negate, resource_type, action } = permission;
    format!("{}{resource_type}:{action}", if *negate { "!" } else { "" })
}

/// Declared permissions as Coder takes them.
pub(super) fn written(declared: &BTreeSet<String>) -> impl Iterator<Item = Permission> {
    declared.iter().filter_map(|it| it.split_once(':')).map(|(resource, action)| Permission {
        negate: false,
        resource_type: resource.to_owned(),
        action: action.to_owned(),
    })
}

/// Refuses permissions that a Coder of this version does not know: it would leave them out without a word.
pub(super) fn check(declared: &BTreeSet<String>, version: &str) -> Result<(), Blocked> {
    // A development build has no version that means anything, and may know more.
    if Version::parse(version).is_none_or(|it| it.minor() > NEWEST) {
        return Ok(());
    }
    let is_known = |it: &&String| {
        let Some((resource, action)) = it.split_once(':') else { return false };
        KNOWN_PERMISSIONS.iter().any(|(name, actions)| *name == resource && actions.contains(&action))
    };
    match declared.iter().find(|it| !is_known(it)) {
        None => Ok(()),
        Some(unknown) => Err(unknown_to_coder(unknown, version)),
    }
}

/// Compares what was sent with what was stored.
pub(super) fn check_written(sent: &[Permission], answer: &WrittenRole) -> Result<(), Blocked> {
    let stored = found(&answer.organization_permissions);
    match found(sent).difference(&stored).next() {
        None => Ok(()),
        Some(dropped) => Err(unknown_to_coder(dropped, "this version")),
    }
}

fn unknown_to_coder(permission: &str, version: &str) -> Blocked {
    Blocked {
        reason: Reason::Invalid,
        message: format!(
            "spec.permissions: Coder ({version}) does not know {permission}: correct or remove it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(permissions: &[&str]) -> BTreeSet<String> {
        permissions.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn permissions_are_compared_as_pairs_whatever_their_order() {
        let of = |resource: &str, actions: &[&str]| Declared {
            resource: resource.to_owned(),
            actions: actions.iter().map(|it| (*it).to_owned()).collect(),
        };
        let one = declared(&[of("template", &["read", "use"]), of("group", &["read"])]);
        let other =
            declared(&[of("group", &["read", "read"]), of("template", &["use"]), of("template", &["read"])]);
        assert_eq!(one, other);
        assert_eq!(found(&written(&one).collect::<Vec<_>>()), one);
        let forbidden =
            Permission { negate: true, resource_type: "group".to_owned(), action: "read".to_owned() };
        assert_eq!(found(&[forbidden]), set(&["!group:read"]));
    }

    #[test]
    fn unknown_permission_is_refused_only_where_the_table_is_complete() {
        let unknown = set(&["template:read", "template:paint"]);
        let refused = check(&unknown, "v2.36.1").unwrap_err();
        assert_eq!(refused.reason, Reason::Invalid);
        assert!(refused.message.contains("template:paint"), "{}", refused.message);
        for newer in ["v2.37.0", "v0.0.0-devel"] {
            assert_eq!(check(&unknown, newer), Ok(()), "{newer}");
        }
        assert_eq!(check(&set(&["template:view_insights", "workspace:ssh"]), "v2.34.0"), Ok(()));
    }

    #[test]
    fn permission_that_coder_left_out_is_named() {
        let sent: Vec<Permission> = written(&set(&["template:paint", "template:read"])).collect();
        let stored = WrittenRole {
            name: "a".to_owned(),
            display_name: String::new(),
            organization_permissions: written(&set(&["template:read"])).collect(),
        };
        assert!(check_written(&sent, &stored).unwrap_err().message.contains("template:paint"));
        assert_eq!(check_written(&sent[1..], &stored), Ok(()));
    }
}
