use std::io;
use std::process::ExitCode;

/// A signal that asks us to end, awaited so that we can tidy up first.
#[derive(Debug)]
pub(super) struct StopSignal {
    #[cfg(unix)]
    signals: [(u8, tokio::signal::unix::Signal); 2],
}

impl StopSignal {
    /// From now on, these signals do not end the process by themselves.
    #[cfg(unix)]
    pub(super) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind: SignalKind| -> io::Result<_> {
            Ok((u8::try_from(kind.as_raw_value()).unwrap_or_default(), signal(kind)?))
        };
        Ok(Self { signals: [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?] })
    }

    /// From now on, Ctrl-C does not end the process by itself.
    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for one, and gives the exit code that says so: 128 and its number.
    #[cfg(unix)]
    pub(super) async fn received(&mut self) -> ExitCode {
        let [(interrupt, interrupted), (terminate, terminated)] = &mut self.signals;
        let number = tokio::select! {
            _ = interrupted.recv() => *interrupt,
            _ = terminated.recv() => *terminate,
        };
        ExitCode::from(128_u8.saturating_add(number))
    }

    /// Waits for Ctrl-C, and gives the exit code that says so.
    #[cfg(not(unix))]
    pub(super) async fn received(&mut self) -> ExitCode {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        ExitCode::from(130)
    }
}
