//! Loopback addresses of a run's own.
//!
//! A run claims a block `127.a.0.0/16`. What listens inside it meets nobody else, so a port that was free
//! when we looked is still free when the server binds it, and pods may all listen on the same port.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr as UnixAddress, UnixListener},
    },
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Context as _, Result, bail};

/// Ports of servers, below those that the kernel gives to connections.
const FIRST_PORT: u16 = 10_000;
const LAST_PORT: u16 = 32_000;

/// The host number of the address that a run's own servers share; pods come after it.
const SERVERS: u16 = 1;

/// The addresses `127.a.0.0/16`, held by one run.
#[derive(Debug)]
pub struct Block {
    second: u8,
    next: AtomicU16,
    next_port: AtomicU16,
}

impl Block {
    /// Takes a block that no living run holds. The claim lasts as long as the descriptor is open somewhere.
    pub fn claim() -> Result<(Self, OwnedFd)> {
        // Abstract socket names are arbitrated by the kernel, per network namespace, and vanish with their holder.
        let offset = uuid::Uuid::new_v4().as_bytes()[0];
        for step in 0..=u8::MAX {
            let second = offset.wrapping_add(step);
            // 127.0 belongs to everybody; 127.255 ends in the broadcast address.
            if second == 0 || second == u8::MAX {
                continue;
            }
            let name = UnixAddress::from_abstract_name(format!("coder-operator-bed/127.{second}"))
                .context("name the claim on a loopback block")?;
            if let Ok(claim) = UnixListener::bind_addr(&name) {
                return Ok((
                    Self { second, next: AtomicU16::new(SERVERS + 1), next_port: AtomicU16::new(FIRST_PORT) },
                    claim.into(),
                ));
            }
        }
        bail!(
            "all 254 loopback blocks are taken by other runs of the bed; `cargo xtask bed status` lists them"
        )
    }

    /// A free port on the address that the run's own servers share. No port is given away twice, so it is still
    /// free when a server that took its time binds it.
    pub fn free_port(&self) -> Result<SocketAddr> {
        let address = self.address(SERVERS);
        loop {
            let port = self.next_port.fetch_add(1, Ordering::Relaxed);
            if port > LAST_PORT {
                bail!("a run has more than {} servers on {address}", LAST_PORT - FIRST_PORT);
            }
            // Somebody may listen on every address of the machine.
            if TcpListener::bind((address, port)).is_ok() {
                return Ok((address, port).into());
            }
        }
    }

    /// The next address that has not been given away.
    pub fn next_address(&self) -> Ipv4Addr {
        self.address(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// The address that the run's own servers share.
    pub fn server_address(&self) -> IpAddr {
        self.address(SERVERS).into()
    }

    fn address(&self, host: u16) -> Ipv4Addr {
        let [third, fourth] = host.to_be_bytes();
        Ipv4Addr::new(127, self.second, third, fourth)
    }
}

/// The proxy variables in both spellings, for whatever must reach Services by name.
pub(crate) fn proxy_variables(proxy: &str) -> Vec<(String, String)> {
    [("HTTP_PROXY", proxy), ("HTTPS_PROXY", proxy), ("NO_PROXY", "127.0.0.0/8,localhost")]
        .into_iter()
        .flat_map(|(name, value)| {
            [(name.to_owned(), value.to_owned()), (name.to_lowercase(), value.to_owned())]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_claims_never_share_a_block() {
        let (first, _hold_first) = Block::claim().unwrap();
        let (second, _hold_second) = Block::claim().unwrap();
        assert_ne!(first.server_address(), second.server_address());
    }

    #[test]
    fn ports_are_given_away_once() {
        let (block, _hold) = Block::claim().unwrap();
        assert_ne!(block.free_port().unwrap(), block.free_port().unwrap());
    }

    #[test]
    fn a_port_that_somebody_holds_is_passed_over() {
        let (block, _hold) = Block::claim().unwrap();
        let next = block.next_port.load(Ordering::Relaxed);
        let _held = TcpListener::bind((block.server_address(), next)).unwrap();
        assert_ne!(block.free_port().unwrap().port(), next);
    }

    #[test]
    fn addresses_are_given_away_once() {
        let (block, _hold) = Block::claim().unwrap();
        let first = block.next_address();
        assert_ne!(first, block.next_address());
        assert_ne!(IpAddr::from(first), block.server_address());
        assert!(first.is_loopback());
    }
}
