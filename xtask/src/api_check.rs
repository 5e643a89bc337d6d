//! `cargo xtask api-check`: what the client sends and reads is what Coder's own API document says.
//!
//! The document is the one of the pinned Coder, which the bed runs. What it gets wrong stands in a list here, each entry
//! with the reason and with the test on the bed that shows how it really is.

mod schema;

use std::{fs, path::PathBuf, process::Command, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use client::routes::{ROUTES, Route};
use serde_json::Value;

use crate::{bed::root, terminal::say};
use schema::compare;

const MODULE: &str = "github.com/coder/coder/v2";
const PINNED_IN: &str = "crates/testbed/parts/coder";

/// A place where the document is wrong.
struct Exception {
    /// `METHOD path`.
    route: &'static str,
    /// What the check would complain about, word for word.
    complaint: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader, and for the test that looks for it"))]
    bed_test: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    // The annotation says `array`; the handler writes one page.
    Exception {
        route: "GET /api/v2/organizations/{organization}/paginated-members",
        complaint: "the answer: is documented as a list",
        bed_test: "members_of_an_organization_are_listed",
    },
    // The annotations say `array`; the handlers write the one role.
    Exception {
        route: "POST /api/v2/organizations/{organization}/members/roles",
        complaint: "the answer: is documented as a list",
        bed_test: "role_in_use_names_its_users_and_goes_only_with_an_approval",
    },
    Exception {
        route: "PUT /api/v2/organizations/{organization}/members/roles",
        complaint: "the answer: is documented as a list",
        bed_test: "every_kind_is_created_once_and_then_left_alone",
    },
    // The annotation does not mention the body that the handler reads.
    Exception {
        route: "POST /api/v2/organizations/{organization}/provisionerkeys",
        complaint: "the request: has no documented body",
        bed_test: "a_provisioner_key_lives_from_create_to_delete",
    },
    // Experimental routes are not in the document.
    Exception {
        route: "GET /api/experimental/chats/model-configs",
        complaint: "is not documented",
        bed_test: "every_kind_is_created_once_and_then_left_alone",
    },
    Exception {
        route: "POST /api/experimental/chats/model-configs",
        complaint: "is not documented",
        bed_test: "every_kind_is_created_once_and_then_left_alone",
    },
    Exception {
        route: "PATCH /api/experimental/chats/model-configs/{modelConfig}",
        complaint: "is not documented",
        bed_test: "one_changed_field_of_a_manifest_is_one_step_and_one_write",
    },
    Exception {
        route: "DELETE /api/experimental/chats/model-configs/{modelConfig}",
        complaint: "is not documented",
        bed_test: "a_deletion_takes_away_what_is_held_and_leaves_what_is_to_be_retained",
    },
];

/// A route as the check sees it.
struct Used {
    method: String,
    path: String,
    request: Option<Value>,
    response: Option<Value>,
}

impl From<&Route> for Used {
    fn from(route: &Route) -> Self {
        Self {
            method: route.method().as_str().to_owned(),
            path: route.path().to_owned(),
            request: route.request().map(Value::from),
            response: route.response().map(Value::from),
        }
    }
}

pub(crate) fn run() -> Result<ExitCode> {
    let place = document()?;
    let text = fs::read_to_string(&place).with_context(|| format!("read {}", place.display()))?;
    let document = serde_json::from_str(&text).context("read Coder's API document as JSON")?;
    let used: Vec<Used> = ROUTES.iter().map(|route| Used::from(*route)).collect();
    let complaints = check(&used, &document, EXCEPTIONS);
    for complaint in &complaints {
        say(complaint);
    }
    if complaints.is_empty() {
        say(&format!("api-check: {} routes, no complaint", used.len()));
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("api-check: {} complaints", complaints.len()));
    Ok(ExitCode::FAILURE)
}

/// Where the pinned Coder's API document is.
fn document() -> Result<PathBuf> {
    let ask = || go(&["list", "-m", "-f", "{{.Dir}}", MODULE]);
    let mut folder = ask()?;
    if folder.is_empty() {
        // A machine that has not built the bed yet.
        go(&["mod", "download", MODULE])?;
        folder = ask()?;
    }
    Ok(PathBuf::from(folder).join("coderd/apidoc/swagger.json"))
}

fn go(args: &[&str]) -> Result<String> {
    let mut command = Command::new("go");
    command.args(args).current_dir(root().join(PINNED_IN)).env("GOFLAGS", "-mod=readonly");
    let output = command.output().context("run go, which pins Coder: install it and put it on PATH")?;
    if !output.status.success() {
        bail!("go {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What is wrong with the routes, or with the exceptions: one that excuses nothing is out of date.
fn check(used: &[Used], document: &Value, exceptions: &[Exception]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut excused = vec![false; exceptions.len()];
    for used in used {
        let route = format!("{} {}", used.method, used.path);
        for what in check_route(used, document) {
            match exceptions.iter().position(|it| it.route == route && it.complaint == what) {
                Some(index) => excused[index] = true,
                None => complaints.push(format!("{route}: {what}")),
            }
        }
    }
    for (exception, _) in exceptions.iter().zip(excused).filter(|(_, excused)| !excused) {
        complaints
            .push(format!("{}: the exception `{}` excuses nothing", exception.route, exception.complaint));
    }
    complaints
}

fn check_route(used: &Used, document: &Value) -> Vec<String> {
    let Some(operation) = document["paths"][&used.path].get(used.method.to_lowercase()) else {
        return vec!["is not documented".to_owned()];
    };
    let mut complaints = Vec::new();
    let sides = [
        ("the request", &used.request, documented_body(operation)),
        ("the answer", &used.response, documented_answer(operation)),
    ];
    for (place, ours, documented) in sides {
        match (ours, documented) {
            (None, _) => {}
            (Some(_), None) => complaints.push(format!("{place}: has no documented body")),
            (Some(ours), Some(theirs)) => complaints.extend(compare(place, ours, document, theirs)),
        }
    }
    complaints
}

fn documented_body(operation: &Value) -> Option<&Value> {
    operation["parameters"].as_array()?.iter().find(|it| it["in"] == "body")?.get("schema")
}

fn documented_answer(operation: &Value) -> Option<&Value> {
    let mut answers =
        operation["responses"].as_object()?.iter().filter(|(status, _)| status.starts_with('2'));
    answers.find_map(|(_, answer)| answer.get("schema"))
}

#[cfg(test)]
mod tests;
