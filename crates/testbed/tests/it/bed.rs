//! Tests on real parts.

mod beds;
mod cluster;
mod coder;
mod licences;
mod logs;
mod pod_lifecycle;
mod pods;
mod provisioner;
