//! What became of a key that was to be revoked.

/// What became of a key that was to be revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    Done,
    /// There was no such key.
    Absent,
    /// Another key has the name by now; it was left alone.
    NotOurs,
    /// A key has the name that may be ours or a stranger's: it stays, and is named.
    Doubtful,
    /// Its deployment is gone, or not known: the key stays, and is named.
    OutOfReach,
}
