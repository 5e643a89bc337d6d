//! The ledger of a provisioner: the keys of its daemons. Its objects go with their owner. Pure.

use api::{CoderProvisioner, Mode, finalizer};
use kube::ResourceExt as _;

use super::keys::recorded;
use crate::{
    pipeline::ledger::{Entry, Ledger},
    ports::finalizers,
    secrets::{Names, Record, key_entries},
};

/// What the deletion of a provisioner has to take back, as far as the status names it.
pub fn ledger(provisioner: &CoderProvisioner) -> Ledger {
    let mut ledger = Ledger::new(keys(provisioner, &[recorded(provisioner)]));
    if provisioner.spec.changes.policy().mode() == Mode::Enforce {
        ledger.add(Entry::Declared(format!("provisioner key {}", provisioner.key_name())));
    }
    if finalizers::has(&provisioner.metadata, finalizer::PROVISIONER) {
        // The status may not have the key yet that a request with a lost answer made.
        ledger.add(Entry::UnnamedKeys);
    }
    ledger
}

/// The keys of these records, the newest first.
pub fn keys(provisioner: &CoderProvisioner, records: &[Record]) -> Vec<Entry> {
    key_entries(&Names::new(provisioner.key_name(), &provisioner.uid().unwrap_or_default()), records)
}
