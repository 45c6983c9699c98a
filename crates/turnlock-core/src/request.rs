//! Retries of requests on counters, which have no owners.
//!
//! A lock knows its owner, so a repeated step finds its work done. A semaphore or a latch is a bare number:
//! the store remembers the id and the outcome of each request for a while, and a request may be retried only
//! within that time.

use std::time::Duration;

use crate::Moment;

/// How long the store remembers the outcome of a request on a counter.
///
/// That is the longest outage after which a request may still be retried. Clients remove the outcomes that
/// they no longer need, so only those in doubt are remembered for so long.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(60 * 60);

/// How long after its first send without a reply a request may be retried.
///
/// Shorter than [`REMEMBERED_FOR`], or a retry would count again. The difference is the time for the last
/// retry to get a connection and to arrive, and allows for clocks that run at different speeds.
pub const REPEATED_FOR: Duration = Duration::from_secs(50 * 60);

/// The time within which a request on a counter may be retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryWindow {
    /// When it was first sent without a reply.
    in_doubt_since: Option<Moment>,
}

impl RetryWindow {
    /// Records that the request was sent at `sent` and got no reply.
    pub fn mark_in_doubt(&mut self, sent: Moment) {
        self.in_doubt_since.get_or_insert(sent);
    }

    /// Records that no earlier send is in doubt any more.
    pub fn settle(&mut self) {
        self.in_doubt_since = None;
    }

    /// Returns `true` if an earlier send is in doubt.
    pub fn is_in_doubt(self) -> bool {
        self.in_doubt_since.is_some()
    }

    /// Returns until when the request may be sent: [`Moment::NEVER`] if nothing is in doubt.
    pub fn end(self) -> Moment {
        self.in_doubt_since.map_or(Moment::NEVER, |sent| sent + REPEATED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_retry_window_starts_with_the_first_send_in_doubt() {
        let at = |minutes: u64| Moment::from_micros(0) + Duration::from_secs(minutes * 60);
        let mut window = RetryWindow::default();
        assert_eq!(window.end(), Moment::NEVER);
        window.mark_in_doubt(at(7));
        window.mark_in_doubt(at(40));
        assert!(window.is_in_doubt());
        assert_eq!(window.end(), at(57));
        window.settle();
        assert_eq!((window.is_in_doubt(), window.end()), (false, Moment::NEVER));
    }

    #[test]
    fn the_last_retry_arrives_before_the_first_send_is_forgotten() {
        assert!(REPEATED_FOR + crate::Doubt::DELIVERY * 2 < REMEMBERED_FOR);
    }
}
