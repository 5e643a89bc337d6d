//! What was sent and answered, with everything that differs between two runs replaced by a stable placeholder.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Dates of a licence, which are numbers.
const DATES: [&str; 4] = ["exp", "iat", "license_expires", "nbf"];
/// Values that coderd shows once.
const SECRETS: [&str; 2] = ["key", "session_token"];
/// A moment that is a constant of coderd is compared as it is.
const CONSTANT_YEARS: [i16; 4] = [1, 1970, 2025, 2125];

/// The length of a token: its id, a hyphen and its secret. Provisioner keys are longer and may have a hyphen anywhere.
const TOKEN_LENGTH: usize = 33;
/// A list of ids that coderd shows in the order of its table, which moves with every row that is reused.
const UNORDERED: &str = "organization_ids";
/// What lists are sorted by.
const NAMES: [&str; 3] = ["token_name", "name", "username"];

/// One exchange.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) request: String,
    pub(crate) sent: Value,
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// The exchanges of one case.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(crate) entries: Vec<Entry>,
    names: Names,
}

/// Placeholders by what they stand for, numbered in the order of appearance.
#[derive(Debug, Default)]
struct Names {
    given: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Transcript {
    /// Makes a text of the deployment, such as its address, read as a placeholder.
    pub(crate) fn name(&mut self, text: &str, placeholder: &str) {
        self.names.given.insert(text.to_owned(), placeholder.to_owned());
    }

    pub(crate) fn record(&mut self, request: &str, sent: &Value, status: u16, body: &Value) {
        self.names.learn_secrets(body);
        let request = self.names.text(request);
        let sent = self.names.value("", sent);
        let body = self.names.value("", body);
        self.entries.push(Entry { request, sent, status, body });
    }

    /// Adds a fact that was computed from answers.
    pub(crate) fn note(&mut self, what: &str, value: &Value) {
        let value = self.names.value("", value);
        self.entries.push(Entry { request: what.to_owned(), sent: Value::Null, status: 0, body: value });
    }
}

impl Entry {
    fn shown(&self) -> String {
        let Self { request, sent, status, body } = self;
        format!("{request} {sent}\n    {status} {body}")
    }
}

/// The differences between two transcripts as text. `None` where the transcripts are equal.
pub(crate) fn difference(one: &[Entry], other: &[Entry]) -> Option<String> {
    let pairs = one.iter().zip(other);
    let differing = pairs.filter(|(one, other)| one != other);
    let shown: Vec<String> =
        differing.map(|(one, other)| format!("- {}\n+ {}", one.shown(), other.shown())).collect();
    if one.len() != other.len() {
        return Some(format!("{} and {} exchanges\n{}", one.len(), other.len(), shown.join("\n")));
    }
    (!shown.is_empty()).then(|| shown.join("\n"))
}

impl Names {
    fn placeholder(&mut self, kind: &'static str, text: &str) -> String {
        if let Some(given) = self.given.get(text) {
            return given.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let placeholder = format!("<{kind}-{count}>");
        self.given.insert(text.to_owned(), placeholder.clone());
        placeholder
    }

    fn learn_secrets(&mut self, body: &Value) {
        let Some(object) = body.as_object() else { return };
        let secrets = SECRETS.iter().filter_map(|it| object.get(*it)?.as_str());
        for secret in secrets.map(str::to_owned).collect::<Vec<_>>() {
            self.placeholder("secret", &secret);
            if let Some((id, _)) = secret.split_once('-').filter(|_| secret.len() == TOKEN_LENGTH) {
                self.placeholder("key", id);
            }
        }
    }

    fn value(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::Number(_) if DATES.contains(&key) => json!("<date>"),
            Value::String(text) => match text.parse::<Timestamp>() {
                Ok(time) => json!(shown_time(time)),
                Err(_) => json!(self.text(text)),
            },
            Value::Array(items) if key == UNORDERED => self.unordered(items),
            Value::Array(items) => sorted(items).into_iter().map(|it| self.value("", it)).collect(),
            Value::Object(object) => {
                if let (Some(id), true) = (object.get("id"), object.contains_key("token_name")) {
                    self.placeholder("key", id.as_str().unwrap_or_default());
                }
                // In the order of the keys, so that placeholders are numbered alike on both sides.
                let named = object.iter().map(|(key, value)| (self.text(key), self.value(key, value)));
                Value::Object(named.collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }

    /// Ids whose order is not compared: those that were seen before, and how many others there are. The others get no
    /// placeholder, because their order would number them.
    fn unordered(&self, ids: &[Value]) -> Value {
        let mut known: Vec<&String> = ids.iter().filter_map(|it| self.given.get(it.as_str()?)).collect();
        known.sort();
        json!({"known": known, "others": ids.len() - known.len()})
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = without_rights(text).to_owned();
        for found in uuids(&text) {
            let placeholder = self.placeholder("id", &found);
            text = text.replace(&found, &placeholder);
        }
        // The longest first: the id of a token is the beginning of its text.
        let mut given: Vec<(&String, &String)> = self.given.iter().collect();
        given.sort_by_key(|(given, _)| std::cmp::Reverse(given.len()));
        for (given, placeholder) in given {
            text = text.replace(given, placeholder);
        }
        if let Some((before, _)) = text.split_once("API key expired at ") {
            return format!("{before}API key expired at <time>");
        }
        match text.split_once("please wait ") {
            Some((before, after)) => {
                let after = after.trim_start_matches(|it: char| it.is_ascii_digit());
                format!("{before}please wait <n>{after}")
            }
            None => text,
        }
    }
}

/// A moment that is a constant of coderd is shown, any other one is not.
fn shown_time(time: Timestamp) -> String {
    let year = time.to_zoned(jiff::tz::TimeZone::UTC).year();
    if CONSTANT_YEARS.contains(&year) { time.to_string() } else { "<time>".to_owned() }
}

/// Objects with names in the order of their names: coderd lists them in the order of its tables, which moves with
/// every update.
fn sorted(items: &[Value]) -> Vec<&Value> {
    let name = |it: &&Value| {
        // An entry of the list of provisioner keys has its name one level deeper.
        let named = it.get("key").unwrap_or(it);
        NAMES.iter().find_map(|key| named[*key].as_str().map(str::to_owned))
    };
    let mut sorted: Vec<&Value> = items.iter().collect();
    if sorted.iter().all(|it| it.is_object()) {
        sorted.sort_by_key(name);
    }
    sorted
}

/// A text without the description of a caller's rights, which is as long as a page.
fn without_rights(text: &str) -> &str {
    const REFUSAL: &str = "unauthorized: rbac: forbidden";
    text.find(REFUSAL).map_or(text, |at| &text[..at + REFUSAL.len()])
}

/// The ids in a text that are not constants of coderd, which are below 16.
fn uuids(text: &str) -> Vec<String> {
    const LENGTH: usize = 36;
    let mut found = Vec::new();
    let mut start = 0;
    while let Some(window) = text.get(start..).filter(|it| it.len() >= LENGTH) {
        let end = window.char_indices().map(|(at, _)| at).find(|at| *at >= LENGTH).unwrap_or(window.len());
        match window[..end].parse::<Uuid>() {
            Ok(id) if end == LENGTH => {
                if id.as_u128() >= 16 {
                    found.push(window[..end].to_owned());
                }
                start += LENGTH;
            }
            _ => start += window.chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}
