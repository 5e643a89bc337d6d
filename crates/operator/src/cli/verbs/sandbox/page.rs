//! The page for people: what it shows of a state, and what it changes by hand.
//!
//! The view holds no token, no key and no text of a licence, nor a hash of one. The script puts it into the page as text, never
//! as HTML.

use anyhow::{Context as _, Result};
use axum::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use sim::{
    Coder,
    state::{AuditEntry, Group, State},
};
use uuid::Uuid;

use super::{
    caller::{Caller, Refused},
    deployment::{self, START},
};

pub(super) const HTML: &str = include_str!("page/index.html");
pub(super) const SCRIPT: &str = include_str!("page/page.js");
pub(super) const STYLE: &str = include_str!("page/page.css");

/// The name under which the page calls the deployment.
const PAGE: &str = "sandbox-page";
/// What the name of our own client begins with.
const OPERATOR: &str = "coder-operator/";
/// How many changes are shown.
const LAST_CHANGES: usize = 20;
/// The resources whose fields are shown. The others may be about secrets.
const WITH_FIELDS: [&str; 6] = [
    "appearance",
    "group",
    "idp_sync_settings_group",
    "idp_sync_settings_organization",
    "idp_sync_settings_role",
    "organization",
];
/// Fields that every change moves.
const NOT_SHOWN: [&str; 3] = ["members", "service_banner", "updated_at"];
/// The color of a banner that has none yet.
const COLOR: &str = "#007a33";

/// A change that a person makes on the page.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Change {
    /// The quota of a group.
    Quota { group: Uuid, quota: i32 },
    /// The text of the first announcement banner; without text there is no banner.
    Banner { message: String },
}

impl Change {
    /// Makes the change through the API, with the rights of an owner.
    pub(super) async fn carry_out(&self, coder: &Coder) -> Result<()> {
        let caller = Caller { coder, token: Some(deployment::token(coder)?), user_agent: PAGE };
        let done = self.send(&caller).await;
        // Also after a refusal: no session is left behind.
        caller.send(Method::POST, "/api/v2/users/logout", &Value::Null).await.context("sign out")?;
        done.map(drop).context("change the deployment by hand")
    }

    async fn send(&self, caller: &Caller<'_>) -> Result<Value, Refused> {
        match self {
            Self::Quota { group, quota } => {
                let path = format!("/api/v2/groups/{group}");
                caller.send(Method::PATCH, &path, &json!({"quota_allowance": quota})).await
            }
            Self::Banner { message } => {
                let path = "/api/v2/appearance";
                let shown = caller.send(Method::GET, path, &Value::Null).await?;
                caller.send(Method::PUT, path, &with_banner(&shown, message)).await
            }
        }
    }
}

/// The appearance with this text in its first banner.
fn with_banner(shown: &Value, message: &str) -> Value {
    let mut banners = shown["announcement_banners"].as_array().cloned().unwrap_or_default();
    if message.is_empty() {
        banners.drain(..banners.len().min(1));
    } else {
        let mut first = json!({"enabled": true, "message": message, "background_color": COLOR});
        if let Some(color) = banners.first().and_then(|it| it.get("background_color")) {
            first["background_color"] = color.clone();
        }
        match banners.first_mut() {
            Some(banner) => *banner = first,
            None => banners.push(first),
        }
    }
    json!({
        "application_name": shown["application_name"],
        "logo_url": shown["logo_url"],
        "announcement_banners": banners,
    })
}

/// What the page shows of a state.
pub(super) fn view(state: &State) -> Value {
    json!({
        "deployment": state.deployment_id,
        "organizations": organizations(state),
        "groups": groups(state),
        "sync": sync(state),
        "appearance": state.appearance,
        "keys": keys(state),
        "licenses": licenses(state),
        "changes": state.audit_log.iter().rev().filter(|it| !is_sign_out(it)).take(LAST_CHANGES).map(|it| change(state, it)).collect::<Value>(),
    })
}

/// Whether an entry is the end of the page's own session.
fn is_sign_out(entry: &AuditEntry) -> bool {
    entry.user_agent == PAGE && entry.change.resource_type == "api_key"
}

fn organizations(state: &State) -> Value {
    let organizations = state.organizations.values().filter(|it| !it.deleted);
    organizations
        .map(|it| json!({"name": it.name, "display_name": it.display_name, "members": it.members.len()}))
        .collect()
}

fn organization_name(state: &State, id: Uuid) -> &str {
    state.organizations.get(&id).map_or("", |it| it.name.as_str())
}

fn groups(state: &State) -> Value {
    let mut groups: Vec<(&str, &Group)> =
        state.groups.values().map(|it| (organization_name(state, it.organization_id), it)).collect();
    groups.sort_by_key(|(organization, group)| (*organization, &group.name));
    let shown = groups.iter().map(|(organization, it)| {
        json!({"id": it.id, "organization": organization, "name": it.name, "quota": it.quota_allowance})
    });
    shown.collect()
}

/// The documents of IdP sync that were written.
fn sync(state: &State) -> Value {
    let named = |what: &str, documents: &std::collections::BTreeMap<Uuid, Value>| -> Vec<Value> {
        let shown = documents.iter().map(|(id, document)| {
            let title = format!("{what} of {}", organization_name(state, *id));
            json!({"name": title, "field": document["field"], "mapping": mapping(state, document)})
        });
        shown.collect()
    };
    let whole = state
        .organization_sync
        .iter()
        .map(|it| json!({"name": "organizations", "field": it["field"], "mapping": mapping(state, it)}));
    whole.chain(named("groups", &state.group_sync)).chain(named("roles", &state.role_sync)).collect()
}

/// The mapping of a document in lines such as `/alpha: developers`, with names in place of ids.
fn mapping(state: &State, document: &Value) -> Vec<String> {
    let name = |target: &Value| {
        let text = target.as_str().unwrap_or_default();
        let found = text.parse().ok().and_then(|id: Uuid| {
            let organization = state.organizations.get(&id).map(|it| it.name.clone());
            organization.or_else(|| state.groups.get(&id).map(|it| it.name.clone()))
        });
        found.unwrap_or_else(|| text.to_owned())
    };
    let entries = document["mapping"].as_object().into_iter().flatten();
    let lines = entries.map(|(claim, targets)| {
        let names: Vec<String> = targets.as_array().into_iter().flatten().map(name).collect();
        format!("{claim}: {}", names.join(", "))
    });
    lines.collect()
}

fn keys(state: &State) -> Value {
    let shown = state.provisioner_keys.values().map(|it| {
        let daemons = state.daemons.values().filter(|daemon| daemon.key_id == it.id).count();
        let organization = organization_name(state, it.organization_id);
        json!({"name": it.name, "organization": organization, "tags": it.tags, "daemons": daemons})
    });
    shown.collect()
}

fn licenses(state: &State) -> Value {
    let shown = state.licenses.values().map(|it| {
        let expires = it.claims.get("license_expires").and_then(Value::as_i64);
        json!({"id": it.id, "feature_set": it.claims.get("feature_set"), "expires": expires})
    });
    shown.collect()
}

fn change(state: &State, entry: &AuditEntry) -> Value {
    let AuditEntry { change, .. } = entry;
    let action = match (change.before.is_null(), change.after.is_null(), entry.method.as_str()) {
        (_, true, _) => "deleted",
        (true, false, "POST") => "created",
        _ => "changed",
    };
    let organization =
        change.after.get("organization_name").or_else(|| change.before.get("organization_name"));
    let organization = organization.and_then(Value::as_str).map(str::to_owned);
    let of_document = change.resource_id.parse().map(|it| organization_name(state, it).to_owned()).ok();
    let organization = organization.or(of_document).filter(|it| !it.is_empty() && *it != change.target);
    json!({
        "time": entry.time,
        "who": asked_by(entry),
        "program": entry.user_agent,
        "account": entry.username,
        "action": action,
        "resource": change.resource_type.replace('_', " "),
        "target": change.target,
        "organization": organization,
        "fields": fields(entry),
    })
}

/// Who asked for a change, by the name of the program.
fn asked_by(entry: &AuditEntry) -> &'static str {
    match entry.user_agent.as_str() {
        START => "the sandbox",
        PAGE => "a person on this page",
        program if program.starts_with(OPERATOR) => "coder-operator",
        _ => "a person",
    }
}

/// The fields that differ.
fn fields(entry: &AuditEntry) -> Vec<Value> {
    let AuditEntry { change, .. } = entry;
    let (Value::Object(before), Value::Object(after)) = (&change.before, &change.after) else {
        return Vec::new();
    };
    if !WITH_FIELDS.contains(&change.resource_type.as_str()) {
        return Vec::new();
    }
    let differing = after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(*value) && !NOT_SHOWN.contains(&name.as_str()));
    differing.map(|(name, value)| json!({"name": name, "before": before.get(name), "after": value})).collect()
}

#[cfg(test)]
mod tests;
