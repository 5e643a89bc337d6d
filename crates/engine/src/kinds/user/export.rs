//! Users as manifests, without their passwords. Pure.

use api::{CoderUser, CoderUserSpec, LoginType};
use client::{organizations::Organization, users::User as Remote};
use serde_json::json;
use uuid::Uuid;

use super::{ACTIVE, is_suspended, roles_of};
use crate::{
    kinds::control_plane::account,
    pipeline::export::{Draft, KindExport, organization_word, said},
};

/// `own` is the account that asks. People of an identity provider come by themselves: they are exported only if `is_asked_for`.
pub(super) fn drafts(
    users: &[Remote],
    organizations: &[Organization],
    own: Uuid,
    is_asked_for: bool,
) -> KindExport<CoderUser> {
    let mut export = KindExport::default();
    let mut provided = 0;
    for found in users {
        let what = || format!("user {}", found.username);
        let login_type = serde_json::from_value::<LoginType>(json!(found.login_type)).ok();
        if found.id == own {
            export.leave_out(what(), "it is the account that exports, which no manifest should change");
        } else if account::is_operators(&found.email) {
            export.leave_out(what(), "it is an account of the operator");
        } else if let Some(login_type) = login_type {
            if is_provided(login_type) && !is_asked_for {
                provided += 1;
            } else {
                export.drafts.push(draft(found, login_type, organizations));
            }
        } else {
            export.leave_out(what(), format!("its login type {} is not known", found.login_type));
        }
    }
    if provided > 0 {
        let what = format!("{provided} users who sign in with OIDC or GitHub");
        export
            .leave_out(what, "the identity provider has them: give --all or --kind CoderUser to export them");
    }
    export
}

fn is_provided(login_type: LoginType) -> bool {
    matches!(login_type, LoginType::Oidc | LoginType::Github)
}

fn draft(found: &Remote, login_type: LoginType, organizations: &[Organization]) -> Draft<CoderUser> {
    let is_service = found.is_service_account;
    let is_provided = is_provided(login_type);
    let mut memberships: Vec<String> = organizations
        .iter()
        .filter(|it| found.organization_ids.contains(&it.id))
        .map(organization_word)
        .collect();
    memberships.sort();
    let spec = CoderUserSpec {
        username: Some(found.username.clone()),
        email: said(&found.email).filter(|_| !is_service),
        login_type: (!is_service).then_some(login_type),
        service_account: is_service.then_some(true),
        roles: (!is_provided).then(|| roles_of(found).into_iter().collect()),
        organizations: (!is_provided && !memberships.is_empty()).then_some(memberships),
        suspended: suspended(found),
        ..CoderUserSpec::default()
    };
    let mut draft = Draft::new(&found.username, CoderUser::new(&found.username, spec));
    if is_provided {
        draft
            .notes
            .push("roles and organizations are left out: an identity provider may manage them".to_owned());
    } else if login_type == LoginType::Password {
        draft.notes.push(
            "passwordSecretRef is left out: only to create the user in another deployment it has to be set"
                .to_owned(),
        );
    }
    draft
}

/// Whether the account is declared suspended. A new service account is dormant until it is declared active; people become active when
/// they sign in.
fn suspended(found: &Remote) -> Option<bool> {
    let is_active_service = found.is_service_account && found.status == ACTIVE;
    if is_suspended(found) { Some(true) } else { is_active_service.then_some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u128, name: &str, login_type: &str) -> Remote {
        serde_json::from_value(
            json!({"id": Uuid::from_u128(id), "username": name, "email": format!("{name}@example.com"),
            "login_type": login_type, "status": "active", "organization_ids": [Uuid::from_u128(1)],
            "roles": [{"name": "auditor"}, {"name": "member"}]}),
        )
        .unwrap()
    }

    fn organizations() -> Vec<Organization> {
        let home = json!({"id": Uuid::from_u128(1), "name": "coder", "is_default": true});
        vec![serde_json::from_value(home).unwrap()]
    }

    #[test]
    fn own_account_and_those_of_the_operator_are_left_out() {
        let operators =
            Remote { email: account::email("coder-operator-ab"), ..user(3, "coder-operator-ab", "password") };
        let users = [user(2, "admin", "password"), operators, user(4, "alice", "password")];
        let export = drafts(&users, &organizations(), Uuid::from_u128(2), true);
        let names: Vec<&str> = export.drafts.iter().map(|it| it.title.as_str()).collect();
        assert_eq!((names, export.left_out.len()), (vec!["alice"], 2));
        let spec = &export.drafts[0].manifest.spec;
        assert_eq!(
            (&spec.roles, &spec.organizations),
            (&Some(vec!["auditor".to_owned()]), &Some(vec!["default".to_owned()]))
        );
        assert_eq!(spec.password_secret_ref, None);
    }

    #[test]
    fn people_of_an_identity_provider_are_counted_and_exported_on_request() {
        let users = [user(2, "bob", "oidc"), user(3, "carol", "github"), user(4, "odd", "smoke")];
        let export = drafts(&users, &organizations(), Uuid::nil(), false);
        let left: Vec<&str> = export.left_out.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(
            (export.drafts.len(), left),
            (0, vec!["user odd", "2 users who sign in with OIDC or GitHub"])
        );
        let asked = drafts(&users, &organizations(), Uuid::nil(), true);
        assert_eq!(asked.drafts.len(), 2);
        assert_eq!(
            (&asked.drafts[0].manifest.spec.roles, &asked.drafts[0].manifest.spec.organizations),
            (&None, &None)
        );
    }

    #[test]
    fn service_account_has_neither_email_nor_login_type() {
        let found = Remote { is_service_account: true, email: String::new(), ..user(2, "robot", "none") };
        let spec = |found: Remote| {
            drafts(&[found], &organizations(), Uuid::nil(), false).drafts.remove(0).manifest.spec
        };
        let active = spec(found.clone());
        assert_eq!((active.email, active.login_type, active.service_account), (None, None, Some(true)));
        assert_eq!(active.suspended, Some(false), "another deployment would create it dormant");
        for (status, suspended) in [("dormant", None), ("suspended", Some(true))] {
            assert_eq!(spec(Remote { status: status.to_owned(), ..found.clone() }).suspended, suspended);
        }
        assert_eq!(spec(user(3, "alice", "password")).suspended, None);
    }
}
