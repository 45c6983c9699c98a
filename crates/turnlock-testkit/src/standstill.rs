//! Notices when the whole machine stands still, as shared ones do. A wait that was too long because of that shows nothing, so
//! its case is run again; this is counted, printed, and has a limit.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a thread that only sleeps may take for it before that counts: more than a busy machine makes it.
const LONG: Duration = Duration::from_millis(250);

/// When one ended, and how long it was.
static SEEN: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// How often the one who watches has looked.
static LOOKS: AtomicU64 = AtomicU64::new(0);

/// How long to wait for its next look: it may be late itself.
const LATE: Duration = Duration::from_secs(2);

/// Begins to watch, until the program ends.
pub(crate) fn watch() {
    std::thread::spawn(|| {
        loop {
            let before = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            let took = before.elapsed();
            if took > LONG {
                SEEN.lock().expect("no panic while it is looked at").push((Instant::now(), took));
            }
            LOOKS.fetch_add(1, Ordering::Release);
        }
    });
}

/// For how long the machine has stood still since then, altogether. Waits for the next look, which may be the one that finds out.
pub(crate) fn total_since(start: Instant) -> Duration {
    let (asked, looks) = (Instant::now(), LOOKS.load(Ordering::Acquire));
    while LOOKS.load(Ordering::Acquire) == looks && asked.elapsed() < LATE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let seen = SEEN.lock().expect("no panic while it is looked at");
    seen.iter().map(|(end, took)| end.saturating_duration_since(start).min(*took)).sum()
}
