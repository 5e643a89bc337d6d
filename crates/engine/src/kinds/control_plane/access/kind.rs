//! The operator's access to a deployment, planned like every other declared state: its own account in a managed control plane, or the
//! token of a supplied account.
//!
//! The plan has one step, and the [ladder](super::ladder) decides how that step is done for the own account. An account that is on record
//! has its token checked and renewed as upkeep, which needs no approval; a supplied account has nothing else. An account that is created or
//! deleted is a change of the deployment.

use std::sync::Arc;

use api::{CoderControlPlane, Reason};
use kube::ResourceExt as _;
use secrecy::SecretString;
use uuid::Uuid;

use super::acquire::{
    AccessContext, AccessRights, AccessStanding, Acquired, Due, account_standing, account_token, own_token,
    standing,
};
use crate::{
    coder::{Beside, Coder, endpoint::Credentials},
    kind::{Aside, Carried, Kind, Runner},
    kinds::control_plane::{
        self, account::Account, facts::PlaneContext, identity::ReachedDeployment, operator_token_secret,
        unlooked::unlooked,
    },
    pipeline::{
        decide::Contact,
        ledger::Ledger,
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Action, Change, Impact, Plan, Step},
        reference::Ref,
    },
};

const FIELD: &str = "operatorAccess";

/// The operator's own account in a managed control plane, with its token, or the token of a supplied account.
#[derive(Debug)]
pub struct OperatorAccess;

/// How the operator's access stands.
#[derive(Debug)]
pub struct ObservedAccess {
    manifest: Arc<CoderControlPlane>,
    /// The error is why the token Secret cannot be used.
    standing: Result<AccessStanding, Blocked>,
}

/// What a step is carried out with.
#[derive(Debug)]
pub struct AccessEffect {
    manifest: Arc<CoderControlPlane>,
    due: Due,
}

impl ObservedAccess {
    /// The token that is in use. `None` until one was acquired, and where access is disabled.
    pub fn token(&self) -> Option<&SecretString> {
        self.standing.as_ref().ok()?.token.as_ref()
    }
}

impl Kind for OperatorAccess {
    type Manifest = CoderControlPlane;
    type Desired = CoderControlPlane;
    type Observed = ObservedAccess;
    type Effect = AccessEffect;

    /// Before everything that the deployment is asked for.
    const RANK: u8 = 0;
    const SHOWS_ID: bool = false;
    const IS_GATED: bool = false;
    const HAS_RECORDS: bool = true;
    const LOOKS_AGAIN: bool = true;
    const RUNNER: Runner = Runner::Controller;

    fn target(plane: &CoderControlPlane) -> String {
        format!("operator access to control plane {}", plane.name_any())
    }

    fn desire(plane: &CoderControlPlane) -> Result<CoderControlPlane, Invalid> {
        Ok(plane.clone())
    }

    /// Whom to trust, and what tokens are acquired with and kept in.
    fn refs(plane: &CoderControlPlane) -> Vec<Ref> {
        let spec = &plane.spec;
        let external = spec.external.iter().flat_map(|it| {
            let authority = it.ca_secret_ref.iter().map(|it| it.name.as_str());
            authority.chain([it.credentials_secret_ref.name.as_str()])
        });
        let given = spec.operator_access.iter().flat_map(|it| {
            let given = [&it.first_user_secret_ref, &it.admin_credentials_secret_ref];
            given.into_iter().flatten().map(|it| it.name.as_str())
        });
        let names = external.chain(given).map(str::to_owned).chain([operator_token_secret(plane)]);
        names.map(Ref::Secret).collect()
    }

    fn ledger(plane: &CoderControlPlane) -> Ledger {
        control_plane::ledger(plane)
    }

    async fn observe(
        plane: &CoderControlPlane,
        _held: Option<Uuid>,
        coder: &Coder,
    ) -> Result<ObservedAccess, Trouble> {
        let reached = ReachedDeployment { client: coder.client(), deployment: coder.identified().await? };
        let context = context(coder.needed_cluster()?);
        let standing = match supplied(coder) {
            Some(account) => account_standing(plane, reached, &account, &context).await,
            None => standing(plane, reached, &context).await,
        };
        Ok(ObservedAccess { manifest: Arc::new(plane.clone()), standing })
    }

    fn waits(observed: &ObservedAccess) -> Option<Outcome> {
        observed.standing.as_ref().err().cloned().map(Outcome::Blocked)
    }

    fn is_default(_: &ObservedAccess) -> bool {
        false
    }

    fn contact(_: &ObservedAccess, _held: Option<Uuid>) -> Contact {
        // An account of that name that another client created is refused by the ladder.
        Contact::Held
    }

    fn id(_: &ObservedAccess) -> Option<Uuid> {
        None
    }

    fn plan(_: &CoderControlPlane, observed: &ObservedAccess) -> Plan<AccessEffect> {
        let due = observed.standing.as_ref().ok().and_then(|it| it.due);
        let effect = |due| AccessEffect { manifest: Arc::clone(&observed.manifest), due };
        due.map_or_else(Plan::empty, |due| Plan::of(step(due, effect(due))))
    }

    /// Empty: the ledger names the account and its tokens.
    fn plan_deletion(_: &ObservedAccess) -> Plan<AccessEffect> {
        Plan::empty()
    }

    async fn apply(effect: &AccessEffect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        acquire(effect, coder).await.map(|_| None)
    }

    async fn carry_out(steps: &[&Step<AccessEffect>], coder: &Coder) -> Carried {
        let Some(step) = steps.first() else { return Carried::default() };
        match acquire(&step.effect, coder).await {
            Ok(acquired) => {
                Carried { done: 1, retry: acquired.warning.map(Trouble::Blocked), ..Carried::default() }
            }
            Err(trouble) => {
                let failed = Outcome::from(trouble);
                let is_removed = step.effect.due == Due::Removal && failed.reason() == Reason::AccessDisabled;
                Carried { done: usize::from(is_removed), failed: Some(failed), ..Carried::default() }
            }
        }
    }

    fn conclude(
        plane: &CoderControlPlane,
        aside: Option<Aside>,
        _: Option<&'static str>,
        outcome: &Outcome,
    ) -> Aside {
        aside.unwrap_or_else(|| unlooked(plane, outcome))
    }
}

/// What is done about the operator's access. Two steps of one manifest never differ by anything that a retry changes, so that an
/// approval holds until the account is there.
fn step(due: Due, effect: AccessEffect) -> Step<AccessEffect> {
    let account = "an account of the operator with the role owner, and its token";
    let (action, impact, reason, changes) = match due {
        Due::Account { former } => (
            Action::Create,
            Impact::Safe,
            "the operator has no account in the deployment",
            // The approval of the first account is none of another one.
            vec![Change::new(FIELD, former.map(|it| format!("account {it}, which is gone")), account)],
        ),
        Due::Removal => (
            Action::Delete,
            Impact::Disruptive,
            "operatorAccess.disabled is true",
            vec![Change::new(FIELD, account, ())],
        ),
        Due::Token => (Action::Update, Impact::Upkeep, "the operator's token is checked and renewed", vec![]),
        Due::Disabled => (Action::Update, Impact::Upkeep, "operatorAccess.disabled is true", vec![]),
    };
    Step { action, impact, reason: reason.to_owned(), changes, effect }
}

/// Does what is due. The error is also that access is disabled, once nothing of it is left.
async fn acquire(effect: &AccessEffect, coder: &Coder) -> Result<Acquired, Trouble> {
    let reached = ReachedDeployment { client: coder.client(), deployment: coder.identified().await? };
    let context = context(coder.needed_cluster()?);
    if let Some(account) = supplied(coder) {
        return Ok(Box::pin(account_token(&effect.manifest, reached, &account, &context)).await?);
    }
    let create = matches!(effect.due, Due::Account { .. }) || AccessRights::of(&effect.manifest).create;
    let rights = AccessRights { create, remove: true };
    Ok(Box::pin(own_token(&effect.manifest, reached, rights, &context)).await?)
}

/// The account whose e-mail and password a Secret holds. `None` for a managed control plane.
fn supplied(coder: &Coder) -> Option<Account> {
    match coder.credentials()? {
        Credentials::Account { email, password } => {
            Some(Account { email: email.clone(), password: password.clone() })
        }
        Credentials::Token(_) | Credentials::Ours => None,
    }
}

fn context(beside: &Beside) -> AccessContext<'_> {
    let objects = PlaneContext {
        cluster: &*beside.cluster,
        allowed_rules: beside.allowed_rules.as_deref().unwrap_or_default(),
        fingerprints: beside.fingerprints.as_deref(),
    };
    AccessContext { objects, tokens: &beside.tokens }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(due: Option<Due>) -> Plan<AccessEffect> {
        let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main"}, "spec": {}});
        let manifest: Arc<CoderControlPlane> = Arc::new(serde_json::from_value(plane).unwrap());
        let standing = Ok(AccessStanding { token: None, due });
        OperatorAccess::plan(&manifest, &ObservedAccess { manifest: Arc::clone(&manifest), standing })
    }

    #[test]
    fn only_an_account_that_comes_or_goes_needs_an_approval() {
        let impact = |due| plan(due).view("main").impact();
        let account = |former| Some(Due::Account { former });
        assert_eq!(impact(account(None)), Some(Impact::Safe));
        let hash = |due| plan(due).view("main").hash;
        assert_ne!(hash(account(None)), hash(account(Some(Uuid::nil()))));
        assert_eq!(impact(Some(Due::Removal)), Some(Impact::Disruptive));
        for due in [Due::Token, Due::Disabled] {
            assert_eq!(impact(Some(due)), None, "{due:?}");
            assert!(!plan(Some(due)).is_empty(), "{due:?}");
        }
        assert!(plan(None).is_empty());
    }
}
