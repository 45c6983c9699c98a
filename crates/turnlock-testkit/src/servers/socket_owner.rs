//! Which process has the other end of a loopback connection.

use std::fs;

/// Returns `true` if one of these processes has the socket whose own port on the loopback interface is `port`.
///
/// It reads `/proc`, so it is `false` on systems without it.
pub(crate) fn have_socket(pids: &[u32], port: u16) -> bool {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let Some(inode) = inode_of(&table, port) else { return false };
    let link = format!("socket:[{inode}]");
    let has_it = |pid: &u32| {
        // It may have ended.
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let mut targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| target.as_os_str() == link.as_str())
    };
    pids.iter().any(has_it)
}

/// Returns the inode of the socket with this local port, from a table of the kernel.
fn inode_of(table: &str, port: u16) -> Option<&str> {
    // Little-endian: 127.0.0.1.
    let address = format!("0100007F:{port:04X}");
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let is_here = fields.nth(1) == Some(&address);
        // The state is 01 for an established connection. A listener has the same address.
        (is_here && fields.nth(1) == Some("01")).then(|| fields.nth(5)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_of_a_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let port = client.local_addr().expect("an address").port();
        assert!(have_socket(&[1, std::process::id()], port));
        assert!(!have_socket(&[1], port));
        drop(client);
        assert!(!have_socket(&[1, std::process::id()], port));
    }
}
