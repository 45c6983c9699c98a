use std::time::Duration;

use turnlock_core::Lease;

use crate::error::Error;
use crate::metrics::Options;

/// The checked settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct CheckedSettings {
    /// The lease of a lock that the watchdog renews.
    pub(crate) watchdog_timeout: Lease,
    /// How long to wait for a reply. `None`: 1 s, less for short leases.
    pub(crate) response_timeout: Option<Duration>,
    #[cfg_attr(
        not(any(feature = "redis", all(feature = "file", unix))),
        expect(dead_code, reason = "a memory store needs no connection")
    )]
    pub(crate) connect_timeout: Duration,
    /// How long to retry while the store does not reply.
    pub(crate) retry_for: Duration,
    /// The longest time between two requests of a waiter.
    pub(crate) poll_interval: Duration,
    /// How long after its grant a lock is handed over between waiters of this client. Zero: never.
    pub(crate) hand_over_window: Duration,
    pub(crate) key_prefix: String,
    /// The name of the client in its record. `None`: the name of the program.
    pub(crate) label: Option<String>,
    /// The number of replicas that must acknowledge a grant, unless the handle sets another.
    pub(crate) replicas: u32,
    pub(crate) metrics: Options,
    /// Waits and holds are announced on the store.
    pub(crate) announce_waits: bool,
    /// The announcements have call sites.
    pub(crate) announce_call_sites: bool,
    /// A waiter of this client may fail to end a deadlock.
    pub(crate) fail_on_deadlock: bool,
}

/// The default of `response_timeout`.
const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

impl CheckedSettings {
    /// Returns the response time-out of a step on a hold with this lease.
    pub(crate) fn response_limit(&self, lease: Lease) -> Result<Duration, Error> {
        match self.response_timeout {
            None => Ok(lease.response_limit(DEFAULT_RESPONSE_TIMEOUT)),
            Some(timeout) if lease.tolerates(timeout) => Ok(timeout),
            Some(timeout) => Err(Error::bad_setting(
                "response_timeout",
                format!(
                    "{timeout:?} is not below a third of the lease of {:?}, so a lost reply would leave no \
                     time for a retry; shorten the time-out or lengthen the lease",
                    lease.as_duration()
                ),
            )),
        }
    }

    /// Returns the response time-out of a request that concerns no hold.
    pub(crate) fn usual_limit(&self) -> Duration {
        self.response_timeout.unwrap_or(DEFAULT_RESPONSE_TIMEOUT)
    }
}
