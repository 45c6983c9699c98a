use std::io;

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::low_level::siginfo::Cause;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// What is passed on to the command, and ends a wait.
const PASSED_ON: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// The signals that this program gets, one after the other. None of them ends it any more.
///
/// One that was ignored when the program started stays ignored, here and in the command: so `nohup` means what it says.
pub(crate) struct Signals {
    heard: UnboundedReceiver<Heard>,
}

/// A signal, and who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) signal: Signal,
    /// Sent by the system itself. What the terminal sends goes to the command, too.
    pub(crate) by_system: bool,
    /// The process that sent it, where one did and it can be seen from here.
    pub(crate) by: Option<i32>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let listened = PASSED_ON.into_iter().filter(|signal| ignored & mask_of(*signal) == 0);
        // Listening for the end of children makes sure that it is not ignored: else nobody could wait for one.
        let mut signals = SignalsInfo::<WithOrigin>::new(listened.chain([SIGCHLD]))?;
        let (tell, heard) = unbounded_channel();
        let listen = move || {
            for origin in &mut signals {
                let told = heard_from(&origin).map(|heard| tell.send(heard));
                if matches!(told, Some(Err(_))) {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
        Ok(Self { heard })
    }

    /// The next one. Cancelling: safe, none is lost.
    pub(crate) async fn next(&mut self) -> Heard {
        match self.heard.recv().await {
            Some(heard) => heard,
            None => std::future::pending().await,
        }
    }
}

fn heard_from(origin: &Origin) -> Option<Heard> {
    if origin.signal == SIGCHLD {
        return None;
    }
    let by = origin.process.map(|process| process.pid);
    let by_system = match origin.cause {
        Cause::Kernel => true,
        // Systems that give no cause give no process for what they sent themselves.
        Cause::Unknown => by.is_none(),
        _ => false,
    };
    Some(Heard { signal: Signal::from_named_raw(origin.signal)?, by_system, by })
}

/// The signals that were ignored when this program started, a bit each. Other systems do not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status).unwrap_or_default()
}

fn ignored_in(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn mask_of(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The name of a signal, as `kill -l` has it.
pub(crate) fn name_of(signal: i32) -> String {
    let name = signal_hook::low_level::signal_name(signal);
    name.map_or_else(|| signal.to_string(), |name| name.trim_start_matches("SIG").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\tturnlock\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        let ignored = ignored_in(status).expect("a mask");
        assert_ne!(ignored & mask_of(SIGHUP), 0);
        assert_eq!(ignored & mask_of(SIGINT), 0);
        assert_eq!(ignored_in("Name:\tturnlock\n"), None);
    }

    #[test]
    fn signals_have_the_names_that_kill_takes() {
        assert_eq!(name_of(SIGTERM), "TERM");
        assert_eq!(name_of(9), "KILL");
        assert_eq!(name_of(63), "63");
    }
}
