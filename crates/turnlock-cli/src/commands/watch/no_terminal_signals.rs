//! Terminals without job control.

use std::io;
use std::process::ExitCode;

/// The signals about the terminal: none.
#[derive(Debug)]
pub(super) struct TerminalSignals;

/// A signal about the terminal.
#[derive(Debug)]
#[expect(dead_code, reason = "received on Unix only")]
pub(super) enum TerminalSignal {
    Suspend,
    Continue,
    HangUp(ExitCode),
}

#[expect(clippy::unnecessary_wraps, reason = "fails on Unix only")]
impl TerminalSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) async fn next(&mut self) -> TerminalSignal {
        std::future::pending().await
    }

    pub(super) fn suspend_job() -> io::Result<()> {
        Ok(())
    }

    pub(super) fn stop() {}
}
