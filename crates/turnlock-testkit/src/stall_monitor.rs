//! Short stalls of the machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::eventually;

/// Measures how long the machine stalls: how much too long threads sleep that do nothing else.
///
/// There is one thread per processor, up to four: a single processor may stall alone.
#[derive(Debug)]
pub struct StallMonitor {
    threads: Vec<Stalls>,
    is_stopped: Arc<AtomicBool>,
}

/// The ends and lengths of one thread's stalls; the last may have length zero.
type Stalls = Arc<Mutex<Vec<(Instant, Duration)>>>;

impl StallMonitor {
    /// Starts the measurement, which runs until this is dropped.
    pub fn watch() -> Self {
        const MAX_THREADS: usize = 4;
        let count = std::thread::available_parallelism().map_or(2, usize::from).min(MAX_THREADS);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let threads: Vec<Stalls> =
            (0..count).map(|_| Arc::new(Mutex::new(vec![(Instant::now(), Duration::ZERO)]))).collect();
        for stalls in &threads {
            let (stalls, is_stopped) = (Arc::clone(stalls), Arc::clone(&is_stopped));
            std::thread::spawn(move || record(&stalls, &is_stopped));
        }
        Self { threads, is_stopped }
    }

    /// Returns the total length of the stalls between two past instants.
    ///
    /// This is the maximum over the threads.
    pub async fn between(&self, start: Instant, end: Instant) -> Duration {
        let mut longest = Duration::ZERO;
        for stalls in &self.threads {
            let recorded = || stalls.lock().expect("no panic while recording").clone();
            let is_past_end = async || recorded().last().is_some_and(|(stall_end, _)| *stall_end > end);
            eventually("the stalls until the end are recorded", Duration::from_secs(10), is_past_end).await;
            let overlap = |(stall_end, length): (Instant, Duration)| {
                let began = stall_end.checked_sub(length).unwrap_or(start).max(start);
                stall_end.min(end).saturating_duration_since(began)
            };
            longest = longest.max(recorded().into_iter().map(overlap).sum());
        }
        longest
    }
}

impl Drop for StallMonitor {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

fn record(stalls: &Stalls, is_stopped: &AtomicBool) {
    const SLEEP: Duration = Duration::from_millis(2);
    /// How long a sleep may take that is no stall.
    const TOLERANCE: Duration = Duration::from_millis(4);
    let mut before = Instant::now();
    while !is_stopped.load(Ordering::Relaxed) {
        std::thread::sleep(SLEEP);
        let now = Instant::now();
        let stall = (now, (now - before).saturating_sub(TOLERANCE));
        before = now;
        let mut stalls = stalls.lock().expect("no panic while recording");
        // Of the entries with length zero, only the last is needed.
        match stalls.last_mut() {
            Some(last) if last.1.is_zero() => *last = stall,
            _ => stalls.push(stall),
        }
    }
}
