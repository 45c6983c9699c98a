//! Notices when the whole machine stands still, as shared ones do. A wait that was too long because of that shows nothing, so
//! its case is run again; this is counted, printed, and has a limit.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a thread that only sleeps may take for it before that counts: more than a busy machine makes it.
const LONG: Duration = Duration::from_millis(250);

/// When one ended, and how long it was.
static SEEN: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

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
        }
    });
}

/// For how long the machine has stood still since then, altogether.
pub(crate) fn total_since(start: Instant) -> Duration {
    let seen = SEEN.lock().expect("no panic while it is looked at");
    seen.iter().map(|(end, took)| end.saturating_duration_since(start).min(*took)).sum()
}
