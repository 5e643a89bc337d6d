//! What this process remembers of keys between reconciles. Nothing that has to last is here, and no value is.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    holder::Holder,
    record::{Record, SecretPlace},
    secret_read::SecretRead,
};
use crate::ports::{
    Cluster,
    object::{Key, Live},
};

/// Which object: its kind, its namespace and its name.
type ObjectName = (String, String, String);

/// What is remembered of one object.
#[derive(Debug, Default)]
struct Remembered {
    /// Another object of the same name starts anew.
    uid: String,
    /// The newest copy of the record: those in the cluster may be replaced by older ones.
    record: Option<Record>,
    /// What its Secrets held when they were last read.
    reads: HashMap<SecretPlace, SecretRead>,
    /// The object as the last write of its status returned it. `None` once the driver has it.
    written: Option<Live>,
}

/// Where keys are kept: the cluster with their Secrets, and what this process remembers of them.
#[derive(Debug, Clone, Copy)]
pub struct KeyStore<'a> {
    pub cluster: &'a dyn Cluster,
    pub memory: &'a KeyMemory,
    /// Whether records are written into the status of the object, too. The command line has only the files of manifests, and
    /// leaves the status of an object in the cluster to the controllers.
    pub writes_status: bool,
}

/// What is remembered of all of them.
#[derive(Debug, Default)]
pub struct KeyMemory(Mutex<HashMap<ObjectName, Remembered>>);

impl KeyMemory {
    /// The newest copy of the record that this process knows.
    pub fn record(&self, holder: &Holder) -> Option<Record> {
        self.with(holder, |it| it.record.clone())
    }

    pub fn keep_record(&self, holder: &Holder, record: &Record) {
        self.with(holder, |it| it.record = Some(record.clone()));
    }

    /// Keeps the object whose status was written beside a driver.
    pub(super) fn keep_object(&self, holder: &Holder, object: &Live) {
        self.with(holder, |it| it.written = Some(object.clone()));
    }

    /// The same for an object without keys.
    pub(crate) fn keep_written(&self, object: Live) {
        let Key { kind, namespace, name, .. } = object.key.clone();
        self.lock().entry((kind, namespace, name)).or_default().written = Some(object);
    }

    /// Takes the object as the last write of its status returned it. `None` where no write came after the last call.
    pub fn take_object(&self, kind: &str, namespace: &str, name: &str) -> Option<Live> {
        let name = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.lock().get_mut(&name)?.written.take()
    }

    /// What a Secret held when it was last read, without its value.
    pub(super) fn last_read(&self, holder: &Holder, place: &SecretPlace) -> Option<SecretRead> {
        self.with(holder, |it| it.reads.get(place).cloned())
    }

    /// Keeps what a Secret holds, without its value. `None` where there is no Secret.
    pub(super) fn keep_read(&self, holder: &Holder, place: &SecretPlace, read: Option<&SecretRead>) {
        let read = read.map(|it| SecretRead { value: None, ..it.clone() });
        self.with(holder, |it| match read {
            Some(read) => drop(it.reads.insert(place.clone(), read)),
            None => drop(it.reads.remove(place)),
        });
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, kind: &str, namespace: &str, name: &str) {
        self.lock().remove(&(kind.to_owned(), namespace.to_owned(), name.to_owned()));
    }

    /// Forgets everything, as a start does.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn with<T>(&self, holder: &Holder, look: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut objects = self.lock();
        let name = (holder.kind.to_string(), holder.namespace.clone(), holder.name.clone());
        let remembered = objects.entry(name).or_default();
        if remembered.uid != holder.uid {
            *remembered = Remembered { uid: holder.uid.clone(), ..Remembered::default() };
        }
        look(remembered)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectName, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
