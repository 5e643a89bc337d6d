//! An answer of the server: what its headers say, and the body as it came.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use crate::rate_limiter::Allowance;

/// Longer than any identifier that coderd sends.
const LONGEST_NAME: usize = 64;

/// An answer, read but not yet judged.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The same id stands in the server's audit log.
    pub(crate) request_id: Option<String>,
    pub(crate) build_version: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) allowance: Option<Allowance>,
    pub(crate) location: Option<String>,
    pub(crate) is_html: bool,
    /// The media type, without parameters.
    content_type: Option<String>,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn read(response: http::Response<Bytes>) -> Self {
        let (parts, body) = response.into_parts();
        let headers = &parts.headers;
        let kind = text(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
        Self {
            status: parts.status,
            request_id: name(headers, "x-coder-request-id"),
            build_version: name(headers, "x-coder-build-version"),
            retry_after: retry_after(headers),
            allowance: allowance(headers),
            location: text(headers, header::LOCATION.as_str()).map(str::to_owned),
            is_html: kind.contains("html") || starts_as_html(&body),
            content_type: media_type(kind),
            body,
        }
    }

    /// Whether coderd itself answered: every answer of it carries a request id or a version.
    pub(crate) fn is_from_coder(&self) -> bool {
        self.request_id.is_some() || self.build_version.is_some()
    }

    /// What kind of answer it is, in words that hold nothing of its body.
    pub(crate) fn kind(&self) -> &str {
        let told = self.content_type.as_deref();
        told.unwrap_or(if self.is_html { "text/html" } else { "no content type" })
    }

    /// Whether this came from in front of coderd, and coderd itself is not there.
    pub(crate) fn is_from_gateway(&self) -> bool {
        matches!(self.status.as_u16(), 502..=504)
    }
}

/// A media type as `text/html`; anything longer or stranger is none.
fn media_type(header: &str) -> Option<String> {
    let kind = header.split(';').next().unwrap_or_default().trim();
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '/' | '-' | '+' | '.');
    (!kind.is_empty() && kind.len() <= LONGEST_NAME && kind.chars().all(is_plain)).then(|| kind.to_owned())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A header that holds an identifier, and is not taken for one when it is anything else.
fn name(headers: &HeaderMap, name: &str) -> Option<String> {
    let is_name = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '+');
    let name: String = text(headers, name)?.chars().filter(is_name).take(LONGEST_NAME).collect();
    (!name.is_empty()).then_some(name)
}

/// Seconds, or a date; a date is read against the server's own clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = text(headers, header::RETRY_AFTER.as_str())?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Some(seconds_until(headers, unix_seconds(value)?))
}

/// httprate sends all three or none.
fn allowance(headers: &HeaderMap) -> Option<Allowance> {
    let limit = text(headers, "x-ratelimit-limit")?.trim().parse().ok()?;
    let remaining = text(headers, "x-ratelimit-remaining")?.trim().parse().ok()?;
    let reset = text(headers, "x-ratelimit-reset").and_then(|it| it.trim().parse().ok());
    let reset = reset.map_or(Duration::from_mins(1), |it| seconds_until(headers, it));
    Some(Allowance { limit, remaining, reset })
}

/// How far off a moment is by the server's clock, and a minute where it shows none.
fn seconds_until(headers: &HeaderMap, moment: i64) -> Duration {
    let now = text(headers, header::DATE.as_str()).and_then(unix_seconds);
    let seconds = now.map_or(60, |now| moment.saturating_sub(now));
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn unix_seconds(date: &str) -> Option<i64> {
    let date = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(date.timestamp().as_second())
}

fn starts_as_html(body: &[u8]) -> bool {
    let start = body.trim_ascii_start();
    ["<!doctype html", "<html"]
        .iter()
        .any(|it| start.get(..it.len()).is_some_and(|start| start.eq_ignore_ascii_case(it.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(headers: &[(&str, &str)]) -> Answer {
        let mut response = http::Response::builder().status(429);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Answer::read(response.body(Bytes::new()).unwrap())
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_servers_clock() {
        let seconds = |headers: &[(&str, &str)]| answer(headers).retry_after.map(|it| it.as_secs());
        assert_eq!(seconds(&[("Retry-After", "60")]), Some(60));
        let date = ("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(seconds(&[date, ("Retry-After", "Sun, 06 Nov 1994 08:49:40 GMT")]), Some(3));
        assert_eq!(seconds(&[date, ("Retry-After", "Sun, 06 Nov 1994 08:49:00 GMT")]), Some(0));
        assert_eq!(seconds(&[("Retry-After", "soon")]), None);
        assert_eq!(seconds(&[]), None);
    }

    #[test]
    fn the_allowance_needs_limit_and_remaining_and_reads_the_reset_by_the_servers_clock() {
        let full = answer(&[
            ("X-RateLimit-Limit", "512"),
            ("X-RateLimit-Remaining", "3"),
            ("X-RateLimit-Reset", "784111787"),
            ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ]);
        let expected = Allowance { limit: 512, remaining: 3, reset: Duration::from_secs(10) };
        assert_eq!(full.allowance, Some(expected));
        assert_eq!(answer(&[("X-RateLimit-Limit", "512")]).allowance, None);
    }

    #[test]
    fn identifiers_are_short_and_plain() {
        let long = "a b<c>".repeat(40);
        let id = answer(&[("X-Coder-Request-Id", &long)]).request_id.unwrap();
        assert_eq!(id.len(), 64);
        assert!(id.starts_with("abcabc"));
    }
}
