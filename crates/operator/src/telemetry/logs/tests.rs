use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;

use super::*;

/// What was written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn said(format: LogFormat, told: &str, speak: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let written = lines.clone();
    let subscriber = subscriber(format, false, told, move || written.clone());
    tracing::subscriber::with_default(subscriber, speak);
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_json_line_says_whom_it_is_about() {
    let lines = said(LogFormat::Json, "", || {
        let span = tracing::error_span!(
            "reconcile",
            kind = "CoderGroup",
            namespace = "a",
            object = "b",
            generation = 3
        );
        span.in_scope(
            || tracing::warn!(target: "coder_operator::run", reason = "Unreachable", "cannot connect"),
        );
    });
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line["level"], "WARN");
    assert_eq!((&line["message"], &line["reason"]), (&"cannot connect".into(), &"Unreachable".into()));
    let span = &line["span"];
    assert_eq!(
        (&span["kind"], &span["namespace"], &span["object"]),
        (&"CoderGroup".into(), &"a".into(), &"b".into())
    );
    assert_eq!((&span["generation"], lines.len()), (&3.into(), 1));
}

#[test]
fn we_are_heard_from_info_and_others_from_warn() {
    let lines = said(LogFormat::Text, "", || {
        tracing::info!(target: "coder_operator::run", "ours");
        tracing::debug!(target: "coder_operator::run", "too fine");
        tracing::info!(target: "axum", "theirs");
        tracing::warn!(target: "axum", "their warning");
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("ours") && lines[1].contains("their warning"), "{lines:?}");
}

#[test]
fn whatever_is_asked_for_nobody_prints_what_goes_over_the_wire() {
    for told in ["trace", "kube_client::client=trace", "hyper=trace,h2=trace,hyper_util::client=trace"] {
        let lines = said(LogFormat::Text, told, || {
            tracing::warn!(target: "kube_client::client", "{{\"data\":{{\"token\":\"c2VjcmV0\"}}}}");
            tracing::trace!(target: "kube_client::client", "headers");
            tracing::trace!(target: "hyper::proto::h1::io", "bytes");
            tracing::debug!(target: "h2::codec::framed_write", "frame");
            tracing::debug!(target: "hyper_util::client::legacy", "header");
        });
        assert!(lines.is_empty(), "{told}: {lines:?}");
    }
}

#[test]
fn a_panic_is_a_line_without_its_words() {
    let lines = said(LogFormat::Json, "", || {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(panicked));
        let ended = std::panic::catch_unwind(|| unreachable!("hunter2"));
        std::panic::set_hook(before);
        assert!(ended.is_err());
    });
    assert!(!lines[0].contains("hunter2"), "{lines:?}");
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&line["message"], &line["level"]), (&"panicked".into(), &"ERROR".into()));
    assert!(line["place"].as_str().unwrap().contains("logs/tests.rs:"), "{line}");
}
