//! How long to wait before a failed request is retried.

use std::time::Duration;

/// Exponential backoff with jitter.
///
/// The pause doubles with each failure up to a maximum. Half of each pause is random, so that clients that
/// failed at the same time do not retry at the same time.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Creates a backoff whose pauses start at about `first` and grow to about `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self { next: first.min(max), max }
    }

    /// Returns the next pause. `random` is a number from 0 to 1.
    pub fn pause(&mut self, random: f64) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.max);
        full / 2 + (full / 2).mul_f64(random.clamp(0.0, 1.0))
    }
}

impl Default for Backoff {
    /// From 10 ms to 500 ms.
    fn default() -> Self {
        Self::new(Duration::from_millis(10), Duration::from_millis(500))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(10), ms(35));
        let pauses: Vec<_> = (0..4).map(|_| backoff.pause(1.0)).collect();
        assert_eq!(pauses, [ms(10), ms(20), ms(35), ms(35)]);
        let mut backoff = Backoff::new(ms(10), ms(40));
        assert_eq!([backoff.pause(0.0), backoff.pause(0.5)], [ms(5), ms(15)]);
    }
}
