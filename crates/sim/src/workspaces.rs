//! Workspaces, as far as they keep their owner and their template from being deleted.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled},
    call::Call,
    state::Workspace,
};

/// The workspaces that match `owner:NAME`, `template:NAME` and `organization:ID`, the only terms that are understood here.
pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let query = call.query("q").unwrap_or_default().to_owned();
    let limit = call.query("limit").and_then(|it| it.parse::<usize>().ok()).unwrap_or(usize::MAX);
    let owner = |it: &Workspace| call.state.users.get(&it.owner_id).filter(|it| !it.deleted);
    let matches = |(_, it): &(&Uuid, &Workspace)| {
        let template = call.state.templates.get(&it.template_id);
        query.split_whitespace().all(|term| match term.split_once(':') {
            Some(("owner", name)) => owner(it).is_some_and(|it| it.username.eq_ignore_ascii_case(name)),
            Some(("template", name)) => template.is_some_and(|it| it.name() == name),
            Some(("organization", id)) => template.is_some_and(|it| it.organization_id.to_string() == id),
            _ => false,
        })
    };
    let shown = |(id, it): (&Uuid, &Workspace)| {
        let owner = owner(it).map(|it| it.username.as_str());
        json!({"id": id, "name": it.name, "owner_name": owner, "template_id": it.template_id})
    };
    let found: Vec<Value> = call.state.workspaces.iter().filter(matches).map(shown).collect();
    let count = found.len();
    let found: Vec<Value> = found.into_iter().take(limit).collect();
    Ok(Answer::ok(json!({"workspaces": found, "count": count})))
}
