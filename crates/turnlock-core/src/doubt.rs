//! Requests without a reply: they may have arrived, or may still arrive.

use std::time::Duration;

use crate::Moment;
use crate::planted::Bug;

/// A request whose outcome is unknown.
///
/// An undo of the request is repeated until it is certain to have come after it. That is so in two cases
/// only: the undo got its reply on the *same* connection, which preserves order, or it was sent *after the
/// request could still arrive*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Doubt {
    connection: u64,
    /// From when on the request cannot arrive any more.
    arrival_end: Moment,
    /// From when on whatever the request began has expired.
    expiry: Moment,
}

impl Doubt {
    /// The longest time that the network is assumed to delay a request.
    ///
    /// A request that arrives later still can hold a lock for one lease.
    pub const DELIVERY: Duration = Duration::from_secs(60);

    /// Creates the doubt about a request for `lease`, sent at `sent` on connection number `connection`.
    ///
    /// The request is given one lease to arrive, at most [`DELIVERY`](Self::DELIVERY): a later arrival costs
    /// one lease as well.
    pub fn new(connection: u64, sent: Moment, lease: Duration) -> Self {
        let window = lease.min(Self::DELIVERY);
        let arrival_end = sent + window;
        Self { connection, arrival_end, expiry: arrival_end + window }
    }

    /// Creates the doubt about a hold that may exist until `end`.
    ///
    /// No request is under way: any reply to an undo settles it.
    pub fn of_existing_hold(end: Moment) -> Self {
        Self { connection: NO_CONNECTION, arrival_end: Moment::from_micros(0), expiry: end }
    }

    /// Returns `true` if no request is under way, and only a hold may exist.
    pub fn is_of_existing_hold(self) -> bool {
        self.arrival_end == Moment::from_micros(0)
    }

    /// Adds that a hold may exist on the store until `end`.
    #[must_use]
    pub fn lasting_until(self, end: Moment) -> Self {
        Self { expiry: self.expiry.max(end), ..self }
    }

    /// Returns `true` if a reply to an undo, sent at `sent` on `connection`, settles this.
    pub fn is_settled_by(self, connection: u64, sent: Moment) -> bool {
        connection == self.connection || sent >= self.arrival_end || Bug::AnyReplySettles.is_planted()
    }

    /// Returns `true` if what the request began has expired by `sent`.
    ///
    /// No undo is needed then. That is two windows after the request: one for its arrival, one for the lease that it began.
    pub fn has_expired_by(self, sent: Moment) -> bool {
        sent >= self.expiry
    }

    /// Combines the doubts about two requests of the same hold.
    ///
    /// One undo cannot follow requests on two connections, so then only time settles the doubt.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let connection = if self.connection == later.connection { later.connection } else { NO_CONNECTION };
        Self {
            connection,
            arrival_end: self.arrival_end.max(later.arrival_end),
            expiry: self.expiry.max(later.expiry),
        }
    }
}

/// A number that no connection has.
const NO_CONNECTION: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);

    #[test]
    fn an_undo_settles_a_doubt_by_order_or_by_time() {
        let sent = Moment::from_micros(0);
        let doubt = Doubt::new(3, sent, WINDOW);
        assert!(doubt.is_settled_by(3, sent));
        assert!(!doubt.is_settled_by(4, sent + Duration::from_secs(29)));
        assert!(doubt.is_settled_by(4, sent + WINDOW));
        assert!(!doubt.has_expired_by(sent + WINDOW) && doubt.has_expired_by(sent + WINDOW * 2));
    }

    #[test]
    fn a_doubt_on_two_connections_is_settled_by_time_only() {
        let sent = Moment::from_micros(0);
        let later = sent + Duration::from_secs(1);
        let both = Doubt::new(3, sent, WINDOW).and(Doubt::new(4, later, WINDOW));
        assert!(!both.is_settled_by(4, later) && !both.is_settled_by(3, later));
        assert!(both.is_settled_by(9, later + WINDOW));
        let same = Doubt::new(3, sent, WINDOW).and(Doubt::new(3, later, WINDOW));
        assert!(same.is_settled_by(3, later));
    }
}
