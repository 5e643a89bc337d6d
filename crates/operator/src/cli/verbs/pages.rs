//! `completion` and `man`: pages that are made from the arguments.

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::{args::Args, cli::exit::Failure};

pub(super) fn completion(shell: Shell) -> String {
    let mut command = Args::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The manual page of a verb, or of the program.
pub(super) fn manual(verb: Option<&str>) -> Result<String, Failure> {
    let mut program = Args::command();
    // Gives verbs their full names and the options of the program.
    program.build();
    let command = match verb {
        None => program,
        Some(verb) => program.find_subcommand(verb).cloned().ok_or_else(|| {
            let known = program.get_subcommands().map(clap::Command::get_name);
            let known: Vec<&str> = known.filter(|it| *it != "help").collect();
            Failure::usage(format!("no verb {verb:?}: expected one of {}", known.join(", ")))
        })?,
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page).context("write the manual page")?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn completion_knows_every_verb_in_every_shell() {
        for shell in Shell::value_variants() {
            let script = completion(*shell);
            for verb in ["plan", "apply", "verify", "run", "crds", "completion", "man"] {
                assert!(script.contains(verb), "{shell}: {verb}");
            }
        }
    }

    #[test]
    fn manual_has_examples_exit_codes_and_environment() {
        for verb in [None, Some("plan"), Some("apply"), Some("verify"), Some("run")] {
            let page = manual(verb).unwrap();
            for heading in ["Examples:", "Exit codes:", "Environment:"] {
                assert!(page.contains(heading), "{verb:?}: {heading}");
            }
        }
        assert!(manual(Some("apply")).unwrap().contains("coder\\-operator\\-apply"));
        assert!(
            manual(Some("destroy")).unwrap_err().error.to_string().contains("expected one of plan, apply")
        );
    }
}
