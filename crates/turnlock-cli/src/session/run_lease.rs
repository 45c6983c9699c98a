use std::time::{Duration, Instant};

use humantime::format_duration;
use turnlock::LostReason;

use crate::lock_arguments::LockArguments;
use crate::run_arguments::{OnLost, RunArguments};

/// The lease of the lock of a run, fixed or renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunLease {
    Fixed(Duration),
    Renewed(Duration),
}

impl RunLease {
    pub(crate) fn of(arguments: &LockArguments) -> Self {
        arguments.lease.map_or(Self::Renewed(arguments.watchdog), Self::Fixed)
    }

    pub(crate) fn duration(self) -> Duration {
        match self {
            Self::Fixed(duration) | Self::Renewed(duration) => duration,
        }
    }

    /// Checks that `--kill-after` fits in the lease, and returns a usage error if not.
    ///
    /// A renewed lease is renewed every third of its length. With at most a third for `--kill-after`, one failed renewal
    /// does not end the command.
    pub(crate) fn check(self, arguments: &RunArguments) -> Result<(), String> {
        let Some(kill_after) = arguments.kill_after.filter(|_| arguments.on_lost == OnLost::Term) else {
            return Ok(());
        };
        let given = format_duration(kill_after);
        match self {
            Self::Fixed(lease) if kill_after >= lease => Err(format!(
                "--kill-after {given} does not fit in --lease {}: the command would get TERM as soon as it starts. Give \
                 less than the lease",
                format_duration(lease)
            )),
            Self::Renewed(lease) if kill_after > lease / 3 => Err(format!(
                "--kill-after {given} does not fit in --watchdog {}: the lock is renewed every third of that time. Give at \
                 most a third, or a longer --watchdog",
                format_duration(lease)
            )),
            Self::Fixed(_) | Self::Renewed(_) => Ok(()),
        }
    }

    /// The reason of the loss of a lock that ends at `valid_until` without another confirmation.
    pub(crate) fn lost_reason(self, valid_until: Instant) -> LostReason {
        match self {
            Self::Fixed(_) => LostReason::Expired,
            Self::Renewed(lease) => {
                // The safety margin that `Guard::valid_until` subtracts from the lease.
                let margin = lease / 100 + Duration::from_millis(2);
                let now = Instant::now();
                let past = now.saturating_duration_since(valid_until);
                let left = valid_until.saturating_duration_since(now);
                let unconfirmed_for = (lease + past).saturating_sub(margin + left);
                LostReason::NotRenewed { unconfirmed_for }
            }
        }
    }
}
