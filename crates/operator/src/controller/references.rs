//! The objects of deployments that manifests refer to by name, and the news of their changes.
//!
//! A controller that has created, changed or deleted such an object announces it. Every manifest that refers to the object is
//! reconciled then, whether it waits for the object or holds an id of it, so no change can be missed between two looks.

use engine::RemoteName;
use futures::Stream;
use tokio::sync::broadcast;

use crate::{planes::PlaneName, stream::received};

/// How many changes a slow controller may be behind before it reconciles everything.
const CAPACITY: usize = 1024;

/// An object that was created, changed or deleted.
#[derive(Debug, Clone)]
pub(super) struct Changed {
    pub(super) plane: PlaneName,
    pub(super) name: RemoteName,
}

impl Changed {
    /// Whether a manifest of that control plane refers to the object by one of these names.
    pub(super) fn concerns(&self, plane: &PlaneName, refs: &[RemoteName]) -> bool {
        self.plane == *plane && refs.iter().any(|it| it.may_be(&self.name))
    }
}

/// Where changes are announced.
#[derive(Debug)]
pub(super) struct References(broadcast::Sender<Changed>);

impl Default for References {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl References {
    pub(super) fn announce(&self, plane: PlaneName, name: RemoteName) {
        // No receiver: no controller runs.
        self.0.send(Changed { plane, name }).ok();
    }

    /// Every change from now on; `None` where the receiver was too slow and missed some.
    pub(super) fn changes(&self) -> impl Stream<Item = Option<Changed>> + Send + 'static {
        received(self.0.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_concerns_those_who_refer_to_it_at_the_same_control_plane() {
        let plane = |name: &str| ("platform".to_owned(), name.to_owned());
        let organization = |name: &str| RemoteName::Organization(name.to_owned());
        let changed = Changed { plane: plane("main"), name: organization("alpha") };
        assert!(changed.concerns(&plane("main"), &[organization("bravo"), organization("alpha")]));
        assert!(!changed.concerns(&plane("other"), &[organization("alpha")]));
        assert!(!changed.concerns(&plane("main"), &[organization("bravo")]));
        assert!(!changed.concerns(&plane("main"), &[]));
    }
}
