//! Tests on real parts.
