//! The words of the command line.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};
use url::Url;

/// Keeps Coder deployments equal to their manifests
#[derive(Debug, Parser)]
#[command(name = "coder-operator", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Say nothing but errors on standard error
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Show what is equal, too
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show what would be changed, and change nothing
    Plan {
        #[command(flatten)]
        input: Input,
        /// Exit with 3 when there are changes
        #[arg(long)]
        exit_code: bool,
    },
    /// Show what would be changed, ask, and change it
    Apply {
        #[command(flatten)]
        input: Input,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Stay until what has to come first has come
        #[arg(long)]
        wait: bool,
        /// How long to stay, as `90s`, `5m`, `1h30m` or a number of seconds; by default `5m`. Implies --wait
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        timeout: Option<Duration>,
    },
    /// Exit with 3 when the deployment differs from the manifests, and change nothing
    Verify {
        #[command(flatten)]
        input: Input,
    },
    /// Keep deployments equal to the manifests in a cluster, until told to end
    Run(Run),
    /// Print the definitions of the kinds, for `kubectl apply -f -`
    Crds,
}

/// How the controllers run.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The namespace to look at; all of them when absent
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// Act only while holding the Lease `coder-operator`, so that of several operators one acts
    #[arg(long)]
    pub(crate) leader_elect: bool,
    /// Where that Lease is; the namespace that is looked at, or else the pod's own, when absent
    #[arg(long, requires = "leader_elect")]
    pub(crate) lease_namespace: Option<String>,
    /// Answer /healthz and /readyz here; nowhere when absent
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:8081")]
    pub(crate) health_address: Option<SocketAddr>,
    /// Answer /metrics here, which may be the same address; nowhere when absent
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:8080")]
    pub(crate) metrics_address: Option<SocketAddr>,
    /// A file with a YAML list of rules as in a Role: what spec.rbac.extraRules of control planes may grant; nothing when absent
    #[arg(long, value_name = "FILE", env = "CODER_OPERATOR_ALLOW_RULES")]
    pub(crate) allow_rules: Option<PathBuf>,
    /// How log lines are written; text on a terminal and JSON elsewhere when absent
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// What to compare with what.
#[derive(Debug, clap::Args)]
pub(crate) struct Input {
    /// Manifests: files, folders, or `-` for standard input
    #[arg(short = 'f', long = "filename", required = true, value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,
    /// The deployment to which every manifest goes; without it each goes to its control plane
    #[arg(long, env = "CODER_URL")]
    pub(crate) url: Option<Url>,
    /// A file with a session token for --url; without it the variable `CODER_SESSION_TOKEN` is read
    #[arg(long, value_name = "PATH", requires = "url")]
    pub(crate) token_file: Option<PathBuf>,
    /// A file with certificates of authorities to trust besides the machine's own, for --url
    #[arg(long, value_name = "PATH", requires = "url")]
    pub(crate) ca_file: Option<PathBuf>,
    /// A value of a Secret, as `NAME/KEY=env:VARIABLE` or `NAME/KEY=file:PATH`. It wins over files and cluster
    #[arg(long = "secret", value_name = "NAME/KEY=SOURCE")]
    pub(crate) secrets: Vec<String>,
    /// How to print the result
    #[arg(long, short, default_value = "text")]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
    Yaml,
}

/// A duration as manifests write it, or bare seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let parsed = if is_bare { api::parse_duration(&format!("{text}s")) } else { api::parse_duration(text) };
    parsed.ok_or_else(|| "write it as 90s, 5m, 1h30m or a number of seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(args: &[&str]) -> Result<(bool, Option<Duration>), clap::Error> {
        let words = ["coder-operator", "apply", "-f", "-", "--url", "http://127.0.0.1"];
        match Args::try_parse_from(words.iter().chain(args))?.verb {
            Verb::Apply { wait, timeout, .. } => Ok((wait, timeout)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_timeout_is_written_as_in_manifests_or_in_bare_seconds() {
        for (text, seconds) in
            [("90s", 90), ("5m", 300), ("1h30m", 5400), ("90", 90), ("0", 0), ("0s", 0), ("1h0m5s", 3605)]
        {
            let (_, timeout) = wait(&["--timeout", text]).unwrap();
            assert_eq!(timeout, Some(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn a_timeout_that_is_none_is_refused_with_examples() {
        for text in ["", "soon", "5 m", "-5m", "1.5h", "5ms", "90ss", "99999999999999999999"] {
            let error = wait(&[&format!("--timeout={text}")]).unwrap_err().to_string();
            assert!(error.contains("90s, 5m, 1h30m or a number of seconds"), "{text}: {error}");
        }
    }
}
