use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use ::metrics::{Counter, Gauge};

/// A number that changes with each acquire or hold, and the gauge or counter that shows it.
///
/// The gauge or counter is told of changes when they are published, and not one by one: all threads and clients of the process
/// share it.
pub(super) struct Level {
    shown_by: ShownBy,
    value: Striped,
    published: AtomicI64,
}

enum ShownBy {
    Gauge(Gauge),
    Counter(Counter),
}

impl Level {
    pub(super) fn gauge(gauge: Gauge) -> Self {
        // So that it exists, with its value, before the first change is published.
        gauge.increment(0.0);
        Self::new(ShownBy::Gauge(gauge))
    }

    /// A number that never falls.
    pub(super) fn counter(counter: Counter) -> Self {
        Self::new(ShownBy::Counter(counter))
    }

    fn new(shown_by: ShownBy) -> Self {
        Self { shown_by, value: Striped::default(), published: AtomicI64::new(0) }
    }

    pub(super) fn rise(&self) {
        self.value.add(1);
    }

    pub(super) fn fall(&self) {
        self.value.add(-1);
    }

    /// Shows what has changed since the last publication.
    pub(super) fn publish(&self) {
        let value = self.value.sum();
        let change = value - self.published.swap(value, Ordering::Relaxed);
        match &self.shown_by {
            #[expect(clippy::cast_precision_loss, reason = "there are fewer locks and tasks")]
            ShownBy::Gauge(gauge) if change != 0 => gauge.increment(change as f64),
            ShownBy::Counter(counter) if change > 0 => counter.increment(change.unsigned_abs()),
            _ => {}
        }
    }
}

/// What changed after the last publication.
impl Drop for Level {
    fn drop(&mut self) {
        self.publish();
    }
}

/// The number of [`Striped`] parts. More threads share them.
const STRIPES: usize = 8;

/// A sum of parts, one for each thread, so that threads on several cores do not wait for a cache line.
#[derive(Default)]
struct Striped([Stripe; STRIPES]);

/// Alone in its cache line, and in the pair of lines that a processor may fetch together.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicI64);

impl Striped {
    fn add(&self, change: i64) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static INDEX: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
        }
        // A thread that ends has no index any more.
        let index = INDEX.try_with(|index| *index).unwrap_or(0);
        self.0[index].0.fetch_add(change, Ordering::Relaxed);
    }

    /// The sum. A change that another thread makes meanwhile may be missed, and is in the next one.
    fn sum(&self) -> i64 {
        self.0.iter().map(|Stripe(value)| value.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_all_threads_are_in_the_sum() {
        let value = Striped::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| {
                    value.add(3);
                    value.add(-1);
                });
            }
        });
        assert_eq!(value.sum(), 4 * i64::try_from(STRIPES).expect("a few"));
        let used = value.0.iter().filter(|Stripe(value)| value.load(Ordering::Relaxed) != 0);
        assert!(used.count() > 1, "all threads changed one part");
    }
}
