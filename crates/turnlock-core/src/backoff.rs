//! How long to wait before asking again when the server did not answer.

use std::time::Duration;

/// Pauses that double from one failure to the next, half of each by chance, so that many clients that failed together
/// do not come back together.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    /// Pauses that start at about `first` and grow to about `most`.
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { next: first.min(most), most }
    }

    /// The next pause; `chance` is a random number from 0 to 1.
    pub fn pause(&mut self, chance: f64) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.most);
        full / 2 + (full / 2).mul_f64(chance.clamp(0.0, 1.0))
    }
}

impl Default for Backoff {
    /// From 10 ms to half a second.
    fn default() -> Self {
        Self::new(Duration::from_millis(10), Duration::from_millis(500))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_no_further() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(10), ms(35));
        let pauses: Vec<_> = (0..4).map(|_| backoff.pause(1.0)).collect();
        assert_eq!(pauses, [ms(10), ms(20), ms(35), ms(35)]);
        let mut backoff = Backoff::new(ms(10), ms(40));
        assert_eq!([backoff.pause(0.0), backoff.pause(0.5)], [ms(5), ms(15)]);
    }
}
