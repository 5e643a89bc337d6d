//! Which deployment a manifest goes to, and whether anybody named that deployment.
//!
//! `CODER_URL` is set by other tools, too: inside a Coder workspace it is the Coder that runs the workspace. So the variable
//! never overrides an address in the files, and `apply` does not rely on the variable alone.

use std::ffi::OsString;

use url::Url;

use crate::args::{GivenUrl, UrlSource};

/// Variables that are set inside a Coder workspace.
const OF_A_WORKSPACE: [&str; 2] = ["CODER_AGENT_TOKEN", "CODER_WORKSPACE_NAME"];

impl GivenUrl {
    /// Whether a manifest goes to this address. `external` is the `external.url` of the manifest's CoderControlPlane, if that
    /// is in the files.
    pub(crate) fn takes(&self, external: Option<&str>) -> bool {
        let is_same = |it: &str| Url::parse(it).is_ok_and(|it| it.origin() == self.url.origin());
        self.source == UrlSource::Flag || external.is_none_or(is_same)
    }

    /// Whether this address, for such a manifest, rests on the environment alone.
    pub(crate) fn is_unconfirmed(&self, external: Option<&str>) -> bool {
        self.source == UrlSource::Environment && external.is_none()
    }

    /// The host name, as a person types it to confirm the address.
    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The address without credentials.
    pub(crate) fn shown(&self) -> String {
        shown(&self.url)
    }

    pub(crate) fn announcement(&self) -> String {
        format!(
            "the address {} comes from the environment variable CODER_URL; give --url to name the deployment",
            self.shown()
        )
    }

    pub(crate) fn ignored(&self) -> String {
        format!(
            "CODER_URL ({}) is ignored for manifests whose CoderControlPlane in the files has another external.url; \
             give --url to send every manifest there",
            self.shown()
        )
    }

    /// Why `apply` does not use this address unasked.
    pub(crate) fn refusal(&self, yes: bool) -> String {
        let why = if yes { "--yes was given" } else { "there is no terminal" };
        let url = self.shown();
        format!(
            "refused to apply to {url}: the address came only from the environment variable CODER_URL, and its host name \
             cannot be confirmed because {why}; nothing was sent. If this is the deployment to change, give --url {url}"
        )
    }
}

/// An address without credentials.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for addresses that cannot hold credentials.
    url.set_username("").ok();
    url.set_password(None).ok();
    url.to_string()
}

/// The warning for a process inside a Coder workspace; `None` elsewhere.
pub(crate) fn workspace_warning(variable: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let set = OF_A_WORKSPACE.into_iter().find(|name| variable(name).is_some_and(|it| !it.is_empty()))?;
    Some(format!(
        "this is a Coder workspace ({set} is set): CODER_URL and CODER_SESSION_TOKEN may belong to the Coder that runs the \
         workspace, which need not be the one to manage"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(source: UrlSource) -> GivenUrl {
        GivenUrl { url: "https://coder.example.com".parse().unwrap(), source }
    }

    #[test]
    fn flag_takes_every_manifest_and_is_always_confirmed() {
        for external in [None, Some("https://coder.example.com/"), Some("https://other.example.com")] {
            assert!(given(UrlSource::Flag).takes(external), "{external:?}");
            assert!(!given(UrlSource::Flag).is_unconfirmed(external), "{external:?}");
        }
    }

    #[test]
    fn variable_never_overrides_an_address_in_the_files() {
        let given = given(UrlSource::Environment);
        for (external, takes, is_unconfirmed) in [
            (None, true, true),
            (Some("https://coder.example.com:443/"), true, false),
            (Some("http://coder.example.com"), false, false),
            (Some("https://coder.example.com:8443"), false, false),
            (Some("https://other.example.com"), false, false),
            (Some("https://"), false, false),
        ] {
            assert_eq!(given.takes(external), takes, "{external:?}");
            assert_eq!(given.is_unconfirmed(external), is_unconfirmed, "{external:?}");
        }
    }

    #[test]
    fn messages_show_no_credentials_of_an_address() {
        let url = "https://me:hunter2@coder.example.com".parse().unwrap();
        let given = GivenUrl { url, source: UrlSource::Environment };
        for message in [given.announcement(), given.ignored(), given.refusal(true), given.refusal(false)] {
            assert!(
                message.contains("https://coder.example.com/") && !message.contains("hunter2"),
                "{message}"
            );
        }
    }

    #[test]
    fn workspace_is_recognised_by_either_variable() {
        let warning =
            |set: &str, value: &str| workspace_warning(|name| (name == set).then(|| OsString::from(value)));
        assert!(warning("CODER_AGENT_TOKEN", "x").unwrap().contains("CODER_AGENT_TOKEN is set"));
        assert!(warning("CODER_WORKSPACE_NAME", "x").unwrap().contains("CODER_WORKSPACE_NAME is set"));
        assert_eq!(warning("CODER_AGENT_TOKEN", ""), None);
        assert_eq!(warning("CODER_URL", "x"), None);
    }
}
