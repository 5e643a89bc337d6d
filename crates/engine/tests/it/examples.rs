//! One example of every kind, and how each is changed by hand behind our back.
//!
//! A kind that is not named here is represented by the first manifest of its file under `examples/kinds`.

use std::{fs, path::Path};

use engine::kinds;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Session;

/// An organization that examples belong to; the first of them makes it.
pub(crate) const HOME: &str = "alpha";

/// The Secret that the example of an AI provider refers to.
pub(crate) const AI_KEYS: &str = "example-ai-keys";

/// The values of that Secret.
pub(crate) fn ai_keys() -> Value {
    json!({"anthropic": "key-example-0123456789-abcdefghij"})
}

/// A manifest of that kind with every field said.
pub(crate) fn of(kind: &str) -> Value {
    let spec = match kind {
        "CoderOrganization" => json!({"name": HOME, "displayName": "Mission Partner Alpha",
            "description": "Alpha's workspaces", "icon": "/emojis/1f98a.png"}),
        "CoderGroup" => json!({"organization": HOME, "name": "developers", "displayName": "Developers",
            "avatarURL": "/emojis/1f98a.png", "quotaAllowance": 20, "members": ["admin"]}),
        "CoderOrganizationSync" => json!({"field": "groups", "assignDefault": false,
            "mapping": {"/alpha": [HOME], "/all": ["default", HOME]}}),
        "CoderGroupSync" => json!({"organization": HOME, "field": "groups", "regexFilter": "^/alpha/.*",
            "autoCreateMissingGroups": true, "mapping": {"/alpha/developers": ["developers"], "/alpha": ["Everyone"]}}),
        "CoderRoleSync" => json!({"organization": HOME, "field": "groups",
            "mapping": {"/alpha/admins": ["organization-admin"], "/alpha/auditors": ["organization-auditor", "template-auditor"]}}),
        "CoderAppearance" => {
            json!({"applicationName": "Mission Cloud", "logoURL": "https://example.com/logo.svg",
            "announcementBanners": [{"message": "UNCLASSIFIED", "backgroundColor": "#007a33"},
                {"enabled": false, "backgroundColor": "#C8102E"}]})
        }
        // The bed has no identity provider, and organizations with members cannot be deleted.
        "CoderUser" => json!({"username": "automation", "serviceAccount": true, "roles": ["template-admin"],
            "organizations": ["default"], "suspended": false}),
        "CoderProvisionerKey" => {
            json!({"organization": HOME, "name": "alpha-eks", "tags": {"cluster": "alpha-eks"},
            "secretName": "example-provisioner-key", "secretKey": "key", "rotation": {"every": "2160h", "overlap": "24h"}})
        }
        "CoderAIProvider" => json!({"name": "anthropic", "type": "anthropic", "displayName": "Anthropic",
            "icon": "/icon/anthropic.svg", "enabled": true, "baseURL": "https://api.anthropic.com",
            "apiKeySecretRefs": [{"name": AI_KEYS, "key": "anthropic"}]}),
        _ => published(kind)["spec"].take(),
    };
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind,
        "metadata": {"name": "example", "namespace": "platform"}, "spec": spec});
    manifest["spec"]["controlPlaneRef"] = json!({"name": "main"});
    manifest
}

/// The first manifest of the kind's file under `examples/kinds`.
fn published(kind: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kinds");
    let path = folder.join(format!("{}.yaml", kind.to_lowercase()));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap().into_iter().next().unwrap()
}

/// One of every registered kind, in the order in which they are applied. Templates have suites of their own: a version is built by a
/// provisioner daemon, which the suites of all kinds do not have.
pub(crate) fn all() -> Vec<Value> {
    let names = kinds::names();
    let mut all: Vec<Value> = names.iter().filter(|it| *it != "CoderTemplate").map(|it| of(it)).collect();
    all.sort_by_key(|it| {
        let kind = it["kind"].as_str().unwrap();
        kinds::parse(kind, it).unwrap().unwrap_or_else(|error| panic!("{kind}: {error}")).rank()
    });
    all
}

/// A change that a person makes through Coder's API.
pub(crate) struct Hand {
    /// The field as manifests call it.
    pub(crate) field: &'static str,
    /// The same as coderd calls it.
    pub(crate) remote_field: &'static str,
    /// Where it is written; `{id}` stands for the id that we recorded.
    pub(crate) path: &'static str,
    pub(crate) value: Value,
    /// Whether a write replaces all of it, so that the rest has to be read first.
    pub(crate) is_document: bool,
}

impl Hand {
    /// Makes the change. `id` is the one that we recorded.
    pub(crate) async fn change(&self, owner: &Session, id: &str) {
        let path = self.path.replace("{id}", id);
        let mut body = json!({});
        if self.is_document {
            body = request(owner, Method::GET, &path, None).await;
        }
        body[self.remote_field] = self.value.clone();
        let method = if path.ends_with("/appearance") { Method::PUT } else { Method::PATCH };
        request(owner, method, &path, Some(&body)).await;
    }
}

/// Something that a person does through Coder's API.
pub(crate) async fn request(owner: &Session, method: Method, path: &str, body: Option<&Value>) -> Value {
    let (status, answer) = owner.request(method.clone(), path, body).await.unwrap();
    assert!((200..300).contains(&status), "{method} {path}: {status}: {answer}");
    answer
}

/// Fields that say which object is meant and how it is treated, and not what is in it.
const NOT_CONTENT: [&str; 10] = [
    "adoptionPolicy",
    "allowDestructive",
    "approval",
    "controlPlaneRef",
    "deletionPolicy",
    "interval",
    "mode",
    "name",
    "organization",
    "suspend",
];

/// Another value of a field: the one that a person changes by hand, or the first plain one of the example.
pub(crate) fn edit(kind: &str) -> (String, Value) {
    if let Some(hand) = by_hand(kind) {
        return (hand.field.to_owned(), hand.value);
    }
    if kind == "CoderUser" {
        return ("suspended".to_owned(), json!(true));
    }
    if kind == "CoderProvisionerKey" {
        return ("name".to_owned(), json!("another"));
    }
    let example = of(kind);
    let content =
        example["spec"].as_object().unwrap().iter().filter(|it| !NOT_CONTENT.contains(&it.0.as_str()));
    let mut others = content.filter_map(|(field, value)| {
        let other = match value {
            Value::Bool(value) => json!(!value),
            Value::Number(value) => json!(value.as_i64()? + 1),
            Value::String(_) => json!("another"),
            _ => return None,
        };
        Some((field.clone(), other))
    });
    others.next().unwrap_or_else(|| panic!("the example of {kind} has no plain field to change"))
}

/// `None` for a key: Coder changes none, and the tests of keys tell what becomes of a deleted one. `None` also for a kind
/// that nobody has described here.
pub(crate) fn by_hand(kind: &str) -> Option<Hand> {
    let hand = |field, remote_field, path, value, is_document| Hand {
        field,
        remote_field,
        path,
        value,
        is_document,
    };
    Some(match kind {
        "CoderOrganization" => {
            hand("description", "description", "/api/v2/organizations/{id}", json!("by hand"), false)
        }
        "CoderGroup" => hand("quotaAllowance", "quota_allowance", "/api/v2/groups/{id}", json!(7), false),
        "CoderOrganizationSync" => {
            hand("field", "field", "/api/v2/settings/idpsync/organization", json!("teams"), true)
        }
        "CoderGroupSync" => hand(
            "regexFilter",
            "regex_filter",
            "/api/v2/organizations/{id}/settings/idpsync/groups",
            json!("^x"),
            true,
        ),
        "CoderRoleSync" => {
            hand("mapping", "mapping", "/api/v2/organizations/{id}/settings/idpsync/roles", json!({}), true)
        }
        "CoderAIProvider" => {
            hand("displayName", "display_name", "/api/v2/ai/providers/{id}", json!("by hand"), false)
        }
        "CoderAIModel" => hand(
            "contextLimit",
            "context_limit",
            "/api/experimental/chats/model-configs/{id}",
            json!(1234),
            false,
        ),
        "CoderAppearance" => {
            hand("applicationName", "application_name", "/api/v2/appearance", json!("by hand"), true)
        }
        _ => return None,
    })
}
