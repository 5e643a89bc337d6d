//! The life of provisioner keys: minted, kept in a Secret, rotated with overlap, revoked.
//!
//! coderd shows a key once and deletes by name. So the name of a key is written down before coderd is asked for it, value and
//! record are written together into one Secret, and nothing is revoked that the record does not call ours. That one
//! Secret, written with the version that was read, is also the fence between two operators and what a crash leaves behind.
//!
//! [`machine::next`] decides, one action at a time, from values alone. [`drive`] does the actions. [`ending::end`] says what
//! is revoked when the manifest goes. [`preview`](preview::preview) tells beforehand what would be done.
//!
//! The record has several copies, and each write adds one to its epoch: the highest epoch is the newest wherever it is found,
//! and a Secret with an older one is reported ([`copies`]).
//!
//! coderd cannot be fenced: an operator that slept may ask for a key long after its intent was given up. So a name that was
//! given up stays written down for a while, and one with our suffix is found again whenever it comes.

pub mod around;
pub(crate) mod copies;
pub mod declared;
pub mod deletion;
pub(crate) mod describe;
pub mod fingerprints;
pub mod holder;
pub mod holders;
pub mod key_secrets;
pub mod machine;
pub mod memory;
pub mod mirror;
pub mod names;
pub mod own;
pub mod own_secrets;
pub mod preview;
pub mod record;
mod record_copies;
pub mod referenced;
pub mod revoked;
pub mod secret_read;
pub mod situation;

pub use around::{Around, Why};
pub use declared::SecretValues;
pub use deletion::{HeldKeys, key_entries, key_entry, keys_to_revoke};
pub use fingerprints::FingerprintKeys;
pub use holder::{Holder, Verified};
pub use key_secrets::{KeySecrets, Written};
pub use machine::{KeyNeed, Next, Rest, next};
pub use memory::{KeyMemory, KeyStore};
pub use names::{Names, checksum, tags_hash};
pub use own::OwnIntents;
pub use preview::{Act, Before, KeyPreview, preview};
pub use record::{Held, Intent, Place, Record, Retiring, SecretPlace};
pub use record_copies::RecordCopies;
pub use revoked::Revoked;
pub use secret_read::SecretRead;
pub use situation::{LiveKey, Owner, Pods, Policy, Proof, SecretSeen, Seen, Value, Wanted};
