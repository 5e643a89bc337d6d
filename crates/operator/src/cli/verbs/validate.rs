//! `validate`: manifests checked without a request.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde::Serialize;

use crate::{
    args::{Output, Validate},
    cli::{
        exit::{Exit, Failure},
        manifests::{self, Mistake, Severity, Sources, Validated},
        render::fenced,
        terminal::{print, print_styled, say},
    },
};

/// The result for programs. It only grows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    is_valid: bool,
    /// How many manifests there are.
    manifests: usize,
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    file: String,
    line: usize,
    message: String,
}

pub(super) fn validate(args: &Validate, quiet: bool) -> Result<Exit, Failure> {
    let validated = manifests::validate(&Sources::Files(args.files.clone()));
    let Validated { manifests, mistakes, warnings } =
        validated.map_err(|error| Failure { error, exit: Exit::Usage })?;
    let is_valid = mistakes.is_empty() && (warnings.is_empty() || !args.strict);
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let summary = format!(
        "{}: {}, {}",
        count(manifests, "manifest"),
        count(mistakes.len(), "error"),
        count(warnings.len(), "warning")
    );
    let findings = || {
        let mistakes = mistakes.iter().map(|it| (Severity::Error, it));
        mistakes.chain(warnings.iter().map(|it| (Severity::Warning, it)))
    };
    match args.output {
        Output::Text => {
            let mut text = String::new();
            for (severity, finding) in findings().filter(|it| !quiet || it.0 == Severity::Error) {
                text += &finding.render(severity);
                text += "\n\n";
            }
            print_styled(&text).context("write the findings")?;
            if !quiet {
                say(&summary);
            }
        }
        Output::Markdown => print(&markdown(&summary, findings())).context("write Markdown")?,
        Output::Json | Output::Yaml => {
            let findings = findings().map(|(severity, it)| Finding {
                severity,
                file: it.place.file().to_owned(),
                line: it.place.line(),
                message: it.message.clone(),
            });
            let view = View { is_valid, manifests, findings: findings.collect() };
            let text = if args.output == Output::Json {
                serde_json::to_string_pretty(&view).map(|it| it + "\n").context("write JSON")?
            } else {
                serde_saphyr::to_string(&view).context("write YAML")?
            };
            print(&text).context("write the findings")?;
        }
    }
    Ok(if is_valid { Exit::Success } else { Exit::Usage })
}

fn markdown<'a>(summary: &str, findings: impl Iterator<Item = (Severity, &'a Mistake)>) -> String {
    let mut lines = String::new();
    for (severity, Mistake { place, message }) in findings {
        // Writing to a string cannot fail. In a diff block, errors are red.
        let mark = if severity == Severity::Error { '-' } else { '!' };
        writeln!(lines, "{mark} {place}: {message}").ok();
    }
    let block = if lines.is_empty() { String::new() } else { fenced(&lines) };
    format!("### coder-operator validate: {summary}\n{block}")
}
