//! Random bytes, from which secrets are made.

use std::fmt;

/// 32 unpredictable bytes.
#[derive(Clone)]
pub struct RandomBytes([u8; 32]);

impl RandomBytes {
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for RandomBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RandomBytes")
    }
}
