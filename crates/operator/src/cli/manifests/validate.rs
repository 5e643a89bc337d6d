//! Everything that can be said of manifests without asking anybody: mistakes, placeholders, secret values, references.

use anyhow::Result;
use api::DEFAULT_ORGANIZATION;
use engine::{Ref, RemoteName};
use serde_json::Value;

use super::{Loaded, Manifests, Mistake, Named, Place, Sources, read::Document, read_all, twice};

/// The result of a validation.
pub(crate) struct Validated {
    /// How many manifests of ours there are.
    pub(crate) manifests: usize,
    pub(crate) mistakes: Vec<Mistake>,
    /// Findings that are right for some: a reference to an object that none of the files declares.
    pub(crate) warnings: Vec<Mistake>,
}

/// Validates a set of manifests. Fails only where the files cannot be read, or hold no manifest of ours.
pub(crate) fn validate(sources: &Sources) -> Result<Validated> {
    let Loaded { documents, manifests, mut mistakes } = read_all(sources)?;
    mistakes.extend(twice(&manifests, None));
    if mistakes.is_empty() {
        manifests.ensure_any()?;
    }
    let is_ours = |it: &&Document| is_ours(it);
    mistakes.extend(documents.iter().filter(|it| is_ours(it) || is_secret(it)).flat_map(hygiene));
    mistakes.sort_by(|one, two| (&one.place.file, one.place.line).cmp(&(&two.place.file, two.place.line)));
    Ok(Validated {
        manifests: documents.iter().filter(is_ours).count(),
        mistakes,
        warnings: dangling(&manifests),
    })
}

/// Why manifests that a program made cannot be written to files: mistakes that `plan` refuses, and secret values in the open.
pub(crate) fn unfit(sources: &Sources) -> Result<Vec<Mistake>> {
    let Loaded { documents, manifests, mut mistakes } = read_all(sources)?;
    mistakes.extend(twice(&manifests, None));
    for document in &documents {
        let mut texts = Vec::new();
        collect(&document.value, "", &mut texts);
        let secrets = texts.iter().filter_map(|(path, text)| {
            Some((path, secret_value(text).or_else(|| named_as_secret(path, text))?))
        });
        mistakes.extend(secrets.map(|(path, what)| {
            let path = path.trim_start_matches('.');
            let message = format!("{path}: holds {what} in the open");
            Mistake { place: without_line(document.place(path)), message }
        }));
    }
    Ok(mistakes)
}

fn is_ours(document: &Document) -> bool {
    document.text("apiVersion").split('/').next() == Some(api::GROUP)
}

fn is_secret(document: &Document) -> bool {
    document.text("apiVersion") == "v1" && document.text("kind") == "Secret"
}

/// Placeholders and secret values in one document.
fn hygiene(document: &Document) -> Vec<Mistake> {
    let mut found = Vec::new();
    if is_secret(document) {
        // A Secret that SOPS has encrypted holds no value that can be used.
        if document.value.get("sops").is_none() {
            for field in ["data", "stringData"] {
                for key in document.value.get(field).and_then(Value::as_object).into_iter().flatten() {
                    found.push(of_secret(document, &format!("{field}.{}", key.0), key.1));
                }
            }
        }
        return found;
    }
    let mut texts = Vec::new();
    if let Some(spec) = document.value.get("spec") {
        collect(spec, "spec", &mut texts);
    }
    for (path, text) in texts {
        if let Some(what) = secret_value(text) {
            let message =
                format!("{path}: holds {what} in the open; keep it in a Secret, and refer to the Secret");
            found.push(Mistake { place: without_line(document.place(&path)), message });
        } else if let Some(placeholder) = placeholder(&path, text) {
            let message = format!("{path}: has the placeholder {placeholder}; replace it");
            found.push(Mistake { place: document.place(&path), message });
        }
    }
    found
}

/// A finding about a value of a Secret, which no message shows.
fn of_secret(document: &Document, path: &str, value: &Value) -> Mistake {
    let text = value.as_str().unwrap_or_default();
    let message = if placeholder(path, text).is_some() {
        format!(
            "{path}: has a placeholder; create this Secret from a secret store, and leave it out of the files"
        )
    } else {
        format!(
            "{path}: holds a secret value in the open; create this Secret from a secret store (External Secrets), or encrypt \
             the file with SOPS"
        )
    };
    Mistake { place: without_line(document.place(path)), message }
}

/// A place whose line is not shown.
fn without_line(place: Place) -> Place {
    Place { excerpt: None, ..place }
}

/// Every text below a value, with its path. Files of templates are somebody's program, and are left out.
fn collect<'a>(value: &'a Value, path: &str, texts: &mut Vec<(String, &'a str)>) {
    match value {
        Value::String(text) => texts.push((path.to_owned(), text)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{path}[{index}]"), texts);
            }
        }
        Value::Object(fields) if path.trim_start_matches('.') != "spec.source.files" => {
            for (key, field) in fields {
                collect(field, &format!("{path}.{key}"), texts);
            }
        }
        _ => {}
    }
}

/// The placeholder in a text.
fn placeholder<'a>(path: &str, text: &'a str) -> Option<&'a str> {
    let lower = text.to_lowercase();
    for word in ["replace_me", "replace-me", "replaceme", "changeme", "change_me", "change-me"] {
        // Lower case may have another length than the text, so the word is looked up in the text itself.
        if lower.contains(word) {
            let word = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_' && it != '-');
            return Some(word.max_by_key(|it| it.len()).unwrap_or(text));
        }
    }
    // Sentences for people may have angle brackets.
    let is_prose =
        ["description", "message", "displayName", "deprecated"].iter().any(|it| path.ends_with(it));
    if is_prose { None } else { bracketed(text) }
}

/// A part of a text such as `<your-host>`.
fn bracketed(text: &str) -> Option<&str> {
    text.match_indices('<').find_map(|(start, _)| {
        let end = start + text[start..].find('>')?;
        let inner = &text[start + 1..end];
        let is_name = inner.starts_with(|it: char| it.is_ascii_alphabetic())
            && inner.chars().all(|it| it.is_ascii_alphanumeric() || " _-.".contains(it));
        // `(?P<name>` is a part of a regular expression.
        (is_name && !text[..start].ends_with("(?P") && !text[..start].ends_with("(?"))
            .then(|| &text[start..=end])
    })
}

/// What a text that is a secret value is.
pub(crate) fn secret_value(text: &str) -> Option<&'static str> {
    let is_alphanumeric = |it: &str| it.bytes().all(|it| it.is_ascii_alphanumeric());
    let words = || text.split(|it: char| it.is_whitespace() || "\"'`,;=()".contains(it));
    let has = |test: &dyn Fn(&str) -> bool| words().any(test);
    if text.contains("-----BEGIN") && text.contains("PRIVATE KEY-----") {
        return Some("a private key");
    }
    if has(&|it| it.starts_with("eyJ") && it.len() > 60 && it.matches('.').count() == 2) {
        return Some("a signed token (JWT)");
    }
    if has(&|it| {
        it.len() == 33
            && it.split_once('-').is_some_and(|(id, secret)| {
                id.len() == 10 && secret.len() == 22 && is_alphanumeric(id) && is_alphanumeric(secret)
            })
    }) {
        return Some("a Coder session token");
    }
    let prefixed = |prefix: &str, least: usize| has(&|it| it.len() >= least && it.starts_with(prefix));
    if prefixed("sk-", 20) {
        return Some("an API key");
    }
    if has(&|it| it.len() == 20 && (it.starts_with("AKIA") || it.starts_with("ASIA")) && is_alphanumeric(it))
    {
        return Some("an AWS access key");
    }
    if ["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-"].iter().any(|it| prefixed(it, 20)) {
        return Some("an access token");
    }
    let is_login = |it: &str| {
        let authority = it.split_once("://").and_then(|(_, rest)| rest.split('/').next());
        authority
            .and_then(|it| it.rsplit_once('@'))
            .and_then(|(login, _)| login.split_once(':'))
            .is_some_and(|(_, password)| !password.is_empty() && !password.starts_with('$'))
    };
    has(&is_login).then_some("a password in an address")
}

/// What a text is that stands under the name of a secret, or is an address with credentials in it. Only for what a program made: a person
/// knows what they write.
fn named_as_secret(path: &str, text: &str) -> Option<&'static str> {
    let name = path.rsplit('.').next().unwrap_or_default().to_lowercase();
    let is_named = ["api_key", "apikey", "access_key", "authorization", "password", "secret", "token"]
        .iter()
        .any(|it| name == *it || name.ends_with(&format!("_{it}")) || name.ends_with(&format!("-{it}")));
    if is_named && path.contains("spec.config.") && !text.is_empty() {
        return Some("a secret value, by its name,");
    }
    let (_, rest) = text.split_once("://")?;
    let (authority, query) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
    let query = query.to_lowercase();
    let is_signed =
        ["x-amz-signature=", "x-goog-signature=", "sig=", "token=", "api_key=", "key="].iter().any(|it| {
            query.contains(&format!("?{it}")) || query.contains(&format!("&{it}")) || query.starts_with(it)
        });
    (authority.contains('@') || is_signed).then_some("credentials in an address")
}

/// References to objects that none of the files declares. They may exist in the cluster or in Coder.
fn dangling(manifests: &Manifests) -> Vec<Mistake> {
    let provided: Vec<(Named, RemoteName)> = manifests
        .subjects
        .iter()
        .filter_map(|it| it.subject.provides().map(|name| (it.plane(), name)))
        .collect();
    let mut warnings = Vec::new();
    for placed in &manifests.subjects {
        let plane = placed.plane();
        let mut warn = |message: String| warnings.push(Mistake { place: placed.place.clone(), message });
        if !manifests.planes.0.is_empty() && !manifests.planes.0.contains_key(&plane) {
            warn(format!(
                "spec.controlPlaneRef: CoderControlPlane {plane} is not declared in these files; it has to exist in the cluster"
            ));
        }
        let refs = placed.subject.refs();
        for name in refs.iter().filter_map(Ref::remote).filter(|it| !always_exists(it)) {
            if !provided.iter().any(|(other, provided)| *other == plane && provided.may_be(name)) {
                warn(format!("refers to {name}, which these files do not declare; it has to exist in Coder"));
            }
        }
    }
    warnings
}

/// Whether every deployment has an object of that name.
fn always_exists(name: &RemoteName) -> bool {
    match name {
        RemoteName::Organization(name) => name == DEFAULT_ORGANIZATION,
        RemoteName::Group { name, .. } => name == "Everyone",
        // Coder's own roles of an organization.
        RemoteName::Role { name, .. } => name.starts_with("organization-") || name == "agents-access",
        RemoteName::AiProvider(_) => false,
        // Most users come from an identity provider.
        RemoteName::User { .. } => true,
    }
}

#[cfg(test)]
mod tests;
