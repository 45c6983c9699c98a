use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use turnlock_core::Moment;
use turnlock_store::{Failure, FailureKind};

/// How long no request may fail before an outage is over, at least.
///
/// In a cluster, one server may fail while others reply: without this, each reply would end the outage.
const SHORTEST_QUIET: Duration = Duration::from_secs(3);

/// How long after its last failure an outage counts as another one than the next failure, also if no request was sent since.
///
/// Longer than any pause between two tries of a request.
const OUTDATED: Duration = Duration::from_secs(300);

/// Logs an outage of the store when it begins and when it ends, instead of each failed request.
#[derive(Debug, Default)]
pub(crate) struct OutageLog {
    /// Set during an outage. Without one, a reply costs a load.
    is_failing: AtomicBool,
    outage: Mutex<Option<Outage>>,
}

#[derive(Debug)]
struct Outage {
    since: Moment,
    failures: u64,
    last_failure: Moment,
    /// A request has got its reply since the last failure.
    has_reply: bool,
}

impl OutageLog {
    /// Notes a failed request. Returns `false` if that is no outage, so that it is to be logged by itself.
    pub(crate) fn note_failure(&self, request: &'static str, failure: &Failure, now: Moment) -> bool {
        if !matches!(failure.kind, FailureKind::Unavailable(_)) {
            return false;
        }
        // A subscriber is foreign code, so it is called without the mutex.
        if self.count_failure(now) {
            tracing::warn!(request, %failure, "store not available");
        } else {
            tracing::debug!(request, %failure, "request failed during an outage");
        }
        true
    }

    /// Returns `true` if an outage begins with this failure.
    fn count_failure(&self, now: Moment) -> bool {
        let mut outage = self.outage.lock();
        if let Some(outage) = outage.as_mut().filter(|outage| now < outage.last_failure + OUTDATED) {
            outage.failures += 1;
            (outage.last_failure, outage.has_reply) = (now, false);
            return false;
        }
        *outage = Some(Outage { since: now, failures: 1, last_failure: now, has_reply: false });
        self.is_failing.store(true, Ordering::Relaxed);
        true
    }

    /// Returns `true` during an outage.
    pub(crate) fn is_open(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Notes that a request got its reply.
    pub(crate) fn note_reply(&self) {
        if self.is_open()
            && let Some(outage) = self.outage.lock().as_mut()
        {
            outage.has_reply = true;
        }
    }

    /// Logs the end of an outage that is over. A request that fails is repeated within `retry`.
    pub(crate) fn check(&self, now: Moment, retry: Duration) {
        if !self.is_open() {
            return;
        }
        if let Some(Outage { since, failures, last_failure, .. }) = self.end_outage(now, retry) {
            tracing::warn!(failures, lasted = ?last_failure.since(since), "store available again");
        }
    }

    /// Ends and returns an outage that is over.
    fn end_outage(&self, now: Moment, retry: Duration) -> Option<Outage> {
        let quiet = SHORTEST_QUIET.max(retry * 2);
        let mut outage = self.outage.lock();
        let ended = outage.take_if(|outage| outage.has_reply && now >= outage.last_failure + quiet)?;
        self.is_failing.store(false, Ordering::Relaxed);
        Some(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(seconds: u64) -> Moment {
        Moment::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn an_outage_without_requests_does_not_hide_the_next_one() {
        let log = OutageLog::default();
        assert!(log.count_failure(moment(10)));
        assert!(!log.count_failure(moment(11)));
        let end = |now| log.end_outage(moment(now), Duration::from_secs(1));
        assert!(end(200).is_none(), "no request got a reply");
        assert!(!log.count_failure(moment(310)));
        assert!(log.count_failure(moment(610)));
        log.note_reply();
        assert!(end(612).is_none(), "too early");
        assert_eq!(end(613).map(|outage| outage.failures), Some(1));
        assert!(log.count_failure(moment(614)));
    }

    #[test]
    fn replies_between_rare_retries_do_not_end_an_outage() {
        let (log, retry) = (OutageLog::default(), Duration::from_secs(5));
        assert!(log.count_failure(moment(0)));
        for now in 1..=20 {
            log.note_reply();
            assert!(log.end_outage(moment(now), retry).is_none(), "one server failed less than 10 s ago");
            if now % 5 == 0 {
                assert!(!log.count_failure(moment(now)));
            }
        }
        log.note_reply();
        assert_eq!(log.end_outage(moment(30), retry).map(|outage| outage.failures), Some(5));
    }
}
