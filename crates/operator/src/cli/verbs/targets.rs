//! The deployments of one command, each with its manifests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{CoderControlPlane, Reason, annotation};
use client::{AddressPolicy, Class, Client, Downloads};
use engine::{
    Blocked, Cluster, Coder, Credentials, Endpoint, Reference,
    coder::{
        Beside, Promises,
        endpoint::{endpoint, place},
    },
    kinds::control_plane::access::OperatorToken,
    objects::Key,
    ports::Reading,
    secrets::referenced::Unreadable,
};
use kube::ResourceExt as _;
use secrecy::SecretString;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::{
    cli::{
        deployment::DeploymentRef,
        exit::{Exit, Failure},
        file_cluster::FileCluster,
        manifests::{Named, Placed},
        terminal::say,
    },
    connect::reach,
};

/// How long a call waits for the rate limiter: a command has nothing else to do, and no window is longer than a minute.
pub(super) const RATE_LIMIT_WAIT: Duration = Duration::from_mins(2);
/// Why a managed control plane cannot be reached.
const NOT_HERE: &str =
    "a control plane that the operator runs is reached only inside its cluster: give its address with --url";
/// How long signing out may take. A session that is left behind expires within a day.
const SIGN_OUT: Duration = Duration::from_secs(10);

/// A deployment and its manifests, in the order of their application.
pub(super) struct Target {
    pub(super) deployment: DeploymentRef,
    pub(super) coder: Coder,
    pub(super) subjects: Vec<Placed>,
    /// The host name that has to be typed before the deployment is changed; `None` where its address was named.
    pub(super) host: Option<String>,
}

/// Why a deployment cannot be used.
pub(super) struct Unopened {
    pub(super) failure: Failure,
    /// Whether trying again may succeed.
    pub(super) may_come: bool,
}

/// Sessions that were opened for this command and end with it.
#[derive(Default, Clone)]
pub(super) struct Sessions(Arc<Mutex<Vec<Client>>>);

impl Target {
    /// Identifies the deployment. From then on only that deployment is used: its id is the one that plans and questions name.
    pub(super) async fn open(
        mut deployment: DeploymentRef,
        client: Client,
        expected: Option<Uuid>,
        subjects: Vec<Placed>,
    ) -> Self {
        deployment.identify(&client).await;
        let mut promises = Promises::default();
        for placed in &subjects {
            placed.subject.promise(&mut promises);
        }
        let coder = Coder::new(client.waiting_up_to(RATE_LIMIT_WAIT), promises);
        let coder = match expected.or_else(|| deployment.id()) {
            Some(id) => coder.expecting(id),
            None => coder,
        };
        Self { deployment, coder, subjects, host: None }
    }
}

impl Target {
    /// Puts manifests that need a cluster beside it, and returns where that is. `None` where there are
    /// none, and where there is no cluster: then their plans say so. Secrets that manifests refer to are read from `--secret`,
    /// then from the files, then from the cluster.
    pub(super) async fn settle(&mut self, files: &Arc<FileCluster>) -> Result<Option<String>, Failure> {
        self.coder = self.coder.clone().reading(Arc::clone(files) as _).reading_directories();
        if let Ok(downloads) = Downloads::new(AddressPolicy::Any) {
            self.coder = self.coder.clone().downloading(downloads);
        }
        if !self.subjects.iter().any(|it| it.subject.needs_cluster()) {
            return Ok(None);
        }
        let Ok(cluster) = files.cluster().await else { return Ok(None) };
        for placed in self.subjects.iter_mut().filter(|it| it.subject.needs_cluster()) {
            let Reference { kind, namespace, name } = placed.subject.reference();
            let default = cluster.default_namespace();
            let version = format!("{}/{}", api::GROUP, api::VERSION);
            let key = Key::new(&version, &kind, namespace.as_deref().unwrap_or(default), &name);
            // A cluster that does not know the kind has no such object.
            let stored = match cluster.get(&key, Reading::Now).await {
                Err(error) if error.is_missing() => None,
                found => found.map_err(|error| {
                    let message = format!("{}: cannot read {key} in the cluster: {error}", placed.place);
                    Failure { error: anyhow::anyhow!(message), exit: Exit::Failure }
                })?,
            };
            if stored.as_ref().is_some_and(|it| it.metadata().deletion_timestamp.is_some()) {
                let message =
                    format!("{}: {key} is being deleted in the cluster: wait until it is gone", placed.place);
                return Err(Failure { error: anyhow::anyhow!(message), exit: Exit::Blocked });
            }
            placed.subject.settle_in(default, stored.as_ref());
        }
        let beside = Beside {
            cluster: Arc::clone(cluster) as _,
            references: Arc::clone(files) as _,
            memory: Arc::default(),
            writes_status: false,
            fingerprints: None,
            allowed_rules: None,
            tokens: Arc::default(),
        };
        self.coder = self.coder.clone().beside(beside);
        Ok(Some("Secrets are read and written in the cluster of the current Kubernetes context".to_owned()))
    }
}

/// The control planes that can be used.
#[derive(Default)]
pub(super) struct Planes(BTreeMap<Named, OpenPlane>);

impl Planes {
    /// Finds the control plane of every manifest and a client for each; those found before are kept. Fails with the first
    /// that cannot be used by a manifest that needs the deployment.
    pub(super) async fn open(
        &mut self,
        subjects: &[Placed],
        files: &FileCluster,
        sessions: &Sessions,
    ) -> Result<(), Unopened> {
        let needing = |needs: bool| subjects.iter().filter(move |it| it.subject.needs_deployment() == needs);
        for placed in needing(true).chain(needing(false)) {
            let named = placed.plane();
            if self.0.contains_key(&named) {
                continue;
            }
            let opened = match open_plane(&named, files, sessions).await {
                Err(_) if !placed.subject.needs_deployment() => open_without_access(&named, files).await,
                opened => opened,
            };
            let opened = opened.map_err(|unopened| {
                let Unopened { failure: Failure { error, exit }, may_come } = unopened;
                // The first manifest that refers to it is the place to look at.
                let error = anyhow::anyhow!("{}: {error:#}", placed.place);
                Unopened { failure: Failure { error, exit }, may_come }
            })?;
            self.0.insert(named, opened);
        }
        Ok(())
    }

    /// Every manifest beside its deployment.
    pub(super) async fn targets(self, subjects: Vec<Placed>) -> Vec<Target> {
        let mut sorted: BTreeMap<Named, Vec<Placed>> = BTreeMap::new();
        for placed in subjects {
            sorted.entry(placed.plane()).or_default().push(placed);
        }
        let mut targets = Vec::new();
        for (named, OpenPlane { deployment, client, expected }) in self.0 {
            let subjects = sorted.remove(&named).unwrap_or_default();
            targets.push(Target::open(deployment, client, expected, subjects).await);
        }
        targets
    }
}

/// A control plane with a client.
struct OpenPlane {
    deployment: DeploymentRef,
    client: Client,
    /// The id of the deployment that has to answer, where that is known.
    expected: Option<Uuid>,
}

fn refused(named: &Named, Refused { message, may_come, exit }: Refused) -> Unopened {
    let error = anyhow::anyhow!("CoderControlPlane {named}: {message}");
    Unopened { failure: Failure { error, exit }, may_come }
}

/// The manifest of a control plane, from the files or the cluster.
async fn find_plane(named: &Named, files: &FileCluster) -> Result<CoderControlPlane, Unopened> {
    let refused = |message: String, may_come, exit| refused(named, Refused { message, may_come, exit });
    let plane = match (files as &dyn Cluster).read(&named.namespace, &named.name, Reading::Now).await {
        Ok(Some(plane)) => plane,
        Ok(None) => {
            let message = "it is neither in the files nor in the cluster: add it, or give --url";
            return Err(refused(message.to_owned(), true, Exit::Blocked));
        }
        Err(error) if files.has_asked() => {
            let unreadable = Unreadable::from(error);
            return Err(refused(format!("it cannot be read: {}", unreadable.words()), true, Exit::Failure));
        }
        Err(error) => {
            let unreadable = Unreadable::from(error);
            return Err(refused(format!("{}: give --url", unreadable.words()), false, Exit::Usage));
        }
    };
    Ok(placed(plane, files).await)
}

/// A control plane whose manifests need no deployment: with a client that has no credentials.
async fn open_without_access(named: &Named, files: &FileCluster) -> Result<OpenPlane, Unopened> {
    let invalid = |message| refused(named, Refused { message, may_come: false, exit: Exit::Usage });
    let plane = find_plane(named, files).await?;
    let endpoint = place(&plane, files).await.map_err(|blocked| invalid(blocked.message))?;
    let client = reach(&endpoint, None, AddressPolicy::Any).map_err(invalid)?;
    let deployment = DeploymentRef::declared(named, &endpoint.url);
    Ok(OpenPlane { deployment, client, expected: expected(&plane) })
}

async fn open_plane(named: &Named, files: &FileCluster, sessions: &Sessions) -> Result<OpenPlane, Unopened> {
    let plane = find_plane(named, files).await?;
    let endpoint = endpoint(&plane, files).await.map_err(|Blocked { reason, message }| {
        // Files do not change while the command waits; a cluster does.
        let may_come = files.has_asked() && ![Reason::Invalid, Reason::SecretNotAllowed].contains(&reason);
        let exit = match reason {
            _ if !may_come => Exit::Usage,
            Reason::SecretUnreadable => Exit::Failure,
            _ => Exit::Blocked,
        };
        let is_managed = plane.spec.external.is_none();
        let hint = if is_managed { ": give its address with --url" } else { "" };
        refused(named, Refused { message: message + hint, may_come, exit })
    })?;
    let expected = expected(&plane);
    let client = match &endpoint.credentials {
        Credentials::Ours => enter_managed(&plane, &endpoint, files).await,
        _ => enter(&endpoint, expected, sessions).await,
    };
    let client = client.map_err(|it| refused(named, it))?;
    Ok(OpenPlane { deployment: DeploymentRef::declared(named, &endpoint.url), client, expected })
}

/// A managed control plane with the namespace of the Kubernetes context, where its manifest names none: the name of its Service
/// has the namespace in it.
async fn placed(mut plane: CoderControlPlane, files: &FileCluster) -> CoderControlPlane {
    let has_none = plane.namespace().is_none_or(|it| it.is_empty());
    if plane.spec.external.is_none()
        && has_none
        && let Ok(cluster) = files.cluster().await
    {
        plane.metadata.namespace = Some(cluster.default_namespace().to_owned());
    }
    plane
}

/// The deployment id in the status of a control plane, or the one that was accepted in its place.
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

/// A client with the declared token, or with that of a session for this command.
async fn enter(endpoint: &Endpoint, expected: Option<Uuid>, sessions: &Sessions) -> Result<Client, Refused> {
    let invalid = |message: String| Refused { message, may_come: false, exit: Exit::Usage };
    match &endpoint.credentials {
        Credentials::Ours => Err(invalid(NOT_HERE.to_owned())),
        // A person's own command line connects wherever that person says.
        Credentials::Token(token) => {
            reach(endpoint, Some(token.clone()), AddressPolicy::Any).map_err(invalid)
        }
        Credentials::Account { email, password } => {
            let client = reach(endpoint, None, AddressPolicy::Any).map_err(invalid)?;
            let remote = |error: client::Error| Refused {
                message: format!("sign in with the account of its Secret: {}", error.words()),
                may_come: matches!(error.class(), Class::Transient | Class::RateLimited),
                exit: Exit::Failure,
            };
            if let Some(expected) = expected {
                let found = client.build_info().await.map_err(remote)?.deployment_id;
                if found != expected {
                    let message = format!(
                        "another deployment answers, and no credentials were sent to it: to accept it, annotate the \
                         control plane with {}: {found}",
                        annotation::ACCEPT_DEPLOYMENT
                    );
                    return Err(Refused { message, may_come: false, exit: Exit::Blocked });
                }
            }
            sessions.sign_in(client, email.clone(), password.clone()).await.map_err(remote)
        }
    }
}

/// A client of a control plane that the operator runs, with the operator's own token. It is sent to no other deployment than
/// the one that it was minted for.
async fn enter_managed(
    plane: &CoderControlPlane,
    endpoint: &Endpoint,
    files: &FileCluster,
) -> Result<Client, Refused> {
    let refused = |message: String, exit: Exit| Refused { message, may_come: exit == Exit::Blocked, exit };
    let Ok(cluster) = files.cluster().await else {
        return Err(refused(NOT_HERE.to_owned(), Exit::Usage));
    };
    let namespace = plane.namespace().filter(|it| !it.is_empty());
    let namespace = namespace.unwrap_or_else(|| cluster.default_namespace().to_owned());
    let held = OperatorToken::read(plane, &namespace, &**cluster).await;
    let held = held.map_err(|blocked| refused(blocked.message, Exit::Blocked))?;
    let anonymous = reach(endpoint, None, AddressPolicy::Any).map_err(|it| refused(it, Exit::Usage))?;
    let remote = |error: client::Error| refused(error.words(), Exit::Blocked);
    let found = anonymous.build_info().await.map_err(remote)?.deployment_id;
    if found != held.deployment {
        let message =
            format!("another deployment answers ({found}), and the operator's token was not sent to it");
        return Err(Refused { message, may_come: false, exit: Exit::Blocked });
    }
    anonymous.with_token(held.token).map_err(|error| refused(error.to_string(), Exit::Failure))
}

impl Sessions {
    /// Signs in as a task of its own, so that the session is known even if the command is interrupted before the answer.
    async fn sign_in(
        &self,
        client: Client,
        email: String,
        password: SecretString,
    ) -> Result<Client, client::Error> {
        let mut sessions = Arc::clone(&self.0).lock_owned().await;
        let signing_in = tokio::spawn(async move {
            let token = client.login(&email, &password).await?;
            // The next call reports a token that is no token.
            let client = client.with_token(token).unwrap_or(client);
            sessions.push(client.clone());
            Ok(client)
        });
        match signing_in.await {
            Ok(signed_in) => signed_in,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Ends every session, and reports those that could not be ended.
    pub(super) async fn close(&self) {
        let mut sessions = self.0.lock().await;
        for client in sessions.drain(..) {
            let ended = tokio::time::timeout(SIGN_OUT, client.logout()).await;
            let why = match ended {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.words(),
                Err(_) => "no answer in time".to_owned(),
            };
            say(&format!("the session at {} was not ended: {why}; it expires within a day", client.url()));
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::{Assessment, Door, Subject};
    use futures::future::{BoxFuture, pending};
    use serde_json::json;
    use tokio::sync::OnceCell;

    use super::*;
    use crate::cli::manifests::Place;

    /// A manifest of the control plane `main`, which only its need of a deployment is asked of.
    struct Declared {
        needs_deployment: bool,
    }

    impl Subject for Declared {
        fn reference(&self) -> Reference {
            let (kind, namespace) = ("CoderControlPlane".to_owned(), Some("platform".to_owned()));
            Reference { kind, namespace, name: "main".to_owned() }
        }

        fn target(&self) -> String {
            "objects".to_owned()
        }

        fn control_plane(&self) -> &'static str {
            "main"
        }

        fn rank(&self) -> u8 {
            0
        }

        fn is_suspended(&self) -> bool {
            false
        }

        fn needs_cluster(&self) -> bool {
            true
        }

        fn needs_deployment(&self) -> bool {
            self.needs_deployment
        }

        fn assess<'a>(&'a mut self, _: &'a Coder, _: Door) -> BoxFuture<'a, Assessment> {
            Box::pin(pending())
        }
    }

    #[tokio::test]
    async fn control_plane_without_access_is_open_to_manifests_that_need_no_deployment() {
        let managed = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main", "namespace": "platform"}, "spec": {}});
        let planes =
            BTreeMap::from([(Named::new("platform", "main"), serde_json::from_value(managed).unwrap())]);
        let cluster = OnceCell::new_with(Some(Err("nowhere".to_owned())));
        let files = FileCluster { planes, cluster, ..FileCluster::default() };
        let subject = |needs_deployment: bool| Placed {
            subject: Box::new(Declared { needs_deployment }),
            place: Place::default(),
        };
        let open = async |subjects: &[Placed]| {
            let mut planes = Planes::default();
            planes.open(subjects, &files, &Sessions::default()).await.map(|()| planes.0.len())
        };
        assert_eq!(open(&[subject(false)]).await.ok(), Some(1));
        for refused in [&[subject(true)][..], &[subject(false), subject(true)]] {
            let Err(unopened) = open(refused).await else { panic!("the deployment has no credentials") };
            assert!(unopened.failure.error.to_string().contains(NOT_HERE), "{:#}", unopened.failure.error);
        }
    }

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
