//! The Job that makes our account, in the cluster: looked at, started, taken away.
//!
//! The Secret that it reads is written first and goes last, so that after a crash whoever comes next finds the password of an
//! account that may have been made, or the name of one that was about to be.

use api::{CoderControlPlane, Reason};
use engine::{
    Blocked, Lookup as _,
    control_plane::{
        access::{
            self,
            job::{Progress, progress, without_secrets},
        },
        admin_job_name,
        children::admin_job,
        facts::facts,
        references::{Reference, references},
    },
    own_secrets::{self, RefusedSecret},
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Pod, Secret},
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Preconditions},
    runtime::events::EventType,
};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::{
    cluster::Cluster,
    run::{
        Shared,
        kube_cluster::error_of,
        record::{leave_behind, publish, writes},
    },
};

/// The pods of a Job, however old their names are.
const OF_JOB: &str = "batch.kubernetes.io/controller-uid";

/// What is there of the Job, and what should be.
pub(super) struct AdminJob<'a> {
    plane: &'a CoderControlPlane,
    shared: &'a Shared,
    /// Nothing where there can be none.
    wanted: Option<Job>,
    secret: Option<Secret>,
    job: Option<Job>,
    standing: access::Job,
}

impl<'a> AdminJob<'a> {
    pub(super) async fn look(plane: &'a CoderControlPlane, shared: &'a Shared) -> Result<Self, Blocked> {
        let facts = facts(plane, &[], false, &shared.plane_context()).await?;
        // What is wrong with the manifest is told by the pods that it cannot have.
        let wanted = admin_job::desire(plane, &facts).unwrap_or_default();
        if let Some(job) = &wanted {
            check_secrets(plane, job, shared).await?;
        }
        let (secret, job) = futures::try_join!(find::<Secret>(plane, shared), find::<Job>(plane, shared))?;
        let standing = access::Job::NotPossible;
        let mut found = Self { plane, shared, wanted, secret, job, standing };
        found.standing = found.stands().await?;
        Ok(found)
    }

    pub(super) fn shared(&self) -> &'a Shared {
        self.shared
    }

    pub(super) fn standing(&self) -> &access::Job {
        &self.standing
    }

    /// Starts the Job, with what the Secret says where there is one already. Says what is waited for then.
    pub(super) async fn run(&self, username: &str, email: &str) -> Blocked {
        let started = async {
            // One that failed and would be another now, or whose Secret is lost.
            self.delete(self.job.as_ref()).await?;
            let mut username = username.to_owned();
            if let Some((known, _)) = self.secret.as_ref().and_then(admin_job::account) {
                username = known;
            } else {
                self.delete(self.secret.as_ref()).await?;
                // Nobody sees it but the Job and we, once each.
                let password =
                    SecretString::from(format!("Op-{}-{}", Uuid::new_v4(), Uuid::new_v4().simple()));
                self.create(&admin_job::secret(self.plane, &username, email, &password)).await?;
            }
            if let Some(wanted) = &self.wanted {
                self.create(wanted).await?;
            }
            Ok::<String, Blocked>(username)
        };
        match started.await {
            Ok(username) => {
                let name = admin_job_name(self.plane);
                let message =
                    format!("Job {name} makes the account {username}, because there is no other way in");
                tracing::info!("{message}");
                publish(self.plane, EventType::Normal, (Reason::Created, "Create"), &message, self.shared);
                Blocked { reason: Reason::AdminJobRunning, message }
            }
            Err(waiting) => waiting,
        }
    }

    /// Takes the Job and its Secret away, once there is a way in or none is wanted. `account` is the one that we have: another
    /// one that the Job may have made is named.
    pub(super) async fn clear(&self, account: Option<&str>) -> Result<(), Blocked> {
        if let Some(note) = self.left(account) {
            leave_behind(self.plane, Reason::AccessDisabled, &note, self.shared).await;
        }
        self.delete(self.job.as_ref()).await?;
        self.delete(self.secret.as_ref()).await
    }

    /// Names an account that the Job may have made and that is not the one that we have.
    fn left(&self, account: Option<&str>) -> Option<String> {
        let made = self.secret.as_ref().filter(|it| is_owned(*it, self.plane)).and_then(admin_job::account);
        let (username, _) = made.filter(|(username, _)| Some(username.as_str()) != account)?;
        Some(format!(
            "the account {username}, if Job {} has made it: delete it in Coder. Nobody knows its password",
            admin_job_name(self.plane)
        ))
    }

    async fn stands(&self) -> Result<access::Job, Blocked> {
        let name = admin_job_name(self.plane);
        let foreign = |kind: &str| {
            access::Job::NotOurs(format!("{kind} {name} is not ours, and is left alone: delete it"))
        };
        let Some(wanted) = &self.wanted else { return Ok(access::Job::NotPossible) };
        if self.secret.as_ref().is_some_and(|it| !is_owned(it, self.plane)) {
            return Ok(foreign("Secret"));
        }
        if self.job.as_ref().is_some_and(|it| !is_owned(it, self.plane)) {
            return Ok(foreign("Job"));
        }
        let account = self.secret.as_ref().and_then(admin_job::account);
        let (Some((_, account)), Some(job)) = (account, &self.job) else {
            return Ok(access::Job::NotStarted);
        };
        if job.metadata.deletion_timestamp.is_some() {
            return Ok(access::Job::Running(format!("Job {name} is going, and another one comes after it")));
        }
        let pods = Api::<Pod>::namespaced(self.shared.client.clone(), &self.namespace());
        let its = ListParams::default().labels(&format!("{OF_JOB}={}", job.uid().unwrap_or_default()));
        let pods = pods.list(&its).await.map_err(|it| failure(&name, "its pods cannot be listed", &it))?;
        Ok(match progress(job, &pods.items) {
            Progress::Succeeded => access::Job::Done(account),
            Progress::Running(words) => access::Job::Running(without_secrets(&words, &self.secrets().await?)),
            Progress::Failed(_) if !admin_job::is_current(job, wanted) => access::Job::NotStarted,
            Progress::Failed(words) => {
                access::Job::Failed(without_secrets(&words, &self.secrets().await?), account)
            }
        })
    }

    /// What the pod reads, so that nothing of it is repeated.
    async fn secrets(&self) -> Result<Vec<SecretString>, Blocked> {
        let spec = &self.plane.spec;
        let literal = spec.extra_env.iter().flatten().filter_map(|it| it.value.clone());
        let mut found: Vec<SecretString> =
            literal.filter(|it| it.contains("://")).map(SecretString::from).collect();
        for reference in references(spec) {
            let Reference::Secret(name) = reference else { continue };
            let values = Cluster(self.shared.client.clone()).secret(&self.namespace(), &name).await;
            let values = values.map_err(|it| it.of_secret(&name))?;
            found.extend(values.iter().flat_map(|it| it.keys().filter_map(|key| it.text(key))));
        }
        Ok(found)
    }

    async fn create<K>(&self, object: &K) -> Result<(), Blocked>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let objects = Api::<K>::namespaced(self.shared.client.clone(), &self.namespace());
        let done = objects.create(&writes(), object).await;
        let what = format!("{} cannot be created", K::kind(&()));
        done.map(drop).map_err(|it| failure(&object.name_any(), &what, &it))
    }

    /// Deletes what is ours, and nothing that has taken its name meanwhile.
    async fn delete<K>(&self, object: Option<&K>) -> Result<(), Blocked>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let Some(object) = object.filter(|it| is_owned(*it, self.plane)) else { return Ok(()) };
        let preconditions = Some(Preconditions { uid: object.uid(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::background() };
        let objects = Api::<K>::namespaced(self.shared.client.clone(), &self.namespace());
        match objects.delete(&object.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => {
                let what = format!("{} cannot be deleted", K::kind(&()));
                done.map(drop).map_err(|it| failure(&object.name_any(), &what, &it))
            }
        }
    }

    fn namespace(&self) -> String {
        self.plane.namespace().unwrap_or_default()
    }
}

/// Names an account that a Job may have made for a control plane that is deleted; the Job and its Secret go with it.
pub(super) async fn left(
    plane: &CoderControlPlane,
    account: Option<&str>,
    shared: &Shared,
) -> Result<Option<String>, Blocked> {
    let secret = find::<Secret>(plane, shared).await?;
    let standing = access::Job::NotPossible;
    let found = AdminJob { plane, shared, wanted: None, secret, job: None, standing };
    Ok(found.left(account))
}

/// Refuses a Job whose pod would be given a Secret of the operator's, other than the Job's own.
async fn check_secrets(plane: &CoderControlPlane, job: &Job, shared: &Shared) -> Result<(), Blocked> {
    let (own, namespace) = (admin_job_name(plane), plane.namespace().unwrap_or_default());
    let mut names = own_secrets::referenced(job);
    names.remove(&own);
    let refused = own_secrets::refused(&*shared.cluster, &namespace, names, None).await;
    match refused.map_err(|it| failure(&own, "the Secrets of its pod cannot be read", &error_of(it)))? {
        Some(RefusedSecret { message, .. }) => Err(Blocked { reason: Reason::SecretNotAllowed, message }),
        None => Ok(()),
    }
}

async fn find<K>(plane: &CoderControlPlane, shared: &Shared) -> Result<Option<K>, Blocked>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let (name, namespace) = (admin_job_name(plane), plane.namespace().unwrap_or_default());
    let found = Api::<K>::namespaced(shared.client.clone(), &namespace).get_opt(&name).await;
    found.map_err(|it| failure(&name, &format!("{} cannot be read", K::kind(&())), &it))
}

fn is_owned(object: &impl kube::ResourceExt, plane: &CoderControlPlane) -> bool {
    object.owner_references().iter().any(|it| Some(&it.uid) == plane.metadata.uid.as_ref())
}

fn failure(name: &str, what: &str, error: &kube::Error) -> Blocked {
    Blocked { reason: Reason::AdminJobFailed, message: format!("{name}: {what}: {error}") }
}
