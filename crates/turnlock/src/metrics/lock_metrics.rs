use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, Histogram, Label, counter, gauge, histogram};
use parking_lot::Mutex;
use turnlock_core::Moment;

use super::catalogue::{ACQUISITIONS, HOLD, HOLDS, LOST, RENEWALS, WAIT, WAITERS};
use super::level::Level;
use super::oldest::Oldest;
use super::{AcquireOutcome, RenewalOutcome};
use crate::error::LostReason;

/// How many turns of a hand-over window are all timed. Of the further ones, one in so many is.
const TIMED_TURNS: u32 = 16;

/// The handles of the locks of one kind and group.
pub(super) struct LockMetrics {
    labels: Vec<Label>,
    /// By outcome.
    acquisitions: [Counter; AcquireOutcome::ALL.len()],
    /// The acquisitions that were handed over: most of them by far, where tasks contend.
    handed_over: Level,
    /// By outcome.
    renewals: [Counter; RenewalOutcome::ALL.len()],
    /// By reason.
    lost: [Counter; LostReason::LABELS.len()],
    wait: Histogram,
    hold: Histogram,
    waiters: Level,
    holds: Level,
    oldest: Arc<Oldest>,
}

impl LockMetrics {
    /// All counters exist from the beginning: a rate or an increase is unknown for a series that begins with one.
    pub(super) fn new(labels: Vec<Label>) -> Self {
        let and = |label, value| labels.iter().cloned().chain([Label::from_static_parts(label, value)]);
        let counter =
            |name: &'static str, label, value| counter!(name, and(label, value).collect::<Vec<_>>());
        let acquisitions =
            AcquireOutcome::ALL.map(|outcome| counter(ACQUISITIONS, "outcome", outcome.label()));
        Self {
            handed_over: Level::counter(acquisitions[AcquireOutcome::HandedOver as usize].clone()),
            acquisitions,
            renewals: RenewalOutcome::ALL.map(|outcome| counter(RENEWALS, "outcome", outcome.label())),
            lost: LostReason::LABELS.map(|reason| counter(LOST, "reason", reason)),
            wait: histogram!(WAIT, labels.clone()),
            hold: histogram!(HOLD, labels.clone()),
            waiters: Level::gauge(gauge!(WAITERS, labels.clone())),
            holds: Level::gauge(gauge!(HOLDS, labels.clone())),
            oldest: Oldest::with_labels(&labels),
            labels,
        }
    }

    /// Publishes what is not published when it changes.
    pub(super) fn publish(&self, now: Moment, renewal_period: Duration) {
        for level in [&self.waiters, &self.holds, &self.handed_over] {
            level.publish();
        }
        self.oldest.publish(now, renewal_period);
    }
}

impl fmt::Debug for LockMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockMetrics").field(&self.labels).finish()
    }
}

/// Counts an acquire: as a waiter until its end, and with its outcome.
#[derive(Debug)]
pub(crate) struct AcquireMetrics<'a> {
    lock: &'a LockMetrics,
    has_ended: bool,
}

impl<'a> AcquireMetrics<'a> {
    pub(super) fn begin(lock: &'a LockMetrics) -> Self {
        lock.waiters.rise();
        Self { lock, has_ended: false }
    }

    /// Ends the acquire, with a hold or the default. Later calls have no effect.
    pub(crate) fn end(&mut self, outcome: AcquireOutcome, waited: Duration, hold: &HoldMetrics) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        self.lock.waiters.fall();
        match outcome {
            AcquireOutcome::HandedOver => self.lock.handed_over.rise(),
            _ => self.lock.acquisitions[outcome as usize].increment(1),
        }
        if outcome != AcquireOutcome::Busy && hold.is_timed() {
            self.lock.wait.record(waited);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.has_ended
    }
}

/// Counts a hold, until it ends or is dropped. The default counts nothing.
#[derive(Debug, Default)]
pub(crate) struct HoldMetrics {
    /// How often the lock was handed over since its grant.
    hand_overs: u32,
    state: Mutex<HoldMetricsState>,
}

#[derive(Debug, Default)]
struct HoldMetricsState {
    /// `None` if nothing is counted, or if the next holder has it.
    lock: Option<Arc<LockMetrics>>,
    has_ended: bool,
}

impl HoldMetrics {
    pub(super) fn begin(lock: Arc<LockMetrics>) -> Self {
        lock.holds.rise();
        Self::new(lock, 0)
    }

    fn new(lock: Arc<LockMetrics>, hand_overs: u32) -> Self {
        Self { hand_overs, state: Mutex::new(HoldMetricsState { lock: Some(lock), has_ended: false }) }
    }

    /// Ends a hold that began at `began`, and begins that of the waiter to which it is handed over.
    pub(crate) fn hand_over(&self, began: Moment, now: Moment) -> Self {
        let mut state = self.state.lock();
        let HoldMetricsState { lock, has_ended } = &mut *state;
        // Moved, since threads share the number of references, and the number of holds stays.
        lock.take_if(|_| !*has_ended).map_or_else(Self::default, |lock| {
            self.time(&lock, began, now);
            Self::new(lock, self.hand_overs + 1)
        })
    }

    /// Ends a hold that began at `began`. Has no effect if it has ended, or was handed over.
    pub(crate) fn end(&self, began: Moment, now: Moment) {
        if let Some(lock) = self.state.lock().end() {
            self.time(lock, began, now);
        }
    }

    fn time(&self, lock: &LockMetrics, began: Moment, now: Moment) {
        if self.is_timed() {
            lock.hold.record(now.since(began));
        }
    }

    /// Returns `true` if the wait for the hold and the hold are timed.
    fn is_timed(&self) -> bool {
        self.hand_overs <= TIMED_TURNS || self.hand_overs.is_multiple_of(TIMED_TURNS)
    }

    pub(crate) fn count_loss(&self, reason: LostReason) {
        self.with_lock(|lock| lock.lost[reason.index()].increment(1));
    }

    pub(crate) fn count_renewal(&self, outcome: RenewalOutcome) {
        self.with_lock(|lock| lock.renewals[outcome as usize].increment(1));
    }

    /// Notes that a hold that began at `began` lives.
    pub(crate) fn note_age(&self, began: Moment) {
        self.with_lock(|lock| lock.oldest.note(began));
    }

    fn with_lock(&self, count: impl FnOnce(&LockMetrics)) {
        if let Some(lock) = &self.state.lock().lock {
            count(lock);
        }
    }
}

impl HoldMetricsState {
    /// Ends the hold. Returns `None` if it is not counted, or has ended.
    fn end(&mut self) -> Option<&LockMetrics> {
        let lock = self.lock.as_deref().filter(|_| !std::mem::replace(&mut self.has_ended, true))?;
        lock.holds.fall();
        Some(lock)
    }
}

impl Drop for HoldMetrics {
    fn drop(&mut self) {
        self.state.get_mut().end();
    }
}
