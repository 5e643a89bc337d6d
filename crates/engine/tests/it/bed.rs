//! Tests on real coderds: the life of every registered kind, and what it costs.

mod access;
mod adoption;
mod approval;
mod defaults;
mod deployment;
mod gates;
mod license;
mod lifecycle;
mod requests;
