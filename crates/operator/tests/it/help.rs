//! Pages for people: help, completion, manual; and colour.

use crate::support::{Folder, bare, said};

const VERBS: [&str; 13] = [
    "plan",
    "apply",
    "verify",
    "status",
    "diff",
    "approve",
    "validate",
    "schema",
    "sandbox",
    "run",
    "crds",
    "completion",
    "man",
];

fn printed(args: &[&str]) -> String {
    let output = bare(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_shows_examples_exit_codes_and_environment() {
    for verb in VERBS {
        let help = printed(&[verb, "--help"]);
        let example = format!("  coder-operator {verb} ");
        for words in ["Examples:\n", "Exit codes:\n  0  ", "\n  1  "] {
            assert!(help.contains(words), "{verb}: {words:?} is not in:\n{help}");
        }
        assert!(help.contains(&example) || help.contains(example.trim_start()), "{verb}:\n{help}");
    }
    for args in [&["--help"][..], &["plan", "--help"], &["apply", "-h"], &["verify", "--help"]] {
        let help = printed(args);
        for words in [
            "Environment:\n",
            "CODER_URL ",
            "CODER_SESSION_TOKEN ",
            "NO_COLOR",
            "2  usage error or invalid manifest",
            "5  timed out waiting for a dependency",
        ] {
            assert!(help.contains(words), "{args:?}: {words:?} is not in:\n{help}");
        }
    }
}

#[test]
fn help_shows_no_value_of_the_environment() {
    let output =
        bare(&["plan", "--help"]).env("CODER_URL", "https://me:hunter2@coder.example.com").output().unwrap();
    assert!(!said(&output).contains("hunter2"), "{}", said(&output));
}

#[test]
fn completion_scripts_and_manual_pages_are_printed() {
    assert!(printed(&["completion", "bash"]).contains("complete -F _coder"));
    assert!(printed(&["completion", "zsh"]).starts_with("#compdef coder-operator"));
    assert!(printed(&["man"]).contains(".TH coder-operator 1"));
    assert!(printed(&["man", "apply"]).contains(".TH coder-operator-apply 1"));
    let output = bare(&["man", "destroy"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("expected one of plan, apply, verify"), "{}", said(&output));
}

#[test]
fn colour_needs_a_terminal_or_a_wish() {
    let folder = Folder::new("colour");
    let file = folder.write("a.yaml", "kind: [\n");
    for (variables, coloured) in [
        (&[][..], false),
        (&[("CLICOLOR_FORCE", "1")], true),
        (&[("NO_COLOR", "1")], false),
        (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
    ] {
        let output = bare(&["plan", "-f", &file]).envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(said(&output).contains('\u{1b}'), coloured, "{variables:?}: {}", said(&output));
    }
}
