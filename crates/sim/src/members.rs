//! Members of an organization, page by page, and the roles that they can have.

use std::num::IntErrorKind;

use serde_json::{Value, json};

use crate::{
    answer::{Answer, Handled},
    call::Call,
    rights::Right,
    roles,
    state::{Membership, Organization, User},
    user_view,
};

/// The roles that whoever manages accounts may give.
const ACCESS: [&str; 2] = ["agents-access", "organization-workspace-access"];

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?;
    let limit = number(call, "limit")?;
    let offset = number(call, "offset")?;
    let mut members: Vec<(&User, &Membership)> = organization
        .members
        .iter()
        .filter_map(|(id, membership)| Some((call.state.users.get(id)?, membership)))
        .collect();
    members.sort_by_key(|(user, _)| user.username.to_lowercase());
    let limit = if limit == 0 { usize::MAX } else { limit };
    let page: Vec<Value> = members
        .iter()
        .skip(offset)
        .take(limit)
        .map(|(user, membership)| shown(organization, user, membership))
        .collect();
    // coderd counts along with the rows, so that a page without rows has no count.
    let count = if page.is_empty() { 0 } else { members.len() };
    Ok(Answer::ok(json!({"members": page, "count": count})))
}

/// A number of the query, 0 where it is absent.
pub(crate) fn number(call: &Call<'_>, name: &str) -> Result<usize, Answer> {
    let text = call.query(name).unwrap_or_default();
    if text.is_empty() {
        return Ok(0);
    }
    let refused = |why: &str| {
        let detail = format!("Query param \"{name}\" must be a valid 32-bit positive integer: {why}");
        Answer::message(400, "Query parameters have invalid values.").field(name, detail)
    };
    let parsed: i32 = text.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        refused(&format!("strconv.ParseInt: parsing \"{text}\": {why}"))
    })?;
    usize::try_from(parsed).map_err(|_| refused("value is negative"))
}

fn shown(organization: &Organization, user: &User, membership: &Membership) -> Value {
    let mut shown = user_view::shown_briefly(user);
    for (from, to) in
        [("id", "user_id"), ("created_at", "user_created_at"), ("updated_at", "user_updated_at")]
    {
        if let Some(value) = shown.remove(from) {
            shown.insert(to.to_owned(), value);
        }
    }
    let mut put = |key: &str, value: Value| shown.insert(key.to_owned(), value);
    put("organization_id", json!(organization.id));
    put("created_at", json!(membership.created_at));
    put("updated_at", json!(membership.updated_at));
    put("roles", json!([]));
    put("global_roles", user_view::shown_roles(&user.roles));
    put("has_ai_seat", json!(false));
    Value::Object(shown)
}

pub(crate) fn roles(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    let assigns_all = call.may(Right::AssignRoles);
    let assigns_access = assigns_all || call.may(Right::ManageUsers);
    let shown = |(name, display_name): &(&str, &str)| {
        json!({
            "name": name,
            "organization_id": organization,
            "display_name": display_name,
            "site_permissions": [],
            "user_permissions": [],
            "organization_permissions": [],
            "organization_member_permissions": [],
            "assignable": assigns_all || (assigns_access && ACCESS.contains(name)),
            "built_in": true,
        })
    };
    let custom = call.state.custom_roles.iter().filter(|it| it.organization_id == organization);
    let custom = custom.map(|it| {
        let mut shown = roles::shown(it);
        shown["assignable"] = json!(assigns_all);
        shown["built_in"] = json!(false);
        shown
    });
    Ok(Answer::ok(roles::BUILT_IN.iter().map(shown).chain(custom).collect()))
}
