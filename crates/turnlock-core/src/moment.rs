use std::ops::Add;
use std::time::Duration;

/// A point on a clock that only goes forward, in microseconds since a start that does not matter.
///
/// Pure code takes it as an argument; which clock it comes from is the caller's business. Moments of two different
/// clocks must not be compared.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The last moment there is: later than anything that will happen.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `micros` microseconds after the clock's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the clock's start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero when `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// The moment `later` after this one; [`Moment::NEVER`] when that cannot be written down.
    fn add(self, later: Duration) -> Self {
        let micros = u64::try_from(later.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_both_ends() {
        let early = Moment::from_micros(5);
        assert_eq!(early.since(early + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!((early + Duration::from_millis(2)).since(early), Duration::from_millis(2));
        assert_eq!(early + Duration::MAX, Moment::NEVER);
    }
}
