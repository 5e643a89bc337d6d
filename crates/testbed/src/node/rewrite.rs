//! The one liberty that the node takes with a pod's words: addresses and paths that would collide on one machine.
//!
//! A bind address `0.0.0.0:p` or `:p` becomes the pod's own, and a mounted path becomes its place in the pod's folder.
//! Nothing else is touched. A path that a program has built in cannot be rewritten; for the one that every client of the
//! API server has built in, that of the service account's token, `account` sets `KUBECONFIG`.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

/// What replaces what, for one container.
#[derive(Debug, Clone)]
pub(super) struct Rewrite {
    address: Ipv4Addr,
    /// Mount paths and their places, longest path first.
    mounts: Vec<(String, PathBuf)>,
}

impl Rewrite {
    pub(super) fn new(address: Ipv4Addr, mut mounts: Vec<(String, PathBuf)>) -> Self {
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self { address, mounts }
    }

    /// An argument or the value of a variable, for this machine.
    pub(super) fn apply(&self, text: &str) -> String {
        self.paths(&self.bind_address(text))
    }

    /// A path inside the container, if it is mounted.
    pub(super) fn place(&self, path: &str) -> Option<PathBuf> {
        self.mounts.iter().find_map(|(mount, place)| {
            let rest = Path::new(path).strip_prefix(mount).ok()?;
            Some(if rest.as_os_str().is_empty() { place.clone() } else { place.join(rest) })
        })
    }

    fn bind_address(&self, text: &str) -> String {
        let (flag, value) = match text.split_once('=') {
            Some((flag, value)) if flag.starts_with('-') => (Some(flag), value),
            _ => (None, text),
        };
        let Some(port) = value.strip_prefix("0.0.0.0:").or_else(|| value.strip_prefix(':')) else {
            return text.to_owned();
        };
        if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.to_owned();
        }
        let bound = format!("{}:{port}", self.address);
        flag.map_or_else(|| bound.clone(), |flag| format!("{flag}={bound}"))
    }

    fn paths(&self, text: &str) -> String {
        let mut rewritten = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = None;
        while !rest.is_empty() {
            let hit =
                self.mounts.iter().find(|(path, _)| is_path_start(before) && starts_with_path(rest, path));
            let taken = if let Some((path, place)) = hit {
                rewritten.push_str(&place.display().to_string());
                path.len()
            } else {
                let width = rest.chars().next().map_or(1, char::len_utf8);
                rewritten.push_str(rest.get(..width).unwrap_or_default());
                width
            };
            before = rest.get(..taken).and_then(|it| it.chars().last());
            rest = rest.get(taken..).unwrap_or_default();
        }
        rewritten
    }
}

/// Whether a path may begin after this character: not in the middle of another path or of a URL.
fn is_path_start(before: Option<char>) -> bool {
    before.is_none_or(|it| !(it.is_alphanumeric() || matches!(it, '/' | '.' | '_' | '-' | '~' | '%')))
}

fn starts_with_path(text: &str, path: &str) -> bool {
    text.strip_prefix(path).is_some_and(|rest| {
        rest.chars().next().is_none_or(|it| !(it.is_alphanumeric() || matches!(it, '.' | '_' | '-')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite() -> Rewrite {
        let mounts = vec![
            ("/etc/ssl/certs".to_owned(), PathBuf::from("/pod/certs")),
            ("/etc/ssl/certs/own.pem".to_owned(), PathBuf::from("/pod/own/tls.crt")),
        ];
        Rewrite::new(Ipv4Addr::new(127, 9, 0, 4), mounts)
    }

    #[test]
    fn bind_addresses_become_the_pods_own() {
        assert_eq!(rewrite().apply("0.0.0.0:8080"), "127.9.0.4:8080");
        assert_eq!(rewrite().apply(":8080"), "127.9.0.4:8080");
        assert_eq!(rewrite().apply("--http-address=0.0.0.0:3000"), "--http-address=127.9.0.4:3000");
    }

    #[test]
    fn other_addresses_stay() {
        for text in [
            "127.0.0.1:8080",
            "http://0.0.0.0:8080",
            "10.0.0.0:80",
            ":",
            ":http",
            "a=:80",
            "x:8080",
            "0.0.0.0",
        ] {
            assert_eq!(rewrite().apply(text), text);
        }
    }

    #[test]
    fn mounted_paths_become_their_places_longest_first() {
        assert_eq!(rewrite().apply("--ca=/etc/ssl/certs/ca.pem"), "--ca=/pod/certs/ca.pem");
        assert_eq!(
            rewrite().apply("cat /etc/ssl/certs/own.pem; ls /etc/ssl/certs"),
            "cat /pod/own/tls.crt; ls /pod/certs"
        );
        assert_eq!(rewrite().place("/etc/ssl/certs/own.pem"), Some("/pod/own/tls.crt".into()));
    }

    #[test]
    fn paths_that_only_look_alike_stay() {
        for text in
            ["/etc/ssl/certs2", "/mnt/etc/ssl/certs", "file.test/etc/ssl/certs", "/etc/ssl/certs-old/a"]
        {
            assert_eq!(rewrite().apply(text), text);
        }
    }
}
