//! How the proxy treats its connections.

use std::time::Duration;

/// How bytes in transit are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    BlackHole,
    Delay(Duration),
}

/// The current behaviour of the proxy; every connection watches it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyState {
    pub(crate) mode: Mode,
    pub(crate) refuse: bool,
    /// How often all connections were reset. A connection that was accepted under a lower number is reset.
    pub(crate) resets: u64,
}

impl ProxyState {
    pub(crate) fn is_black_hole(&self) -> bool {
        self.mode == Mode::BlackHole
    }

    /// The delay of a byte that is read now.
    pub(crate) fn delay(&self) -> Duration {
        match self.mode {
            Mode::Delay(delay) => delay,
            Mode::Pass | Mode::BlackHole => Duration::ZERO,
        }
    }
}
