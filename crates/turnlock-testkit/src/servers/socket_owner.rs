//! Which process has the other end of a loopback connection.

use std::fs;
use std::net::SocketAddr;

/// Returns `true` if one of these processes has the socket that connects `local`, its own address, with `remote`.
///
/// It reads `/proc`, so it is `false` on systems without it. It is `false` for IPv6.
pub(crate) fn have_socket(pids: &[u32], local: SocketAddr, remote: SocketAddr) -> bool {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let Some(inode) = inode_of(&table, local, remote) else { return false };
    let link = format!("socket:[{inode}]");
    let has_it = |pid: &u32| {
        // It may have ended.
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let mut targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| target.as_os_str() == link.as_str())
    };
    pids.iter().any(has_it)
}

/// Returns the inode of the socket with these addresses, from a table of the kernel.
fn inode_of(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<&str> {
    let addresses = [in_table(local)?, in_table(remote)?];
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        // The state is 01 for an established connection.
        let is_it =
            addresses.iter().all(|address| fields.next() == Some(address)) && fields.next() == Some("01");
        is_it.then(|| fields.nth(5)).flatten()
    })
}

/// Formats an address as the table does: the bytes of the IP address as one number of the machine.
fn in_table(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_of_a_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let remote = listener.local_addr().expect("an address");
        let client = TcpStream::connect(remote).expect("connected");
        let local = client.local_addr().expect("an address");
        assert!(have_socket(&[1, std::process::id()], local, remote));
        assert!(!have_socket(&[1], local, remote));
        drop(client);
        assert!(!have_socket(&[1, std::process::id()], local, remote));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_socket_is_found_by_both_of_its_addresses() {
        // One port connected to two servers, and from two addresses; a listener at the same port.
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 10 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:18EC 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0 20 4 0 10 -1
   2: 0100007F:1F90 0100007F:18EB 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 0 10 -1
   3: 0200007F:1F90 0100007F:18EB 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 0 10 -1
   4: 0100007F:1F91 0100007F:18EB 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0
";
        for (local, remote, inode) in [
            ("127.0.0.1:8080", "127.0.0.1:6380", Some("11")),
            ("127.0.0.1:8080", "127.0.0.1:6379", Some("12")),
            ("127.0.0.2:8080", "127.0.0.1:6379", Some("13")),
            ("127.0.0.2:8080", "127.0.0.1:6380", None),
            ("127.0.0.1:8080", "0.0.0.0:0", None),
            ("127.0.0.1:8081", "127.0.0.1:6379", None),
            ("[::1]:8080", "[::1]:6379", None),
        ] {
            let [from, to] = [local, remote].map(|address| address.parse().expect("an address"));
            assert_eq!(inode_of(table, from, to), inode, "{local} to {remote}");
        }
    }
}
