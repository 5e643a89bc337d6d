//! `coder-operator uninstall-check`: whether the operator may leave a cluster.
//!
//! An object with one of our finalizers is gone only after the operator has cleaned up what the object made. Without an
//! operator its deletion, and that of its namespace, never ends. The chart runs this verb before `helm uninstall`.

use std::fmt;

use anyhow::Context as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PartialObjectMeta},
};

use crate::{
    args::UninstallCheck,
    cli::{
        exit::{Exit, Failure},
        terminal::say,
    },
    cluster::{self, fence::Fence},
};

/// How the finalizers of every kind of ours begin.
const OURS: &str = "coder.com/";
/// How many objects a refusal lists.
const LISTED: usize = 20;

/// An object whose deletion needs the operator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    namespace: String,
    kind: String,
    name: String,
    is_being_deleted: bool,
}

impl fmt::Display for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, kind, name, is_being_deleted } = self;
        let note = if *is_being_deleted { " (is being deleted)" } else { "" };
        write!(formatter, "{kind} {namespace}/{name}{note}")
    }
}

pub(crate) async fn uninstall_check(args: &UninstallCheck) -> Result<Exit, Failure> {
    let client = cluster::clients(Fence::open()).await?.acting;
    let mut held = Vec::new();
    for crd in api::crds() {
        held.extend(held_of(&client, &crd.spec.names.kind, args.namespace.as_deref()).await?);
    }
    if held.is_empty() {
        say("no object needs the operator for its deletion");
        return Ok(Exit::Success);
    }
    held.sort();
    Err(Failure::refused(refusal(&held, args.advice.as_deref())))
}

/// The objects of a kind whose deletion needs the operator.
async fn held_of(client: &Client, kind: &str, namespace: Option<&str>) -> anyhow::Result<Vec<Held>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coder.com", "v1alpha1", kind));
    let objects: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    match objects.list_metadata(&ListParams::default()).await {
        Ok(found) => Ok(found.items.iter().filter_map(|it| held(kind, it)).collect()),
        // A kind that the cluster does not know has no objects.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("list the objects of kind {kind}")),
    }
}

fn held(kind: &str, object: &PartialObjectMeta<DynamicObject>) -> Option<Held> {
    let needs_us = object.finalizers().iter().any(|it| it.starts_with(OURS));
    needs_us.then(|| Held {
        namespace: object.namespace().unwrap_or_default(),
        kind: kind.to_owned(),
        name: object.name_any(),
        is_being_deleted: object.metadata.deletion_timestamp.is_some(),
    })
}

/// Which objects stand in the way, and what to do about them.
fn refusal(held: &[Held], advice: Option<&str>) -> String {
    let mut lines = vec![match held.len() {
        1 => "1 object needs the operator for its deletion, which would never end without it:".to_owned(),
        count => {
            format!("{count} objects need the operator for their deletion, which would never end without it:")
        }
    }];
    lines.extend(held.iter().take(LISTED).map(|it| format!("  {it}")));
    if let Some(more) = held.len().checked_sub(LISTED).filter(|it| *it > 0) {
        lines.push(format!("  and {more} more"));
    }
    let is_plane = |it: &&Held| it.kind == "CoderControlPlane";
    let first = held.iter().find(|it| !is_plane(it)).or_else(|| held.first());
    let Some(Held { namespace, kind, name, .. }) = first else { return lines.join("\n") };
    let kind = kind.to_lowercase();
    lines.push(format!(
        "Delete them while the operator runs, CoderControlPlanes last, as in: kubectl --namespace {namespace} delete {kind} {name}"
    ));
    lines.push(
        "An object that is being deleted and does not go says why in its condition Ready; the annotation \
         coder.com/force-finalize=true releases it at once."
            .to_owned(),
    );
    lines.extend(advice.map(str::to_owned));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(finalizers: &[&str]) -> PartialObjectMeta<DynamicObject> {
        let metadata = json!({"name": "developers", "namespace": "platform", "finalizers": finalizers});
        serde_json::from_value(json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": metadata}))
        .unwrap()
    }

    fn many(count: usize) -> Vec<Held> {
        let found = object(&[api::finalizer::FINALIZER]);
        (0..count).filter_map(|_| held("CoderGroup", &found)).collect()
    }

    #[test]
    fn only_finalizers_of_ours_hold_an_object() {
        for ours in [api::finalizer::FINALIZER, api::finalizer::CONTROL_PLANE, api::finalizer::PROVISIONER] {
            assert!(held("CoderGroup", &object(&["example.com/other", ours])).is_some(), "{ours}");
        }
        assert_eq!(held("CoderGroup", &object(&["example.com/other"])), None);
        assert_eq!(held("CoderGroup", &object(&[])), None);
    }

    #[test]
    fn a_refusal_names_the_objects_and_what_to_do() {
        let text = refusal(&many(1), Some("Or stay."));
        assert!(text.starts_with("1 object needs the operator"), "{text}");
        assert!(text.contains("  CoderGroup platform/developers\n"), "{text}");
        assert!(text.contains("kubectl --namespace platform delete codergroup developers"), "{text}");
        assert!(text.ends_with("Or stay."), "{text}");
    }

    #[test]
    fn a_refusal_of_many_objects_is_bounded() {
        let text = refusal(&many(LISTED + 3), None);
        assert!(text.contains("23 objects need") && text.contains("  and 3 more\n"), "{text}");
    }
}
