//! The table itself: a row for each set of verbs, with the controller that needs it and why.

use std::collections::BTreeSet;

use api::{CoderControlPlane, CoderOrganization, CoderProvisioner, CoderProvisionerKey};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Resource;

use super::{Consumer, Evidence, LEASE, Need, RuleScope};
use crate::{
    Kind,
    kinds::{self, control_plane::children as control_plane, provisioner},
};

/// Verbs in the order in which people write them.
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

const RBAC: &str = "rbac.authorization.k8s.io";

const LAST_LINE: &str = "the last log line of a pod that fails";
const OBJECTS: &str = "the objects of a CoderProvisioner, to compare them";
const PLANE: &str = "the control plane that a manifest refers to";
const ROLLOUT: &str = "the state of a rollout";
const SAME_KEY: &str = "whether another object holds a key of the same name";
const SECRETS_READ: &str = "Secrets that manifests refer to: a manifest may name any Secret of its namespace, so with the \
    ClusterRole any Secret of the cluster. Metadata is watched, values are read one by one";
const WORKSPACE_ROLES: &str = "the Roles with which templates create workspaces";

/// Everything that `coder-operator run` needs.
pub fn needs() -> Vec<Need> {
    [operator(), control_planes(), provisioners(), app_state(), granted()].concat()
}

/// What `plan`, `apply` and `verify` need of a cluster that they are pointed at.
pub fn cli() -> Vec<Need> {
    let by = Consumer::Cli;
    let planes = plural::<CoderControlPlane>();
    let keys = plural::<CoderProvisionerKey>();
    let provisioners = plural::<CoderProvisioner>();
    vec![
        row(by, api::GROUP, &[&planes], "get", PLANE),
        row(by, "", &["secrets"], "get", "the credentials that the control plane refers to"),
        row(
            by,
            api::GROUP,
            &[&keys],
            "get list",
            "the CoderProvisionerKey that the controllers have, and other objects with keys",
        ),
        row(
            by,
            api::GROUP,
            &[&provisioners],
            "get list",
            "the CoderProvisioner that the controllers have, and other objects with keys",
        ),
        row(
            by,
            "",
            &["secrets"],
            "create update delete",
            "the Secret of a CoderProvisionerKey that is applied",
        ),
        row(by, "", &["serviceaccounts", "services"], "get list", OBJECTS),
        row(
            by,
            "",
            &["configmaps"],
            "get",
            "ConfigMaps that a managed control plane or a CoderTemplate reads",
        ),
        row(by, "", &["pods"], "list", "which key the daemons' pods carry"),
        row(by, "apps", &["deployments"], "get list", OBJECTS),
        row(by, "apps", &["replicasets"], "list", ROLLOUT),
        row(by, RBAC, &["roles", "rolebindings"], "get list", OBJECTS),
        row(by, "networking.k8s.io", &["ingresses"], "get list", OBJECTS),
        row(by, "gateway.networking.k8s.io", &["httproutes"], "get list", OBJECTS),
    ]
}

fn operator() -> Vec<Need> {
    let by = Consumer::Operator;
    let own = |it: Need| Need { place: RuleScope::Own, ..it };
    let lease = Need {
        names: vec![LEASE],
        ..row(by, "coordination.k8s.io", &["leases"], "get update", "leader election: the one Lease")
    };
    vec![
        row(
            by,
            "events.k8s.io",
            &["events"],
            "create patch",
            "changes, and remote objects that were left behind",
        ),
        row(by, "", &["namespaces"], "get", "whether the namespace is being deleted"),
        own(row(
            by,
            "coordination.k8s.io",
            &["leases"],
            "create",
            "leader election: creation has no name yet",
        )),
        own(lease),
        own(row(
            by,
            "events.k8s.io",
            &["events"],
            "create patch",
            "Events about the operator's own Pod, when the namespace of a manifest takes no more of them",
        )),
    ]
}

fn control_planes() -> Vec<Need> {
    let by = Consumer::ControlPlane;
    let mut dependents = registered();
    dependents.push(plural::<CoderProvisioner>());
    let dependents: Vec<&str> = dependents.iter().map(String::as_str).collect();
    let elsewhere = |it: Need| Need { place: RuleScope::Workspaces, ..it };
    let (ingress, gateway) = ("networking.k8s.io", "gateway.networking.k8s.io");
    let mut rows = manifests(by, &[plural::<CoderControlPlane>()]);
    rows.extend([
        row(by, api::GROUP, &dependents, "list", "deletion: the dependents of the control plane"),
        row(by, "", &["secrets"], "get list watch", SECRETS_READ),
        row(
            by,
            "",
            &["secrets"],
            "create update patch delete",
            "the token Secret, and the admin Job's Secret",
        ),
        row(
            by,
            "",
            &["configmaps"],
            "get list watch",
            "ConfigMaps that coderd's pods read. Metadata is watched",
        ),
        row(by, "", &["services"], "get list create patch", "coderd's Service"),
        row(by, "", &["serviceaccounts"], "get list create patch delete", "the account of coderd's pods"),
        row(by, "", &["pods"], "list watch", ROLLOUT),
        row(by, "", &["pods/log"], "get", LAST_LINE),
        row(by, "apps", &["deployments"], "get list watch create patch", "coderd's Deployment"),
        row(by, "apps", &["replicasets"], "list watch", ROLLOUT),
        row(
            by,
            "batch",
            &["jobs"],
            "get list watch create delete",
            "the Job that creates the operator's account",
        ),
        row(by, ingress, &["ingresses"], "get list create patch delete", "spec.expose.ingress"),
        row(by, gateway, &["httproutes"], "get list create patch delete", "spec.expose.gateway"),
        elsewhere(row(by, "", &["namespaces"], "get", "whether a namespace consents to take workspaces")),
        elsewhere(row(by, RBAC, &["roles", "rolebindings"], "get list create patch delete", WORKSPACE_ROLES)),
    ]);
    rows
}

fn provisioners() -> Vec<Need> {
    let by = Consumer::Provisioner;
    let own = plural::<CoderProvisioner>();
    let mut rows = manifests(by, std::slice::from_ref(&own));
    for row in rows.iter_mut().filter(|it| it.resources.contains(&own)) {
        row.verbs.retain(|it| it != "get");
    }
    rows.push(Need {
        evidence: Evidence::NoRequest(
            "sent only after another client has changed the object since the watch showed it",
        ),
        ..row(by, api::GROUP, &[&own], "get", "manifests that another client has changed meanwhile")
    });
    rows.extend([
        row(by, api::GROUP, &[&plural::<CoderControlPlane>()], "get list watch", PLANE),
        row(by, api::GROUP, &[&plural::<CoderOrganization>()], "list watch", "the organization of the key"),
        row(by, api::GROUP, &[&plural::<CoderProvisionerKey>()], "list", SAME_KEY),
        row(by, "", &["secrets"], "get list watch", SECRETS_READ),
        row(by, "", &["secrets"], "create update delete", "key Secrets"),
        row(by, "", &["serviceaccounts"], "get list watch create patch delete", "the account of the daemons"),
        row(by, "", &["pods"], "list watch", "which key the daemons' pods carry"),
        row(by, "", &["pods/log"], "get", LAST_LINE),
        row(by, "apps", &["deployments"], "get list watch create patch delete", "the daemons' Deployment"),
        row(by, "apps", &["replicasets"], "list watch", ROLLOUT),
        row(by, RBAC, &["roles", "rolebindings"], "get list watch create patch delete", WORKSPACE_ROLES),
    ]);
    rows
}

fn app_state() -> Vec<Need> {
    let by = Consumer::AppState;
    let mut rows = manifests(by, &registered());
    // They own no object of the cluster.
    rows.retain(|it| it.evidence == Evidence::Requests);
    rows.extend([
        row(by, api::GROUP, &[&plural::<CoderControlPlane>()], "get", PLANE),
        row(by, api::GROUP, &[&plural::<CoderProvisioner>()], "list", SAME_KEY),
        row(
            by,
            "",
            &["secrets"],
            "get list watch create update delete",
            "the Secret of a CoderProvisionerKey",
        ),
        row(
            by,
            "",
            &["configmaps"],
            "get list watch",
            "ConfigMaps with the source of a CoderTemplate. Metadata is watched",
        ),
    ]);
    rows
}

/// What the Roles hold that the operator makes, for coderd's pods and for daemons.
fn granted() -> Vec<Need> {
    let planes = control_plane::workspace_rules(true).into_iter();
    let planes = planes.map(|it| (Consumer::ControlPlane, RuleScope::Workspaces, it));
    let daemons = provisioner::children::workspace_rules(true).into_iter();
    let daemons = daemons.map(|it| (Consumer::Provisioner, RuleScope::Watched, it));
    let rows = planes.chain(daemons).flat_map(|(by, place, rule)| {
        let PolicyRule { api_groups, resources, verbs, .. } = rule;
        let (resources, why) =
            (resources.unwrap_or_default(), "the objects that templates create workspaces from");
        api_groups.into_iter().flatten().map(move |group| Need {
            by,
            place,
            group,
            resources: resources.clone(),
            names: Vec::new(),
            verbs: verbs.clone(),
            why,
            evidence: Evidence::Granted,
        })
    });
    rows.collect()
}

/// What every controller does with its own manifests.
fn manifests(by: Consumer, kinds: &[String]) -> Vec<Need> {
    let part = |part: &str| -> Vec<String> { kinds.iter().map(|it| format!("{it}/{part}")).collect() };
    let of = |resources: &[String], verbs: &str, why: &'static str| {
        let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
        row(by, api::GROUP, &resources, verbs, why)
    };
    vec![
        of(kinds, "get list watch patch", "manifests, and their finalizers"),
        of(&part("status"), "update patch", "status"),
        Need {
            evidence: Evidence::NoRequest(
                "an admission plugin that some clusters enable asks for it when an owned object is created",
            ),
            ..of(&part("finalizers"), "update", "owned objects that block the deletion of their owner")
        },
    ]
}

fn row(by: Consumer, group: &str, resources: &[&str], verbs: &str, why: &'static str) -> Need {
    Need {
        by,
        place: RuleScope::Watched,
        group: group.to_owned(),
        resources: resources.iter().map(|it| (*it).to_owned()).collect(),
        names: Vec::new(),
        verbs: verbs.split_whitespace().map(str::to_owned).collect(),
        why,
        evidence: Evidence::Requests,
    }
}

fn plural<K: Resource<DynamicType = ()>>() -> String {
    K::plural(&()).into_owned()
}

/// The plurals of every registered kind.
fn registered() -> Vec<String> {
    let mut plurals = Plurals::default();
    kinds::visit(&mut plurals);
    plurals.0
}

#[derive(Default)]
struct Plurals(Vec<String>);

impl kinds::Visitor for Plurals {
    fn visit<K: Kind>(&mut self) {
        self.0.push(plural::<K::Manifest>());
    }
}

/// These verbs in the order in which people write them, each once.
pub(super) fn in_order<'a>(verbs: impl Iterator<Item = &'a String>) -> Vec<String> {
    let place = |verb: &str| VERBS.iter().position(|it| *it == verb).unwrap_or(VERBS.len());
    let verbs: BTreeSet<(usize, &String)> = verbs.map(|it| (place(it), it)).collect();
    verbs.into_iter().map(|(_, it)| it.clone()).collect()
}
