//! Deployments and a cluster in memory, and what must be true of them after every single thing that we do.
//!
//! Every call of ours stops before and after it is done, so that a test can end an operator there, or let another one go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use engine::secrets::{
    Names, Place, Pods, Policy, Record, SecretPlace, Wanted, checksum, mirror::of_status, mirror::to_status,
};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sim::{
    ManualClock, MemoryCluster,
    state::{Daemon, Organization, ProvisionerKey, State},
};
use uuid::Uuid;

use super::secret::{entry, record_of};
use crate::memory::{self, start, wait};

pub(crate) const UID: &str = "1a2b3c4d-5e6f-4711-8aaa-000000000001";
pub(crate) const KIND: &str = "CoderProvisioner";
pub(crate) const OBJECT: &str = "alpha";
pub(crate) const NAMESPACE: &str = "platform";
pub(crate) const GRACE: SignedDuration = SignedDuration::from_secs(660);

/// A key in one of the deployments.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) deployment: Uuid,
    pub(crate) key: ProvisionerKey,
    pub(crate) value: String,
    pub(crate) is_foreign: bool,
    /// Whether it was named as one that stays: a person knows of it.
    pub(crate) is_left: bool,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It never arrives.
    Refused,
    /// It is done, and nobody hears of it.
    LostAnswer,
}

/// What the API server says to writes of Secrets, and how often it does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Denial {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) times: usize,
}

/// What is the matter with every request for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ailing {
    /// Nothing is done, and nobody can tell.
    Fails,
    /// Nothing is done, and that is certain.
    Refuses,
    /// It is done once, and nobody hears of it.
    Mute,
    /// It is sent twice on the way, and the second answer is heard. Only once.
    Twice,
}

/// Everything that survives an operator.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) wanted: Wanted,
    pub(crate) cluster: MemoryCluster,
    pub(super) clock: ManualClock,
    deployments: Arc<Mutex<BTreeMap<Uuid, sim::Coder>>>,
    /// The keys of all deployments, with their values.
    pub(crate) rows: Vec<Row>,
    /// Keys of ours that were deleted.
    pub(crate) deleted: Vec<Row>,
    /// Every version of every Secret that was ever written.
    pub(crate) backups: Vec<Value>,
    /// The newest value of ours that was in a Secret, unless a person has replaced it by another key.
    pub(crate) newest: Option<String>,
    /// How far coderd's clock is ahead.
    ahead: SignedDuration,
    /// What the pods carry, and where they read it.
    pub(crate) carried: BTreeSet<String>,
    pub(crate) read: BTreeSet<SecretPlace>,
    pub(crate) has_pods: bool,
    /// What pods get that come now, where that is not what the Secret holds.
    pub(crate) held_up: Option<String>,
    pub(crate) minted: usize,
    /// Writes to either side.
    pub(crate) writes: usize,
    /// How much was done to us: each may cost one key.
    pub(crate) disturbances: usize,
    pub(crate) faults: BTreeMap<usize, Fault>,
    pub(crate) ailing: Option<Ailing>,
    pub(crate) denial: Option<Denial>,
    /// The code of the answer to lists of objects, where they are refused.
    pub(crate) refused_list: Option<u16>,
    /// How often a key was asked for.
    pub(crate) posts: usize,
    /// Organizations whose keys are not shown.
    pub(crate) unreadable: BTreeSet<Uuid>,
    /// How long the pods that are there may take to end.
    pub(crate) pods_grace: SignedDuration,
    pub(crate) calls: usize,
    /// Whether a key that is written down nowhere is a failure at once.
    pub(crate) checks_names: bool,
    /// Whether the value in the Secret must not die. A Secret that is restored while a key in it is just being revoked cannot
    /// be helped: coderd has no preconditions.
    pub(crate) checks_value: bool,
    /// What was said and done, for whoever reads a failure.
    pub(crate) log: Vec<String>,
}

pub(crate) type Shared = Arc<Mutex<Model>>;

pub(crate) fn place(control_plane: &str, id: u128) -> Place {
    Place {
        control_plane: control_plane.to_owned(),
        url: format!("https://{control_plane}.example.com"),
        deployment_id: Some(Uuid::from_u128(id)),
    }
}

pub(crate) fn wanted(policy: Policy) -> Wanted {
    Wanted {
        policy,
        names: Names::new("Alpha", UID),
        organization_id: Uuid::from_u128(100),
        organization_name: "org".to_owned(),
        tags: BTreeMap::from([("cluster".to_owned(), "a".to_owned())]),
        place: place("main", 1),
        secret: SecretPlace { name: "alpha-provisioner-key".to_owned(), key: "key".to_owned() },
        rotate_every: None,
        rotate_request: None,
        grace: GRACE,
        held_back: None,
        leaves_begun: false,
    }
}

impl Model {
    pub(crate) fn new(policy: Policy) -> Shared {
        let clock = ManualClock::new(start());
        let mut model = Self {
            wanted: wanted(policy),
            cluster: MemoryCluster::new(clock.clock(), 1),
            clock,
            deployments: Arc::default(),
            rows: Vec::new(),
            deleted: Vec::new(),
            backups: Vec::new(),
            newest: None,
            ahead: SignedDuration::ZERO,
            carried: BTreeSet::new(),
            read: BTreeSet::new(),
            has_pods: policy == Policy::Recreate,
            held_up: None,
            minted: 0,
            writes: 0,
            disturbances: 0,
            faults: BTreeMap::new(),
            ailing: None,
            denial: None,
            refused_list: None,
            posts: 0,
            unreadable: BTreeSet::new(),
            pods_grace: SignedDuration::ZERO,
            calls: 0,
            checks_names: true,
            checks_value: true,
            log: Vec::new(),
        };
        model.become_object(UID);
        Arc::new(Mutex::new(model))
    }

    /// The same once more, apart from this one.
    pub(crate) fn fork(&self) -> Shared {
        let clock = ManualClock::new(self.clock.now());
        let deployments: Vec<(Uuid, State)> =
            self.deployments.lock().unwrap().iter().map(|(id, it)| (*id, it.state())).collect();
        let fork = Self {
            wanted: self.wanted.clone(),
            cluster: self.cluster.copy(clock.clock()),
            clock,
            deployments: Arc::default(),
            rows: self.rows.clone(),
            deleted: self.deleted.clone(),
            backups: self.backups.clone(),
            newest: self.newest.clone(),
            carried: self.carried.clone(),
            read: self.read.clone(),
            held_up: self.held_up.clone(),
            faults: self.faults.clone(),
            unreadable: self.unreadable.clone(),
            log: self.log.clone(),
            ..*self
        };
        for (id, state) in deployments {
            fork.put_deployment(id, state);
        }
        Arc::new(Mutex::new(fork))
    }

    /// The object with the keys is another one of the same name, with an empty status.
    pub(crate) fn become_object(&mut self, uid: &str) {
        uid.clone_into(&mut self.wanted.names.uid);
        self.cluster.set(&json!({"apiVersion": "coder.com/v1alpha1", "kind": KIND,
            "metadata": {"name": OBJECT, "namespace": NAMESPACE, "uid": uid},
            "spec": {"controlPlaneRef": {"name": "main"}}}));
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn set_now(&self, now: Timestamp) {
        self.clock.set(now);
    }

    pub(crate) fn advance(&self, by: SignedDuration) {
        self.clock.advance(by);
    }

    /// The same manifest as another object in another cluster, with the same deployments.
    pub(super) fn beside(&self, uid: &str) -> Shared {
        let other = Self::new(self.wanted.policy);
        {
            let mut other = other.lock().unwrap();
            other.become_object(uid);
            other.cluster = other.cluster.copy(self.clock.clock());
            other.clock = self.clock.clone();
            other.disturbances = self.disturbances;
            other.deployments = Arc::clone(&self.deployments);
        }
        other
    }

    /// The organization is not listed any more.
    pub(super) fn hide_organization(&self) {
        let id = self.wanted.organization_id;
        self.edit_deployment(self.wanted.place.deployment_id.unwrap(), |state| {
            state.organizations.get_mut(&id).unwrap().deleted = true;
        });
    }

    /// Puts coderd's clock ahead.
    pub(crate) fn set_ahead(&mut self, by: SignedDuration) {
        self.ahead = by;
        let deployment = self.wanted.place.deployment_id.unwrap();
        self.edit_deployment(deployment, |_| {});
    }

    /// A deployment; it is made when it is first asked for.
    pub(super) fn deployment(&self, id: Uuid) -> sim::Coder {
        if !self.deployments.lock().unwrap().contains_key(&id) {
            let mut state = memory::licensed();
            state.deployment_id = id;
            // No two deployments make the same ids and values.
            state.issued += u64::try_from(id.as_u128()).unwrap() * 1_000_000;
            insert_organization(&mut state, self.wanted.organization_id);
            self.put_deployment(id, state);
        }
        self.deployments.lock().unwrap()[&id].clone()
    }

    fn put_deployment(&self, id: Uuid, state: State) {
        let (clock, ahead) = (self.clock.clone(), self.ahead);
        let coder = memory::coder(Arc::new(move || clock.now() + ahead), state);
        self.deployments.lock().unwrap().insert(id, coder);
    }

    /// Changes the database of a deployment behind everybody's back.
    pub(crate) fn edit_deployment<T>(&self, id: Uuid, edit: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.deployment(id).state();
        let edited = edit(&mut state);
        self.put_deployment(id, state);
        edited
    }

    /// The organization is deleted with everything in it, and there is another one of its name.
    pub(super) fn replace_organization(&mut self, next: Uuid) {
        let gone = std::mem::replace(&mut self.wanted.organization_id, next);
        let ids: Vec<Uuid> = self.deployments.lock().unwrap().keys().copied().collect();
        for id in ids {
            self.edit_deployment(id, |state| {
                state.provisioner_keys.retain(|_, it| it.organization_id != gone);
                state.organizations.get_mut(&gone).into_iter().for_each(|it| it.deleted = true);
                insert_organization(state, next);
            });
        }
        self.rows.retain(|it| it.key.organization_id != gone);
    }

    /// Removes keys behind everybody's back.
    pub(crate) fn lose_keys(&mut self, is_lost: impl Fn(&Row) -> bool) {
        let (lost, kept) = std::mem::take(&mut self.rows).into_iter().partition(is_lost);
        self.rows = kept;
        let lost: Vec<Row> = lost;
        for row in lost {
            self.edit_deployment(row.deployment, |state| state.provisioner_keys.remove(&row.key.id));
        }
    }

    /// Puts a key back that was deleted.
    pub(super) fn put_back(&mut self, row: Row) {
        self.edit_deployment(row.deployment, |it| it.provisioner_keys.insert(row.key.id, row.key.clone()));
        self.rows.push(row);
    }

    /// Somebody makes a key, unless the name is taken. Returns its value.
    pub(crate) fn foreign(
        &mut self,
        name: &str,
        tags: &BTreeMap<String, String>,
        has_daemon: bool,
    ) -> Option<String> {
        let organization = self.wanted.organization_id;
        let deployment = self.wanted.place.deployment_id?;
        let somebody = memory::owner(self.deployment(deployment).transport());
        let value = wait(somebody.create_provisioner_key(organization, name, tags)).ok()?;
        self.enter_rows(deployment, Some((name, value.expose_secret())));
        let row = self.rows.iter_mut().find(|it| it.value == value.expose_secret())?;
        row.is_foreign = true;
        let key = row.key.clone();
        if has_daemon {
            self.edit_deployment(deployment, |it| it.daemons.insert(key.id, daemon(&key)));
        }
        Some(value.expose_secret().to_owned())
    }

    /// Enters what has become of the keys of a deployment. A new one is ours if it was minted with that name and value.
    pub(super) fn enter_rows(&mut self, deployment: Uuid, minted: Option<(&str, &str)>) {
        let keys = self.deployment(deployment).state().provisioner_keys;
        let is_there = |it: &Row| it.deployment != deployment || keys.contains_key(&it.key.id);
        let (kept, gone): (Vec<Row>, Vec<Row>) =
            std::mem::take(&mut self.rows).into_iter().partition(is_there);
        self.rows = kept;
        self.deleted.extend(gone.into_iter().filter(|it| !it.is_foreign));
        for key in keys.into_values().filter(|it| !it.secret.is_empty()) {
            if self.rows.iter().any(|row| row.key.id == key.id) {
                continue;
            }
            let minted = minted.filter(|(name, _)| key.name.eq_ignore_ascii_case(name));
            let value = minted.map_or("", |(_, value)| value).to_owned();
            self.rows.push(Row { deployment, key, value, is_foreign: minted.is_none(), is_left: false });
        }
    }

    /// The declared Secret.
    pub(crate) fn secret(&self) -> Option<Value> {
        self.cluster.find("Secret", &self.wanted.secret.name)
    }

    /// Changes the declared Secret, where there is one.
    pub(crate) fn edit_secret(&self, edit: impl FnOnce(&mut Value)) {
        if let Some(mut secret) = self.secret() {
            edit(&mut secret);
            self.cluster.set(&secret);
        }
    }

    /// The value in the Secret.
    pub(crate) fn value(&self) -> Option<String> {
        entry(&self.secret()?, &self.wanted.secret.key)
    }

    /// The key that it is.
    pub(crate) fn live(&self) -> Option<&Row> {
        let value = self.value()?;
        self.rows.iter().find(|it| it.value == value)
    }

    pub(crate) fn ours(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|it| !it.is_foreign && !it.is_left)
    }

    /// A person is told of a key that stays. A stranger's is none of ours all the same.
    pub(super) fn name_as_left(&mut self, name: &str, is_elsewhere: bool) {
        let here = self.wanted.place.deployment_id;
        let is_it = |it: &&mut Row| {
            !it.is_foreign
                && it.key.name.eq_ignore_ascii_case(name)
                && (Some(it.deployment) != here || !is_elsewhere)
        };
        self.rows.iter_mut().filter(is_it).for_each(|it| it.is_left = true);
    }

    /// The record in the Secret.
    pub(crate) fn record(&self) -> Option<Record> {
        record_of(&self.secret()?)
    }

    /// The record in the Secret, with the id of the key where only the status has it.
    pub(crate) fn completed_record(&self) -> Option<Record> {
        let (mut record, status) = (self.record()?, self.status());
        if let (Some(current), Some(known)) = (&mut record.current, &status.current) {
            current.id = current.id.or(known.id);
        }
        Some(record)
    }

    /// The record in the status.
    pub(crate) fn status(&self) -> Record {
        let object = self.cluster.find(KIND, OBJECT).unwrap();
        let status = object.get("status").cloned().unwrap_or_else(|| json!({}));
        of_status(&serde_json::from_value(status).unwrap(), &self.wanted.names.uid)
    }

    pub(crate) fn set_status(&self, record: &Record) {
        self.cluster.edit(KIND, OBJECT, |it| it["status"] = json!(to_status(record)));
    }

    /// The pods are replaced by such as read what is there now, and sign in.
    pub(crate) fn roll(&mut self) {
        if !self.has_pods {
            return;
        }
        self.read = BTreeSet::from([self.wanted.secret.clone()]);
        let Some(value) = self.value() else { return };
        self.carried = BTreeSet::from([checksum(&SecretString::from(value.clone()))]);
        let ours: Vec<Row> = self.rows.iter().filter(|it| !it.is_foreign).cloned().collect();
        let deployments: BTreeSet<Uuid> = ours.iter().map(|it| it.deployment).collect();
        for id in deployments {
            self.edit_deployment(id, |state| {
                for row in ours.iter().filter(|it| it.deployment == id) {
                    state.daemons.remove(&row.key.id);
                    if row.value == value {
                        state.daemons.insert(row.key.id, daemon(&row.key));
                    }
                }
            });
        }
    }

    /// What the pods carry, as an operator sees it.
    pub(super) fn pods(&self) -> Option<Pods> {
        let value = || self.value().map(|it| checksum(&SecretString::from(it)));
        // After a pass pods get what is in the Secret, unless something holds that up.
        let given = Some(self.held_up.clone().or_else(value).into_iter().collect());
        let (carried, secrets) = (self.carried.clone(), self.read.clone());
        let pods = Pods { carried, given, secrets, are_wanted: true, grace: self.pods_grace };
        self.has_pods.then_some(pods)
    }

    /// The records that are written down anywhere.
    fn records(&self) -> Vec<Record> {
        let secrets = self.cluster.all("Secret");
        secrets.iter().filter_map(record_of).chain([self.status()]).collect()
    }

    /// Our keys that are written down nowhere.
    pub(crate) fn unnamed(&self) -> impl Iterator<Item = &Row> {
        let records = self.records();
        let is_named = move |it: &&Row| {
            records.iter().any(|record| record.names_key(&it.key.name, Some(it.key.organization_id)))
        };
        self.ours().filter(move |it| !is_named(it))
    }

    /// No key of ours is in coderd that nobody could find again, and no more of them were made than had to be.
    pub(super) fn check(&self) {
        if self.checks_names
            && let Some(row) = self.unnamed().find(|it| !self.wanted.names.is_ours(&it.key.name))
        {
            panic!("{} is lost\n{self:#?}", row.key.name);
        }
        let most = 1 + self.disturbances;
        assert!(self.minted <= most, "{} keys were minted, not {most}\n{self:#?}", self.minted);
    }
}

fn insert_organization(state: &mut State, id: Uuid) {
    let default = &state.organizations[&state.default_organization];
    let organization =
        Organization { id, name: "org".to_owned(), is_default: false, deleted: false, ..default.clone() };
    state.organizations.insert(id, organization);
}

/// A daemon on a key, which is seen at all times.
fn daemon(key: &ProvisionerKey) -> Daemon {
    Daemon {
        id: key.id,
        organization_id: key.organization_id,
        key_id: key.id,
        name: format!("pod-{}", key.name),
        version: "v2.36.1".to_owned(),
        api_version: "1.18".to_owned(),
        provisioners: Vec::new(),
        tags: key.tags.clone(),
        created_at: key.created_at,
        last_seen_at: Timestamp::MAX,
    }
}
