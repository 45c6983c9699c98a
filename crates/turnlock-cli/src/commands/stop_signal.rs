use std::io;
use std::process::ExitCode;

/// Waits for INT or TERM, so that the program can clean up before it exits.
#[derive(Debug)]
pub(super) struct StopSignal {
    #[cfg(unix)]
    signals: [(u8, tokio::signal::unix::Signal); 2],
}

impl StopSignal {
    /// Installs the handlers: these signals no longer end the process by themselves.
    #[cfg(unix)]
    pub(super) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind: SignalKind| -> io::Result<_> {
            Ok((u8::try_from(kind.as_raw_value()).unwrap_or_default(), signal(kind)?))
        };
        Ok(Self { signals: [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?] })
    }

    /// Does nothing: Ctrl-C is handled while `received` waits.
    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "fails on Unix only")]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for a signal and returns its exit code: 128 plus its number.
    #[cfg(unix)]
    pub(super) async fn received(&mut self) -> ExitCode {
        let [(interrupt, interrupted), (terminate, terminated)] = &mut self.signals;
        let number = tokio::select! {
            _ = interrupted.recv() => *interrupt,
            _ = terminated.recv() => *terminate,
        };
        ExitCode::from(128_u8.saturating_add(number))
    }

    /// Waits for Ctrl-C and returns its exit code.
    #[cfg(not(unix))]
    pub(super) async fn received(&mut self) -> ExitCode {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        ExitCode::from(130)
    }
}
