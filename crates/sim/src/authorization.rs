//! What the caller may do with sets of objects. Only workspaces are understood here.

use serde_json::{Map, Value};

use crate::{
    answer::{Answer, Handled},
    call::Call,
    rights::Right,
};

pub(crate) fn check(call: &mut Call<'_>) -> Handled {
    let mut answers = Map::new();
    for (name, check) in call.fields("AuthorizationRequest")?.object("checks") {
        let object = &check["object"];
        let resource = object["resource_type"].as_str().unwrap_or_default();
        if resource.is_empty() {
            let message = format!("Object's \"resource_type\" field must be defined for key \"{name}\".");
            return Err(Answer::message(400, message));
        }
        let right = match (resource, check["action"].as_str().unwrap_or_default()) {
            ("workspace", "read") => Some(Right::ReadWorkspaces),
            ("workspace", "create" | "delete" | "update") => Some(Right::ManageWorkspaces),
            _ => None,
        };
        answers.insert(name, right.is_some_and(|it| call.may(it)).into());
    }
    Ok(Answer::ok(Value::Object(answers)))
}
