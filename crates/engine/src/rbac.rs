//! RBAC as data: which verbs on which resources the operator needs, where, and why.
//!
//! [`needs`] is the one table. The manifests under `deploy/rbac`, the chart's template and the page in the docs are generated
//! from it (`cargo xtask rbacgen`, `cargo xtask docsgen`). Tests run the operator with these rules and nothing else, and a
//! whole test run reports the rows that no request used.

mod people;
mod table;
#[cfg(test)]
mod tests;

use k8s_openapi::api::rbac::v1::PolicyRule;

pub use people::{ManagedKind, READ, WRITE, kinds};
pub use table::{cli, needs};

/// The default name of the Lease. Manifests that give it another name put that one in place of this in `resourceNames`.
pub const LEASE: &str = "coder-operator";

/// Who needs a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consumer {
    /// The process itself, whatever it reconciles.
    Operator,
    /// The controller of `CoderControlPlane`.
    ControlPlane,
    /// The controller of `CoderProvisioner`.
    Provisioner,
    /// The controllers of the kinds that declare state in Coder, which share their code.
    AppState,
    /// `plan`, `apply` and `verify`, run by a person or a Job.
    Cli,
}

impl Consumer {
    /// The name that readers know the consumer by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::ControlPlane => "CoderControlPlane",
            Self::Provisioner => "CoderProvisioner",
            Self::AppState => "other kinds",
            Self::Cli => "plan, apply, verify",
        }
    }
}

/// In which namespaces a rule has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleScope {
    /// The namespaces whose manifests are reconciled.
    Watched,
    /// The same, and the namespaces that take workspaces from them (`spec.rbac.workspaceNamespaces`).
    Workspaces,
    /// The namespace that the operator runs in.
    Own,
}

/// How a rule is shown to be needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The operator sends requests with these verbs.
    Requests,
    /// The operator holds the rule to grant it: Kubernetes lets nobody put into a Role what they do not hold themselves.
    Granted,
    /// No request has these verbs, for this reason.
    NoRequest(&'static str),
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    pub by: Consumer,
    pub place: RuleScope,
    /// The API group; the core group is empty.
    pub group: String,
    pub resources: Vec<String>,
    /// The objects by name; all of them when empty.
    pub names: Vec<&'static str>,
    pub verbs: Vec<String>,
    pub why: &'static str,
    pub evidence: Evidence,
}

/// A Role of the operator, by where it is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In the namespaces that are reconciled: a Role in each, or one `ClusterRole` for all of them.
    Watched,
    /// In a namespace that takes workspaces from one that is reconciled.
    Workspaces,
    /// In the namespace that the operator runs in.
    Own,
    /// For whoever runs the command line against a cluster.
    Cli,
}

/// A rule of a Role, with every reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub group: String,
    pub resources: Vec<String>,
    pub names: Vec<&'static str>,
    pub verbs: Vec<String>,
    /// Whether the rule is held only to grant it.
    pub is_granted: bool,
    /// Each reason with everybody who has it.
    pub reasons: Vec<(Vec<Consumer>, &'static str)>,
}

impl Rule {
    fn add_reason(&mut self, by: Consumer, why: &'static str) {
        match self.reasons.iter_mut().find(|(_, known)| *known == why) {
            Some((consumers, _)) if consumers.contains(&by) => {}
            Some((consumers, _)) => consumers.push(by),
            None => self.reasons.push((vec![by], why)),
        }
    }

    /// The rule as Kubernetes spells it.
    pub fn policy(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.clone()]),
            resources: Some(self.resources.clone()),
            resource_names: (!self.names.is_empty())
                .then(|| self.names.iter().map(|it| (*it).to_owned()).collect()),
            verbs: self.verbs.clone(),
            non_resource_urls: None,
        }
    }
}

/// The rules of a Role: the rows that hold there, with each resource in one rule, or in two where some verbs are only granted.
pub fn rules(form: Form) -> Vec<Rule> {
    let rows = match form {
        Form::Watched => in_places(&[RuleScope::Watched, RuleScope::Workspaces]),
        Form::Workspaces => in_places(&[RuleScope::Workspaces]),
        Form::Own => in_places(&[RuleScope::Own]),
        Form::Cli => cli(),
    };
    together(one_per_resource(rows))
}

fn in_places(places: &[RuleScope]) -> Vec<Need> {
    needs().into_iter().filter(|it| places.contains(&it.place)).collect()
}

/// A rule for each resource, in the order of the table, so that a generated file changes where the table does.
fn one_per_resource(rows: Vec<Need>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for row in rows {
        let is_granted = row.evidence == Evidence::Granted;
        for resource in row.resources {
            let is_same = |it: &Rule| {
                it.group == row.group
                    && it.resources == [resource.as_str()]
                    && it.names == row.names
                    && it.is_granted == is_granted
            };
            let position = rules.iter().position(is_same).unwrap_or_else(|| {
                let (group, names) = (row.group.clone(), row.names.clone());
                let resources = vec![resource.clone()];
                rules.push(Rule { group, resources, names, is_granted, verbs: vec![], reasons: vec![] });
                rules.len() - 1
            });
            let Some(rule) = rules.get_mut(position) else { continue };
            rule.verbs = table::in_order(rule.verbs.iter().chain(&row.verbs));
            rule.add_reason(row.by, row.why);
        }
    }
    rules
}

/// Resources of one group that have the same verbs for the same reasons share a rule.
fn together(rules: Vec<Rule>) -> Vec<Rule> {
    let mut joined: Vec<Rule> = Vec::new();
    for rule in rules {
        let is_alike = |it: &&mut Rule| {
            it.group == rule.group
                && it.names == rule.names
                && it.is_granted == rule.is_granted
                && it.verbs == rule.verbs
                && it.reasons == rule.reasons
        };
        match joined.iter_mut().find(is_alike) {
            Some(alike) => alike.resources.extend(rule.resources),
            None => joined.push(rule),
        }
    }
    joined
}
