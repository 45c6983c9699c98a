//! What is left to do when a request got no answer: it may have arrived, or may still arrive.

use std::time::Duration;

use crate::Moment;

/// A request whose outcome nobody knows.
///
/// Its undo is certain to come after it in one of two cases only: when it was answered on the *same* connection, which
/// keeps the order, or when it was answered *later than the request could still arrive*. Until then, it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Doubt {
    connection: u64,
    over: Moment,
    moot: Moment,
}

impl Doubt {
    /// How long something on the way may still deliver a request, at the most. What comes later than that can hold a lock
    /// for one lease.
    pub const DELIVERY: Duration = Duration::from_secs(60);

    /// A request for `lease`, sent at `sent` on connection number `connection`.
    ///
    /// It is given as long to arrive as the lease lasts, which is what it costs if it comes later still.
    pub fn new(connection: u64, sent: Moment, lease: Duration) -> Self {
        let window = lease.min(Self::DELIVERY);
        let over = sent + window;
        Self { connection, over, moot: over + window }
    }

    /// A hold that may stand on the store until `end`, of which no request is under way: any answer settles it.
    pub fn of_standing_hold(end: Moment) -> Self {
        Self { connection: NO_CONNECTION, over: Moment::from_micros(0), moot: end }
    }

    /// Whether it is only that a hold may stand: no request is under way.
    pub fn is_of_standing_hold(self) -> bool {
        self.over == Moment::from_micros(0)
    }

    /// The same, of a hold that may stand on the store until `end` besides.
    #[must_use]
    pub fn lasting_until(self, end: Moment) -> Self {
        Self { moot: self.moot.max(end), ..self }
    }

    /// Whether an undo that was sent at `sent` on `connection`, and answered, settles the matter.
    pub fn is_settled_by(self, connection: u64, sent: Moment) -> bool {
        connection == self.connection || sent >= self.over
    }

    /// Whether an undo sent at `sent` comes so late that whatever the request began has ended by itself: the window twice,
    /// once for the request to arrive and once for what it began.
    pub fn is_moot(self, sent: Moment) -> bool {
        sent >= self.moot
    }

    /// What remains in doubt when `later`, a further request of the same hold, gets no answer either.
    ///
    /// Two connections cannot both be followed by one undo, so then only time settles it.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let connection = if self.connection == later.connection { later.connection } else { NO_CONNECTION };
        Self { connection, over: self.over.max(later.over), moot: self.moot.max(later.moot) }
    }
}

/// A number that no connection has.
const NO_CONNECTION: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);

    #[test]
    fn an_undo_settles_by_order_or_by_time() {
        let sent = Moment::from_micros(0);
        let doubt = Doubt::new(3, sent, WINDOW);
        assert!(doubt.is_settled_by(3, sent));
        assert!(!doubt.is_settled_by(4, sent + Duration::from_secs(29)));
        assert!(doubt.is_settled_by(4, sent + WINDOW));
        assert!(!doubt.is_moot(sent + WINDOW) && doubt.is_moot(sent + WINDOW * 2));
    }

    #[test]
    fn doubts_on_two_connections_need_time() {
        let sent = Moment::from_micros(0);
        let later = sent + Duration::from_secs(1);
        let both = Doubt::new(3, sent, WINDOW).and(Doubt::new(4, later, WINDOW));
        assert!(!both.is_settled_by(4, later) && !both.is_settled_by(3, later));
        assert!(both.is_settled_by(9, later + WINDOW));
        let same = Doubt::new(3, sent, WINDOW).and(Doubt::new(3, later, WINDOW));
        assert!(same.is_settled_by(3, later));
    }
}
