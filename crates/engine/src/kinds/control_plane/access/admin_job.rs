//! The Job that makes the operator's account, in the cluster: found, started, deleted.
//!
//! The Secret that it reads is written first and goes last, so that after a crash whoever comes next finds the password of an
//! account that may have been made, or the name of one that was about to be.

use api::{CoderControlPlane, Reason};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        batch::v1::Job,
        core::v1::{Pod, Secret},
    },
};
use kube::{Resource, ResourceExt as _, core::Selector};
use secrecy::SecretString;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Job as Standing,
    job::{Progress, progress, without_secrets},
};
use crate::{
    kinds::control_plane::{
        account::new_password,
        children::admin_job,
        facts::{PlaneContext, facts},
        names::admin_job as admin_job_name,
    },
    objects::references::{SourceRef, references},
    pipeline::outcome::Blocked,
    ports::{Cluster, ClusterError, Event, Only, Reading, object::Key},
    secrets::{
        own_secrets::{self, RefusedSecret},
        referenced,
    },
};

/// The pods of a Job, however old their names are.
const OF_JOB: &str = "batch.kubernetes.io/controller-uid";

/// What is there of the Job, and what should be.
pub(super) struct AdminJob<'a> {
    plane: &'a CoderControlPlane,
    cluster: &'a dyn Cluster,
    /// `None` where there can be no Job.
    wanted: Option<Job>,
    secret: Option<Secret>,
    job: Option<Job>,
    standing: Standing,
}

impl<'a> AdminJob<'a> {
    pub(super) async fn find(
        plane: &'a CoderControlPlane,
        context: &PlaneContext<'a>,
    ) -> Result<Self, Blocked> {
        let cluster = context.cluster;
        let facts = facts(plane, &[], false, context).await?;
        // What is wrong with the manifest is reported by the pods that it cannot have.
        let wanted = admin_job::desire(plane, &facts).unwrap_or_default();
        if let Some(job) = &wanted {
            check_secrets(plane, job, cluster).await?;
        }
        let (secret, job) = futures::try_join!(find_secret(plane, cluster), find_job(plane, cluster))?;
        let mut found = Self { plane, cluster, wanted, secret, job, standing: Standing::NotPossible };
        found.standing = found.stands().await?;
        Ok(found)
    }

    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Starts the Job, with what the Secret says where there is one already. Returns what is waited for then.
    pub(super) async fn run(&self, username: &str, email: &str) -> Blocked {
        match self.start(username, email).await {
            Ok(username) => {
                let name = admin_job_name(self.plane);
                let message = format!(
                    "Job {name} creates the account {username}, because there are no other credentials"
                );
                let (reason, action) = (Reason::Created, "Create");
                let event =
                    Event { is_warning: false, reason, action, note: &message, must_be_written: false };
                self.cluster.event(&self.plane.object_ref(&()), event).await;
                Blocked { reason: Reason::AdminJobRunning, message }
            }
            Err(blocked) => blocked,
        }
    }

    /// Creates the Secret and the Job. Returns the name of the account.
    async fn start(&self, username: &str, email: &str) -> Result<String, Blocked> {
        // One that failed and would be another now, or whose Secret is lost.
        self.delete(self.job.as_ref()).await?;
        let mut username = username.to_owned();
        if let Some((known, _)) = self.secret.as_ref().and_then(admin_job::account) {
            username = known;
        } else {
            self.delete(self.secret.as_ref()).await?;
            // Nobody sees it but the Job and the operator, once each.
            let password = new_password(&self.cluster.random());
            self.create(&admin_job::secret(self.plane, &username, email, &password)).await?;
        }
        if let Some(wanted) = &self.wanted {
            self.create(wanted).await?;
        }
        Ok(username)
    }

    /// Deletes the Job and its Secret, once there is a way in or none is wanted. `account` is the one that is used: another
    /// one that the Job may have made is named.
    pub(super) async fn clear(&self, account: Option<&str>) -> Result<(), Blocked> {
        if let Some(note) = left_account(self.plane, self.secret.as_ref(), account) {
            self.cluster.left_behind(&self.plane.object_ref(&()), Reason::AccessDisabled, &note).await;
        }
        self.delete(self.job.as_ref()).await?;
        self.delete(self.secret.as_ref()).await
    }

    async fn stands(&self) -> Result<Standing, Blocked> {
        let name = admin_job_name(self.plane);
        let foreign = |kind: &str| {
            Standing::NotOurs(format!(
                "{kind} {name} is not owned by this control plane, and is not changed: delete it"
            ))
        };
        let Some(wanted) = &self.wanted else { return Ok(Standing::NotPossible) };
        if self.secret.as_ref().is_some_and(|it| !is_owned(it, self.plane)) {
            return Ok(foreign("Secret"));
        }
        if self.job.as_ref().is_some_and(|it| !is_owned(it, self.plane)) {
            return Ok(foreign("Job"));
        }
        let account = self.secret.as_ref().and_then(admin_job::account);
        let (Some((_, account)), Some(job)) = (account, &self.job) else {
            return Ok(Standing::NotStarted);
        };
        if job.metadata.deletion_timestamp.is_some() {
            return Ok(Standing::Running(format!("Job {name} is being deleted; a new Job follows")));
        }
        let of_job: Selector = [(OF_JOB.to_owned(), job.uid().unwrap_or_default())].into_iter().collect();
        let pods = self.cluster.find::<Pod>(&self.namespace(), &of_job, Reading::Now).await;
        let pods = pods.map_err(|it| failure(&name, "its pods cannot be listed", &it))?;
        Ok(match progress(job, &pods) {
            Progress::Succeeded => Standing::Done(account),
            Progress::Running(words) => Standing::Running(without_secrets(&words, &self.secrets().await?)),
            Progress::Failed(_) if !admin_job::is_current(job, wanted) => Standing::NotStarted,
            Progress::Failed(words) => {
                Standing::Failed(without_secrets(&words, &self.secrets().await?), account)
            }
        })
    }

    /// The values that the pod reads, so that none of them is repeated.
    async fn secrets(&self) -> Result<Vec<SecretString>, Blocked> {
        let spec = &self.plane.spec;
        let literal = spec.extra_env.iter().flatten().filter_map(|it| it.value.clone());
        let mut found: Vec<SecretString> =
            literal.filter(|it| it.contains("://")).map(SecretString::from).collect();
        for reference in references(spec) {
            let SourceRef::Secret(name) = reference else { continue };
            let values = referenced::values(self.cluster, &self.namespace(), &name).await;
            let values = values.map_err(|it| it.of_secret(&name))?;
            found.extend(values.iter().flat_map(|it| it.keys().filter_map(|key| it.text(key))));
        }
        Ok(found)
    }

    async fn create<K>(&self, object: &K) -> Result<(), Blocked>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Serialize + Sync,
    {
        let done = self.cluster.put(object, false, "").await;
        let what = format!("{} cannot be created", K::kind(&()));
        done.map(drop).map_err(|it| failure(&object.name_any(), &what, &it))
    }

    /// Deletes an object that is ours, and none that has taken its name meanwhile.
    async fn delete<K>(&self, object: Option<&K>) -> Result<(), Blocked>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Sync,
    {
        let Some(object) = object.filter(|it| is_owned(*it, self.plane)) else { return Ok(()) };
        let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
        let key = Key::new(&K::api_version(&()), &K::kind(&()), &self.namespace(), &name);
        let done = self.cluster.delete(&key, Only { uid: &uid, version: None }).await;
        done.map_err(|it| failure(&name, &format!("{} cannot be deleted", K::kind(&())), &it))
    }

    fn namespace(&self) -> String {
        self.plane.namespace().unwrap_or_default()
    }
}

/// Names an account that a Job may have made for a control plane that is deleted; the Job and its Secret go with it.
pub async fn left(
    plane: &CoderControlPlane,
    account: Option<&str>,
    cluster: &dyn Cluster,
) -> Result<Option<String>, Blocked> {
    let secret = find_secret(plane, cluster).await?;
    Ok(left_account(plane, secret.as_ref(), account))
}

/// Names an account that the Job may have made and that is not the one that is used.
fn left_account(plane: &CoderControlPlane, secret: Option<&Secret>, account: Option<&str>) -> Option<String> {
    let made = secret.filter(|it| is_owned(*it, plane)).and_then(admin_job::account);
    let (username, _) = made.filter(|(username, _)| Some(username.as_str()) != account)?;
    Some(format!(
        "the account {username}, if Job {} created it: its password is not stored anywhere; delete the account in Coder",
        admin_job_name(plane)
    ))
}

/// Refuses a Job whose pod would be given a Secret of the operator's, other than the Job's own.
async fn check_secrets(plane: &CoderControlPlane, job: &Job, cluster: &dyn Cluster) -> Result<(), Blocked> {
    let (own, namespace) = (admin_job_name(plane), plane.namespace().unwrap_or_default());
    let mut names = own_secrets::referenced(job);
    names.remove(&own);
    let refused = own_secrets::refused(cluster, &namespace, names, None).await;
    match refused.map_err(|it| failure(&own, "the Secrets of its pod cannot be read", &it))? {
        Some(RefusedSecret { message, .. }) => Err(Blocked { reason: Reason::SecretNotAllowed, message }),
        None => Ok(()),
    }
}

async fn find_secret(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<Option<Secret>, Blocked> {
    let (name, namespace) = (admin_job_name(plane), plane.namespace().unwrap_or_default());
    let found = cluster.secret(&namespace, &name, "").await;
    found.map_err(|it| failure(&name, "Secret cannot be read", &it))
}

async fn find_job(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<Option<Job>, Blocked> {
    let (name, namespace) = (admin_job_name(plane), plane.namespace().unwrap_or_default());
    let found = cluster.read::<Job>(&namespace, &name, Reading::Now).await;
    found.map_err(|it| failure(&name, "Job cannot be read", &it))
}

fn is_owned(object: &impl kube::ResourceExt, plane: &CoderControlPlane) -> bool {
    object.owner_references().iter().any(|it| Some(&it.uid) == plane.metadata.uid.as_ref())
}

fn failure(name: &str, what: &str, error: &ClusterError) -> Blocked {
    Blocked { reason: Reason::AdminJobFailed, message: format!("{name}: {what}: {error}") }
}
