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

/// Waits for Ctrl-Z on a terminal.
#[derive(Debug)]
pub(super) struct SuspendSignal {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

impl SuspendSignal {
    /// Installs the handler: the signal no longer stops the process by itself.
    #[cfg(unix)]
    pub(super) fn new() -> io::Result<Self> {
        let kind = tokio::signal::unix::SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw());
        Ok(Self { signal: tokio::signal::unix::signal(kind)? })
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "fails on Unix only")]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(unix)]
    pub(super) async fn received(&mut self) {
        self.signal.recv().await;
    }

    #[cfg(not(unix))]
    pub(super) async fn received(&mut self) {
        std::future::pending().await
    }

    /// Stops this process. Returns when it continues.
    #[cfg(unix)]
    pub(super) fn stop() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
    }

    #[cfg(not(unix))]
    pub(super) fn stop() {}
}
