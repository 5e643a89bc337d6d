//! The words of a server made fit for a log, a status and a terminal: no secret, no control character, not long.
//!
//! coderd quotes what it was sent in some of its complaints, and proxies quote what they like.

use std::ops::Range;

/// What stands where a secret was.
pub const REDACTED: &str = "[redacted]";

const LONGEST: usize = 300;
/// Far more than is ever shown; the rest of a huge page is not worth looking at.
const MOST_READ: usize = 16 * 1024;

/// What a secret of a well-known kind starts with, and how long it is at least.
const KNOWN_STARTS: [(&str, usize); 8] = [
    ("eyJ", 20),
    ("AKIA", 16),
    ("ghp_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("sk-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
];

/// Words after which a value is a secret. Lower case, the end of the name is enough.
const SECRET_NAMES: [&str; 9] =
    ["password", "passwd", "secret", "token", "api_key", "apikey", "api-key", "authorization", "license"];

/// Cleans what somebody else said. `secrets` are values that must not be in it: those that a call carried, or a pod reads.
pub fn clean(text: &str, secrets: &[&str]) -> String {
    // Before the lines become one as well: a secret may hold what is about to be taken out.
    let text = one_line(&without_known(text, secrets));
    let text = without_known(&text, secrets);
    let text = without_userinfo(&text);
    let text = without_assigned(&text);
    let text = without_callers(&text);
    cut(&without_lookalikes(&text))
}

/// Cleans a complaint about one field; a field with a secret's name does not get its value quoted.
pub(crate) fn clean_validation(field: &str, detail: &str, secrets: &[&str]) -> String {
    let is_secret = SECRET_NAMES.iter().any(|name| field.to_lowercase().contains(name));
    match detail.find("value:") {
        Some(at) if is_secret => {
            clean(&format!("{} {REDACTED}", detail.get(..at + "value:".len()).unwrap_or_default()), secrets)
        }
        _ => clean(detail, secrets),
    }
}

/// Runs of white space become one space; control and invisible formatting characters go.
fn one_line(text: &str) -> String {
    let visible = text.chars().take(MOST_READ).filter_map(|it| match it {
        it if it.is_whitespace() => Some(' '),
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => None,
        it if it.is_control() => None,
        it => Some(it),
    });
    let visible: String = visible.collect();
    visible.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn without_known(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|it| !it.is_empty()) {
        let escaped = serde_json::Value::from(*secret).to_string();
        for spelling in [*secret, escaped.trim_matches('"')] {
            text = text.replace(spelling, REDACTED);
        }
        // A session token is `<id>-<secret>`, and the second half alone is as good as the whole.
        if let Some((_, half)) = secret.split_once('-').filter(|(_, half)| half.len() >= 12) {
            text = text.replace(half, REDACTED);
        }
    }
    text
}

/// `scheme://user:password@host` keeps only the host.
fn without_userinfo(text: &str) -> String {
    let mut found = Vec::new();
    for (at, mark) in text.match_indices("://") {
        let start = at + mark.len();
        let rest = text.get(start..).unwrap_or_default();
        let authority = rest.find(['/', '?', '#', ' ', '"', '\'']).map_or(rest, |end| &rest[..end]);
        if let Some(end) = authority.rfind('@') {
            found.push(start..start + end);
        }
    }
    replace(text, &found)
}

/// `caller:port->server:port`, as Go names a connection, keeps only the server: the caller's port is another one each
/// time, and the same trouble in other words would be written down again and again.
fn without_callers(text: &str) -> String {
    let is_address = |it: char| it.is_ascii_hexdigit() || matches!(it, '.' | ':' | '[' | ']' | '%');
    let mut cleaned = String::with_capacity(text.len());
    let mut pieces = text.split("->").peekable();
    while let Some(piece) = pieces.next() {
        let Some(next) = pieces.peek() else {
            cleaned.push_str(piece);
            break;
        };
        let before = piece.trim_end_matches(is_address);
        let caller = piece.get(before.len()..).unwrap_or_default();
        if caller.contains(':') && next.starts_with(is_address) {
            cleaned.push_str(before);
        } else {
            cleaned.push_str(piece);
            cleaned.push_str("->");
        }
    }
    cleaned
}

/// `password=…`, `"token": "…"`, `Authorization: Bearer …`.
fn without_assigned(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<Range<usize>> = Vec::new();
    for name in SECRET_NAMES {
        for (at, _) in lower.match_indices(name) {
            found.extend(assigned_value(text, at + name.len()));
        }
    }
    for (at, word) in lower.match_indices("bearer ") {
        let start = at + word.len();
        found.push(start..value_end(text, start, &[' ', '"', '\'', ',']));
    }
    found.sort_by_key(|it| it.start);
    replace(text, &found)
}

/// Where the value is that the name before `at` is given, if it is given one.
fn assigned_value(text: &str, at: usize) -> Option<Range<usize>> {
    let rest = text.get(at..)?;
    let after_quote = rest.trim_start_matches(['"', '\'', '\\']);
    let quoted_name = after_quote.len() < rest.len();
    let after_space = after_quote.trim_start();
    let sign = after_space.chars().next().filter(|it| matches!(it, '=' | ':'))?;
    let value = after_space.get(1..)?.trim_start();
    let opened = value.trim_start_matches(['"', '\'', '\\']);
    let quoted_value = opened.len() < value.len();
    let start = text.len() - opened.len();
    let ends: &[char] =
        if quoted_value { &['"', '\'', '\\'] } else { &[' ', ',', ';', '&', '"', '\'', '}', ')'] };
    let range = start..value_end(text, start, ends);
    let word = text.get(range.clone())?;
    // "Invalid password: too short" is prose, and prose must stay readable.
    let is_prose = sign == ':' && !quoted_name && !quoted_value && word.chars().all(char::is_alphabetic);
    (!is_prose && !word.is_empty()).then_some(range)
}

fn value_end(text: &str, start: usize, ends: &[char]) -> usize {
    text.get(start..).and_then(|rest| rest.find(ends)).map_or(text.len(), |length| start + length)
}

/// What has the shape of a token, whoever put it there.
fn without_lookalikes(text: &str) -> String {
    let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let mut found = Vec::new();
    let mut start = 0;
    for run in text.split(|it| !is_part(it)) {
        if is_lookalike(run) {
            found.push(start..start + run.len());
        }
        start += run.len() + text.get(start + run.len()..).map_or(0, first_length);
    }
    replace(text, &found)
}

fn first_length(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

fn is_lookalike(run: &str) -> bool {
    let known = KNOWN_STARTS.iter().any(|(start, length)| run.starts_with(start) && run.len() >= *length);
    let random = run.split(|it: char| !it.is_ascii_alphanumeric()).any(|piece| {
        let has = |what: fn(&char) -> bool| piece.chars().any(|it| what(&it));
        piece.len() >= 20 && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
    });
    known || random || is_coder_token(run)
}

/// Whether a run has the shape of a session of Coder: an id of 10 characters and a secret of 22.
fn is_coder_token(run: &str) -> bool {
    let is_plain = |piece: &str| piece.chars().all(|it| it.is_ascii_alphanumeric());
    run.split_once('-')
        .is_some_and(|(id, secret)| (id.len(), secret.len()) == (10, 22) && is_plain(id) && is_plain(secret))
}

/// Puts the mark in place of the ranges, which are in order; one that begins inside another is part of it.
fn replace(text: &str, found: &[Range<usize>]) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut done = 0;
    for range in found {
        if range.start >= done {
            cleaned.push_str(text.get(done..range.start).unwrap_or_default());
            cleaned.push_str(REDACTED);
        }
        done = done.max(range.end);
    }
    cleaned.push_str(text.get(done..).unwrap_or_default());
    cleaned
}

fn cut(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(LONGEST - 1).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests;
