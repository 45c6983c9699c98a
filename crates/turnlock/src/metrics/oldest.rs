use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::metrics::{Gauge, Label, gauge};
use parking_lot::Mutex;
use turnlock_core::Moment;

use super::catalogue::OLDEST_HOLD;

/// The start of the oldest hold with the same labels, over all clients of this process, and the gauge of its age.
///
/// The watchdog reports each hold when it renews it, so every hold that lives is reported once in a period. Two periods are
/// kept, and no list of holds.
pub(super) struct Oldest {
    gauge: Gauge,
    /// The earliest start that was reported in the current period, in microseconds of the local clock.
    current: AtomicU64,
    previous: AtomicU64,
    /// When the current period ends.
    period_end: AtomicU64,
    /// The longest time between two renewals of a hold of any of the clients, in microseconds.
    longest_period: AtomicU64,
}

const NONE: u64 = u64::MAX;

/// More than the time by which a renewal can be delayed while the process runs.
const SLACK: Duration = Duration::from_secs(2);

impl Oldest {
    /// Returns the one with these labels, which clients share: a gauge has one value.
    pub(super) fn with_labels(labels: &[Label]) -> Arc<Self> {
        static ALL: Mutex<BTreeMap<Vec<Label>, Weak<Oldest>>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock();
        if let Some(known) = all.get(labels).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, known| known.strong_count() > 0);
        let new = Arc::new(Self {
            gauge: gauge!(OLDEST_HOLD, labels.to_vec()),
            current: AtomicU64::new(NONE),
            previous: AtomicU64::new(NONE),
            period_end: AtomicU64::new(0),
            longest_period: AtomicU64::new(0),
        });
        all.insert(labels.to_vec(), Arc::downgrade(&new));
        new
    }

    /// Reports a hold that began at `began`.
    pub(super) fn note(&self, began: Moment) {
        self.current.fetch_min(began.as_micros(), Ordering::Relaxed);
    }

    /// Publishes the age of the oldest hold.
    ///
    /// `period` is the longest time between two renewals of a hold of the client.
    pub(super) fn publish(&self, now: Moment, period: Duration) {
        self.gauge.set(self.age(now, period).as_secs_f64());
    }

    /// Returns the age of the oldest hold. Zero if none was reported for a period.
    fn age(&self, now: Moment, period: Duration) -> Duration {
        let period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        // A client that renews more often must not end the period before the holds of the others are reported.
        let longest = self.longest_period.fetch_max(period, Ordering::Relaxed).max(period);
        let period = Duration::from_micros(longest);
        let end = self.period_end.load(Ordering::Relaxed);
        let next = (now + period + SLACK).as_micros();
        if now.as_micros() >= end
            && self.period_end.compare_exchange(end, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.previous.store(self.current.swap(NONE, Ordering::Relaxed), Ordering::Relaxed);
        }
        let oldest = self.current.load(Ordering::Relaxed).min(self.previous.load(Ordering::Relaxed));
        if oldest == NONE { Duration::ZERO } else { now.since(Moment::from_micros(oldest)) }
    }
}

/// No client uses the gauge any more, and none would correct its last value.
impl Drop for Oldest {
    fn drop(&mut self) {
        self.gauge.set(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(seconds: u64) -> Moment {
        Moment::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn the_oldest_hold_counts_until_it_is_not_reported_for_a_period() {
        let (oldest, period) =
            (Oldest::with_labels(&[Label::new("test", "oldest")]), Duration::from_secs(10));
        let age = |now| oldest.age(moment(now), period).as_secs();
        assert_eq!(age(100), 0);
        oldest.note(moment(50));
        oldest.note(moment(90));
        assert_eq!(age(101), 51);
        // The period is over, and the older hold is reported no more.
        assert_eq!(age(112), 62);
        oldest.note(moment(90));
        assert_eq!(age(124), 34);
        assert_eq!(age(136), 0);
    }

    #[test]
    fn a_client_that_renews_often_does_not_hide_the_hold_of_another() {
        let oldest = Oldest::with_labels(&[Label::new("test", "periods")]);
        let age = |now, period| oldest.age(moment(now), Duration::from_secs(period)).as_secs();
        assert_eq!(age(100, 200), 0);
        // Renewed every 200 seconds.
        oldest.note(moment(50));
        for now in 101..=300 {
            assert_eq!(age(now, 1), now - 50);
        }
    }

    #[test]
    fn clients_with_the_same_labels_share_the_oldest_hold() {
        let labels = [Label::new("test", "shared")];
        let (one, other) = (Oldest::with_labels(&labels), Oldest::with_labels(&labels));
        one.note(moment(5));
        assert_eq!(other.age(moment(6), Duration::from_secs(10)), Duration::from_secs(1));
        assert!(!Arc::ptr_eq(&one, &Oldest::with_labels(&[Label::new("test", "other")])));
    }
}
