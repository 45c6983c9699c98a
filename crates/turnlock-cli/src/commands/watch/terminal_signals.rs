use std::io;
use std::process::ExitCode;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// The exit code of a hang-up.
const HUNG_UP: u8 = 129;

/// The signals about the terminal of this job.
#[derive(Debug)]
pub(super) struct TerminalSignals {
    suspend: unix::Signal,
    continued: unix::Signal,
    hang_up: unix::Signal,
}

/// A signal about the terminal.
#[derive(Debug)]
pub(super) enum TerminalSignal {
    /// The process has to restore the terminal and stop.
    Suspend,
    /// The process continues after a stop.
    Continue,
    /// The terminal is gone. Has the exit code.
    HangUp(ExitCode),
}

impl TerminalSignals {
    /// Installs the handlers: these signals no longer stop or end the process by themselves.
    pub(super) fn new() -> io::Result<Self> {
        let listen = |signal: Signal| unix::signal(SignalKind::from_raw(signal.as_raw()));
        Ok(Self {
            suspend: listen(Signal::TSTP)?,
            continued: listen(Signal::CONT)?,
            hang_up: listen(Signal::HUP)?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub(super) async fn next(&mut self) -> TerminalSignal {
        tokio::select! {
            _ = self.suspend.recv() => TerminalSignal::Suspend,
            _ = self.continued.recv() => TerminalSignal::Continue,
            _ = self.hang_up.recv() => TerminalSignal::HangUp(ExitCode::from(HUNG_UP)),
        }
    }

    /// Sends TSTP to the processes of this job, as the terminal does for Ctrl-Z outside of raw mode.
    pub(super) fn suspend_job() -> io::Result<()> {
        Ok(rustix::process::kill_current_process_group(Signal::TSTP)?)
    }

    /// Stops this process. Returns when it continues.
    pub(super) fn stop() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
    }
}
