//! Tests on real coderds.
