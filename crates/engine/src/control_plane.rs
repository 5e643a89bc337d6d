//! What a control plane needs beyond the stages that every kind has: access, licences, entitlements.

pub mod access;
pub mod entitlements;
pub mod license;
pub mod report;
