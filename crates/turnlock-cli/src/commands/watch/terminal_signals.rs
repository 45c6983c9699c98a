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

    /// Stops this process. Returns when it continues, at once if nothing could continue it.
    pub(super) fn stop() {
        default_action::raise(Signal::TSTP);
    }
}

#[expect(
    unsafe_code,
    reason = "the default action of a signal: no safe interface restores the handler after it"
)]
mod default_action {
    use std::mem::MaybeUninit;
    use std::ptr;

    use rustix::process::Signal;

    /// Raises a signal with its default action.
    ///
    /// Unlike STOP, a TSTP with its default action does not stop an orphaned process group, which has no shell above it
    /// that could continue it.
    pub(super) fn raise(signal: Signal) {
        let signal = signal.as_raw();
        let mut handler = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: `sigaction` initializes `handler` if it succeeds. Its value and the default action are valid actions.
        // `raise` directs the signal to this thread, so the action is taken before the handler is back.
        unsafe {
            if libc::sigaction(signal, ptr::null(), handler.as_mut_ptr()) == 0 {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
                libc::sigaction(signal, handler.as_ptr(), ptr::null_mut());
            }
        }
    }
}
