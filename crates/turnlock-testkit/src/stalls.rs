//! Long stalls of the whole machine, which are common on shared ones.
//!
//! A wait that timed out because of a stall is not a failure of the code, so its case is run again. Re-runs
//! are counted, printed and limited.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The shortest sleep that counts as a stall: longer than a busy machine causes.
const MIN_STALL: Duration = Duration::from_millis(250);

/// The ends and lengths of the stalls.
static STALLS: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// How many sleeps the thread has measured.
static MEASURED: AtomicU64 = AtomicU64::new(0);

/// How long to wait for the next measurement, which may be late itself.
const MEASUREMENT_LIMIT: Duration = Duration::from_secs(2);

/// Starts the thread that records stalls until the program ends.
pub(crate) fn watch() {
    std::thread::spawn(|| {
        loop {
            let before = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            let took = before.elapsed();
            if took > MIN_STALL {
                STALLS.lock().expect("no panic while recording").push((Instant::now(), took));
            }
            MEASURED.fetch_add(1, Ordering::Release);
        }
    });
}

/// Returns the total length of the stalls since `start`.
///
/// Waits for the next measurement, since a stall is recorded only when it ends.
pub(crate) fn total_since(start: Instant) -> Duration {
    let (called, measured) = (Instant::now(), MEASURED.load(Ordering::Acquire));
    while MEASURED.load(Ordering::Acquire) == measured && called.elapsed() < MEASUREMENT_LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let stalls = STALLS.lock().expect("no panic while recording");
    stalls.iter().map(|(end, took)| end.saturating_duration_since(start).min(*took)).sum()
}
