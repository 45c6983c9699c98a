//! A network namespace: processes in it reach this machine over a cable that can be unplugged.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

/// A network namespace with one cable, whose other end is on this machine.
///
/// While it is unplugged, packets of both directions are lost. Dropping removes both, with the processes' connections.
/// Needs Linux, the program `ip`, and the right to administer the network.
#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
    /// The end of the cable on this machine.
    device: String,
    address: Ipv4Addr,
}

/// The number of namespaces of this process so far.
static CREATED: AtomicU8 = AtomicU8::new(0);

impl NetworkNamespace {
    /// Creates a namespace, and plugs its cable in.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible on this machine.
    pub fn create() -> Result<Self, String> {
        let (id, number) = (process::id(), CREATED.fetch_add(1, Ordering::Relaxed));
        let name = format!("turnlock-{id}-{number}");
        let (device, peer) = (format!("tl{id}h{number}"), format!("tl{id}n{number}"));
        // Of the network 198.18.0.0/15, which is reserved for tests of networks: four addresses for each namespace.
        let [_, _, high, low] = id.wrapping_mul(4).to_be_bytes();
        let third = high.wrapping_add(number);
        let (address, other) =
            (Ipv4Addr::new(198, 18, third, low + 1), Ipv4Addr::new(198, 18, third, low + 2));
        ip(&["netns", "add", &name])?;
        // From here on, an error removes it.
        let namespace = Self { name, device, address };
        let (name, device) = (namespace.name.as_str(), namespace.device.as_str());
        ip(&["link", "add", device, "type", "veth", "peer", "name", &peer, "netns", name])?;
        ip(&["address", "add", &format!("{address}/30"), "dev", device])?;
        ip(&["-n", name, "address", "add", &format!("{other}/30"), "dev", &peer])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        ip(&["-n", name, "link", "set", &peer, "up"])?;
        namespace.plug(true)?;
        Ok(namespace)
    }

    /// Returns the address of this machine, as processes in the namespace reach it.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Plugs the cable in, or unplugs it.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible.
    pub fn plug(&self, is_in: bool) -> Result<(), String> {
        ip(&["link", "set", &self.device, if is_in { "up" } else { "down" }])
    }

    /// Returns the command that runs a program in the namespace. Its process has the id of the program.
    pub fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // Also removes the other end. A process that still runs keeps the namespace, without the cable.
        let _ = ip(&["link", "del", &self.device]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// Runs `ip`. Its error output is the error.
fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("no program ip: {error}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("ip {}: {}", arguments.join(" "), error.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_reaches_this_machine_while_its_cable_is_plugged_in() {
        // Ignored where it is not possible: campaigns say so too.
        let Ok(namespace) = NetworkNamespace::create() else { return };
        let listener = std::net::TcpListener::bind((namespace.address(), 0)).expect("a port");
        let target =
            format!("/dev/tcp/{}/{}", namespace.address(), listener.local_addr().expect("bound").port());
        let connect = || {
            let mut command = namespace.command(OsStr::new("timeout"));
            let script = format!("exec 3<>{target}");
            command.args(["1", "bash", "-c", &script]).stderr(Stdio::null());
            command.status().expect("a shell").success()
        };
        assert!(connect());
        namespace.plug(false).expect("unplugged");
        assert!(!connect());
        namespace.plug(true).expect("plugged in");
        assert!((0..30).any(|_| connect()));
    }
}
