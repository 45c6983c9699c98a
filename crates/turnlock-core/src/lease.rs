//! How long a hold lasts, and how long its client may believe in it.

use std::fmt;
use std::time::Duration;

use crate::Moment;

/// How long the server keeps a hold without hearing of it again. What exists is valid.
///
/// ```
/// use std::time::Duration;
/// use turnlock_core::Lease;
///
/// let lease = Lease::new(Duration::from_secs(30))?;
/// assert_eq!(lease.renewal_period(), Duration::from_secs(10));
/// assert!(Lease::new(Duration::ZERO).is_err());
/// # Ok::<(), turnlock_core::LeaseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    millis: u64,
}

/// Why a duration cannot be a lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// A lease of nothing.
    #[error(
        "a lease of zero would end before it begins: give at least {:?}, or none for a renewed lock",
        Lease::MIN
    )]
    Zero,
    /// Too short for a round trip to the server.
    #[error("a lease of {0:?} is too short to be of use: give at least {min:?}", min = Lease::MIN)]
    TooShort(Duration),
    /// Too long to be meant, or to be written down by the server.
    #[error("a lease of {0:?} is too long: give at most {max:?}", max = Lease::MAX)]
    TooLong(Duration),
}

impl Lease {
    /// The shortest lease.
    pub const MIN: Duration = Duration::from_millis(10);
    /// The longest lease: ten years.
    pub const MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    /// The lease of a renewed lock when nothing else is said, as in Redisson.
    pub const WATCHDOG: Self = Self { millis: 30_000 };

    /// As good as for ever: for what is held without a lease.
    pub const LONGEST: Self = Self { millis: Self::MAX.as_secs() * 1_000 };

    /// Checks a duration. The server counts in milliseconds, so parts of one are rounded up.
    pub fn new(duration: Duration) -> Result<Self, LeaseError> {
        if duration.is_zero() {
            return Err(LeaseError::Zero);
        }
        if duration < Self::MIN {
            return Err(LeaseError::TooShort(duration));
        }
        if duration > Self::MAX {
            return Err(LeaseError::TooLong(duration));
        }
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Ok(Self { millis: u64::try_from(millis).map_err(|_| LeaseError::TooLong(duration))? })
    }

    /// The lease in milliseconds, as it goes over the wire.
    pub const fn as_millis(self) -> u64 {
        self.millis
    }

    /// The lease as a duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// What is taken off the lease at the client, for clocks that run at slightly different speeds and for the time
    /// that a decision takes: a hundredth of it and two milliseconds.
    pub const fn margin(self) -> Duration {
        Duration::from_micros(self.millis * 10 + 2_000)
    }

    /// Until when the client may believe in a hold that was granted or renewed by a request sent at `sent`.
    ///
    /// Counted from *before* the request left, so it is over before the server can hand the lock on.
    pub fn local_end(self, sent: Moment) -> Moment {
        sent + self.as_duration().saturating_sub(self.margin())
    }

    /// How long after a confirmed renewal the next one is due: a third of the lease.
    pub const fn renewal_period(self) -> Duration {
        Duration::from_micros(self.millis * 1000 / 3)
    }

    /// When to renew a hold that was confirmed by a request sent at `sent`: after a third of the lease, brought forward to
    /// the last of the moments, four in each such period, at which all holds of this lease are renewed together.
    pub fn next_renewal(self, sent: Moment) -> Moment {
        let due = (sent + self.renewal_period()).as_micros();
        let grid = (self.millis * 1000 / 12).max(1);
        Moment::from_micros(due - due % grid)
    }

    /// How long to wait for one answer when nobody set a time-out: `usual`, but a quarter of the lease at the most, so
    /// that a missing answer leaves time to ask again.
    ///
    /// Requests with the same limit share a call, so a limit below the usual one is [coarse](coarse_limit).
    pub fn patience(self, usual: Duration) -> Duration {
        coarse_limit(self.as_duration() / 4, usual)
    }

    /// Whether `timeout` is short enough for this lease: below a third of it.
    pub fn tolerates(self, timeout: Duration) -> bool {
        timeout < self.as_duration() / 3
    }
}

/// `limit` rounded down by an eighth at the most, so that there are few different limits; or `usual`, if that is less.
pub fn coarse_limit(limit: Duration, usual: Duration) -> Duration {
    if limit >= usual {
        return usual;
    }
    let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    // The four highest bits.
    let rest = millis.checked_ilog2().unwrap_or_default().saturating_sub(3);
    Duration::from_millis(millis >> rest << rest)
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:?})", self.as_duration())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_out_of_bounds_are_refused() {
        assert_eq!(Lease::new(Duration::ZERO), Err(LeaseError::Zero));
        assert_eq!(Lease::new(Duration::from_nanos(1)), Err(LeaseError::TooShort(Duration::from_nanos(1))));
        assert_eq!(Lease::new(Duration::MAX), Err(LeaseError::TooLong(Duration::MAX)));
        assert!(Lease::new(Lease::MIN).is_ok() && Lease::new(Lease::MAX).is_ok());
    }

    #[test]
    fn parts_of_a_millisecond_round_up() {
        let lease = Lease::new(Duration::from_micros(10_001)).expect("valid");
        assert_eq!(lease.as_millis(), 11);
    }

    #[test]
    fn the_local_end_comes_before_the_servers() {
        let sent = Moment::from_micros(1_000_000);
        for millis in [10, 100, 30_000, 3_600_000] {
            let lease = Lease::new(Duration::from_millis(millis)).expect("valid");
            let believed = lease.local_end(sent).since(sent);
            let expected = lease.as_duration().mul_f64(0.99).saturating_sub(Duration::from_millis(2));
            assert_eq!(believed, expected);
            assert!(believed > lease.renewal_period());
        }
    }

    #[test]
    fn renewals_of_one_period_fall_on_four_moments() {
        let lease = Lease::WATCHDOG;
        let mut moments: Vec<_> = (0..10_000)
            .map(|ms| Moment::from_micros(7_777) + Duration::from_millis(ms))
            .map(|sent| {
                let due = lease.next_renewal(sent);
                assert!(due.since(sent) <= lease.renewal_period());
                assert!(due.since(sent) + Duration::from_micros(1) >= lease.renewal_period() * 3 / 4);
                due
            })
            .collect();
        moments.dedup();
        assert!(moments.len() <= 5, "{moments:?}");
    }

    #[test]
    fn a_time_out_must_be_below_a_third() {
        let lease = Lease::new(Duration::from_secs(3)).expect("valid");
        assert!(lease.tolerates(Duration::from_millis(999)));
        assert!(!lease.tolerates(Duration::from_secs(1)));
        assert!(lease.tolerates(lease.patience(Duration::from_secs(60))));
    }

    #[test]
    fn similar_leases_have_the_same_limit() {
        let usual = Duration::from_secs(1);
        let limits: std::collections::BTreeSet<_> = (2_000..4_000)
            .map(|millis| {
                let lease = Lease::new(Duration::from_millis(millis)).expect("valid");
                let limit = lease.patience(usual);
                let quarter = lease.as_duration() / 4;
                assert!(limit <= quarter && limit + quarter / 8 > quarter, "{limit:?} of {lease:?}");
                limit
            })
            .collect();
        assert!(limits.len() <= 9, "{limits:?}");
        let longer = Lease::new(Duration::from_secs(4)).expect("valid");
        assert_eq!(longer.patience(usual), usual);
        assert_eq!(coarse_limit(Duration::from_millis(7), usual), Duration::from_millis(7));
        assert_eq!(coarse_limit(Duration::ZERO, usual), Duration::ZERO);
    }
}
