//! The steps from an account as it is to one as declared, and how each is done.

use std::collections::BTreeSet;

use api::LoginType;
use client::{
    Class,
    people::UpdateProfile,
    users::{CreateUser, User as Remote},
};
use secrecy::SecretString;
use uuid::Uuid;

use super::{
    ACTIVE, DEFAULT, DORMANT, Desired, Observed, SUSPENDED, is_suspended, owns_workspaces, protection,
    provider, roles_of,
};
use crate::{
    coder::Coder,
    pipeline::{
        diff::Diff,
        outcome::Trouble,
        plan::{Action, Change, Impact, Plan, Step},
    },
};

/// What is written. Organizations are found by name when it is: one of them may have come or gone since the plan.
#[derive(Debug)]
pub enum Effect {
    Create {
        username: String,
        email: Option<String>,
        login_type: Option<LoginType>,
        service_account: bool,
        password: Option<SecretString>,
        organizations: BTreeSet<String>,
        /// `None` for the one that Coder gives.
        status: Option<&'static str>,
    },
    /// The roles of an account that this plan creates.
    Give {
        username: String,
        roles: BTreeSet<String>,
    },
    Rename {
        user: Remote,
        username: String,
    },
    SetRoles {
        user: Remote,
        roles: BTreeSet<String>,
    },
    Move {
        user: Remote,
        join: BTreeSet<String>,
        leave: BTreeSet<String>,
    },
    Suspend(Remote),
    Activate(Remote),
    Delete(Remote),
}

/// The steps that make an account. Roles are a step of their own: an account that is there without them is ours all the same, and
/// Coder answers a role that it does not know only there with more than a failure.
pub(super) fn creation(desired: &Desired, observed: &Observed) -> Plan<Effect> {
    let mut diff = Diff::default();
    diff.declare("username", Some(&desired.username));
    diff.declare("email", desired.email.as_ref());
    diff.declare("loginType", desired.login_type.map(LoginType::as_str).as_ref());
    diff.declare("serviceAccount", desired.service_account.as_ref());
    diff.declare("organizations", observed.declared.as_ref());
    diff.declare("suspended", desired.suspended.as_ref());
    let organizations = observed.declared.clone().unwrap_or_else(|| BTreeSet::from([DEFAULT.to_owned()]));
    let create = Step {
        action: Action::Create,
        impact: Impact::Safe,
        reason: "the user does not exist".to_owned(),
        changes: diff.changes,
        effect: Effect::Create {
            username: desired.username.clone(),
            email: desired.email.clone(),
            login_type: desired.login_type,
            service_account: desired.service_account == Some(true),
            password: observed.password.clone(),
            organizations,
            status: first_status(desired),
        },
    };
    let give = desired.roles.clone().filter(|it| !it.is_empty()).map(|roles| Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: "a new user has no roles".to_owned(),
        changes: vec![Change::new("roles", Vec::<String>::new(), roles.iter().cloned().collect::<Vec<_>>())],
        effect: Effect::Give { username: desired.username.clone(), roles },
    });
    Plan { steps: [create].into_iter().chain(give).collect() }
}

/// The status of a new account. `None` for one that becomes active when it first signs in, which a service account never does.
fn first_status(desired: &Desired) -> Option<&'static str> {
    match (desired.suspended, desired.service_account) {
        (Some(true), _) => Some(SUSPENDED),
        (Some(false), Some(true)) => Some(ACTIVE),
        _ => None,
    }
}

/// Whether Coder has set a service account to dormant, because it does not sign in.
fn is_dormant_service(user: &Remote) -> bool {
    user.is_service_account && user.status == DORMANT
}

/// The steps that change an account. An owner loses the role before the suspension, which Coder refuses for owners.
pub(super) fn changes(desired: &Desired, observed: &Observed, found: &Remote) -> Plan<Effect> {
    let mut steps = Vec::new();
    let mut step = |diff: Diff, impact: Impact, reason: &str, effect: Effect| {
        let (action, reason) = (Action::Update, reason.to_owned());
        steps.push(Step { action, impact, reason, changes: diff.changes, effect });
    };
    let mut diff = Diff::default();
    if let Some(username) = diff.pick("username", Some(&desired.username), &found.username) {
        step(
            diff,
            Impact::Disruptive,
            "the user has another name",
            Effect::Rename { user: found.clone(), username },
        );
    }
    let (mut diff, had) = (Diff::default(), roles_of(found));
    if let Some(roles) =
        diff.pick("roles", desired.roles.as_ref().filter(|_| observed.provider.is_none()), &had)
    {
        let impact = if had.is_subset(&roles) { Impact::Safe } else { Impact::Disruptive };
        step(diff, impact, "the user has other roles", Effect::SetRoles { user: found.clone(), roles });
    }
    let (mut diff, is_in) = (Diff::default(), &observed.memberships);
    if let Some(declared) = diff.pick("organizations", observed.declared.as_ref(), is_in) {
        let join: BTreeSet<String> = declared.difference(is_in).cloned().collect();
        let leave: BTreeSet<String> = is_in.difference(&declared).cloned().collect();
        let impact = if leave.is_empty() { Impact::Safe } else { Impact::Disruptive };
        let effect = Effect::Move { user: found.clone(), join, leave };
        step(diff, impact, "the user is a member of other organizations", effect);
    }
    let mut diff = Diff::default();
    match diff.pick("suspended", desired.suspended.as_ref(), &is_suspended(found)) {
        Some(true) => {
            step(diff, Impact::Disruptive, "the user is not suspended", Effect::Suspend(found.clone()));
        }
        Some(false) => step(diff, Impact::Safe, "the user is suspended", Effect::Activate(found.clone())),
        None if desired.suspended == Some(false) && is_dormant_service(found) => {
            let diff = Diff { changes: vec![Change::new("suspended", DORMANT, false)] };
            step(diff, Impact::Safe, "the service account is dormant", Effect::Activate(found.clone()));
        }
        None => {}
    }
    Plan { steps }
}

/// Does one step.
pub(super) async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
    let client = coder.client();
    match effect {
        Effect::Create { .. } => return create(effect, coder).await.map(Some),
        Effect::Give { username, roles } => {
            let users = coder.users().await?;
            let user = users.iter().find(|it| it.username.eq_ignore_ascii_case(username));
            let user = user.ok_or(Trouble::Stale)?;
            let roles: Vec<String> = roles.iter().cloned().collect();
            let answer = client.update_user_roles(user.id, &roles).await;
            noted(answer.map_err(provider::refusal), coder).await?;
        }
        Effect::Rename { user, username } => {
            check(user, |it| it.username.clone(), coder).await?;
            let (name, avatar_url) = (user.name.clone(), user.avatar_url.clone());
            let wanted = UpdateProfile { username: username.clone(), name, avatar_url };
            let answer = client.update_profile(user.id, &wanted).await;
            noted(answer.map_err(Trouble::from), coder).await?;
        }
        Effect::SetRoles { user, roles } => {
            let wanted: Vec<String> = roles.iter().cloned().collect();
            // Two manifests must not take the role from each other's last owner.
            let _turn = coder.owners_turn().await;
            check(user, roles_of, coder).await?;
            protect(user, user.has_role(protection::OWNER) && !roles.contains(protection::OWNER), coder)
                .await?;
            let answer = client.update_user_roles(user.id, &wanted).await;
            noted(answer.map_err(provider::refusal), coder).await?;
        }
        Effect::Move { user, join, leave } => {
            check(user, organizations_of, coder).await?;
            move_to(user, join, leave, coder).await?;
        }
        Effect::Suspend(user) => {
            check(user, is_suspended, coder).await?;
            noted(client.suspend_user(user.id).await.map_err(Trouble::from), coder).await?;
        }
        Effect::Activate(user) => {
            check(user, |it| it.status.clone(), coder).await?;
            noted(client.activate_user(user.id).await.map_err(Trouble::from), coder).await?;
        }
        Effect::Delete(user) => {
            let _turn = coder.owners_turn().await;
            check(user, |it| (it.username.clone(), roles_of(it)), coder).await?;
            protect(user, user.has_role(protection::OWNER), coder).await?;
            match client.delete_user(user.id).await {
                // 417: the user owns workspaces that the account may not see.
                Err(error) if error.class() == Class::Conflict => {
                    return Err(owns_workspaces(&user.username, &[]).into());
                }
                Err(error) if error.class() != Class::Missing => {
                    coder.forget_users().await;
                    return Err(error.into());
                }
                // Missing: another client deleted the user first.
                Ok(()) | Err(_) => coder.note_user_gone(user).await,
            }
        }
    }
    Ok(None)
}

/// Checks on a fresh list that the deployment keeps an owner.
async fn protect(user: &Remote, ends_ownership: bool, coder: &Coder) -> Result<(), Trouble> {
    if !ends_ownership {
        return Ok(());
    }
    let users = coder.anew().users().await?;
    let own = coder.own_account().await?;
    match protection::refusal(protection::Harm::deletion(), user, &users, own.id) {
        Some(refusal) => Err(refusal.into()),
        None => Ok(()),
    }
}

async fn create(effect: &Effect, coder: &Coder) -> Result<Uuid, Trouble> {
    let Effect::Create { username, email, login_type, service_account, password, organizations, status } =
        effect
    else {
        return Err(Trouble::Stale);
    };
    let mut organization_ids = Vec::new();
    for name in organizations {
        organization_ids.push(coder.organization_id(name).await?);
    }
    let wanted = CreateUser {
        username: username.clone(),
        name: String::new(),
        email: email.clone().unwrap_or_default(),
        password: password.clone(),
        login_type: login_type.filter(|_| !service_account).map(|it| it.as_str().to_owned()),
        service_account: *service_account,
        user_status: status.map(str::to_owned),
        organization_ids,
        roles: Vec::new(),
    };
    match coder.client().create_user(&wanted).await {
        // Names and addresses are unique: the list that showed none is out of date.
        Err(error) if error.class() == Class::Conflict => {
            coder.forget_users().await;
            Err(Trouble::Stale)
        }
        created => Ok(noted(created.map_err(Trouble::from), coder).await?.id),
    }
}

async fn move_to(
    user: &Remote,
    join: &BTreeSet<String>,
    leave: &BTreeSet<String>,
    coder: &Coder,
) -> Result<(), Trouble> {
    let client = coder.client();
    let mut now = user.clone();
    for name in join {
        let home = coder.organization_id(name).await?;
        let added = client.add_member(home, user.id).await;
        if let Err(error) = added {
            coder.forget_users().await;
            return Err(provider::refusal(error));
        }
        now.organization_ids.push(home);
    }
    for name in leave {
        let home = coder.organization_id(name).await?;
        match client.remove_member(home, user.id).await {
            Err(error) if error.class() != Class::Missing => {
                coder.forget_users().await;
                return Err(error.into());
            }
            Ok(()) | Err(_) => now.organization_ids.retain(|it| *it != home),
        }
    }
    coder.note_user(&now).await;
    Ok(())
}

/// Enters the answer to a write into the shared lists. After a write without an answer they are read again.
async fn noted(answer: Result<Remote, Trouble>, coder: &Coder) -> Result<Remote, Trouble> {
    match &answer {
        Ok(user) => coder.note_user(user).await,
        Err(_) => coder.forget_users().await,
    }
    answer
}

/// Reads an account again before it is changed: what the step rests on must be as it was read.
async fn check<T: PartialEq>(
    planned: &Remote,
    facet: impl Fn(&Remote) -> T + Send,
    coder: &Coder,
) -> Result<(), Trouble> {
    let now = coder.client().living_user(planned.id).await?;
    if now.is_some_and(|it| facet(&it) == facet(planned)) { Ok(()) } else { Err(Trouble::Stale) }
}

fn organizations_of(user: &Remote) -> BTreeSet<Uuid> {
    user.organization_ids.iter().copied().collect()
}
