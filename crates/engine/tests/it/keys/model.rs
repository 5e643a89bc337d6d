//! A tiny coderd, a tiny cluster, and what must be true of them after every single thing that we do.
//!
//! Every call of ours stops before and after it is done, so that a test can end an operator there, or let another one go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
};

use engine::{
    pipeline::outcome::{Blocked, Trouble},
    secrets::{
        Coderd, Held, LiveKey, Minting, Names, OwnIntents, Owner, Place, Pods, Policy, Record, SecretPlace,
        SecretRead, Wanted, checksum, coderd::Listing,
    },
};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

pub(crate) const UID: &str = "1a2b3c4d-5e6f-4711-8aaa-000000000001";
pub(crate) const GRACE: SignedDuration = SignedDuration::from_secs(660);

/// A key in the model's coderd.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) deployment: Uuid,
    pub(crate) key: LiveKey,
    pub(crate) value: String,
    pub(crate) is_foreign: bool,
    /// Whether it was named as one that stays: a person knows of it.
    pub(crate) is_left: bool,
}

/// A Secret.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) owner: Owner,
    pub(crate) data: BTreeMap<String, String>,
    pub(crate) record: Option<Record>,
    pub(crate) withheld: Option<Blocked>,
    pub(crate) version: u64,
    pub(crate) is_immutable: bool,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It never arrives.
    Refused,
    /// It is done, and nobody hears of it.
    LostAnswer,
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
#[derive(Debug, Clone)]
pub(crate) struct Coder {
    pub(crate) wanted: Wanted,
    pub(crate) rows: Vec<Row>,
    /// Keys of ours that were deleted.
    pub(crate) deleted: Vec<Row>,
    pub(crate) secrets: BTreeMap<String, Stored>,
    /// Every version of every Secret that was ever written, by name.
    pub(crate) backups: Vec<(String, Stored)>,
    /// The newest value of ours that was in a Secret, unless a person has replaced it by another key.
    pub(crate) newest: Option<String>,
    pub(crate) status: Record,
    pub(crate) status_version: u64,
    pub(crate) now: Timestamp,
    /// How far coderd's clock is ahead.
    pub(crate) ahead: SignedDuration,
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
    /// How often a key was asked for.
    pub(crate) posts: usize,
    /// Organizations whose keys are not shown, and such as are not shown at all.
    pub(crate) unreadable: BTreeSet<Uuid>,
    pub(crate) hidden: BTreeSet<Uuid>,
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
    count: u128,
    pub(super) versions: u64,
}

pub(crate) type Shared = Arc<Mutex<Coder>>;

pub(crate) fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

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
    }
}

impl Coder {
    pub(crate) fn new(policy: Policy) -> Shared {
        Arc::new(Mutex::new(Self {
            wanted: wanted(policy),
            rows: Vec::new(),
            deleted: Vec::new(),
            secrets: BTreeMap::new(),
            backups: Vec::new(),
            newest: None,
            status: Record::default(),
            status_version: 0,
            now: start(),
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
            posts: 0,
            unreadable: BTreeSet::new(),
            hidden: BTreeSet::new(),
            pods_grace: SignedDuration::ZERO,
            calls: 0,
            checks_names: true,
            checks_value: true,
            log: Vec::new(),
            count: 0,
            versions: 0,
        }))
    }

    pub(crate) fn foreign(&mut self, name: &str, tags: &BTreeMap<String, String>, daemons: usize) {
        let organization = self.wanted.organization_id;
        let deployment = self.wanted.place.deployment_id.unwrap();
        if self.taken(deployment, organization, name) {
            return;
        }
        let row = self.row(deployment, organization, name, tags);
        let key = LiveKey { daemons, ..row.key.clone() };
        self.rows.push(Row { is_foreign: true, key, ..row });
    }

    fn row(
        &mut self,
        deployment: Uuid,
        organization_id: Uuid,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Row {
        self.count += 1;
        let key = LiveKey {
            id: Uuid::from_u128(1000 + self.count),
            // As coderd does.
            name: name.to_lowercase(),
            organization_id,
            tags: tags.clone(),
            created_at: self.now.checked_add(self.ahead).unwrap(),
            daemons: 0,
        };
        Row { deployment, key, value: format!("value-{}", self.count), is_foreign: false, is_left: false }
    }

    fn taken(&self, deployment: Uuid, organization: Uuid, name: &str) -> bool {
        let is_it = |it: &Row| {
            it.deployment == deployment
                && it.key.organization_id == organization
                && it.key.name.eq_ignore_ascii_case(name)
        };
        self.rows.iter().any(is_it)
    }

    /// The value in the Secret.
    pub(crate) fn value(&self) -> Option<&String> {
        self.secrets.get(&self.wanted.secret.name)?.data.get(&self.wanted.secret.key)
    }

    /// The key that it is.
    pub(crate) fn live(&self) -> Option<&Row> {
        let value = self.value()?;
        self.rows.iter().find(|it| it.value == *value)
    }

    pub(crate) fn ours(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|it| !it.is_foreign && !it.is_left)
    }

    /// A person is told of a key that stays. A stranger's is none of ours all the same.
    pub(super) fn name_as_left(&mut self, held: &Held) {
        let is_it = |it: &&mut Row| {
            !it.is_foreign
                && Some(it.deployment) == held.place.deployment_id
                && held.is_called(&it.key.name, Some(it.key.organization_id))
        };
        self.rows.iter_mut().filter(is_it).for_each(|it| it.is_left = true);
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.secrets.get(&self.wanted.secret.name)?.record.as_ref()
    }

    /// The pods are replaced by such as read what is there now, and sign in.
    pub(crate) fn roll(&mut self) {
        if !self.has_pods {
            return;
        }
        self.read = BTreeSet::from([self.wanted.secret.clone()]);
        let Some(value) = self.value().cloned() else { return };
        self.carried = BTreeSet::from([checksum(&SecretString::from(value.clone()))]);
        for row in self.rows.iter_mut().filter(|it| !it.is_foreign) {
            row.key.daemons = usize::from(row.value == value);
        }
    }

    /// Whether a key is written down anywhere.
    pub(crate) fn is_named(&self, row: &Row) -> bool {
        let records = self.secrets.values().filter_map(|it| it.record.as_ref()).chain([&self.status]);
        records.into_iter().any(|it| it.names_key(&row.key.name, Some(row.key.organization_id)))
    }

    /// No key of ours is in coderd that nobody could find again.
    fn check_named(&self) {
        for row in self.ours().filter(|_| self.checks_names) {
            let says_it = self.wanted.names.is_ours(&row.key.name);
            assert!(says_it || self.is_named(row), "{} is lost\n{self:#?}", row.key.name);
        }
    }

    fn check_bound(&self) {
        let most = 1 + self.disturbances;
        assert!(self.minted <= most, "{} keys were minted, not {most}\n{self:#?}", self.minted);
    }
}

/// Stops once.
pub(super) struct Pause(pub(super) bool);

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// What one process of the operator knows.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) coder: Shared,
    /// Lists that were read, of whichever age.
    pub(crate) cache: Arc<Mutex<BTreeMap<Uuid, Listing>>>,
    /// Secrets as they were last read or written.
    pub(crate) reads: Arc<Mutex<BTreeMap<SecretPlace, SecretRead>>>,
    /// Whether the watch of Secrets may be behind.
    pub(crate) lags: bool,
    pub(crate) deployment: Uuid,
    /// The version of the object that the pass began with.
    pub(crate) status_version: Arc<Mutex<u64>>,
    pub(crate) own: Arc<OwnIntents>,
    /// The newest record that this process knows.
    pub(crate) memory: Arc<Mutex<Option<Record>>>,
}

pub(crate) fn broken(what: &str) -> Trouble {
    Trouble::Blocked(Blocked { reason: api::Reason::Unreachable, message: what.to_owned() })
}

impl Operator {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Coder> {
        self.coder.lock().unwrap()
    }

    /// One call: stops, is done or not, is checked, stops again.
    pub(super) async fn call<T>(
        &self,
        what: String,
        run: impl FnOnce(&mut Coder) -> T + Send,
    ) -> Result<T, Trouble>
    where
        T: Send,
    {
        Pause(false).await;
        let done = {
            let mut coder = self.lock();
            coder.calls += 1;
            let fault = {
                let number = coder.calls;
                coder.faults.remove(&number)
            };
            coder.log.push(format!(
                "{}: {what}{}",
                self.name,
                fault.map_or(String::new(), |it| format!(" {it:?}"))
            ));
            if fault == Some(Fault::Refused) {
                Err(broken("refused"))
            } else {
                let foreign = coder.rows.iter().filter(|it| it.is_foreign).count();
                let was_live = coder.live().is_some() && coder.checks_value;
                let done = run(&mut coder);
                let kept = coder.rows.iter().filter(|it| it.is_foreign).count();
                assert_eq!(kept, foreign, "a foreign key was deleted\n{coder:#?}");
                assert!(!was_live || coder.live().is_some(), "the value in the Secret is dead\n{coder:#?}");
                coder.check_named();
                coder.check_bound();
                if fault == Some(Fault::LostAnswer) { Err(broken("lost")) } else { Ok(done) }
            }
        };
        Pause(false).await;
        done
    }
}

impl Coderd for Operator {
    async fn list(&self, organization: Uuid, is_anew: bool, now: Timestamp) -> Result<Listing, Trouble> {
        if !is_anew && let Some(known) = self.cache.lock().unwrap().get(&organization) {
            return Ok(known.clone());
        }
        let read = |coder: &mut Coder| {
            let is_here =
                |it: &&Row| it.deployment == self.deployment && it.key.organization_id == organization;
            let keys = coder.rows.iter().filter(is_here).map(|it| it.key.clone()).collect();
            (!coder.unreadable.contains(&organization)).then_some(keys)
        };
        let keys = self.call("list".to_owned(), read).await?;
        let Some(keys) = keys else { return Ok(Listing { keys: Vec::new(), at: now, is_shown: false }) };
        let listing = Listing { keys, at: now, is_shown: true };
        self.cache.lock().unwrap().insert(organization, listing.clone());
        Ok(listing)
    }

    async fn mint(&self, organization: Uuid, name: &str, tags: &BTreeMap<String, String>) -> Minting {
        let ailing = {
            let mut coder = self.lock();
            coder.posts += 1;
            let ailing = coder.ailing;
            coder.ailing = ailing.filter(|it| ![Ailing::Mute, Ailing::Twice].contains(it));
            ailing
        };
        match ailing {
            Some(Ailing::Fails) => return Minting::Unclear(broken("500")),
            Some(Ailing::Refuses) => return Minting::Refused(broken("403")),
            Some(Ailing::Mute | Ailing::Twice) | None => {}
        }
        let mint = |coder: &mut Coder| {
            if coder.taken(self.deployment, organization, name) {
                return None;
            }
            coder.minted += 1;
            coder.writes += 1;
            let row = coder.row(self.deployment, organization, name, tags);
            coder.rows.push(row.clone());
            Some(row.value)
        };
        match self.call(format!("mint {name}"), mint).await {
            Ok(Some(_)) if ailing == Some(Ailing::Twice) => Minting::Taken,
            Ok(Some(_)) if ailing == Some(Ailing::Mute) => Minting::Unclear(broken("502")),
            Ok(Some(value)) => Minting::Minted(SecretString::from(value)),
            Ok(None) => Minting::Taken,
            Err(Trouble::Blocked(it)) if it.message == "refused" => Minting::Refused(Trouble::Blocked(it)),
            Err(trouble) => Minting::Unclear(trouble),
        }
    }

    async fn delete(&self, organization: Uuid, name: &str) -> Result<bool, Trouble> {
        let delete = |coder: &mut Coder| {
            coder.writes += 1;
            let is_it = |it: &Row| {
                it.deployment == self.deployment
                    && it.key.organization_id == organization
                    && it.key.name.eq_ignore_ascii_case(name)
            };
            let Some(at) = coder.rows.iter().position(is_it) else { return false };
            let row = coder.rows.remove(at);
            let sum = checksum(&SecretString::from(row.value.clone()));
            let since = coder.record().and_then(|it| {
                it.retiring.iter().find(|it| it.held.name.eq_ignore_ascii_case(name)).map(|it| it.since)
            });
            let is_over = since.is_some_and(|it| coder.now.duration_since(it) >= GRACE);
            assert!(!coder.carried.contains(&sum) || is_over, "{name} is carried by pods\n{coder:#?}");
            if row.is_foreign {
                return true;
            }
            assert!(coder.newest.as_ref() != Some(&row.value), "the live key {name} is revoked\n{coder:#?}");
            coder.deleted.push(row);
            true
        };
        let done = self.call(format!("delete {name}"), delete).await?;
        if let Some(listing) = self.cache.lock().unwrap().get_mut(&organization) {
            listing.keys.retain(|it| !it.name.eq_ignore_ascii_case(name));
        }
        Ok(done)
    }

    async fn prove(&self, value: &SecretString) -> Result<Option<LiveKey>, Trouble> {
        let prove = |coder: &mut Coder| {
            let is_it = |it: &&Row| it.deployment == self.deployment && it.value == value.expose_secret();
            coder.rows.iter().find(is_it).map(|it| it.key.clone())
        };
        let key = self.call("prove".to_owned(), prove).await?;
        if let Some(key) = &key
            && let Some(listing) = self.cache.lock().unwrap().get_mut(&key.organization_id)
            && !listing.keys.iter().any(|it| it.id == key.id)
        {
            listing.keys.push(key.clone());
        }
        Ok(key)
    }

    async fn has_organization(&self, organization: Uuid) -> Result<bool, Trouble> {
        self.call("organizations".to_owned(), |coder| !coder.hidden.contains(&organization)).await
    }

    fn own_intents(&self) -> &OwnIntents {
        &self.own
    }
}

impl Operator {
    pub(crate) fn new(name: &'static str, coder: &Shared) -> Self {
        let deployment = coder.lock().unwrap().wanted.place.deployment_id.unwrap();
        let (coder, cache, status_version) = (Arc::clone(coder), Arc::default(), Arc::default());
        let (own, memory, reads) = (Arc::default(), Arc::default(), Arc::default());
        Self { name, coder, cache, reads, lags: false, deployment, status_version, own, memory }
    }

    pub(crate) fn pods(&self) -> Option<Pods> {
        let coder = self.lock();
        let Coder { carried, read, has_pods, pods_grace, .. } = &*coder;
        let (carried, secrets) = (carried.clone(), read.clone());
        let value = || coder.value().map(|it| checksum(&SecretString::from(it.clone())));
        // After a pass pods get what is in the Secret, unless something holds that up.
        let given = Some(coder.held_up.clone().or_else(value).into_iter().collect());
        has_pods.then(|| Pods { carried, given, secrets, are_wanted: true, grace: *pods_grace })
    }
}
