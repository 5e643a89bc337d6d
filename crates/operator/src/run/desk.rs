//! The cluster as the engine sees it where keys are kept: Secrets, the status of their object, a clock, a memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use api::{CoderProvisionerKey, Reason, label};
use engine::{
    Blocked, Trouble,
    provisioner_keys::{Desk, Held, Holder, Record, Revoked, Secrets, Why, mirror::advanced},
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::{Api, Resource, ResourceExt as _, runtime::events::EventType};

use super::{
    Shared,
    events::Words,
    key_holders,
    key_secrets::{KeyHolder, KeySecrets},
    pass::About,
    record::{leave_behind, mark_with, publish_surely},
    secret_cache::SecretCache,
};

/// The cluster that this operator works in.
pub(super) struct ClusterDesk {
    client: kube::Client,
    secrets: Arc<SecretCache>,
    /// What it is itself a part of.
    shared: Weak<Shared>,
}

impl std::fmt::Debug for ClusterDesk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ClusterDesk")
    }
}

impl ClusterDesk {
    pub(super) fn new(client: kube::Client, secrets: Arc<SecretCache>, shared: Weak<Shared>) -> Self {
        Self { client, secrets, shared }
    }

    /// The object, if it is still that one.
    async fn object(&self, holder: &Holder) -> Result<Option<CoderProvisionerKey>, kube::Error> {
        let objects = Api::<CoderProvisionerKey>::namespaced(self.client.clone(), &holder.namespace);
        let found = objects.get_opt(&holder.name).await?;
        Ok(found.filter(|it| it.uid().as_ref() == Some(&holder.uid)))
    }

    /// Writes the record into the status. A status with a newer record is left as it is.
    async fn write(&self, holder: &Holder, record: &Record) -> Result<(), kube::Error> {
        let Some(object) = self.object(holder).await? else {
            let gone = kube::core::Status::failure("the object is gone", "NotFound");
            return Err(kube::Error::Api(gone.with_code(404).boxed()));
        };
        let fields = |now: &CoderProvisionerKey| {
            advanced(&now.status.as_ref().map(|it| it.key.clone()).unwrap_or_default(), record)
        };
        mark_with(&object, &self.client, fields).await.map(drop)
    }
}

fn about(holder: &Holder) -> About {
    let Holder { namespace, name, uid } = holder.clone();
    About { kind: CoderProvisionerKey::kind(&()), namespace, name, uid, generation: None }
}

fn not_written(why: impl std::fmt::Display) -> Trouble {
    let message = format!("the name of a key cannot be written down: {why}");
    Blocked { reason: Reason::Progressing, message }.into()
}

impl Desk for ClusterDesk {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn secrets(&self, holder: &Holder) -> Box<dyn Secrets> {
        let labels = BTreeMap::from([(label::MANAGED_BY.to_owned(), "coder-operator".to_owned())]);
        // It has no owner, so that it stays when the object goes: the record in it says whose it is.
        let Holder { namespace, uid, .. } = holder.clone();
        let holder = KeyHolder { namespace, uid, labels, owner: None };
        Box::new(KeySecrets::new(self.client.clone(), Arc::clone(&self.secrets), holder))
    }

    fn mirror<'a>(&'a self, holder: &'a Holder, record: &'a Record) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async move { self.write(holder, record).await.map_err(not_written) })
    }

    fn last_record(&self, holder: &Holder) -> Option<Record> {
        self.shared.upgrade()?.memory.with(&about(holder), |it| it.record.clone())
    }

    fn keep_record(&self, holder: &Holder, record: &Record) {
        if let Some(shared) = self.shared.upgrade() {
            shared.memory.with(&about(holder), |it| it.record = Some(record.clone()));
        }
    }

    fn revoked<'a>(
        &'a self,
        holder: &'a Holder,
        held: &'a Held,
        how: Revoked,
        why: &'a Why,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // An Event needs no more of the object than who it is.
            let mut object = CoderProvisionerKey::new(&holder.name, api::CoderProvisionerKeySpec::default());
            object.metadata.namespace = Some(holder.namespace.clone());
            object.metadata.uid = Some(holder.uid.clone());
            if let Some(shared) = self.shared.upgrade() {
                report_revoked(&object, held, how, why, &shared).await;
            }
        })
    }

    fn is_of_another<'a>(
        &'a self,
        holder: &'a Holder,
        held: &'a Held,
    ) -> BoxFuture<'a, Result<bool, Trouble>> {
        Box::pin(async move {
            let Some(shared) = self.shared.upgrade() else { return Err(not_written("the operator ends")) };
            key_holders::is_of_another(&holder.uid, held, &shared).await
        })
    }

    fn keeper<'a>(
        &'a self,
        holder: &'a Holder,
        secret: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, Trouble>> {
        Box::pin(key_holders::keeper(&self.client, &holder.namespace, secret, uid))
    }

    fn left<'a>(&'a self, holder: &'a Holder, held: &'a Held) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let note = left_behind(&held.name, &held.place.control_plane);
            if let (Some(shared), Ok(Some(object))) = (self.shared.upgrade(), self.object(holder).await) {
                leave_behind(&object, Reason::Deleting, &note, &shared).await;
            } else {
                tracing::warn!("{note}");
            }
        })
    }
}

/// Reports what became of a key that was to be revoked: in a log line, and in an Event where one was revoked.
pub(super) async fn report_revoked(
    object: &impl Resource<DynamicType = ()>,
    held: &Held,
    how: Revoked,
    why: &Why,
    shared: &Shared,
) {
    let name = &held.name;
    if how == Revoked::Doubtful {
        return leave_behind(object, Reason::NotOurs, &doubtful(name, why), shared).await;
    }
    let why = why.words();
    match how {
        Revoked::Done => {
            tracing::info!(key = name, why, "a key was revoked");
            let note = format!("provisioner key {name} was revoked: {why}");
            let words =
                Words { type_: EventType::Normal, reason: Reason::KeyRevoked, action: "Delete", note: &note };
            publish_surely(object, words, shared).await;
        }
        Revoked::Absent => tracing::info!(key = name, why, "a key to be revoked is not in Coder any more"),
        Revoked::NotOurs => {
            tracing::info!(key = name, why, "a key to be revoked is another object's and stays");
        }
        // Named when it is given up, and above.
        Revoked::OutOfReach | Revoked::Doubtful => {}
    }
}

/// A key that stays because it may be a stranger's, in words.
fn doubtful(key: &str, why: &Why) -> String {
    let fact = if *why == Why::Taken {
        "appeared in Coder while the operator was creating a key of that name, as when a proxy sends a request twice"
    } else {
        "has the tags of a key whose creation was interrupted, and no daemons, but was created more than 15 minutes away \
         from that time; compare the clocks of Coder and of the cluster"
    };
    format!(
        "provisioner key {key} is left behind: it {fact}. Delete the key in Coder unless somebody else created it"
    )
}

/// A key that stays, in words.
pub(super) fn left_behind(key: &str, control_plane: &str) -> String {
    format!(
        "provisioner key {key} is left behind: nobody reaches the deployment of control plane {control_plane} any more"
    )
}
