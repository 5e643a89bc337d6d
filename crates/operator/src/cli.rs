//! The command line: arguments, manifests from files, the verbs, and how their results are shown.

pub(crate) mod address;
pub(crate) mod deployment;
pub(crate) mod exit;
pub(crate) mod file_cluster;
pub(crate) mod manifests;
pub(crate) mod objects;
pub(crate) mod render;
pub(crate) mod secrets;
pub(crate) mod terminal;
pub(crate) mod verbs;
