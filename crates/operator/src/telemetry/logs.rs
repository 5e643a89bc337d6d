//! What the controllers say: lines on standard error, as text for people or as JSON for those who collect them.
//!
//! Nobody else's words may show a secret: crates that print what they send or receive are held back whatever `RUST_LOG` says.

#[cfg(test)]
mod tests;

use std::{io::IsTerminal as _, panic::PanicHookInfo};

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt as _, filter_fn},
    fmt::MakeWriter,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::args::LogFormat;

/// What is shown when `RUST_LOG` is silent. What fails in `kube` comes back as an error, and is told by us, once.
const DEFAULT: &str = "warn,coder_operator=info,kube_client=off,kube_runtime=error";
/// Crates that show bytes, headers or frames at their finer levels.
const TALKATIVE: [&str; 8] =
    ["h2", "hyper", "hyper_rustls", "hyper_util", "kube_client", "reqwest", "rustls", "tower"];
/// Prints the whole body of an answer that it cannot read, which may be a Secret's.
const INDISCREET: &str = "kube_client::client";

/// Makes lines of everything that is traced from now on, and of panics.
pub(crate) fn begin(format: Option<LogFormat>) {
    let is_terminal = std::io::stderr().is_terminal();
    // Somebody looks, or something collects.
    let format = format.unwrap_or(if is_terminal { LogFormat::Text } else { LogFormat::Json });
    let told = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    // A second one in the same process, as in tests, leaves the first.
    subscriber(format, is_terminal, &told, std::io::stderr).try_init().ok();
    std::panic::set_hook(Box::new(panicked));
}

/// Where a panic was. What it said is left out: it may hold any value.
fn panicked(info: &PanicHookInfo<'_>) {
    let place = info.location().map(|it| format!("{}:{}", it.file(), it.line())).unwrap_or_default();
    tracing::error!(place, "panicked");
}

fn subscriber<W>(format: LogFormat, colour: bool, told: &str, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let told = if told.trim().is_empty() { DEFAULT } else { told };
    let wanted = EnvFilter::builder().parse_lossy(told);
    let filter = wanted.and(filter_fn(may_be_shown));
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => Box::new(lines.with_ansi(colour).with_target(false)),
        LogFormat::Json => {
            Box::new(lines.json().flatten_event(true).with_current_span(true).with_span_list(false))
        }
    };
    tracing_subscriber::registry().with(lines.with_filter(filter))
}

fn may_be_shown(line: &Metadata<'_>) -> bool {
    let root = line.target().split("::").next().unwrap_or_default();
    line.target() != INDISCREET && (*line.level() <= Level::INFO || !TALKATIVE.contains(&root))
}
