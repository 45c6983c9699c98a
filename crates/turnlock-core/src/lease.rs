//! How long a hold lasts on the store, and how long its client may rely on it.

use std::fmt;
use std::time::Duration;

use crate::Moment;
use crate::planted::Bug;

/// The time after which the store ends a hold that is not renewed.
///
/// Checked on construction, from [`MIN`](Lease::MIN) to [`MAX`](Lease::MAX), in whole milliseconds.
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
    /// The duration is zero.
    #[error(
        "a lease of zero expires at once: use at least {:?}, or no lease for a lock that is renewed",
        Lease::MIN
    )]
    Zero,
    /// The duration is too short for a round trip to the server.
    #[error("a lease of {0:?} is too short for a round trip: use at least {min:?}", min = Lease::MIN)]
    TooShort(Duration),
    /// The duration is longer than ten years.
    #[error("a lease of {0:?} is too long: use at most {max:?}", max = Lease::MAX)]
    TooLong(Duration),
}

impl Lease {
    /// The shortest lease.
    pub const MIN: Duration = Duration::from_millis(10);
    /// The longest lease: ten years.
    pub const MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    /// The default lease of a renewed lock, as in Redisson.
    pub const WATCHDOG: Self = Self { millis: 30_000 };

    /// The longest lease, for holds that do not expire.
    pub const LONGEST: Self = Self { millis: Self::MAX.as_secs() * 1_000 };

    /// Creates a lease, rounded up to whole milliseconds.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the duration is out of bounds.
    pub fn new(duration: Duration) -> Result<Self, LeaseError> {
        match u64::try_from(duration.as_nanos().div_ceil(1_000_000)) {
            Ok(0) => Err(LeaseError::Zero),
            _ if duration < Self::MIN => Err(LeaseError::TooShort(duration)),
            Ok(millis) if duration <= Self::MAX => Ok(Self { millis }),
            _ => Err(LeaseError::TooLong(duration)),
        }
    }

    /// Returns the lease in milliseconds, as on the wire.
    pub const fn as_millis(self) -> u64 {
        self.millis
    }

    /// Returns the lease as a duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// Returns the safety margin by which the client's view of the lease is shorter: 1 % and 2 ms.
    ///
    /// It covers clocks that run at slightly different speeds, and the time between a check and the work
    /// after it.
    pub const fn margin(self) -> Duration {
        Duration::from_micros(self.millis * 10 + 2_000)
    }

    /// Returns until when a hold is valid whose request was sent at `sent`.
    ///
    /// Counted from *before* the request was sent, so it ends before the server can grant the lock to another
    /// owner.
    pub fn local_end(self, sent: Moment) -> Moment {
        if Bug::NoMargin.is_planted() {
            return sent + self.as_duration();
        }
        let late = if Bug::LateLocalEnd.is_planted() { Duration::from_millis(500) } else { Duration::ZERO };
        sent + self.as_duration().saturating_sub(self.margin()) + late
    }

    /// Returns the time from a confirmed renewal to the next one: a third of the lease.
    pub const fn renewal_period(self) -> Duration {
        Duration::from_micros(self.millis * 1000 / 3)
    }

    /// Returns when to renew a hold that was confirmed by a request sent at `sent`.
    ///
    /// That is after a third of the lease, rounded down to a multiple of a twelfth of the lease. So all holds
    /// with the same lease are renewed in four batches per period.
    pub fn next_renewal(self, sent: Moment) -> Moment {
        let due = (sent + self.renewal_period()).as_micros();
        let grid = (self.millis * 1000 / 12).max(1);
        Moment::from_micros(due - due % grid)
    }

    /// Returns the default response time-out: `usual`, but at most a quarter of the lease.
    ///
    /// So a missing reply leaves time for a retry. Requests with the same time-out share a call; a time-out
    /// below `usual` is therefore [rounded](coarse_limit).
    pub fn response_limit(self, usual: Duration) -> Duration {
        coarse_limit(self.as_duration() / 4, usual)
    }

    /// Returns `true` if a response time-out is short enough for this lease: below a third of it.
    pub fn tolerates(self, timeout: Duration) -> bool {
        timeout < self.as_duration() / 3
    }
}

/// Returns `limit` rounded down by at most an eighth, or `usual` if that is less.
///
/// So that there are few different time-outs, and requests can share a call.
pub fn coarse_limit(limit: Duration, usual: Duration) -> Duration {
    if limit >= usual {
        return usual;
    }
    let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    // Keep the four highest bits.
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
    fn a_lease_out_of_bounds_is_an_error() {
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
    fn the_local_end_is_before_the_end_on_the_server() {
        let sent = Moment::from_micros(1_000_000);
        for millis in [10, 100, 30_000, 3_600_000] {
            let lease = Lease::new(Duration::from_millis(millis)).expect("valid");
            let valid = lease.local_end(sent).since(sent);
            let expected = lease.as_duration().mul_f64(0.99).saturating_sub(Duration::from_millis(2));
            assert_eq!(valid, expected);
            assert!(valid > lease.renewal_period());
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
    fn a_response_time_out_must_be_below_a_third_of_the_lease() {
        let lease = Lease::new(Duration::from_secs(3)).expect("valid");
        assert!(lease.tolerates(Duration::from_millis(999)));
        assert!(!lease.tolerates(Duration::from_secs(1)));
        assert!(lease.tolerates(lease.response_limit(Duration::from_secs(60))));
    }

    #[test]
    fn similar_leases_have_the_same_response_time_out() {
        let usual = Duration::from_secs(1);
        let limits: std::collections::BTreeSet<_> = (2_000..4_000)
            .map(|millis| {
                let lease = Lease::new(Duration::from_millis(millis)).expect("valid");
                let limit = lease.response_limit(usual);
                let quarter = lease.as_duration() / 4;
                assert!(limit <= quarter && limit + quarter / 8 > quarter, "{limit:?} of {lease:?}");
                limit
            })
            .collect();
        assert!(limits.len() <= 9, "{limits:?}");
        let longer = Lease::new(Duration::from_secs(4)).expect("valid");
        assert_eq!(longer.response_limit(usual), usual);
        assert_eq!(coarse_limit(Duration::from_millis(7), usual), Duration::from_millis(7));
        assert_eq!(coarse_limit(Duration::ZERO, usual), Duration::ZERO);
    }
}
