//! Where tests break calls: before a call, and after it took effect.

use std::fmt;

use engine::ports::{Answer, ClusterError, Write, object::Key};

/// A call of the port.
#[derive(Debug, Clone, Copy)]
pub enum ClusterCall<'a> {
    Get(&'a Key),
    /// A Secret with its values.
    Secret {
        namespace: &'a str,
        name: &'a str,
    },
    /// The metadata of all Secrets of a namespace.
    Secrets {
        namespace: &'a str,
    },
    Namespace(&'a str),
    List {
        kind: &'a str,
    },
    Log {
        pod: &'a str,
    },
    Write(Write<'a>),
    Delete(&'a Key),
    /// An Event, also of an object that is left behind.
    Event {
        note: &'a str,
    },
}

/// Sees every call of a client, and may make it fail. Reads that a watch answers are no calls.
pub trait Interceptor: fmt::Debug + Send + Sync {
    /// Awaited before the call. After an error the call is not made.
    fn before<'a>(&'a self, call: &'a ClusterCall<'a>) -> Answer<'a, ()>;

    /// Awaited after the call took effect. An error takes the place of its answer.
    fn after<'a>(&'a self, call: &'a ClusterCall<'a>) -> Answer<'a, ()>;
}

/// A call with its interceptor, if there is one.
pub(super) struct Intercepted<'a> {
    pub(super) interceptor: Option<&'a dyn Interceptor>,
    pub(super) call: ClusterCall<'a>,
}

impl Intercepted<'_> {
    pub(super) async fn before(&self) -> Result<(), ClusterError> {
        match self.interceptor {
            Some(interceptor) => interceptor.before(&self.call).await,
            None => Ok(()),
        }
    }

    pub(super) async fn after(&self) -> Result<(), ClusterError> {
        match self.interceptor {
            Some(interceptor) => interceptor.after(&self.call).await,
            None => Ok(()),
        }
    }
}
