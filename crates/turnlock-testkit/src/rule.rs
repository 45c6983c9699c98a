//! What the proxy does with its connections at the moment.

use std::time::Duration;

/// What happens to bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    BlackHole,
    Delay(Duration),
}

/// The proxy's present behaviour, which every connection watches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) mode: Mode,
    pub(crate) refuse: bool,
    /// How often all connections were reset; a connection born under a lower number has to go.
    pub(crate) resets: u64,
}

impl Rule {
    pub(crate) fn is_hole(&self) -> bool {
        self.mode == Mode::BlackHole
    }

    /// How long a byte that is read now has to wait.
    pub(crate) fn delay(&self) -> Duration {
        match self.mode {
            Mode::Delay(delay) => delay,
            Mode::Pass | Mode::BlackHole => Duration::ZERO,
        }
    }
}
