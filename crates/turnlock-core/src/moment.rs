use std::ops::Add;
use std::time::Duration;

/// A point on a monotonic clock, in microseconds since an arbitrary start.
///
/// Pure code takes it as an argument, and the caller chooses the clock. Moments of different clocks must not
/// be compared.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The last moment, which is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// Creates the moment `micros` microseconds after the clock's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the clock's start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Sub<Duration> for Moment {
    type Output = Self;

    /// Saturates at the origin.
    fn sub(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Returns the moment `later` after this one, or [`Moment::NEVER`] on overflow.
    fn add(self, later: Duration) -> Self {
        let micros = u64::try_from(later.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let early = Moment::from_micros(5);
        assert_eq!(early.since(early + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!((early + Duration::from_millis(2)).since(early), Duration::from_millis(2));
        assert_eq!(early + Duration::MAX, Moment::NEVER);
    }
}
