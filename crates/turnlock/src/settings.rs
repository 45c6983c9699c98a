use std::time::Duration;

use turnlock_core::Lease;

use crate::error::Error;

/// What a client was told, checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The lease of a renewed lock.
    pub(crate) watchdog: Lease,
    /// How long to wait for an answer; `None`: a second, less for short leases.
    pub(crate) response_timeout: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    /// How long to go on while the store does not answer.
    pub(crate) retry_for: Duration,
    /// The longest time between two looks of a waiter.
    pub(crate) poll: Duration,
    /// How long after its grant a lock passes from waiter to waiter of this client; zero: never.
    pub(crate) hand_over_window: Duration,
    pub(crate) key_prefix: String,
    /// What the client calls itself; `None`: as its program.
    pub(crate) label: Option<String>,
    /// How many replicas must acknowledge a grant, where the handle says nothing else.
    pub(crate) replicas: u32,
}

/// How long to wait for an answer when nothing was said.
const USUAL_PATIENCE: Duration = Duration::from_secs(1);

/// How long a lock passes from waiter to waiter when nothing was said.
pub(crate) const USUAL_WINDOW: Duration = Duration::from_millis(10);

impl Default for Settings {
    fn default() -> Self {
        Self {
            watchdog: Lease::WATCHDOG,
            response_timeout: None,
            connect_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            hand_over_window: USUAL_WINDOW,
            key_prefix: String::new(),
            label: None,
            replicas: 0,
        }
    }
}

impl Settings {
    /// How long to wait for the answer to a step that concerns a hold of this lease.
    pub(crate) fn patience(&self, lease: Lease) -> Result<Duration, Error> {
        match self.response_timeout {
            None => Ok(lease.patience(USUAL_PATIENCE)),
            Some(timeout) if lease.tolerates(timeout) => Ok(timeout),
            Some(timeout) => Err(Error::bad_setting(
                "response_timeout",
                format!(
                    "{timeout:?} is not below a third of the lease of {:?}: a missing answer would leave no time to \
                     ask again; shorten the time-out or lengthen the lease",
                    lease.as_duration()
                ),
            )),
        }
    }

    /// How long to wait for the answer to a step that concerns no hold of ours.
    pub(crate) fn usual_patience(&self) -> Duration {
        self.response_timeout.unwrap_or(USUAL_PATIENCE)
    }
}
