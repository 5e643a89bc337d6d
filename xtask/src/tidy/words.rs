//! Words that must not be in the repository: secrets, hosts of registries, paths of a machine, tests that do not run.

use super::tree::{Complaint, Tree};

/// Hosts of package and image registries, in pieces so that this file does not contain them itself.
const REGISTRY_HOSTS: [(&str, &str); 14] = [
    ("proxy.golang", "org"),
    ("sum.golang", "org"),
    ("index.crates", "io"),
    ("static.crates", "io"),
    ("registry.npmjs", "org"),
    ("pypi", "org"),
    ("files.pythonhosted", "org"),
    ("repo.maven.apache", "org"),
    ("deb.debian", "org"),
    ("registry.terraform", "io"),
    ("ghcr", "io"),
    ("quay", "io"),
    ("docker", "io"),
    ("gcr", "io"),
];

/// Where our own image is published: the one address of a registry that a reader needs.
const OWN_IMAGE: (&str, &str) = ("ghcr", "io/coder-operator/coder-operator");

/// What a token starts with, and how many characters of a token follow at least.
const TOKENS: [(&str, usize); 7] = [
    ("AKIA", 16),
    ("ghp_", 30),
    ("github_pat_", 30),
    ("sk-ant-", 20),
    ("sk-proj-", 20),
    ("xoxb-", 20),
    ("eyJhbGciOi", 20),
];

/// Folders that only exist on somebody's machine.
const MACHINE_PATHS: [&str; 3] = ["root", "work", "Users"];

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in &tree.files {
        let Some(text) = &file.text else {
            complaints.push(Complaint::new(&file.path, 1, "is not text: nothing binary is committed"));
            continue;
        };
        // Lock files are written by their tools, addresses of sources included.
        if file.path.ends_with("Cargo.lock") || file.path.ends_with("go.sum") {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let found = offence(line).or_else(|| idle_test(line));
            complaints.extend(found.map(|what| Complaint::new(&file.path, index + 1, what)));
        }
    }
    complaints
}

fn offence(line: &str) -> Option<String> {
    if line.contains(concat!("-----", "BEGIN ")) && line.contains(concat!("PRIVATE", " KEY")) {
        return Some("holds a private key".to_owned());
    }
    if let Some((start, _)) = TOKENS.iter().find(|(start, length)| holds_token(line, start, *length)) {
        return Some(format!("holds what looks like a token ({start}…)"));
    }
    let others = line.replace(&format!("{}.{}", OWN_IMAGE.0, OWN_IMAGE.1), "");
    if let Some(host) =
        REGISTRY_HOSTS.iter().map(|(name, top)| format!("{name}.{top}")).find(|it| names(&others, it))
    {
        return Some(format!("names the host of a registry ({host})"));
    }
    let path =
        MACHINE_PATHS.iter().map(|folder| format!("/{folder}/")).find(|it| is_absolute_in(line, it))?;
    Some(format!("holds a path of one machine ({path})"))
}

fn holds_token(line: &str, start: &str, length: usize) -> bool {
    let is_token = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    line.match_indices(start).any(|(at, _)| {
        let rest = line.get(at + start.len()..).unwrap_or_default();
        rest.chars().take_while(is_token).count() >= length
    })
}

/// Whether a line names a host, and not just the end of a longer name.
fn names(line: &str, host: &str) -> bool {
    line.match_indices(host).any(|(at, _)| {
        let before = line.get(..at).and_then(|it| it.chars().last());
        let after = line.get(at + host.len()..).and_then(|it| it.chars().next());
        before.is_none_or(|it| !it.is_ascii_alphanumeric() && it != '-')
            && after.is_none_or(|it| !it.is_ascii_alphanumeric() && it != '-')
    })
}

/// Whether an absolute path begins there, and not a folder of that name inside another path.
fn is_absolute_in(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line.get(..at).and_then(|it| it.chars().last());
        before
            .is_none_or(|it| !it.is_ascii_alphanumeric() && !matches!(it, '.' | '_' | '-' | '}' | ')' | '~'))
    })
}

fn idle_test(line: &str) -> Option<String> {
    let ignored = concat!("#[", "ignore");
    line.trim_start().starts_with(ignored).then(|| "a test that does not run proves nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found() {
        assert!(offence(&["-----BEGIN EC PRIVATE", " KEY-----"].concat()).is_some());
        assert!(offence(&format!("token: ghp_{}", "a1".repeat(20))).is_some());
        assert!(offence(&format!("eyJhbGciOi{}.x", "J".repeat(24))).is_some());
        assert_eq!(offence("the prefix ghp_ alone says nothing"), None);
    }

    #[test]
    fn registry_hosts_are_found_and_names_that_end_alike_are_not() {
        assert!(offence(&["image: ghcr", "io/coder/coder"].join(".")).is_some());
        assert!(offence(&["see https://pypi", "org/x"].join(".")).is_some());
        assert_eq!(offence("bigcr.iota"), None);
        let own = ["image: ghcr", "io/coder-operator/coder-operator"].join(".");
        assert_eq!(offence(&own), None);
        assert!(offence(&[own.as_str(), " and ghcr", ".io/other"].concat()).is_some());
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        assert!(offence(&["open /", "work/main"].concat()).is_some());
        assert_eq!(offence("a/work/b and ./root/c"), None);
    }

    #[test]
    fn a_test_that_is_switched_off_is_found() {
        assert!(idle_test(&["    #[", "ignore = \"slow\"]"].concat()).is_some());
        assert_eq!(idle_test("    #[test]"), None);
    }
}
