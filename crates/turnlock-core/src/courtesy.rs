//! Letting others go first: how long the waiters of one process hold back after their process has had a lock.
//!
//! The release of a lock is told to everybody who listens, and the process that released it would be the first to ask again: it
//! needs no message. So it counts. The store says how many were told, itself included if it listens; each of them is worth
//! one turn, and each message that comes in is a turn that was taken, the first being its own echo. As long as turns are
//! missing, it waits after each message, the longer the more of them: so of several processes the one goes first that has
//! waited longest, and one that does not count, such as Java's, finds a gap.

use std::time::Duration;

use crate::Moment;

/// What one turn is worth: a little more than it takes to be woken by a message and to ask.
pub const A_TURN: Duration = Duration::from_millis(2);

/// How many turns are waited for at once at the most. Those who listen need not want the lock.
const MOST_TURNS: u32 = 5;

/// What a process owes to others since it last released a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Courtesy {
    /// How many were told of the release; as long as that is not known, nobody asks.
    told: u32,
    /// How many messages have come since it was sent.
    heard: u32,
    /// The latest of all that.
    since: Moment,
}

impl Courtesy {
    /// A release is about to be sent.
    pub fn begin(now: Moment) -> Self {
        Self { told: 0, heard: 0, since: now }
    }

    /// The release was told to so many.
    pub fn was_told_to(&mut self, listeners: u32, now: Moment) {
        self.told = listeners;
        self.since = now;
    }

    /// A release was heard of: this one, or one of another.
    pub fn hears(&mut self, now: Moment) {
        self.heard = self.heard.saturating_add(1);
        self.since = now;
    }

    /// Until when others go first, if nothing else is heard.
    pub fn ends(&self) -> Moment {
        self.since + A_TURN * self.told.saturating_sub(self.heard).min(MOST_TURNS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_micros(ms * 1_000)
    }

    fn after_a_release(listeners: u32) -> Courtesy {
        let mut courtesy = Courtesy::begin(at(0));
        courtesy.was_told_to(listeners, at(1));
        courtesy
    }

    #[test]
    fn when_nobody_listens_there_is_nothing_to_wait_for() {
        assert_eq!(after_a_release(0).ends(), at(1));
    }

    #[test]
    fn the_echo_of_the_own_release_ends_it_when_nobody_else_listens() {
        let mut courtesy = after_a_release(1);
        assert_eq!(courtesy.ends(), at(3));
        courtesy.hears(at(2));
        assert_eq!(courtesy.ends(), at(2));
        // Also when it comes before the answer.
        let mut courtesy = Courtesy::begin(at(0));
        courtesy.hears(at(1));
        courtesy.was_told_to(1, at(2));
        assert_eq!(courtesy.ends(), at(2));
    }

    #[test]
    fn the_longer_ago_the_own_turn_the_shorter_the_wait() {
        let mut courtesy = after_a_release(4);
        let waits = [10, 20, 30, 40, 50].map(|heard| {
            courtesy.hears(at(heard));
            courtesy.ends().since(at(heard)).as_millis()
        });
        assert_eq!(waits, [6, 4, 2, 0, 0]);
    }

    #[test]
    fn a_crowd_that_does_not_come_is_not_waited_for_one_by_one() {
        assert_eq!(after_a_release(1_000).ends(), at(11));
    }
}
