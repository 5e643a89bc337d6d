//! Carries out what the machine of [`secrets`](crate::secrets) decides about keys, at a deployment.

pub mod coderd;
pub mod deletion;
pub mod drive;

pub use coderd::Minting;
pub use drive::{Drive, Driven, Looked};
