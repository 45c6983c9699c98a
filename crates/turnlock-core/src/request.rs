//! Requests on numbers without owners: how long they are remembered, and how long they may be repeated.

use std::time::Duration;

use crate::Moment;

/// How long the store remembers what became of a request on a number without owners.
///
/// As long as an outage may last after which a step is still repeated. The clients remove what they need no more, so
/// that only what was in doubt is remembered for so long.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(60 * 60);

/// How long after its first send without an answer such a request may be repeated.
///
/// Less than it is remembered, or a copy would count again. What is left is for the copy to get a connection and to
/// arrive, and for clocks that do not run at the same speed.
pub const REPEATED_FOR: Duration = Duration::from_secs(50 * 60);

/// Whether a request on a number without owners may be sent once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// When it was first sent and not answered.
    in_doubt_since: Option<Moment>,
}

impl Repeats {
    /// The request was sent at `sent`, and not answered.
    pub fn are_in_doubt_since(&mut self, sent: Moment) {
        self.in_doubt_since.get_or_insert(sent);
    }

    /// Nothing that was sent is in doubt any more.
    pub fn are_settled(&mut self) {
        self.in_doubt_since = None;
    }

    /// Whether something that was sent is in doubt.
    pub fn are_in_doubt(self) -> bool {
        self.in_doubt_since.is_some()
    }

    /// Until when it may be sent. One that has never left, or was answered each time, may be sent at any time.
    pub fn end(self) -> Moment {
        self.in_doubt_since.map_or(Moment::NEVER, |sent| sent + REPEATED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_be_repeated_for_a_time_from_its_first_send_in_doubt() {
        let at = |minutes: u64| Moment::from_micros(0) + Duration::from_secs(minutes * 60);
        let mut repeats = Repeats::default();
        assert_eq!(repeats.end(), Moment::NEVER);
        repeats.are_in_doubt_since(at(7));
        repeats.are_in_doubt_since(at(40));
        assert!(repeats.are_in_doubt());
        assert_eq!(repeats.end(), at(57));
        repeats.are_settled();
        assert_eq!((repeats.are_in_doubt(), repeats.end()), (false, Moment::NEVER));
    }

    #[test]
    fn the_last_copy_arrives_before_the_first_is_forgotten() {
        assert!(REPEATED_FOR + crate::Doubt::DELIVERY * 2 < REMEMBERED_FOR);
    }
}
