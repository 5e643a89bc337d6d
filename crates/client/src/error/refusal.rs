//! What a server means when it does not say yes.
//!
//! coderd's statuses are not enough: a refusal of rights comes as 400, 403, 404 or 500, an expected conflict as 500, and
//! a build without a route as 404 or as an empty 405.

use std::fmt;

use http::StatusCode;
use serde::Deserialize;
use url::Url;

use super::{Class, Validation};
use crate::{
    answer::Answer,
    null::null_as_default,
    scrub::{clean, clean_validation},
};

/// A refusal, in the server's own cleaned words.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) class: Class,
    pub(crate) route_missing: bool,
    pub(crate) words: String,
    pub(crate) validations: Vec<Validation>,
    /// Said where the version is the likely reason.
    pub(crate) build_version: Option<String>,
}

/// The body of coderd's own refusals.
#[derive(Debug, Default, Deserialize)]
struct Body {
    message: String,
    #[serde(default, deserialize_with = "null_as_default")]
    detail: String,
    #[serde(default, deserialize_with = "null_as_default")]
    validations: Vec<BodyValidation>,
}

#[derive(Debug, Deserialize)]
struct BodyValidation {
    #[serde(default)]
    field: String,
    #[serde(default)]
    detail: String,
}

impl Refusal {
    /// Judges an answer that is no success. `secrets` are the values that the call carried.
    pub(crate) fn judge(answer: &Answer, asked: &Url, secrets: &[&str]) -> Self {
        let text = String::from_utf8_lossy(&answer.body);
        let body = serde_json::from_str::<Body>(&text).ok();
        let words = match &body {
            _ if answer.status.is_redirection() => clean(&redirect(answer, asked), secrets),
            // Whoever may name an address must not be able to read through us what is there.
            _ if answer.body.is_empty() => String::new(),
            _ if !answer.is_from_coder() => format!("not an answer of Coder ({})", answer.kind()),
            Some(Body { message, detail, validations: _ }) if detail.is_empty() => clean(message, secrets),
            Some(Body { message, detail, validations: _ }) => {
                clean(&format!("{}: {detail}", message.trim_end_matches('.')), secrets)
            }
            None if answer.is_html => "an HTML page".to_owned(),
            None => clean(&text, secrets),
        };
        let body = body.unwrap_or_default();
        let route_missing = is_route_missing(answer, &body);
        Self {
            status: answer.status,
            class: class(answer, &body),
            route_missing,
            words,
            validations: if answer.is_from_coder() { validations(&body, secrets) } else { Vec::new() },
            build_version: answer.build_version.clone().filter(|_| route_missing),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, class: _, route_missing, words, validations, build_version } = self;
        write!(formatter, "{status}")?;
        if *route_missing {
            let version = build_version.as_deref().unwrap_or("an unknown version");
            return write!(formatter, ": this build of Coder ({version}) has no such route");
        }
        if !words.is_empty() {
            write!(formatter, ": {words}")?;
        }
        for (index, Validation { field, detail }) in validations.iter().enumerate() {
            write!(formatter, "{} {field}: {detail}", if index == 0 { ";" } else { "," })?;
        }
        Ok(())
    }
}

fn class(answer: &Answer, body: &Body) -> Class {
    let Body { message, detail, validations: _ } = body;
    let is_rbac = detail.contains("rbac: forbidden") || message.contains("rbac: forbidden");
    match answer.status.as_u16() {
        400 | 500 if is_rbac => Class::Forbidden,
        400 if answer.retry_after.is_some() => Class::RateLimited,
        400 if is_taken_role(detail) => Class::Conflict,
        400 | 413 | 414 | 422 => Class::Invalid,
        401 => Class::SignedOut,
        403 if is_license(message) => Class::License,
        403 => Class::Forbidden,
        404 | 405 | 410 => Class::Missing,
        409 | 412 | 417 => Class::Conflict,
        429 => Class::RateLimited,
        500 if is_conflict(detail) => Class::Conflict,
        408 | 500 | 502..=504 => Class::Transient,
        _ => Class::Unexpected,
    }
}

fn is_license(message: &str) -> bool {
    ["is a Premium feature", "is an Enterprise feature", "is a Enterprise feature"]
        .iter()
        .any(|words| message.contains(words))
}

/// What coderd leaves to its database to refuse: what is still in use, and lost races for a name.
fn is_conflict(detail: &str) -> bool {
    detail.contains("must be deleted first") || detail.contains("duplicate key value")
}

/// A name that another custom role has. coderd answers it like a permission that it does not know.
fn is_taken_role(detail: &str) -> bool {
    detail.contains("custom_roles_unique_key")
}

fn is_route_missing(answer: &Answer, body: &Body) -> bool {
    match answer.status.as_u16() {
        404 => body.message == "Route not found.",
        405 => answer.body.is_empty(),
        _ => false,
    }
}

fn validations(body: &Body, secrets: &[&str]) -> Vec<Validation> {
    let cleaned = |BodyValidation { field, detail }: &BodyValidation| Validation {
        field: clean(field, secrets),
        detail: clean_validation(field, detail, secrets),
    };
    body.validations.iter().map(cleaned).collect()
}

/// Only the origin: the rest of such an address may hold a session.
fn redirect(answer: &Answer, asked: &Url) -> String {
    let target = answer.location.as_deref().and_then(|it| asked.join(it).ok());
    let origin = target.map(|it| it.origin().ascii_serialization());
    format!("redirects to {}", origin.as_deref().unwrap_or("nowhere"))
}

#[cfg(test)]
mod tests;
