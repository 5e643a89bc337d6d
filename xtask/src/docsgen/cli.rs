//! The page of the product's command line, from the same description that `--help` is printed from.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use clap::{Arg, Command, CommandFactory as _};

use super::{FOLDER, NOTE};
use crate::generated::File;

/// The product's own file: the binary has no library to import it from.
#[path = "../../../crates/operator/src/args.rs"]
#[expect(dead_code, reason = "only the description of the arguments is used here")]
mod args;

pub(super) fn file() -> Result<File> {
    let mut text = format!("# coder-operator\n\n{NOTE}\n");
    let mut program = args::Args::command();
    program.build();
    let global: Vec<&Arg> = program.get_arguments().filter(|it| it.is_global_set()).collect();
    for verb in program.get_subcommands().filter(|it| it.get_name() != "help") {
        write_verb(&mut text, verb, &global).context("write the page of the command line")?;
    }
    Ok(File { path: format!("{FOLDER}cli.md"), text })
}

fn write_verb(text: &mut String, verb: &Command, global: &[&Arg]) -> std::fmt::Result {
    let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
    writeln!(
        text,
        "\n## `coder-operator {}`\n\n{about}.\n\n| argument | meaning |\n|---|---|",
        verb.get_name()
    )?;
    let own = verb.get_arguments().filter(|it| global.iter().all(|global| global.get_id() != it.get_id()));
    for argument in own.chain(global.iter().copied()).filter(|it| it.get_id() != "help" && !it.is_hide_set())
    {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let values: Vec<String> =
            argument.get_possible_values().iter().map(|it| format!("`{}`", it.get_name())).collect();
        let values = if values.is_empty() || !argument.get_action().takes_values() {
            String::new()
        } else {
            format!(": {}", values.join(", "))
        };
        let variable = argument.get_env().map(|it| format!(" (`{}`)", it.display())).unwrap_or_default();
        let help = format!("{help}{values}{variable}").replace('|', "\\|");
        writeln!(text, "| `{}` | {help} |", argument.to_string().replace('|', "\\|"))?;
    }
    let below = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
    writeln!(text, "\n```text\n{below}\n```")
}
