use std::collections::VecDeque;
use std::io;

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::low_level::siginfo::Cause;
use tokio::net::UnixStream;

/// The signals that have a handler.
///
/// All but `SIGCHLD` are forwarded to the command. While there is no command, they end the wait. The handler of `SIGCHLD`
/// makes sure that it is not ignored: exit codes of children could not be read then.
pub(crate) const HANDLED: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD];

/// Receives signals instead of their default action.
///
/// A signal that was ignored when the program started stays ignored, here and in the command, so that `nohup` works.
pub(crate) struct Signals {
    /// The handlers, and the socket through which they wake this task.
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    received: VecDeque<ReceivedSignal>,
}

/// A signal and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    pub(crate) signal: Signal,
    /// Sent by the kernel. A signal of the terminal (Ctrl-C) reaches the command as well.
    pub(crate) from_kernel: bool,
    /// Pid of the sender, if the signal was sent by a process that is visible here.
    pub(crate) sender: Option<i32>,
}

impl Signals {
    /// Installs the handlers. Must be called on the runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let handled =
            HANDLED.into_iter().filter(|signal| *signal == SIGCHLD || ignored & mask_of(*signal) == 0);
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write.into_std()?, WithOrigin::default(), handled)?;
        Ok(Self { delivery, received: VecDeque::new() })
    }

    /// Waits for the next signal. Cancel safe: no signal is lost.
    pub(crate) async fn next(&mut self) -> ReceivedSignal {
        loop {
            if let Some(signal) = self.received.pop_front() {
                return signal;
            }
            if self.wait_for_wakeup().await.is_err() {
                return std::future::pending().await;
            }
            self.received.extend(self.delivery.pending().filter_map(|origin| decode(&origin)));
        }
    }

    /// Waits until a handler has run. Reads all that the handlers wrote, so that the next wait does not end at once.
    async fn wait_for_wakeup(&self) -> io::Result<()> {
        let socket = self.delivery.get_read();
        socket.readable().await?;
        loop {
            match socket.try_read(&mut [0; 64]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn decode(origin: &Origin) -> Option<ReceivedSignal> {
    if origin.signal == SIGCHLD {
        return None;
    }
    let sender = origin.process.map(|process| process.pid);
    let from_kernel = match origin.cause {
        Cause::Kernel => true,
        // Systems that report no cause report no sender for signals of the kernel.
        Cause::Unknown => sender.is_none(),
        _ => false,
    };
    Some(ReceivedSignal { signal: Signal::from_named_raw(origin.signal)?, from_kernel, sender })
}

/// The mask of signals that were ignored when this program started. Linux only, else empty.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_ignored(&status).unwrap_or_default()
}

fn parse_ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn mask_of(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The name of a signal, as `kill -l` prints it.
pub(crate) fn name_of(signal: i32) -> String {
    let name = signal_hook::low_level::signal_name(signal);
    name.map_or_else(|| signal.to_string(), |name| name.trim_start_matches("SIG").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_parsed_from_the_process_status() {
        let status = "Name:\tturnlock\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        let ignored = parse_ignored(status).expect("a mask");
        assert_ne!(ignored & mask_of(SIGHUP), 0);
        assert_eq!(ignored & mask_of(SIGINT), 0);
        assert_eq!(parse_ignored("Name:\tturnlock\n"), None);
    }

    #[test]
    fn signals_have_the_names_that_kill_takes() {
        assert_eq!(name_of(SIGTERM), "TERM");
        assert_eq!(name_of(9), "KILL");
        assert_eq!(name_of(63), "63");
    }
}
