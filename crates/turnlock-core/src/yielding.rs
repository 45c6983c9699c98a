//! Fairness between processes: how long the waiters of a process hold back after it released a lock.
//!
//! A release is published to all subscribers. The process that released the lock needs no message and would
//! be the first to send again. To give the others a chance, it counts turns: the store reports how many
//! subscribers the release reached, itself included if it subscribes, and each of them is worth one turn.
//! Each message that arrives is a turn taken; the first one is the echo of its own release. While turns are
//! missing, the process waits after each message, the longer the more turns are missing. So of several
//! processes the one that has waited longest goes first, and one that does not count turns, such as a Java
//! client, finds a gap.

use std::time::Duration;

use crate::Moment;

/// The time of one turn: a little more than it takes to be woken by a message and to send a request.
pub const TURN: Duration = Duration::from_millis(2);

/// The maximum number of turns to wait for at once, since subscribers need not want the lock.
const MAX_TURNS: u32 = 5;

/// The turns that a process leaves to others after it released a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Yielding {
    /// How many subscribers the release reached: until that is known, as many as the one before.
    notified: u32,
    /// How many messages have arrived since the release was sent.
    received: u32,
    /// The latest of these events.
    since: Moment,
}

impl Yielding {
    /// Starts when a release is about to be sent. The one before reached `subscribers`.
    pub fn begin(subscribers: u32, now: Moment) -> Self {
        Self { notified: subscribers, received: 0, since: now }
    }

    /// Records how many subscribers the release reached.
    pub fn release_published(&mut self, subscribers: u32, now: Moment) {
        self.notified = subscribers;
        self.since = now;
    }

    /// Records a message about a release: this one, or one by another process.
    pub fn release_received(&mut self, now: Moment) {
        self.received = self.received.saturating_add(1);
        self.since = now;
    }

    /// Returns until when the process yields, if no more messages arrive.
    pub fn ends(&self) -> Moment {
        self.since + TURN * self.notified.saturating_sub(self.received).min(MAX_TURNS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_micros(ms * 1_000)
    }

    fn after_release(subscribers: u32) -> Yielding {
        let mut yielding = Yielding::begin(0, at(0));
        yielding.release_published(subscribers, at(1));
        yielding
    }

    #[test]
    fn without_subscribers_there_is_nothing_to_wait_for() {
        assert_eq!(after_release(0).ends(), at(1));
    }

    #[test]
    fn the_echo_of_the_own_release_ends_it_without_other_subscribers() {
        let mut yielding = after_release(1);
        assert_eq!(yielding.ends(), at(3));
        yielding.release_received(at(2));
        assert_eq!(yielding.ends(), at(2));
        // Also if it arrives before the reply to the release.
        let mut yielding = Yielding::begin(0, at(0));
        yielding.release_received(at(1));
        yielding.release_published(1, at(2));
        assert_eq!(yielding.ends(), at(2));
    }

    #[test]
    fn each_turn_taken_by_another_process_shortens_the_wait() {
        let mut yielding = after_release(4);
        let waits = [10, 20, 30, 40, 50].map(|received| {
            yielding.release_received(at(received));
            yielding.ends().since(at(received)).as_millis()
        });
        assert_eq!(waits, [6, 4, 2, 0, 0]);
    }

    #[test]
    fn until_the_reply_the_subscribers_of_the_release_before_count() {
        assert_eq!(Yielding::begin(0, at(1)).ends(), at(1));
        let mut yielding = Yielding::begin(2, at(1));
        assert_eq!(yielding.ends(), at(5));
        yielding.release_published(0, at(2));
        assert_eq!(yielding.ends(), at(2));
    }

    #[test]
    fn the_wait_for_many_subscribers_is_bounded() {
        assert_eq!(after_release(1_000).ends(), at(11));
    }
}
