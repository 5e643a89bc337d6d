//! `--secret NAME/KEY=env:VARIABLE|file:PATH`: values that a person gives instead of Secrets in files or a cluster.
//!
//! The words are taken apart here and not by the parser of the command line, which would repeat a wrong one: whoever
//! forgets `env:` has written the secret itself.

use std::{collections::BTreeMap, ffi::OsStr, fs};

use secrecy::SecretSlice;

/// What was given, by the Secret's name and key. It counts in every namespace.
pub(crate) type Given = BTreeMap<String, BTreeMap<String, SecretSlice<u8>>>;

const EXPECTED: &str = "expected NAME/KEY=env:VARIABLE or NAME/KEY=file:PATH";

/// Reads every value, or says which flag is wrong and why, without anything that could be the value.
pub(crate) fn read(
    flags: &[String],
    variable: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<Given, String> {
    let mut given = Given::new();
    for flag in flags {
        let (target, source) = flag.split_once('=').ok_or_else(|| format!("--secret: {EXPECTED}"))?;
        let parts = target.split_once('/').filter(|(name, key)| is_name(name) && is_name(key));
        let (name, key) = parts.ok_or_else(|| format!("--secret: {EXPECTED}"))?;
        let value = value(source, &variable).map_err(|why| format!("--secret {name}/{key}: {why}"))?;
        let known = given.entry(name.to_owned()).or_default().insert(key.to_owned(), value.into());
        if known.is_some() {
            return Err(format!("--secret {name}/{key}: is given twice"));
        }
    }
    Ok(given)
}

/// What Kubernetes takes for names of Secrets and of their keys.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it))
}

fn value(source: &str, variable: &impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<Vec<u8>, String> {
    let value = if let Some(name) = source.strip_prefix("env:") {
        let value = variable(name).ok_or_else(|| format!("the variable {name} is not set"))?;
        OsStr::as_encoded_bytes(&value).to_vec()
    } else if let Some(path) = source.strip_prefix("file:") {
        fs::read(path).map_err(|error| format!("read {path}: {error}"))?
    } else {
        return Err("expected env:VARIABLE or file:PATH after the `=`; a value itself is never given here, \
                    where everybody on the machine can see it"
            .to_owned());
    };
    if value.is_empty() { Err("the value is empty".to_owned()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn read_all(flags: &[&str]) -> Result<Given, String> {
        let flags: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
        read(&flags, |name| match name {
            "TOKEN" => Some("hunter2".into()),
            "EMPTY" => Some(std::ffi::OsString::new()),
            _ => None,
        })
    }

    #[test]
    fn values_come_from_variables_and_files() {
        let file = concat!("coder/ca.crt=file:", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let given = read_all(&["coder/token=env:TOKEN", file]).unwrap();
        assert_eq!(given["coder"]["token"].expose_secret(), b"hunter2");
        assert!(given["coder"]["ca.crt"].expose_secret().starts_with(b"[package]"));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_flag_and_never_with_what_could_be_the_value() {
        for (flag, words) in [
            ("hunter2", "--secret: expected NAME/KEY="),
            ("token=hunter2", "--secret: expected NAME/KEY="),
            ("hunter2/=env:TOKEN", "--secret: expected NAME/KEY="),
            ("coder/token=hunter2", "--secret coder/token: expected env:VARIABLE or file:PATH"),
            ("coder/token=env:NONE", "--secret coder/token: the variable NONE is not set"),
            ("coder/token=env:EMPTY", "--secret coder/token: the value is empty"),
            ("coder/token=file:/nowhere", "--secret coder/token: read /nowhere: "),
        ] {
            let error = read_all(&[flag]).unwrap_err();
            assert!(error.starts_with(words) && !error.contains("hunter2"), "{flag}: {error}");
        }
        let twice = read_all(&["coder/token=env:TOKEN", "coder/token=env:TOKEN"]).unwrap_err();
        assert_eq!(twice, "--secret coder/token: is given twice");
    }
}
