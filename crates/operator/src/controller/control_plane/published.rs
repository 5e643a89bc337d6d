//! What control planes publish for the daemons and the AI providers that belong to them. The status is written after dependents were woken.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
};

use api::CoderControlPlane;
use kube::{ResourceExt as _, runtime::watcher::Event};

use crate::planes::{PlaneName, name_of};

type Versions = HashMap<PlaneName, u64>;

/// What the statuses of control planes had for daemons when they were last shown.
#[derive(Debug, Default)]
pub(super) struct Published(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Versions,
    /// The list that is being read. The store has none of it before its end.
    listed: Versions,
}

impl Published {
    /// The control planes whose status is another one to their daemons, by what the watch has shown and the store has.
    pub(super) fn changed(&self, event: &Event<CoderControlPlane>) -> Vec<PlaneName> {
        let State { known, listed } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(plane) => drop(listed.insert(name_of(plane), version(plane))),
            Event::InitDone => {
                let before = std::mem::replace(known, std::mem::take(listed));
                let changed = known.iter().filter(|(name, version)| before.get(*name) != Some(version));
                return changed.map(|it| it.0.clone()).collect();
            }
            Event::Apply(plane) => {
                let (name, published) = (name_of(plane), version(plane));
                if known.insert(name.clone(), published) != Some(published) {
                    return vec![name];
                }
            }
            Event::Delete(plane) => drop(known.remove(&name_of(plane))),
        }
        Vec::new()
    }
}

/// Tells two versions of a control plane apart if they are not the same to its daemons.
fn version(plane: &CoderControlPlane) -> u64 {
    let mut hasher = DefaultHasher::new();
    let status = plane.status.as_ref();
    (plane.uid(), status.and_then(|it| it.url.as_ref())).hash(&mut hasher);
    status.and_then(|it| it.deployment_id.as_ref()).hash(&mut hasher);
    status.and_then(|it| it.version.as_ref()).hash(&mut hasher);
    status.and_then(|it| it.external_provisioner_daemons_entitlement.as_ref()).hash(&mut hasher);
    plane.spec.image().hash(&mut hasher);
    // Coder makes AI providers of it.
    serde_json::to_string(&plane.spec.extra_env).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plane(status: &Value) -> CoderControlPlane {
        serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main", "namespace": "platform", "uid": "u"}, "spec": {}, "status": status}))
        .unwrap()
    }

    #[test]
    fn status_is_news_where_daemons_depend_on_it() {
        let published = Published::default();
        let is_news = |event: &Event<CoderControlPlane>| !published.changed(event).is_empty();
        let (old, new) = (plane(&json!({"version": "v2.36.0"})), plane(&json!({"version": "v2.36.1"})));
        assert!(!is_news(&Event::InitApply(old.clone())), "the store has it at the end of the list");
        assert!(is_news(&Event::InitDone));
        assert!(!is_news(&Event::Apply(plane(&json!({"version": "v2.36.0", "phase": "Ready"})))));
        assert!(is_news(&Event::Apply(new.clone())));
        for shown in [Event::Init, Event::InitApply(new.clone()), Event::InitDone] {
            assert!(!is_news(&shown), "a watch that begins anew");
        }
        assert!(!is_news(&Event::Delete(new.clone())));
        assert!(is_news(&Event::Apply(new.clone())), "another one of the name");
        for shown in [Event::Init, Event::InitDone, Event::Init, Event::InitApply(new)] {
            assert!(!is_news(&shown));
        }
        assert!(is_news(&Event::InitDone), "one that was gone for a while");
    }
}
