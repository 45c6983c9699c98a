//! Ports for servers.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// The ports for servers: below the ephemeral ports of common systems.
const PORT_RANGE: Range<u16> = 10_240..32_768;

/// Returns a loopback port that is free now and outside the system's ephemeral range.
pub(crate) fn free_port() -> u16 {
    // Port 0 would give an ephemeral port. An outgoing connection or the listener of another test could get
    // the same port before the server binds it, or while the server is stopped for a restart.
    let random = RandomState::new();
    let mut ports = (0_u64..1000).map(|n| {
        let offset = random.hash_one(n) % u64::from(PORT_RANGE.end - PORT_RANGE.start);
        PORT_RANGE.start + u16::try_from(offset).expect("an offset within the range of ports")
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).expect("a loopback port is free")
}
