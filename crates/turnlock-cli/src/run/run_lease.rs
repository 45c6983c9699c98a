use std::time::{Duration, Instant};

use humantime::format_duration;
use turnlock::LostReason;

use crate::run_arguments::{OnLost, RunArguments};

/// How long the lock of a run lasts without a renewal, and whether it is renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunLease {
    Fixed(Duration),
    Renewed(Duration),
}

impl RunLease {
    pub(crate) fn of(arguments: &RunArguments) -> Self {
        arguments.lease.map_or(Self::Renewed(arguments.watchdog), Self::Fixed)
    }

    pub(crate) fn time(self) -> Duration {
        match self {
            Self::Fixed(time) | Self::Renewed(time) => time,
        }
    }

    /// An error, for people, when `--kill-after` does not fit in the lease.
    ///
    /// A renewal is due after a third of the lease. With a third left for the command, one renewal may fail without effect.
    pub(crate) fn check(self, arguments: &RunArguments) -> Result<(), String> {
        let Some(kill_after) = arguments.kill_after.filter(|_| arguments.on_lost == OnLost::Term) else {
            return Ok(());
        };
        let given = format_duration(kill_after);
        match self {
            Self::Fixed(lease) if kill_after >= lease => Err(format!(
                "--kill-after {given} does not fit in --lease {}: the command would get TERM as soon as it starts; give \
                 less than the lease",
                format_duration(lease)
            )),
            Self::Renewed(lease) if kill_after > lease / 3 => Err(format!(
                "--kill-after {given} does not fit in --watchdog {}: the lock is renewed each third of that time, so give at \
                 most a third, or a longer --watchdog",
                format_duration(lease)
            )),
            Self::Fixed(_) | Self::Renewed(_) => Ok(()),
        }
    }

    /// How a lock that is held until `valid_until`, and is not confirmed any more, is lost.
    pub(crate) fn reason_of_end(self, valid_until: Instant) -> LostReason {
        match self {
            Self::Fixed(_) => LostReason::Expired,
            Self::Renewed(lease) => {
                // What a client takes off the lease: see `valid_until` of the guard.
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
