//! `CoderUser`: an account, with its roles in the whole deployment and its organizations.
//!
//! Two accounts are never harmed: the one that we ask with, and the last owner. Roles that the identity provider manages are not
//! written.

mod export;
mod protection;
mod provider;
mod steps;

use std::collections::BTreeSet;

use api::{AppState as _, CoderUser, LoginType, Reason};
use client::{organizations::Organization, users::User as Remote};
use kube::ResourceExt as _;
use secrecy::SecretString;
use uuid::Uuid;

use self::protection::Harm;
pub use self::steps::Effect;
use crate::{
    coder::{Coder, Found, missing},
    kind::Kind,
    kinds::names,
    pipeline::{
        attribution::{Audited, AuditedObject},
        export::{ExportPlace, KindExport, Listed},
        gate::Gate,
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Impact, Plan},
        reference::Ref,
        remote_name::RemoteName,
    },
    secrets::{SecretPlace, SecretValues},
};

/// The key of a Secret that holds a password, where the manifest names none.
const PASSWORD: &str = "password";
const SUSPENDED: &str = "suspended";
const ACTIVE: &str = "active";
const DORMANT: &str = "dormant";
/// The feature that new service accounts need.
const SERVICE_ACCOUNTS: Gate = Gate { feature: "service_accounts", license: "Premium" };
/// The name that stands for the default organization.
const DEFAULT: &str = api::DEFAULT_ORGANIZATION;

/// Fields of the manifest, with the names that the audit log has for them.
const AUDITED: &[(&str, &str)] =
    &[("username", "username"), ("roles", "rbac_roles"), ("suspended", "status")];

#[derive(Debug)]
pub struct User;

#[derive(Debug)]
pub struct Desired {
    namespace: String,
    username: String,
    email: Option<String>,
    login_type: Option<LoginType>,
    service_account: Option<bool>,
    password_place: Option<SecretPlace>,
    /// The password of an account that was never there.
    password: Option<SecretString>,
    roles: Option<BTreeSet<String>>,
    organizations: Option<BTreeSet<String>>,
    suspended: Option<bool>,
    /// Whether the account is to be deleted.
    is_deletion: bool,
}

#[derive(Debug)]
pub struct Observed {
    found: Option<Remote>,
    /// The password of an account that is to be created.
    password: Option<SecretString>,
    /// The names of the organizations that the account is a member of.
    memberships: BTreeSet<String>,
    /// The declared organizations, by the names that they have in Coder.
    declared: Option<BTreeSet<String>>,
    /// Why the account is left as it is.
    protection: Option<Blocked>,
    /// Why the roles are left as they are, where the identity provider manages them.
    provider: Option<Blocked>,
    /// The same for the organizations; none are declared then.
    membership_provider: Option<Blocked>,
    /// The workspaces that an account owns that is to be deleted.
    workspaces: Vec<String>,
}

impl Kind for User {
    type Manifest = CoderUser;
    type Desired = Desired;
    type Observed = Observed;
    type Effect = Effect;

    const RANK: u8 = 2;
    const NAME_FIELD: &'static str = "username";

    fn target(manifest: &CoderUser) -> String {
        format!("user {}", manifest.username())
    }

    fn desire(manifest: &CoderUser) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        names::check_username(manifest.username())?;
        if spec.roles.iter().flatten().any(|it| it == "member") {
            return Err(Invalid::new("spec.roles", "must not name `member`, which every user has"));
        }
        if spec.organizations.as_ref().is_some_and(Vec::is_empty) {
            return Err(Invalid::new("spec.organizations", "must name at least one organization"));
        }
        let is_service = spec.service_account == Some(true);
        if is_service == spec.email.is_some() {
            let message = if is_service { "cannot be set for a service account" } else { "is required" };
            return Err(Invalid::new("spec.email", message));
        }
        if spec.password_secret_ref.is_some() && (is_service || login_type(manifest) != LoginType::Password) {
            return Err(Invalid::new("spec.passwordSecretRef", "needs loginType `password`"));
        }
        let set = |it: &Vec<String>| it.iter().cloned().collect();
        Ok(Desired {
            namespace: manifest.namespace().unwrap_or_default(),
            username: manifest.username().to_owned(),
            email: spec.email.clone(),
            login_type: spec.login_type,
            service_account: spec.service_account,
            password_place: password_place(manifest),
            password: None,
            roles: spec.roles.as_ref().map(set),
            organizations: spec.organizations.as_ref().map(set),
            suspended: spec.suspended,
            is_deletion: false,
        })
    }

    /// A password is needed until the account is there: its Secret may then go. An account that is deleted in Coder needs it again.
    fn secret_refs(manifest: &CoderUser) -> Vec<SecretPlace> {
        let is_held = manifest.status().is_some_and(|it| it.id.is_some());
        password_place(manifest).filter(|_| !is_held).into_iter().collect()
    }

    fn with_secrets(desired: Desired, values: &SecretValues) -> Result<Desired, Invalid> {
        let password = desired.password_place.as_ref().and_then(|it| values.text(it));
        Ok(Desired { password, ..desired })
    }

    /// A password is not compared.
    fn without_secrets(manifest: &CoderUser) -> Option<CoderUser> {
        let mut manifest = manifest.clone();
        manifest.spec.password_secret_ref = None;
        Some(manifest)
    }

    fn for_deletion(desired: Desired, _home: Option<Organization>) -> Desired {
        Desired { roles: None, organizations: None, suspended: None, is_deletion: true, ..desired }
    }

    async fn observe(desired: &Desired, held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let users = coder.users().await?;
        let ours = users.iter().find(|it| Some(it.id) == held);
        let named = users.iter().find(|it| it.username.eq_ignore_ascii_case(&desired.username));
        let found = ours.or(named);
        let mut password = None;
        if !desired.is_deletion {
            check_names(desired, found, &users)?;
            match found {
                Some(found) => check_fixed(desired, found)?,
                None => password = first_password(desired, coder).await?,
            }
        }
        if found.is_none() && desired.service_account == Some(true) && !desired.is_deletion {
            coder.pass(Some(SERVICE_ACCOUNTS)).await?;
        }
        let organizations = coder.organizations().await?;
        let is_in = |it: &&Organization| found.is_some_and(|user| user.organization_ids.contains(&it.id));
        let memberships = organizations.iter().filter(is_in).map(|it| it.name.clone()).collect();
        let declared = match &desired.organizations {
            None => None,
            Some(declared) => Some(known(declared, coder).await?),
        };
        let mut observed = Observed {
            found: found.cloned(),
            password,
            memberships,
            declared,
            protection: None,
            provider: None,
            membership_provider: None,
            workspaces: Vec::new(),
        };
        if let Some(found) = found {
            observed.provider = provider::of_roles(desired, found, coder).await?;
            let differs = observed.declared.as_ref().is_some_and(|it| *it != observed.memberships);
            observed.membership_provider = provider::of_membership(differs, found, coder).await?;
            observed.declared = observed.declared.filter(|_| observed.membership_provider.is_none());
            let harm = Harm::of(desired, found, &observed);
            observed.protection = protection::check(&harm, found, &users, coder).await?;
            if desired.is_deletion {
                let owned = coder.client().list_workspaces_of(&found.username).await?;
                observed.workspaces = owned.into_iter().map(|it| it.name).collect();
            }
        }
        Ok(observed)
    }

    fn waits(observed: &Observed) -> Option<Outcome> {
        observed.protection.clone().map(Outcome::Blocked)
    }

    fn unmanaged(observed: &Observed) -> Option<Blocked> {
        observed.provider.clone().or_else(|| observed.membership_provider.clone())
    }

    fn is_default(_observed: &Observed) -> bool {
        false
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        observed.found.as_ref().map(|it| it.id)
    }

    fn audited(observed: &Observed) -> Option<Audited> {
        Some(Audited {
            resource_type: "user",
            object: AuditedObject::Id(observed.found.as_ref()?.id),
            fields: AUDITED,
        })
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<Effect> {
        match &observed.found {
            None => steps::creation(desired, observed),
            Some(found) => steps::changes(desired, observed, found),
        }
    }

    fn plan_deletion(observed: &Observed) -> Plan<Effect> {
        let Some(found) = &observed.found else { return Plan::empty() };
        Plan::deletion(Impact::Destructive, Effect::Delete(found.clone()))
    }

    fn keeps(observed: &Observed, _is_allowed: bool, _hash: &str) -> Option<Blocked> {
        if let Some(protection) = &observed.protection {
            return Some(protection.clone());
        }
        let found = observed.found.as_ref().filter(|_| !observed.workspaces.is_empty())?;
        Some(owns_workspaces(&found.username, &observed.workspaces))
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        steps::apply(effect, coder).await
    }

    fn provides(manifest: &CoderUser) -> Option<RemoteName> {
        Some(RemoteName::User { name: manifest.username().to_owned(), email: manifest.spec.email.clone() })
    }

    fn refs(manifest: &CoderUser) -> Vec<Ref> {
        let organizations = manifest.spec.organizations.iter().flatten().map(|it| Ref::organization(it));
        organizations.chain(password_place(manifest).map(|it| Ref::Secret(it.name))).collect()
    }

    const LISTED: Listed = Listed::InDeployment;

    async fn export(place: &ExportPlace<'_>, coder: &Coder) -> Result<KindExport<CoderUser>, Trouble> {
        let (users, own) = (coder.users().await?, coder.own_account().await?);
        let organizations = coder.organizations().await?;
        Ok(export::drafts(&users, &organizations, own.id, place.is_asked_for))
    }
}

/// Where the first password of a user is.
fn password_place(manifest: &CoderUser) -> Option<SecretPlace> {
    let reference = manifest.spec.password_secret_ref.as_ref()?;
    Some(SecretPlace { name: reference.name.clone(), key: reference.key_or(PASSWORD).to_owned() })
}

/// How a user signs in, as declared or by default.
fn login_type(manifest: &CoderUser) -> LoginType {
    let default =
        if manifest.spec.service_account == Some(true) { LoginType::None } else { LoginType::Password };
    manifest.spec.login_type.unwrap_or(default)
}

/// The declared organizations by the names that they have in Coder; one that another manifest will make by the declared name.
async fn known(declared: &BTreeSet<String>, coder: &Coder) -> Result<BTreeSet<String>, Trouble> {
    let mut names = BTreeSet::new();
    for name in declared {
        names.insert(match coder.organization(name).await? {
            Found::There(organization) => organization.name,
            Found::Promised => name.clone(),
            Found::Missing => {
                return Err(
                    missing(format!("spec.organizations: organization {name} does not exist yet")).into()
                );
            }
        });
    }
    Ok(names)
}

/// Refuses names that another account has.
fn check_names(desired: &Desired, found: Option<&Remote>, users: &[Remote]) -> Result<(), Blocked> {
    let other = |it: &&Remote| found.is_none_or(|found| found.id != it.id);
    if let Some(taken) =
        users.iter().filter(other).find(|it| it.username.eq_ignore_ascii_case(&desired.username))
    {
        return Err(invalid(format!(
            "spec.username: another user is called {} in Coder: choose another name, or rename that user",
            taken.username
        )));
    }
    let has_email =
        |it: &&Remote| desired.email.as_ref().is_some_and(|email| it.email.eq_ignore_ascii_case(email));
    match users.iter().filter(other).find(has_email) {
        None => Ok(()),
        Some(taken) => Err(invalid(format!(
            "spec.email: user {} has this address in Coder: set spec.username to that name, or correct the address",
            taken.username
        ))),
    }
}

/// The password of an account that is to be created. Nothing where it signs in by other means.
async fn first_password(desired: &Desired, coder: &Coder) -> Result<Option<SecretString>, Blocked> {
    if desired.service_account == Some(true) || desired.login_type.is_some_and(|it| it != LoginType::Password)
    {
        return Ok(None);
    }
    match (&desired.password, &desired.password_place) {
        (Some(password), _) => Ok(Some(password.clone())),
        // The account was there, and was deleted in Coder.
        (None, Some(place)) => {
            let places = std::slice::from_ref(place);
            let values = SecretValues::read(coder.references()?, &desired.namespace, places).await?;
            Ok(values.text(place))
        }
        (None, None) => Err(invalid(
            "spec.passwordSecretRef: a new user of login type password needs one: set it".to_owned(),
        )),
    }
}

/// Refuses differences that Coder cannot change.
fn check_fixed(desired: &Desired, found: &Remote) -> Result<(), Blocked> {
    let fixed = |field: &str, value: &str| {
        Err(invalid(format!(
            "spec.{field}: is {value} in Coder, which cannot change it: correct the manifest, or delete the user in Coder so that \
             it is created again"
        )))
    };
    if desired.email.as_ref().is_some_and(|it| !it.eq_ignore_ascii_case(&found.email)) {
        return fixed("email", &found.email);
    }
    if desired.login_type.is_some_and(|it| it.as_str() != found.login_type) {
        return fixed("loginType", &found.login_type);
    }
    if desired.service_account.is_some_and(|it| it != found.is_service_account) {
        return fixed("serviceAccount", if found.is_service_account { "true" } else { "false" });
    }
    Ok(())
}

fn invalid(message: String) -> Blocked {
    Blocked { reason: Reason::Invalid, message }
}

/// Why an account with workspaces is not deleted. Their names may not be known: not every account may see them.
fn owns_workspaces(username: &str, workspaces: &[String]) -> Blocked {
    let named = if workspaces.is_empty() { String::new() } else { format!(" ({})", workspaces.join(", ")) };
    Blocked {
        reason: Reason::InUse,
        message: format!("user {username} owns workspaces{named}: delete the workspaces first"),
    }
}

/// Whether an account is suspended. `active` and `dormant` change by themselves.
fn is_suspended(user: &Remote) -> bool {
    user.status == SUSPENDED
}

/// The roles of an account in the whole deployment, without the one that everybody has.
fn roles_of(user: &Remote) -> BTreeSet<String> {
    user.roles.iter().map(|it| it.name.clone()).filter(|it| it != "member").collect()
}
