//! The objects of a deployment as manifests, for `export`.
//!
//! Every kind has one hook, [`Kind::export`], which reads the shared lists and returns drafts. This module calls the hooks, names the
//! manifests, removes fields that the deployment does not support, and collects what a person has to know: Secrets to supply,
//! fields that Coder does not show, objects that are left out, lists that could not be read.

mod names;

use std::collections::{BTreeMap, BTreeSet};

use api::{Mode, Reason};
use client::organizations::Organization;
use kube::Resource as _;
use serde_json::{Value, json};

use crate::{
    coder::Coder,
    kind::Kind,
    pipeline::{
        export::{
            Draft, ExportPlace, KindExport, LeftOut, Listed, NeededSecret, SourceFile, organization_word,
            slug,
        },
        outcome::{Blocked, Trouble},
    },
};

/// The name of the control plane in manifests, where a person gives none.
pub const CONTROL_PLANE: &str = "main";
/// What a deployment has and no kind declares.
const NOT_COVERED: &str = "workspace proxies, OAuth2 applications, MCP servers, system prompts and prices of AI models, and the roles of \
     members in organizations are not exported: there is no kind for them";
/// The most that files of a template in its manifest are, in bytes. The store of a cluster takes about a megabyte.
const LARGEST_INLINE: usize = 256 * 1024;
/// The most files of a template in its manifest.
const MOST_INLINE: usize = 1000;
/// The role that sees everything.
const OWNER: &str = "owner";

/// What is exported, and what every manifest has in common.
#[derive(Debug, Clone, Default)]
pub struct ExportScope {
    /// The name of the control plane that the manifests refer to.
    pub control_plane: String,
    /// The namespace of the manifests. `None` for manifests without one.
    pub namespace: Option<String>,
    /// The kinds, by name; empty for all.
    pub kinds: BTreeSet<String>,
    /// Whether objects that are exported only on request are exported, too: provisioner keys, people of an identity provider.
    pub has_requested: bool,
    /// The only organization, by name; `None` for all, and for what is in none.
    pub organization: Option<String>,
    /// The mode of the manifests. `None` for manifests without one.
    pub mode: Option<Mode>,
    /// Whether files of templates stand in their manifests, as a stream and a controller need them. Otherwise they are beside them.
    pub inlines_files: bool,
}

impl ExportScope {
    fn takes(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.contains(kind)
    }

    /// Whether a person named the kind.
    fn names(&self, kind: &str) -> bool {
        self.kinds.contains(kind)
    }
}

/// A manifest.
#[derive(Debug, Clone)]
pub struct Exported {
    /// Lower ones are applied first.
    pub rank: u8,
    pub kind: String,
    pub name: String,
    /// The remote object in words.
    pub target: String,
    pub manifest: Value,
    pub notes: Vec<String>,
    pub secrets: Vec<NeededSecret>,
    /// The files of a template, for the folder that has the manifest's name and is beside it; empty where there are none.
    pub files: BTreeMap<String, SourceFile>,
}

impl Exported {
    /// Removes the source of a template and everything that belongs to it. Returns what is missing then.
    pub fn leave_out_source(&mut self, why: &str) -> LeftOut {
        self.files.clear();
        self.secrets.clear();
        if let Some(spec) = self.manifest["spec"].as_object_mut() {
            for field in ["source", "version", "variables", "provisionerTags"] {
                spec.remove(field);
            }
        }
        self.notes = vec![
            "source is left out: versions are published elsewhere, and the template has to exist".to_owned(),
        ];
        LeftOut { what: format!("files of {}", self.target), why: why.to_owned() }
    }

    /// Puts the files into the manifest, unless they are too many, too large or no text.
    fn inline_files(&mut self) -> Result<(), String> {
        let size: usize = self.files.values().map(|it| it.content.len()).sum();
        if size > LARGEST_INLINE || self.files.len() > MOST_INLINE {
            return Err(format!(
                "they are {size} bytes in {} files, and a manifest has at most {LARGEST_INLINE} in {MOST_INLINE}: export to files with \
                 --output-dir",
                self.files.len()
            ));
        }
        let mut texts = BTreeMap::new();
        let mut executables = Vec::new();
        for (path, SourceFile { content, is_executable }) in std::mem::take(&mut self.files) {
            if is_executable {
                executables.push(path.clone());
            }
            match String::from_utf8(content) {
                Ok(text) => texts.insert(path, text),
                Err(_) => return Err(format!("{path} is no text: export to files with --output-dir")),
            };
        }
        self.manifest["spec"]["source"] = json!({"files": texts});
        if !executables.is_empty() {
            self.notes.push(format!(
                "files in a manifest are not executable, and these are: {}. Export to files with --output-dir if the template runs them",
                executables.join(", ")
            ));
        }
        Ok(())
    }
}

/// A deployment as manifests.
#[derive(Debug, Default)]
pub struct Export {
    /// In the order of their application.
    pub manifests: Vec<Exported>,
    /// What is not exported, for a reason that another account does not change.
    pub left_out: Vec<LeftOut>,
    /// What could not be read.
    pub unread: Vec<LeftOut>,
    /// What a person should know of the whole.
    pub notes: Vec<String>,
}

/// Collects the manifests of one kind after the other.
#[derive(Debug)]
pub struct Exporter<'a> {
    scope: &'a ExportScope,
    coder: &'a Coder,
    organizations: Vec<Organization>,
    export: Export,
}

impl<'a> Exporter<'a> {
    /// Reads who asks and which organizations there are. Fails where either cannot be read, or the only organization does not exist.
    pub async fn new(scope: &'a ExportScope, coder: &'a Coder) -> Result<Self, Trouble> {
        coder.pass(None).await?;
        let account = coder.client().current_user().await?;
        let mut export = Export::default();
        if !account.has_role(OWNER) {
            export.notes.push(format!(
                "the account {} is no owner: Coder does not show it everything, and does not say what is missing; export with \
                 the token of an owner to be sure",
                account.username
            ));
        }
        let mut organizations = coder.organizations().await?.to_vec();
        if let Some(only) = &scope.organization {
            organizations.retain(|it| it.name.eq_ignore_ascii_case(only) || organization_word(it) == *only);
            if organizations.is_empty() {
                let message = format!("there is no organization {only}, or the account does not see it");
                return Err(Blocked { reason: Reason::ReferenceNotFound, message }.into());
            }
        }
        organizations.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { scope, coder, organizations, export })
    }

    /// Asks one kind.
    pub async fn add<K: Kind>(&mut self) {
        let kind = K::Manifest::kind(&()).into_owned();
        if !self.scope.takes(&kind) {
            return;
        }
        let is_named = self.scope.names(&kind);
        let is_asked_for = is_named || self.scope.has_requested;
        let places: Vec<Option<Organization>> = match K::LISTED {
            Listed::Nowhere(why) => return self.leave_out(&kind, why),
            Listed::InDeployment if self.scope.organization.is_some() => {
                if is_named {
                    self.leave_out(&kind, "its objects are in no organization: leave --organization out");
                }
                return;
            }
            Listed::InDeployment => vec![None],
            Listed::InOrganizations => self.organizations.iter().cloned().map(Some).collect(),
        };
        if let Err(trouble) = self.coder.pass(K::GATE).await {
            let Blocked { reason, message } = trouble.into_blocked();
            // Without the licensed feature nothing of the kind is in force.
            if reason == Reason::NotEntitled {
                self.leave_out(&kind, &message);
            } else {
                self.export.unread.push(LeftOut { what: kind, why: message });
            }
            return;
        }
        for organization in places {
            let place = ExportPlace { organization: organization.as_ref(), is_asked_for };
            match K::export(&place, self.coder).await {
                Ok(KindExport { drafts, left_out }) => {
                    self.export.left_out.extend(left_out);
                    for draft in drafts {
                        self.take::<K>(draft).await;
                    }
                }
                Err(trouble) => {
                    let of = organization.map(|it| format!(" of organization {}", it.name));
                    let what = format!("{kind}{}", of.unwrap_or_default());
                    self.export.unread.push(LeftOut { what, why: trouble.into_blocked().message });
                }
            }
        }
    }

    fn leave_out(&mut self, what: &str, why: &str) {
        self.export.left_out.push(LeftOut { what: what.to_owned(), why: why.to_owned() });
    }

    /// Makes a manifest of a draft. One that the kind itself would refuse is left out.
    async fn take<K: Kind>(&mut self, draft: Draft<K::Manifest>) {
        let Draft { title, manifest, notes, secrets, files } = draft;
        let kind = K::Manifest::kind(&()).into_owned();
        let name = slug(&title);
        let mut manifest = serde_json::to_value(&manifest).unwrap_or_default();
        self.dress(&mut manifest, &name);
        if let Ok(unsupported) = self.coder.unsupported(K::FIELD_GATES, &manifest).await {
            unsupported.remove_from(&mut manifest);
        }
        let parsed = match serde_json::from_value::<K::Manifest>(manifest.clone()) {
            Ok(parsed) => parsed,
            Err(error) => return self.leave_out(&format!("{kind} {title}"), &error.to_string()),
        };
        if let Err(invalid) = K::desire(&parsed) {
            let why = format!("a manifest cannot declare it: {} {}", invalid.field, invalid.message);
            return self.leave_out(&K::target(&parsed), &why);
        }
        let (rank, target) = (K::RANK, K::target(&parsed));
        let files = files.unwrap_or_default();
        let mut exported = Exported { rank, kind, name, target, manifest, notes, secrets, files };
        if self.scope.inlines_files
            && !exported.files.is_empty()
            && let Err(why) = exported.inline_files()
        {
            let left_out = exported.leave_out_source(&why);
            self.export.left_out.push(left_out);
        }
        self.export.manifests.push(exported);
    }

    /// Gives a manifest what all of an export have in common.
    fn dress(&self, manifest: &mut Value, name: &str) {
        manifest["metadata"] = json!({"name": name});
        if let Some(namespace) = &self.scope.namespace {
            manifest["metadata"]["namespace"] = json!(namespace);
        }
        manifest["spec"]["controlPlaneRef"] = json!({"name": self.scope.control_plane});
        if let Some(mode) = self.scope.mode {
            manifest["spec"]["mode"] = json!(mode);
        }
    }

    /// Whether all of the deployment is wanted.
    fn is_whole(&self) -> bool {
        self.scope.kinds.is_empty() && self.scope.organization.is_none()
    }

    /// Adds the control plane that the manifests refer to, as one that runs elsewhere.
    fn add_control_plane(&mut self) {
        const KIND: &str = "CoderControlPlane";
        if !self.is_whole() && !self.scope.names(KIND) {
            return;
        }
        let name = self.scope.control_plane.clone();
        let (secret, key) = (format!("{name}-credentials"), "token".to_owned());
        let url = self.coder.client().url().as_str().trim_end_matches('/').to_owned();
        let mut manifest = json!({
            "apiVersion": format!("{}/{}", api::GROUP, api::VERSION),
            "kind": KIND,
            "spec": {"external": {"url": &url, "credentialsSecretRef": {"name": secret, "key": key}}},
            "metadata": {"name": name},
        });
        if let Some(namespace) = &self.scope.namespace {
            manifest["metadata"]["namespace"] = json!(namespace);
        }
        let what = "session token of the account that the operator uses; not needed with --url".to_owned();
        let notes = vec![
            "licences are not exported: Coder does not show their text. To manage them, set licenseSecretRef"
                .to_owned(),
        ];
        let secrets = vec![NeededSecret { name: secret, key, what }];
        let (kind, target) = (KIND.to_owned(), url);
        let files = BTreeMap::new();
        let exported = Exported { rank: 0, kind, name, target, manifest, notes, secrets, files };
        self.export.manifests.push(exported);
    }

    /// The whole export. Kinds that run pods are not in Coder.
    pub fn finish(mut self) -> Export {
        self.add_control_plane();
        for kind in api::kinds::WITH_PODS.iter().filter(|it| self.scope.takes(it)) {
            if *kind != "CoderControlPlane" {
                self.export.left_out.push(LeftOut {
                    what: (*kind).to_owned(),
                    why: "it runs pods in a cluster, and Coder has no record of it".to_owned(),
                });
            }
        }
        if self.is_whole() {
            self.export.notes.push(NOT_COVERED.to_owned());
        }
        names::tell_apart(&mut self.export.manifests);
        names::tell_secrets_apart(&mut self.export.manifests);
        for exported in self.export.manifests.iter_mut().filter(|it| !it.files.is_empty()) {
            exported.manifest["spec"]["source"] = json!({"directory": format!("./{}", exported.name)});
        }
        let order = |it: &Exported| (it.rank, it.kind.clone(), it.name.clone());
        self.export.manifests.sort_by_key(order);
        self.export
    }
}
