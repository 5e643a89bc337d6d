//! Tests on real parts: the life of every registered kind and what it costs on coderds, and a control plane's objects in a cluster.

mod access;
mod adoption;
mod approval;
mod children;
mod defaults;
mod deployment;
mod gates;
mod license;
mod lifecycle;
mod plane;
mod requests;
mod roles;
mod sharing;
mod users;
