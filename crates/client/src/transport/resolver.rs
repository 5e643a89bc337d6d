//! Resolves names and drops the addresses that a policy refuses, so that a name cannot lead where an address may not.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Url;

use crate::address::AddressPolicy;

/// The variables that name proxies.
const PROXIES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// A name whose addresses are all refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotAllowed(pub(super) String);

/// A resolver with a policy.
#[derive(Debug, Clone)]
pub(super) struct Resolver {
    policy: AddressPolicy,
    /// Hosts of the proxies in the environment. Whoever starts the process names them, not whoever writes a manifest;
    /// names behind a proxy are resolved by the proxy.
    proxies: Arc<BTreeSet<String>>,
}

impl Resolver {
    pub(super) fn new(policy: AddressPolicy) -> Self {
        let values = PROXIES.iter().flat_map(|it| [std::env::var(it), std::env::var(it.to_lowercase())]);
        let hosts = values.flatten().filter_map(|it| proxy_host(&it));
        Self { policy, proxies: Arc::new(hosts.collect()) }
    }
}

/// The host in the value of a proxy's variable, which may have no scheme.
fn proxy_host(value: &str) -> Option<String> {
    let url =
        Url::parse(value).ok().filter(Url::has_host).or_else(|| Url::parse(&format!("http://{value}")).ok());
    Some(url?.host_str()?.to_owned())
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, is_proxy) = (self.policy, self.proxies.contains(name.as_str()));
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let found = if is_proxy { found } else { allowed(policy, name.as_str(), found)? };
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The addresses that the policy allows. The error says why there is none.
fn allowed(policy: AddressPolicy, name: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, NotAllowed> {
    let refusal = found.iter().find_map(|it| policy.check(it.ip()).err());
    let left: Vec<SocketAddr> = found.into_iter().filter(|it| policy.check(it.ip()).is_ok()).collect();
    match refusal.filter(|_| left.is_empty()) {
        Some(why) => Err(NotAllowed(format!("{name} resolves to an address that is refused: {why}"))),
        None => Ok(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|it| it.parse().unwrap()).collect()
    }

    #[test]
    fn refused_addresses_are_dropped_and_a_name_with_no_other_is_an_error() {
        let mixed = addresses(&["127.0.0.1:0", "203.0.113.7:0"]);
        let left = allowed(AddressPolicy::NotLocal, "coder.test", mixed.clone()).unwrap();
        assert_eq!(left, addresses(&["203.0.113.7:0"]));
        assert_eq!(allowed(AddressPolicy::Any, "coder.test", mixed.clone()), Ok(mixed));
        let local = addresses(&["169.254.169.254:0", "[::1]:0"]);
        let NotAllowed(why) = allowed(AddressPolicy::NotLocal, "coder.test", local).unwrap_err();
        assert!(why.starts_with("coder.test resolves to") && why.contains("169.254.169.254"), "{why}");
        assert_eq!(allowed(AddressPolicy::NotLocal, "coder.test", Vec::new()), Ok(Vec::new()));
    }

    #[test]
    fn a_proxy_is_named_with_or_without_a_scheme() {
        for (value, host) in [("http://proxy.test:3128", "proxy.test"), ("proxy.test:3128", "proxy.test")] {
            assert_eq!(proxy_host(value).as_deref(), Some(host), "{value}");
        }
    }
}
