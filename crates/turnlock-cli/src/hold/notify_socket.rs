use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable with the address of the socket.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells the service manager that the lock is held, as `sd_notify(3)`: `READY=1`.
///
/// Does nothing if the service manager gave no socket.
pub(super) fn notify_ready(name: &str) -> io::Result<()> {
    let Some(address) = std::env::var_os(VARIABLE).filter(|address| !address.is_empty()) else {
        return Ok(());
    };
    let message = format!("READY=1\nSTATUS=holding \"{name}\"\n");
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &parse(&address)?).map(drop)
}

/// Parses the path of a socket, or an abstract name after `@`.
fn parse(address: &OsStr) -> io::Result<SocketAddr> {
    match address.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(address),
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "not the address of a Unix socket")),
    }
}
