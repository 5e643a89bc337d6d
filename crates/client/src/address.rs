//! Which addresses a client may connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Names under which metadata services and the machine itself answer, whatever they resolve to.
const LOCAL_NAMES: [&str; 4] = ["localhost", "metadata", "metadata.google.internal", "instance-data"];

/// Metadata services outside the link-local ranges: Azure, Alibaba, Oracle, Google over IPv6.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Which addresses a client may connect to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Every address. For a person's own command line.
    #[default]
    Any,
    /// Every address but loopback, link-local, unspecified ones and metadata services. For a process that connects to
    /// addresses that other people name.
    NotLocal,
}

impl AddressPolicy {
    /// Checks the host of an address before anything is resolved. The error says why the host is refused.
    pub fn check_url(self, url: &Url) -> Result<(), String> {
        match url.host() {
            Some(Host::Ipv4(ip)) => self.check(ip.into()),
            Some(Host::Ipv6(ip)) => self.check(ip.into()),
            Some(Host::Domain(name)) if self == Self::NotLocal && is_local_name(name) => {
                Err(format!("{name} is a name of this machine or of a metadata service"))
            }
            Some(Host::Domain(_)) | None => Ok(()),
        }
    }

    /// Checks an address. The error says why it is refused.
    pub fn check(self, ip: IpAddr) -> Result<(), String> {
        match kind(ip).filter(|_| self == Self::NotLocal) {
            Some(kind) => Err(format!("{ip} is {kind}")),
            None => Ok(()),
        }
    }
}

fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    LOCAL_NAMES.contains(&name.as_str()) || name.ends_with(".localhost")
}

/// What kind of local address it is; `None` for every other one.
fn kind(ip: IpAddr) -> Option<&'static str> {
    match ip.to_canonical() {
        it if METADATA.contains(&it) => Some("the address of a metadata service"),
        IpAddr::V4(ip) => kind_of_v4(ip),
        IpAddr::V6(ip) => kind_of_v6(ip),
    }
}

fn kind_of_v4(ip: Ipv4Addr) -> Option<&'static str> {
    if ip.is_loopback() {
        Some("a loopback address")
    } else if ip.is_link_local() {
        Some("a link-local address, as metadata services have")
    } else if ip.octets()[0] == 0 {
        Some("an unspecified address")
    } else {
        None
    }
}

fn kind_of_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let segments = ip.segments();
    // Addresses of IPv4 behind a NAT64 gateway, and the old notation `::a.b.c.d`.
    let embeds_v4 = segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] || segments[..6] == [0; 6];
    if ip.is_loopback() {
        Some("a loopback address")
    } else if ip.is_unspecified() {
        Some("an unspecified address")
    } else if ip.is_unicast_link_local() {
        Some("a link-local address")
    } else if segments[..2] == [0xfd00, 0xec2] {
        Some("the address of a metadata service")
    } else if embeds_v4 {
        let [.., a, b, c, d] = ip.octets();
        kind(Ipv4Addr::new(a, b, c, d).into())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), String> {
        let url = text.parse().map_err(|error| format!("{text}: {error}"))?;
        AddressPolicy::NotLocal.check_url(&url)
    }

    #[test]
    fn local_addresses_are_refused_however_they_are_written() {
        for host in [
            "127.0.0.1",
            "127.1",
            "0x7f000001",
            "2130706433",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.170.2",
            "168.63.129.16",
            "100.100.100.200",
            "[::1]",
            "[::]",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "[fd20:ce::254]",
            "[::ffff:127.0.0.1]",
            "[::ffff:169.254.169.254]",
            "[::127.0.0.1]",
            "[64:ff9b::a9fe:a9fe]",
            "localhost",
            "LocalHost.",
            "coder.localhost",
            "metadata.google.internal",
        ] {
            assert!(check(&format!("http://{host}:3000")).is_err(), "{host}");
            let url = format!("http://{host}:3000").parse().unwrap();
            assert_eq!(AddressPolicy::Any.check_url(&url), Ok(()), "{host}");
        }
    }

    #[test]
    fn every_other_address_is_taken() {
        for host in
            ["coder.example.com", "10.0.0.1", "192.168.1.1", "203.0.113.7", "[fd12::1]", "[2001:db8::1]"]
        {
            assert_eq!(check(&format!("https://{host}")), Ok(()), "{host}");
        }
    }
}
