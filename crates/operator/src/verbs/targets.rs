//! The deployments of one command, each with the manifests that go to it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{CoderControlPlane, annotation, reason};
use client::{Class, Client};
use engine::{
    Credentials, Endpoint, Waiting, World, endpoint::endpoint, lookup::Lookup as _, world::Promises,
};
use kube::ResourceExt as _;
use secrecy::SecretString;
use serde::Serialize;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::{
    deployment::reach,
    exit::{Exit, Failure},
    lookup::Sources,
    manifests::{Named, Placed},
    terminal::say,
};

/// How long signing out may take. A session that is left ends by itself, a day later.
const SIGN_OUT: Duration = Duration::from_secs(10);

/// A deployment, and the manifests that go to it in the order in which they are applied.
pub(super) struct Target {
    pub(super) plane: Plane,
    pub(super) world: World,
    pub(super) subjects: Vec<Placed>,
}

/// How a deployment is called in a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Plane {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// The control plane's name; nothing where the deployment was named on the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) url: String,
}

/// Why there is no way to a deployment.
pub(super) struct Unopened {
    pub(super) failure: Failure,
    /// Whether trying again may end in another way.
    pub(super) may_come: bool,
}

/// Sessions that were opened for this command, and that end with it.
#[derive(Default, Clone)]
pub(super) struct Sessions(Arc<Mutex<Vec<Client>>>);

impl Target {
    pub(super) fn new(plane: Plane, client: Client, expected: Option<Uuid>, subjects: Vec<Placed>) -> Self {
        let mut promises = Promises::default();
        for placed in &subjects {
            placed.subject.promise(&mut promises);
        }
        let world = World::new(client, promises);
        let world = match expected {
            Some(deployment) => world.expecting(deployment),
            None => world,
        };
        Self { plane, world, subjects }
    }
}

/// The control planes to which a way was found.
#[derive(Default)]
pub(super) struct Planes(BTreeMap<Named, Opened>);

impl Planes {
    /// Finds the control plane of every manifest, and a way to each of them; those that were found before are not looked
    /// for again. With one that cannot be had nothing is done at all.
    pub(super) async fn open(
        &mut self,
        subjects: &[Placed],
        sources: &Sources,
        sessions: &Sessions,
    ) -> Result<(), Unopened> {
        for placed in subjects {
            let named = placed.plane();
            if self.0.contains_key(&named) {
                continue;
            }
            let opened = open_plane(&named, sources, sessions).await.map_err(|unopened| {
                let Unopened { failure: Failure { error, exit }, may_come } = unopened;
                // The first manifest that needs it is where a person has to look.
                let error = anyhow::anyhow!("{}: {error:#}", placed.place);
                Unopened { failure: Failure { error, exit }, may_come }
            })?;
            self.0.insert(named, opened);
        }
        Ok(())
    }

    /// Every manifest beside its deployment.
    pub(super) fn targets(self, subjects: Vec<Placed>) -> Vec<Target> {
        let mut sorted: BTreeMap<Named, Vec<Placed>> = BTreeMap::new();
        for placed in subjects {
            sorted.entry(placed.plane()).or_default().push(placed);
        }
        let targets = self.0.into_iter().map(|(named, Opened { plane, client, expected })| {
            Target::new(plane, client, expected, sorted.remove(&named).unwrap_or_default())
        });
        targets.collect()
    }
}

/// A control plane that can be talked to.
struct Opened {
    plane: Plane,
    client: Client,
    /// The deployment that has to answer, where that is known.
    expected: Option<Uuid>,
}

async fn open_plane(named: &Named, sources: &Sources, sessions: &Sessions) -> Result<Opened, Unopened> {
    let refused = |message: String, may_come: bool, exit: Exit| {
        let error = anyhow::anyhow!("CoderControlPlane {named}: {message}");
        Unopened { failure: Failure { error, exit }, may_come }
    };
    let plane = match sources.control_plane(&named.namespace, &named.name).await {
        Ok(Some(plane)) => plane,
        Ok(None) => {
            let message = "it is neither among the files nor in the cluster: add it, or give --url";
            return Err(refused(message.to_owned(), true, Exit::Waiting));
        }
        Err(unreadable) if sources.has_asked() => {
            return Err(refused(format!("it cannot be read: {}", unreadable.0), true, Exit::Failure));
        }
        Err(unreadable) => return Err(refused(format!("{}: give --url", unreadable.0), false, Exit::Usage)),
    };
    let endpoint = endpoint(&plane, sources).await.map_err(|Waiting { reason, message }| {
        // Who has not asked a cluster has only files, and nothing comes into those by waiting.
        let may_come = sources.has_asked() && reason != reason::INVALID;
        let exit = match reason {
            _ if !may_come => Exit::Usage,
            reason::SECRET_UNREADABLE => Exit::Failure,
            _ => Exit::Waiting,
        };
        let is_ours = plane.spec.external.is_none();
        let hint = if is_ours { ": give its address with --url" } else { "" };
        refused(message + hint, may_come, exit)
    })?;
    let expected = expected(&plane);
    let client = enter(&endpoint, expected, sessions)
        .await
        .map_err(|Refused { message, may_come, exit }| refused(message, may_come, exit))?;
    let view = Plane {
        namespace: Some(named.namespace.clone()).filter(|it| !it.is_empty()),
        name: Some(named.name.clone()),
        url: endpoint.url.to_string(),
    };
    Ok(Opened { plane: view, client, expected })
}

/// The deployment that a cluster knows under this name, or that a person accepts in its place.
fn expected(plane: &CoderControlPlane) -> Option<Uuid> {
    let known = plane.status.as_ref().and_then(|it| it.deployment_id.as_deref());
    let accepted = plane.annotations().get(annotation::ACCEPT_DEPLOYMENT).map(String::as_str);
    known.and(accepted).or(known).and_then(|it| it.parse().ok())
}

struct Refused {
    message: String,
    may_come: bool,
    exit: Exit,
}

/// A client with a token: the one that is there, or that of a session for this command.
async fn enter(endpoint: &Endpoint, expected: Option<Uuid>, sessions: &Sessions) -> Result<Client, Refused> {
    let invalid = |message: String| Refused { message, may_come: false, exit: Exit::Usage };
    match &endpoint.credentials {
        Credentials::Ours => Err(invalid(
            "a control plane that we run is reached from inside its cluster: give its address with --url"
                .to_owned(),
        )),
        Credentials::Token(token) => reach(endpoint, Some(token.clone())).map_err(invalid),
        Credentials::Account { email, password } => {
            let client = reach(endpoint, None).map_err(invalid)?;
            let remote = |error: client::Error| Refused {
                message: format!("sign in with the account of its Secret: {}", error.words()),
                may_come: matches!(error.class(), Class::Transient | Class::RateLimited),
                exit: Exit::Failure,
            };
            if let Some(expected) = expected {
                let found = client.build_info().await.map_err(remote)?.deployment_id;
                if found != expected {
                    let message = format!(
                        "another deployment answers, and nothing is sent to it: to accept it, annotate the \
                         control plane with {}: {found}",
                        annotation::ACCEPT_DEPLOYMENT
                    );
                    return Err(Refused { message, may_come: false, exit: Exit::Waiting });
                }
            }
            sessions.sign_in(client, email.clone(), password.clone()).await.map_err(remote)
        }
    }
}

impl Sessions {
    /// Signs in beside the command, so that a session whose answer is on its way when the command is interrupted is known
    /// all the same.
    async fn sign_in(
        &self,
        client: Client,
        email: String,
        password: SecretString,
    ) -> Result<Client, client::Error> {
        let mut sessions = Arc::clone(&self.0).lock_owned().await;
        let signing_in = tokio::spawn(async move {
            let token = client.login(&email, &password).await?;
            // A token that cannot be a token was never one: the next call says so.
            let client = client.with_token(token).unwrap_or(client);
            sessions.push(client.clone());
            Ok(client)
        });
        match signing_in.await {
            Ok(signed_in) => signed_in,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Ends every session. What cannot be ended is told.
    pub(super) async fn close(&self) {
        let mut sessions = self.0.lock().await;
        for client in sessions.drain(..) {
            let ended = tokio::time::timeout(SIGN_OUT, client.logout()).await;
            let why = match ended {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.words(),
                Err(_) => "no answer in time".to_owned(),
            };
            say(&format!(
                "the session at {} was not ended: {why}; it ends by itself within a day",
                client.url()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_deployment_to_expect_is_the_known_one_or_the_one_that_is_accepted_in_its_place() {
        let (known, accepted) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let plane = |status: serde_json::Value, annotations: serde_json::Value| {
            let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
                "metadata": {"name": "main", "annotations": annotations}, "spec": {}, "status": status});
            serde_json::from_value::<CoderControlPlane>(manifest).unwrap()
        };
        let accepts = json!({annotation::ACCEPT_DEPLOYMENT: accepted});
        assert_eq!(expected(&plane(json!({}), json!({}))), None);
        assert_eq!(expected(&plane(json!({}), accepts.clone())), None);
        assert_eq!(expected(&plane(json!({"deploymentID": known}), json!({}))), Some(known));
        assert_eq!(expected(&plane(json!({"deploymentID": known}), accepts)), Some(accepted));
    }
}
