//! Arguments of the command line.

// The path holds wherever this file is a module: the generator of the reference page has it as one of its own.
#[path = "args/help.rs"]
mod help;

use std::{
    ffi::OsString,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{
    ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum, parser::ValueSource,
};
use clap_complete::Shell;
use url::Url;

/// Keeps Coder deployments equal to their manifests
#[derive(Debug, Parser)]
#[command(name = "coder-operator", version, after_help = help::PROGRAM)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Print only errors on standard error
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Show objects that are equal, too
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show what `apply` would change; change nothing
    #[command(after_help = help::PLAN)]
    Plan {
        #[command(flatten)]
        input: Input,
        /// Exit with 3 when there are changes
        #[arg(long)]
        exit_code: bool,
        #[command(flatten)]
        unknown: Unknown,
    },
    /// Show the plan, ask, and apply it
    #[command(after_help = help::APPLY)]
    Apply {
        #[command(flatten)]
        input: Input,
        /// Apply without asking
        #[arg(long)]
        yes: bool,
        /// Approve the plan with this hash, for manifests with `approval: Manual` and for destructive plans
        #[arg(long, value_name = "HASH")]
        approve: Vec<String>,
        /// Wait for dependencies: a licence, an organization, a Secret in the cluster, a deployment that does not answer
        #[arg(long)]
        wait: bool,
        /// How long to wait, as `90s`, `5m`, `1h30m` or a number of seconds [default: 5m]. Implies --wait
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        timeout: Option<Duration>,
        /// How many objects are applied side by side; those that others refer to come first
        #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN.saturating_add(9))]
        parallelism: NonZeroUsize,
    },
    /// Exit with 3 when a deployment differs from the manifests; change nothing
    #[command(after_help = help::VERIFY)]
    Verify {
        #[command(flatten)]
        input: Input,
        #[command(flatten)]
        unknown: Unknown,
    },
    /// Write the objects of a deployment as manifests; change nothing
    #[command(after_help = help::EXPORT)]
    Export(Export),
    /// List the objects in a cluster: ready, drift, since when, why
    #[command(after_help = help::STATUS)]
    Status(StatusArgs),
    /// Show the whole plan of one object in a cluster; change nothing
    #[command(after_help = help::DIFF)]
    Diff(Diff),
    /// Approve the plan in the status of one object in a cluster
    #[command(after_help = help::APPROVE)]
    Approve(Approve),
    /// Check manifests without asking anybody: schema, rules, references, placeholders, secret values
    #[command(after_help = help::VALIDATE)]
    Validate(Validate),
    /// Print JSON schemas of the kinds, for editors and other validators
    #[command(after_help = help::SCHEMA)]
    Schema(Schema),
    /// Run a Coder in memory on a loopback address until stopped, to try manifests on
    #[command(after_help = help::SANDBOX)]
    Sandbox(Sandbox),
    /// Run the controllers: reconcile the manifests in a cluster until stopped
    #[command(after_help = help::RUN)]
    Run(Run),
    /// Print the CustomResourceDefinitions as YAML
    #[command(after_help = help::CRDS)]
    Crds,
    /// Print a completion script for a shell
    #[command(after_help = help::COMPLETION)]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of the program or of one verb, as roff
    #[command(after_help = help::MAN)]
    Man {
        /// A verb; without it, the page of the program
        verb: Option<String>,
    },
    /// List the objects whose deletion needs the operator; exit with 4 if there are any
    #[command(after_help = help::UNINSTALL_CHECK)]
    UninstallCheck(UninstallCheck),
}

/// How manifests are compared whose Secrets are missing.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Unknown {
    /// Compare manifests without the fields whose Secrets are missing, with a note, instead of exiting with 5
    #[arg(long)]
    pub(crate) skip_missing_secrets: bool,
}

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Namespace of the objects; without it, that of the context
    #[arg(long, short)]
    pub(crate) namespace: Option<String>,
    /// Objects of all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Format of the result
    #[arg(long, short, default_value = "text")]
    pub(crate) output: Output,
}

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct Diff {
    /// The object, as `codergroup/developers`
    #[arg(value_name = "KIND/NAME")]
    pub(crate) object: String,
    /// Namespace of the object; without it, that of the context
    #[arg(long, short)]
    pub(crate) namespace: Option<String>,
    /// Exit with 3 when there are changes
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
}

/// Arguments of `approve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Approve {
    /// The object, as `codergroup/developers`
    #[arg(value_name = "KIND/NAME")]
    pub(crate) object: String,
    /// Namespace of the object; without it, that of the context
    #[arg(long, short)]
    pub(crate) namespace: Option<String>,
    /// Approve the plan with this hash, without asking; any other plan is refused
    #[arg(long, value_name = "HASH")]
    pub(crate) hash: Option<String>,
    /// Approve the plan that the object has now, without asking
    #[arg(long, conflicts_with = "hash")]
    pub(crate) yes: bool,
}

/// Arguments of `validate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Validate {
    /// Manifests: files, folders (read recursively), or `-` for standard input
    #[arg(short = 'f', long = "filename", required = true, value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,
    /// Exit with 2 for warnings, too: references to objects that the files do not declare
    #[arg(long)]
    pub(crate) strict: bool,
    /// Format of the result
    #[arg(long, short, default_value = "text")]
    pub(crate) output: Output,
}

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Schema {
    /// A kind; without it, one schema for manifests of every kind
    pub(crate) kind: Option<String>,
    /// Write a file per kind (`codergroup_v1alpha1.json`) and one for all (`all.json`) into this folder, instead of printing
    #[arg(long, value_name = "FOLDER", conflicts_with = "kind")]
    pub(crate) folder: Option<PathBuf>,
}

/// Arguments of `sandbox`.
#[derive(Debug, clap::Args)]
pub(crate) struct Sandbox {
    /// Licence of the deployment; without it, premium for a new state, and for one of --state the licences that it has
    #[arg(long, value_name = "LICENCE")]
    pub(crate) license: Option<SandboxLicense>,
    /// File with a state to start from; without it, a deployment that was never used
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,
    /// Save the state in the file of --state after every change; a file that does not exist is created
    #[arg(long, requires = "state")]
    pub(crate) save: bool,
    /// Port on loopback; 0 is a free one
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// Command to run with CODER_URL and CODER_SESSION_TOKEN set; the sandbox stops when the command ends, with its exit code
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxLicense {
    Premium,
    None,
}

/// Arguments of `uninstall-check`.
#[derive(Debug, clap::Args)]
pub(crate) struct UninstallCheck {
    /// Namespace that the operator watches; without it, all namespaces
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// Sentence to end a refusal with
    #[arg(long)]
    pub(crate) advice: Option<String>,
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Namespace to watch; without it, all namespaces
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// Elect a leader through a Lease; without it, run a single replica
    #[arg(long)]
    pub(crate) leader_elect: bool,
    /// Name of the Lease; operators that share a namespace and watch different ones need a name each
    #[arg(long, value_name = "NAME", default_value = engine::rbac::LEASE, requires = "leader_elect")]
    pub(crate) lease_name: String,
    /// Namespace of the Lease; without it, that of --namespace, else that of the pod
    #[arg(long, requires = "leader_elect")]
    pub(crate) lease_namespace: Option<String>,
    /// Serve /healthz and /readyz at this address; without the flag, nowhere
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:8081")]
    pub(crate) health_address: Option<SocketAddr>,
    /// Serve /metrics at this address, which may be that of --health-address; without the flag, nowhere
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:8080")]
    pub(crate) metrics_address: Option<SocketAddr>,
    /// File with a YAML list of rules, as in a Role, that spec.rbac.extraRules of control planes may grant; without it, none
    #[arg(long, value_name = "FILE", env = "CODER_OPERATOR_ALLOW_RULES", hide_env_values = true)]
    pub(crate) allow_rules: Option<PathBuf>,
    /// Also connect to deployments at loopback, link-local and metadata addresses; without it, they are refused
    #[arg(long, env = "CODER_OPERATOR_ALLOW_LOCAL_ADDRESSES")]
    pub(crate) allow_local_addresses: bool,
    /// Format of log lines; without it, text on a terminal and JSON elsewhere
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Manifests, and how to reach the deployments that they are for.
#[derive(Debug, clap::Args)]
pub(crate) struct Input {
    /// Manifests: files, folders (read recursively), or `-` for standard input
    #[arg(short = 'f', long = "filename", required = true, value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
}

/// How to reach the deployments that manifests are for, and how to show the result.
#[derive(Debug, clap::Args)]
pub(crate) struct DeploymentArgs {
    /// Deployment that every manifest goes to; without it, each manifest goes to its control plane
    #[arg(long, env = "CODER_URL", hide_env_values = true)]
    url: Option<Url>,
    /// Where `url` came from.
    #[arg(skip)]
    url_source: UrlSource,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Value of a Secret, as `NAME/KEY=env:VARIABLE` or `NAME/KEY=file:PATH`; overrides files and cluster
    #[arg(long = "secret", value_name = "NAME/KEY=SOURCE")]
    pub(crate) secrets: Vec<String>,
    /// Skip manifests that this verb cannot handle, instead of exiting with 2
    #[arg(long)]
    pub(crate) skip_unsupported: bool,
    /// Format of the result
    #[arg(long, short, default_value = "text")]
    pub(crate) output: Output,
}

/// How the deployment of --url is accessed.
#[derive(Debug, clap::Args)]
pub(crate) struct AccessArgs {
    /// File with the session token for --url; without it, CODER_SESSION_TOKEN
    #[arg(long, value_name = "PATH", requires = "url")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with CA certificates (PEM) to trust besides those of the system, for --url
    #[arg(long, value_name = "PATH", requires = "url")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Deployment to export
    #[arg(long, env = "CODER_URL", hide_env_values = true, required = true)]
    pub(crate) url: Url,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Only this kind, as `CoderGroup`; may be given several times
    #[arg(long = "kind", value_name = "KIND")]
    pub(crate) kinds: Vec<String>,
    /// Also provisioner keys and people of an identity provider, which are otherwise exported only where their kind is named
    #[arg(long)]
    pub(crate) all: bool,
    /// Only this organization and what is in it; `default` is the default one
    #[arg(long, value_name = "NAME")]
    pub(crate) organization: Option<String>,
    /// Write a file per object into this folder, as `codergroup/alpha-developers.yaml`, and `SECRETS.txt`; without it, print all of them
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Replace files of --output-dir that differ, instead of exiting with 4
    #[arg(long, requires = "output_dir")]
    pub(crate) overwrite: bool,
    /// Put the files of templates into their manifests, as a controller needs them; without it, --output-dir gets a folder for each
    #[arg(long, requires = "output_dir")]
    pub(crate) inline_files: bool,
    /// Name of the control plane that the manifests refer to
    #[arg(long, value_name = "NAME", default_value = engine::export::CONTROL_PLANE)]
    pub(crate) control_plane: String,
    /// Namespace of the manifests; without it, they have none
    #[arg(long, short)]
    pub(crate) namespace: Option<String>,
    /// Mode of the manifests; without it, they have none, which means Enforce
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<ExportMode>,
}

/// The mode of exported manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum ExportMode {
    Enforce,
    Observe,
}

/// An address that was given beside the manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GivenUrl {
    pub(crate) url: Url,
    pub(crate) source: UrlSource,
}

/// Where a given address came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum UrlSource {
    /// `--url`.
    #[default]
    Flag,
    /// `CODER_URL`, which nobody may have set on purpose.
    Environment,
}

impl DeploymentArgs {
    pub(crate) fn given_url(&self) -> Option<GivenUrl> {
        self.url.clone().map(|url| GivenUrl { url, source: self.url_source })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
    Yaml,
    /// For the comment of a pull request
    Markdown,
}

/// The file name under which kubectl finds the program as a plugin, and the command that it is then.
const PLUGIN: &str = "kubectl-coder_operator";
const PLUGIN_COMMAND: &str = "kubectl coder-operator";

/// Whether the program was called under the name of a plugin of kubectl.
fn is_plugin(program: &OsString) -> bool {
    Path::new(program).file_stem().is_some_and(|it| it == PLUGIN)
}

impl Args {
    /// Reads the arguments of the process; ends it with a message when they are wrong or ask for help.
    pub(crate) fn read() -> Self {
        let command = match std::env::args_os().next().filter(is_plugin) {
            Some(_) => Self::command().bin_name(PLUGIN_COMMAND),
            None => Self::command(),
        };
        Self::of(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }

    fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::from_arg_matches(matches)?;
        if let (Some(deployment), Some((_, given))) = (args.verb.deployment_mut(), matches.subcommand())
            && given.value_source("url") == Some(ValueSource::EnvVariable)
        {
            deployment.url_source = UrlSource::Environment;
        }
        Ok(args)
    }
}

impl Verb {
    fn deployment_mut(&mut self) -> Option<&mut DeploymentArgs> {
        match self {
            Self::Plan { input, .. } | Self::Apply { input, .. } | Self::Verify { input, .. } => {
                Some(&mut input.deployment)
            }
            Self::Diff(diff) => Some(&mut diff.deployment),
            Self::Export(_)
            | Self::Status(_)
            | Self::Approve(_)
            | Self::Validate(_)
            | Self::Schema(_)
            | Self::Sandbox(_)
            | Self::Run(_)
            | Self::UninstallCheck(_)
            | Self::Crds
            | Self::Completion { .. }
            | Self::Man { .. } => None,
        }
    }
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
    fn every_verb_has_examples_and_exit_codes() {
        let mut program = Args::command();
        program.build();
        let verbs = program.get_subcommands().filter(|it| it.get_name() != "help");
        for command in verbs.chain([&program]) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for heading in ["Examples:\n", "Exit codes:\n"] {
                assert!(help.contains(heading), "{}: {heading}", command.get_name());
            }
        }
    }

    #[test]
    fn every_variable_of_an_option_is_in_the_help_of_its_verb() {
        for command in Args::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for variable in command.get_arguments().filter_map(|it| it.get_env()) {
                assert!(help.contains(variable.to_str().unwrap()), "{}: {variable:?}", command.get_name());
            }
        }
    }

    #[test]
    fn lease_name_has_a_default_and_needs_leader_election() {
        let name = |args: &[&str]| {
            let words = ["coder-operator", "run"].iter().chain(args);
            match Args::try_parse_from(words).map(|it| it.verb) {
                Ok(Verb::Run(run)) => Ok(run.lease_name),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        assert_eq!(name(&["--leader-elect"]).unwrap(), "coder-operator");
        assert_eq!(name(&["--leader-elect", "--lease-name", "team-a"]).unwrap(), "team-a");
        assert!(name(&["--lease-name", "team-a"]).unwrap_err().contains("--leader-elect"));
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
