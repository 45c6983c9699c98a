//! Network namespaces: processes in one of them lose their packets while its link is down.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::{self, Command, Stdio};

/// A network namespace with one link, whose other end is in the namespace of this process.
///
/// While the link is down, packets of both directions are lost. Dropping removes both. Needs Linux, the program `ip`, and
/// the right to administer the network.
#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
    /// The end of the link in the namespace of this process.
    device: String,
}

/// The two ends of a link. No other machine has them: [`NetworkNamespace::create`] needs a namespace without routes.
const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// The name of the namespace that [`NetworkNamespace::exec_without_routes`] runs a program in.
const WITHOUT_ROUTES: &str = "TURNLOCK_TEST_NAMESPACE";

impl NetworkNamespace {
    /// Runs this program again, in place of this process and with the same arguments, in a namespace without routes.
    ///
    /// Returns if it runs there already, or if that is not possible on this machine.
    pub fn exec_without_routes() {
        #[cfg(unix)]
        if std::env::var_os(WITHOUT_ROUTES).is_none() {
            use std::os::unix::process::CommandExt;

            let name = format!("turnlock-{}", process::id());
            let Ok(program) = std::env::current_exe() else { return };
            remove(&name);
            if ip(&["netns", "add", &name])
                .and_then(|()| ip(&["-n", &name, "link", "set", "lo", "up"]))
                .is_ok()
            {
                let mut command = in_namespace(&name, program.as_os_str());
                // Returns only if it fails.
                let _ = command.args(std::env::args_os().skip(1)).env(WITHOUT_ROUTES, &name).exec();
            }
            remove(&name);
        } else if let Ok(name) = std::env::var(WITHOUT_ROUTES) {
            // It exists as long as this process. Without the name, nothing is left after it.
            remove(&name);
        }
    }

    /// Returns the reason why namespaces cannot be made on this machine; `None` if they can.
    pub fn missing() -> Option<String> {
        let name = format!("turnlock-{}-probe", process::id());
        let outcome = ip(&["netns", "add", &name]);
        remove(&name);
        outcome.err()
    }

    /// Creates a namespace with a link to that of this process, which is up.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible. Also if this process can reach other machines: while the link is down, packets
    /// would go there.
    pub fn create() -> Result<Self, String> {
        if !output_of(&["route", "show"])?.trim().is_empty() {
            return Err("this process has routes to other machines".to_owned());
        }
        let id = process::id();
        let (name, device, peer) = (format!("turnlock-{id}-apart"), format!("tl{id}a"), format!("tl{id}b"));
        remove(&name);
        ip(&["netns", "add", &name])?;
        // From here on, an error removes it.
        let namespace = Self { name, device };
        let (name, device) = (namespace.name.as_str(), namespace.device.as_str());
        ip(&["link", "add", device, "type", "veth", "peer", "name", &peer, "netns", name])?;
        ip(&["address", "add", &format!("{HERE}/30"), "dev", device])?;
        ip(&["-n", name, "address", "add", &format!("{THERE}/30"), "dev", &peer])?;
        ip(&["-n", name, "link", "set", &peer, "up"])?;
        namespace.set_link_up(true)?;
        Ok(namespace)
    }

    /// Returns the address of this process, as processes in the namespace reach it.
    pub fn address(&self) -> Ipv4Addr {
        HERE
    }

    /// Takes the link up or down.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible.
    pub fn set_link_up(&self, is_up: bool) -> Result<(), String> {
        ip(&["link", "set", &self.device, if is_up { "up" } else { "down" }])
    }

    /// Returns the command that runs a program in the namespace. Its process has the id of the program.
    pub fn command(&self, program: &OsStr) -> Command {
        in_namespace(&self.name, program)
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // Removes both ends. A process that still runs keeps the namespace, without the link.
        let _ = ip(&["link", "del", &self.device]);
        remove(&self.name);
    }
}

fn in_namespace(name: &str, program: &OsStr) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name]).arg(program);
    command
}

/// Removes a namespace, if there is one of this name: a killed process may have left it.
fn remove(name: &str) {
    let _ = ip(&["netns", "del", name]);
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    output_of(arguments).map(drop)
}

/// Runs `ip`. Its error output is the error.
fn output_of(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("no program ip: {error}"))?;
    let [text, error] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("ip {}: {}", arguments.join(" "), error.trim()))
    }
}
